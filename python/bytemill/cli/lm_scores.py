"""Print scores of language models, as tables or JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.system.units import format_count, format_share, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.experiment.accuracy_table import AccuracyRow
    from bytemill.experiment.statistics import Accuracy, AccuracyDifference
    from bytemill.lm.benchmarks.core import CoreTaskScore
    from bytemill.lm.benchmarks.evaluate import Score, TaskItems
    from bytemill.lm.benchmarks.overlap import Overlap
    from bytemill.lm.evaluate import LossByClass, TextScore
    from bytemill.lm.training.saved_model import TrainedModel


@dataclass(frozen=True)
class TaskReport:
    """What is shown of a task."""

    items: TaskItems
    score: Score
    rows: list[AccuracyRow]
    overlap: Overlap | None
    against: str | None
    """The model or file that it is compared with."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        overlap = self.overlap and {
            "n_items": sum(self.overlap.found),
            "n_short": self.overlap.n_short,
            "n_tokens": self.overlap.n_tokens,
        }
        return {
            "task": self.items.name,
            "file": self.items.file,
            "shots": self.items.shots,
            **self.score.to_dict(),
            "measures": [row.to_dict() for row in self.rows],
            "overlap": overlap,
            "against": self.against,
        }


def write_scores(
    trained: TrainedModel,
    texts: dict[str, TextScore],
    classes: dict[str, LossByClass],
    tasks: Sequence[TaskReport],
    core: Sequence[CoreTaskScore],
    *,
    as_json: bool,
) -> None:
    """Print the scores of a model.

    Args:
        trained: The model.
        texts: Scores by text file or shard folder.
        classes: Losses by class of token, by text file or shard folder.
        tasks: Scores on tasks.
        core: Scores on the tasks of CORE.
        as_json: Print JSON instead of tables.
    """
    if as_json:
        output.write_json(
            {
                "checkpoint": str(trained.path),
                "step": trained.step,
                "texts": {
                    name: score.to_dict() | (_classes(classes[name]) if name in classes else {})
                    for name, score in texts.items()
                },
                "hellaswag": {
                    own.items.file: own.score.to_dict() for own in tasks if own.items.name == "hellaswag"
                },
                "tasks": [own.to_dict() for own in tasks],
                "core": _core_dict(core) if core else None,
            }
        )
        return
    output.write_line(output.styled(f"{trained.path}, step {trained.step:,}", "1"))
    if texts:
        output.write_line()
        output.write_table(
            ("text", "tokens", "bytes", "loss", "perplexity", "bits/byte"),
            [
                (
                    name,
                    format_count(score.n_tokens),
                    format_count(score.n_bytes),
                    f"{score.loss:.4f}",
                    f"{score.perplexity:.2f}",
                    f"{score.bits_per_byte:.4f}",
                )
                for name, score in texts.items()
            ],
            right=(1, 2, 3, 4, 5),
        )
    for name, by_class in classes.items():
        output.write_line()
        _write_classes(name, by_class)
    if tasks:
        output.write_line()
        _write_tasks(tasks)
    if core:
        output.write_line()
        _write_core(core)


def _write_tasks(tasks: Sequence[TaskReport]) -> None:
    is_searched, is_compared = (
        any(getattr(own, name) is not None for own in tasks) for name in ("overlap", "against")
    )
    header = ["task", "shots", "items", "accuracy by", "", "95 % interval"]
    header += ["clean items", "", "95 % interval"] if is_searched else []
    header += ["difference", "95 % interval", "p", "better", "worse"] if is_compared else []
    rows: list[list[str]] = []
    for own in tasks:
        for number, row in enumerate(own.rows):
            first = [own.items.title, str(own.items.shots), format_count(own.score.n_items)]
            cells = [*(first if not number else ["", "", ""]), row.measure, *_accuracy(row.all)]
            if is_searched:
                cells += [format_count(row.clean.n) if row.clean else "0", *_accuracy(row.clean)]
            if is_compared:
                cells += _difference(row.against, row.corrected_p)
            rows.append(cells)
    output.write_table(header, rows, right=[1, 2, *range(4, len(header))])
    if compared := next((own.against for own in tasks if own.against is not None), None):
        n_tests = sum(row.corrected_p is not None for own in tasks for row in own.rows)
        output.write_line(
            f"Differences from {compared} in percentage points; better and worse are numbers of items."
            + (f" p is corrected for {n_tests} comparisons (Holm)." if n_tests > 1 else "")
        )
    for own in tasks:
        for line in _remarks(own):
            output.write_line(line)


def _remarks(own: TaskReport) -> list[str]:
    name, score = own.items.title, own.score
    lines: list[str] = []
    if own.overlap is not None:
        n_found, n = sum(own.overlap.found), score.n_items
        lines.append(
            f"{name}: {n_found:,} of {n:,} items ({n_found / n:.1%}) have 13 words in a row that the "
            f"{format_count(own.overlap.n_tokens)} tokens of training data have too"
            + (f"; {own.overlap.n_short:,} have fewer than 13 words." if own.overlap.n_short else ".")
        )
    if n_unaligned := getattr(score, "n_unaligned", 0):
        lines.append(
            f"{name}: {format_count(n_unaligned)} endings share a token with their context, whose tokens are "
            "therefore not those of the context alone."
        )
    if score.n_cut:
        what = "contexts of endings" if own.items.task.forms is None else "prompts"
        lines.append(f"{name}: {format_count(score.n_cut)} {what} were cut on the left to fit the model.")
    if n_unfinished := getattr(score, "n_unfinished", 0):
        lines.append(f"{name}: {plural(n_unfinished, 'answer')} reached --max-tokens without an end.")
    return lines


def _accuracy(found: Accuracy | None) -> tuple[str, str]:
    if found is None:
        return "–", "–"
    ends = found.interval
    return f"{found.value:.2%}", "–" if ends is None else f"{100 * ends[0]:.2f} to {100 * ends[1]:.2f}"


def _difference(found: AccuracyDifference | None, corrected_p: float | None) -> tuple[str, ...]:
    if found is None:
        return "", "", "", "", ""
    ends = found.interval
    shown = "–" if ends is None else f"{100 * ends[0]:+.2f} to {100 * ends[1]:+.2f}"
    p = "–" if corrected_p is None else f"{corrected_p:.3g}"
    return f"{100 * found.value:+.2f}", shown, p, format_count(found.n_first), format_count(found.n_second)


def _core_dict(scores: Sequence[CoreTaskScore]) -> dict[str, Any]:
    from bytemill.experiment.statistics import accuracy
    from bytemill.lm.benchmarks.core import core_score

    return {
        "core": core_score(scores),
        "standard_error": _core_error(scores),
        "tasks": {
            score.task.label: {
                "n_items": len(score.correct),
                "shots": score.task.shots,
                "accuracy": score.accuracy,
                "interval": accuracy(score.correct).interval,
                "centred": score.centred,
                "n_cut": score.n_cut,
                "n_unaligned": score.n_unaligned,
            }
            for score in scores
        },
    }


def _core_error(scores: Sequence[CoreTaskScore]) -> float | None:
    """Return the standard error of CORE, whose tasks have independent items; None if a task has a single item."""
    from bytemill.experiment.statistics import accuracy

    errors = [accuracy(score.correct).standard_error for score in scores]
    known = [error / (1 - s.task.guess) for error, s in zip(errors, scores, strict=True) if error is not None]
    return None if len(known) < len(scores) else math.hypot(*known) / len(scores)


def _write_core(scores: Sequence[CoreTaskScore]) -> None:
    from bytemill.experiment.statistics import accuracy
    from bytemill.lm.benchmarks.core import core_score

    output.write_table(
        ("CORE", "shots", "items", "accuracy", "95 % interval", "guessing", "centred"),
        [
            (
                score.task.label,
                str(score.task.shots),
                format_count(len(score.correct)),
                *_accuracy(accuracy(score.correct)),
                f"{score.task.guess:.2%}",
                f"{score.centred:.4f}",
            )
            for score in scores
        ],
        right=range(1, 7),
    )
    error = _core_error(scores)
    shown = "" if error is None else f" (standard error {error:.4f})"
    output.write_line(f"CORE over {plural(len(scores), 'task')}: {core_score(scores):.4f}{shown}")
    if n_cut := sum(score.n_cut for score in scores):
        output.write_line(f"{plural(n_cut, 'prompt')} of CORE were cut on the left to fit the model.")
    if n_unaligned := sum(score.n_unaligned for score in scores):
        output.write_line(
            f"{plural(n_unaligned, 'prompt')} of CORE share a token with their continuation, which nanochat refuses."
        )


def _classes(by_class: LossByClass) -> dict[str, Any]:
    return {"classes": by_class.to_dict(), "frequencies": by_class.by_frequency()}


def _write_classes(name: str, by_class: LossByClass) -> None:
    _write_losses(name, by_class.to_dict())
    output.write_line()
    tenths = enumerate(by_class.by_frequency())
    _write_losses(
        "tokens by frequency",
        {
            f"{'most frequent ' if not number else ''}{10 * number}–{10 * number + 10} %: {row['n_ids']:,} ids": row
            for number, row in tenths
            if row["n_tokens"]
        },
    )


def _write_losses(name: str, rows: dict[str, dict[str, Any]]) -> None:
    output.write_table(
        (name, "tokens", "share", "loss", "bits/byte", "share of loss"),
        [
            (
                kind,
                format_count(row["n_tokens"]),
                format_share(row["token_share"]),
                f"{row['loss']:.4f}",
                "–" if row["bits_per_byte"] is None else f"{row['bits_per_byte']:.4f}",
                "–" if row["loss_share"] is None else format_share(row["loss_share"]),
            )
            for kind, row in rows.items()
        ],
        right=(1, 2, 3, 4, 5),
    )
