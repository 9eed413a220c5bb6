"""CORE: the mean of the centred accuracies of 22 tasks (Li et al. 2024, DataComp-LM), as nanochat computes it.

A folder holds `core.yaml` with the tasks, `eval_meta_data.csv` with the accuracy of guessing for each, and the items in
`eval_data`. Items are shuffled with seed 1337, and item i follows examples that are drawn from the others with seed
1234 + i. A prompt begins with the token that begins documents. By type of task, an item is right if

- multiple_choice: of prompts that end differently, the right one has the lowest mean loss behind their common tokens;
- schema: of prompts that begin differently, the right one has the lowest mean loss on their common last tokens;
- language_modeling: each token of the continuation is the most likely one.

The centred accuracy is (accuracy − guess) / (1 − guess): 0 for guessing, 1 for right answers alone.
"""

from __future__ import annotations

import csv
import importlib
import io
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill.errors import CorpusError, MissingExtraError
from bytemill.lm.device import shared_cores
from bytemill.lm.generation.text_generation import prompt_ids
from bytemill.lm.item_files import read_text
from bytemill.lm.item_results import ItemResults, items_hash, results_identity
from bytemill.lm.multiple_choice import Ending, log_likelihoods
from bytemill.lm.tuning.rows import read_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.training.saved_model import TrainedModel
    from bytemill.lm.tuning.rows import Row
    from bytemill.tokenizer.tokenizer import Tokenizer

_SHUFFLE_SEED, _EXAMPLES_SEED = 1337, 1234
_FIELDS = {
    "multiple_choice": ("query", "choices", "gold"),
    "schema": ("context_options", "continuation", "gold"),
    "language_modeling": ("context", "continuation"),
}
"""Fields of the items, by type of task."""


@dataclass(frozen=True)
class CoreItem:
    """An item as the texts that the model scores."""

    prompts: tuple[str, ...]
    """One for each choice; for language modelling the prompt without and with the continuation."""
    label: int
    """Index of the right choice."""
    kind: str
    """Type of the task."""

    def record(self) -> dict[str, Any]:
        """Return what results depend on, for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class CoreTask:
    """A task of CORE."""

    label: str
    shots: int
    guess: float
    """Accuracy of guessing."""
    items: list[CoreItem]

    def centred(self, accuracy: float) -> float:
        """Return an accuracy as a share of what is above guessing."""
        return (accuracy - self.guess) / (1 - self.guess)


@dataclass(frozen=True)
class CoreTaskScore:
    """Score on a task of CORE."""

    task: CoreTask
    correct: tuple[bool, ...]
    n_cut: int
    """Number of prompts that were cut on the left to fit the model."""
    n_unaligned: int
    """Number of prompts whose tokens are not the first tokens of prompt and continuation."""

    @property
    def accuracy(self) -> float:
        """Share of items that are right."""
        return sum(self.correct) / len(self.correct)

    @property
    def centred(self) -> float:
        """Centred accuracy."""
        return self.task.centred(self.accuracy)


def core_score(scores: Sequence[CoreTaskScore]) -> float:
    """Return CORE, the mean of the centred accuracies."""
    return sum(score.centred for score in scores) / len(scores)


def load_core(folder: str | os.PathLike[str], *, limit: int | None = None) -> list[CoreTask]:
    """Read the tasks of CORE.

    Args:
        folder: Folder with `core.yaml`, `eval_meta_data.csv` and `eval_data`.
        limit: Number of items of each task, from which its examples are drawn too; by default all.

    Raises:
        CorpusError: A file cannot be read or has another format, or a task has fewer items than examples.
        MissingExtraError: The package pyyaml is not installed.
    """
    folder = Path(folder)
    yaml = _yaml()
    text = read_text(folder / "core.yaml")
    try:
        tasks = cast("list[Row]", yaml.safe_load(text)["icl_tasks"])
        entries = [
            (
                str(task["label"]),
                str(task["icl_task_type"]),
                folder / "eval_data" / str(task["dataset_uri"]),
                int(task["num_fewshot"][0]),
                str(task.get("continuation_delimiter", " ")),
            )
            for task in tasks
        ]
    except (yaml.YAMLError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorpusError(f"{folder / 'core.yaml'} is not a list of tasks: {error!r}") from error
    guesses = _guesses(folder / "eval_meta_data.csv")
    if not entries:
        raise CorpusError(f"{folder / 'core.yaml'} has no tasks")
    found: list[CoreTask] = []
    for label, kind, path, shots, delimiter in entries:
        if kind not in _FIELDS:
            raise CorpusError(
                f"{folder / 'core.yaml'}: task {label} has the unknown type {kind!r}",
                hint=f"types are {', '.join(_FIELDS)}",
            )
        if label not in guesses:
            raise CorpusError(f"{folder / 'eval_meta_data.csv'} has no task {label}")
        rows = read_rows(path, _FIELDS[kind])
        random.Random(_SHUFFLE_SEED).shuffle(rows)  # noqa: S311 - the order that nanochat defines
        rows = rows[:limit]
        if shots >= len(rows):
            raise CorpusError(f"{path} has {len(rows):,} items, too few for {shots} examples of each")
        try:
            items = [_item(number, rows, kind, shots, delimiter) for number in range(len(rows))]
        except (KeyError, TypeError, IndexError) as error:
            raise CorpusError(f"{path} has an item that is none of {kind}: {error!r}") from error
        found.append(CoreTask(label, shots, guesses[label], items))
    return found


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError as error:
        raise MissingExtraError(
            f"CORE needs the package pyyaml: {error}", hint="pip install pyyaml"
        ) from error


def _guesses(path: Path) -> dict[str, float]:
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        return {row["Eval Task"]: 0.01 * float(row["Random baseline"]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{path}: {error!r}", hint="it needs the columns 'Eval Task' and 'Random baseline', in percent"
        ) from error


def _item(number: int, rows: Sequence[Row], kind: str, shots: int, delimiter: str) -> CoreItem:
    others = [other for other in range(len(rows)) if other != number]
    drawn = random.Random(_EXAMPLES_SEED + number).sample(others, shots)  # noqa: S311 - as in nanochat
    examples = "".join(f"{_example(rows[other], kind, delimiter)}\n\n" for other in drawn)
    row = rows[number]
    if kind == "multiple_choice":
        begin = f"{examples}{row['query']}{delimiter}"
        return CoreItem(tuple(f"{begin}{choice}" for choice in row["choices"]), int(row["gold"]), kind)
    if kind == "schema":
        end = f"{delimiter}{row['continuation']}"
        contexts = row["context_options"]
        return CoreItem(tuple(f"{examples}{context}{end}" for context in contexts), int(row["gold"]), kind)
    prompt = f"{examples}{str(row['context']).strip()}{delimiter}"
    return CoreItem((prompt.strip(), f"{prompt}{row['continuation']}"), 1, kind)


def _example(row: Row, kind: str, delimiter: str) -> str:
    if kind == "multiple_choice":
        return f"{row['query']}{delimiter}{row['choices'][row['gold']]}"
    if kind == "schema":
        return f"{row['context_options'][row['gold']]}{delimiter}{row['continuation']}"
    return f"{str(row['context']).strip()}{delimiter}{row['continuation']}"


def evaluate_core(
    trained: TrainedModel,
    tasks: Sequence[CoreTask],
    *,
    results: str | os.PathLike[str] | None = None,
    section: str = "core",
    progress: Callable[[int, int], None] | None = None,
) -> list[CoreTaskScore]:
    """Score a model on the tasks of CORE.

    Args:
        trained: The model.
        tasks: Result of `load_core`.
        results: File of results, from which an interrupted evaluation resumes.
        section: Name in the file of results.
        progress: Called with the number of scored items and their total.

    Raises:
        CheckpointError: The file of results is of another model or other items.
        NotFiniteError: The weights or the logits are not finite.
        RunConfigError: There is no token to start a document with.
        OutputError: The file of results cannot be read or written.
    """
    model, tokenizer = trained.model, trained.tokenizer
    start = prompt_ids(tokenizer, "", trained.bos_id)
    items = [item for task in tasks for item in task.items]
    identity = "" if results is None else results_identity(model, tokenizer, items, trained.bos_id)
    with (
        ItemResults(results, section, identity, items_hash(items)) as known,
        shared_cores(next(model.parameters()).device),
    ):
        for number, item in enumerate(items):
            if number not in known.lines:
                known.add({"item": number, **_scored(model, tokenizer, start, item)})
            if progress:
                progress(number + 1, len(items))
        lines = [known.lines[number] for number in range(len(items))]
    scores: list[CoreTaskScore] = []
    for task in tasks:
        own, lines = lines[: len(task.items)], lines[len(task.items) :]
        n_cut, n_unaligned = (sum(line[name] for line in own) for name in ("n_cut", "n_unaligned"))
        scores.append(CoreTaskScore(task, tuple(line["is_correct"] for line in own), n_cut, n_unaligned))
    return scores


def _scored(
    model: TransformerLM, tokenizer: Tokenizer, start: list[int], item: CoreItem
) -> Mapping[str, Any]:
    rows = [[*start, *tokenizer.encode_ordinary(prompt)] for prompt in item.prompts]
    n_same = _n_common(rows)
    is_aligned = True
    if item.kind == "language_modeling":
        is_aligned = n_same == len(rows[0])
        rows, begins = rows[1:], [n_same]
    elif item.kind == "multiple_choice":
        begins = [n_same for _ in rows]
    else:
        n_same = _n_common([row[::-1] for row in rows])
        begins = [len(row) - n_same for row in rows]
    endings = [_cut(row, begin, model.config.context_length) for row, begin in zip(rows, begins, strict=True)]
    scored = [ending for ending in endings if ending.n_ending]
    sums, is_greedy = log_likelihoods(model, scored) if scored else ([], [])
    line = {"n_cut": sum(ending.was_cut for ending in endings), "n_unaligned": int(not is_aligned)}
    if item.kind == "language_modeling":
        return {"is_correct": bool(is_greedy) and all(is_greedy), **line}
    found = iter(sums)
    # A choice without tokens of its own, the beginning of another, has no mean. As in nanochat it only wins if it is
    # the first one.
    losses = [-next(found) / ending.n_ending if ending.n_ending else math.nan for ending in endings]
    chosen = losses.index(min(losses))
    return {
        "losses": [None if math.isnan(loss) else loss for loss in losses],
        "is_correct": chosen == item.label,
        **line,
    }


def _n_common(rows: Sequence[list[int]]) -> int:
    """Return the number of first ids that all rows share."""
    columns = zip(*rows, strict=False)
    return next((n for n, ids in enumerate(columns) if len({*ids}) > 1), min(map(len, rows)))


def _cut(row: list[int], begin: int, context_length: int) -> Ending:
    kept = row[-context_length:]
    begin = max(1, begin - (len(row) - len(kept)))
    return Ending(np.array(kept, np.int32), len(kept) - begin, len(kept) < len(row), is_aligned=True)
