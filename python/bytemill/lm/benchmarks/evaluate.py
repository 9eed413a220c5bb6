"""Evaluate a model on tasks: read their items first, then score each, or take scores from a file of results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import CheckpointError, RunConfigError
from bytemill.lm.benchmarks.answers import AnswerOptions, AnswerScore, answer_score, evaluate_answers
from bytemill.lm.benchmarks.tasks import TASKS, load_items
from bytemill.lm.item_results import items_hash, read_results
from bytemill.lm.multiple_choice import MultipleChoiceScore, evaluate_multiple_choice, multiple_choice_score
from bytemill.lm.settings import suggestion

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from bytemill.lm.benchmarks.tasks import Task
    from bytemill.lm.training.saved_model import TrainedModel

Score = MultipleChoiceScore | AnswerScore


@dataclass(frozen=True)
class TaskItems:
    """The items of a task, from one file."""

    name: str
    """Name of the task."""
    file: str
    """The file or folder that the items are from."""
    shots: int
    """Examples before each item."""
    items: list[Any]
    section: str
    """Name in a file of results."""

    @property
    def task(self) -> Task:
        """The task."""
        return TASKS[self.name]

    @property
    def title(self) -> str:
        """Name for people: that of the task, with the file if another one has the same task."""
        return self.task.title + self.section.removeprefix(self.name)


def load_tasks(
    files: Sequence[str],
    *,
    shots: int = 0,
    examples: Sequence[str] = (),
    limit: int | None = None,
    option: str = "--task",
) -> list[TaskItems]:
    """Read the items of tasks.

    Args:
        files: A task and its file or folder each, such as "mmlu=data".
        shots: Number of examples before each item.
        examples: A task and its file of examples each.
        limit: Number of items of each task; by default all.
        option: What errors call `files`.

    Raises:
        CorpusError: A file cannot be read or has another format, or there are too few examples.
        RunConfigError: There is no such task, or a file is missing.
    """
    own_examples = dict(_named(entry, "--shots-from") for entry in examples)
    named = [_named(entry, option) for entry in files]
    if unused := [name for name in own_examples if name not in dict(named)]:
        raise RunConfigError(f"--shots-from {unused[0]}: there is no --task {unused[0]}=FILE")
    uses = Counter(name for name, _ in named)
    return [
        TaskItems(
            name,
            file,
            shots,
            load_items(name, file, shots=shots, examples=own_examples.get(name), limit=limit),
            name if uses[name] == 1 else f"{name} {Path(file).name}",
        )
        for name, file in named
    ]


def _named(entry: str, option: str) -> tuple[str, str]:
    name, equals, file = entry.partition("=")
    if not equals or not file:
        raise RunConfigError(
            f"{option} {entry}: the file is missing", hint=f"write TASK=FILE, such as {option} mmlu=FOLDER"
        )
    if name not in TASKS:
        raise RunConfigError(
            f"{option} {entry}: there is no task {name!r}",
            hint=suggestion(name, TASKS) or f"the tasks are {', '.join(TASKS)}",
        )
    return name, file


def evaluate_task(
    trained: TrainedModel,
    items: TaskItems,
    answers: AnswerOptions | None = None,
    *,
    batch_size: int = 16,
    results: str | os.PathLike[str] | None = None,
    section: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """Score a model on the items of a task.

    Args:
        trained: The model.
        items: The items.
        answers: How answers are generated; `chat` holds for multiple choice too. The task has its own `stop`.
        batch_size: As for `evaluate_multiple_choice` and `evaluate_answers`, like `results` and `progress`.
        results: File of results, from which an interrupted evaluation resumes.
        section: Name in the file of results; by default that of the items.
        progress: Called with the number of scored items and their total.

    Raises:
        CheckpointError: The file of results is of another model, other items or other options.
        NotFiniteError: The weights or the logits are not finite.
        RunConfigError: The options do not fit the model.
        OutputError: The file of results cannot be read or written.
    """
    answers = answers or AnswerOptions()
    common: dict[str, Any] = {
        "task": section or items.section,
        "bos_id": trained.bos_id,
        "batch_size": batch_size,
        "results": results,
        "settings": _compared(items, answers),
        "progress": progress,
    }
    model, tokenizer, task = trained.model, trained.tokenizer, items.task
    if task.forms is None:
        return evaluate_multiple_choice(model, tokenizer, items.items, chat=answers.chat, **common)
    options = replace(answers, stop=task.stop)
    return evaluate_answers(model, tokenizer, items.items, task.forms, options, **common)


def _compared(items: TaskItems, answers: AnswerOptions) -> dict[str, Any]:
    """Return the settings that must be equal where two models are compared, by the names of their options."""
    common: dict[str, Any] = {"shots": items.shots, "chat": answers.chat}
    if items.task.forms is None:
        return common
    return common | {
        "max-tokens": answers.max_tokens,
        "samples": answers.n_samples,
        "temperature": float(answers.temperature),
    }


def saved_score(
    items: TaskItems, results: str | os.PathLike[str], answers: AnswerOptions | None = None
) -> Score:
    """Return the score of items from a file of results.

    Args:
        items: The items.
        results: The file.
        answers: How the other model answers.

    Raises:
        CheckpointError: The file has other items or settings, or not all items.
        OutputError: The file cannot be read.
    """
    found, lines = read_results(results, items.section)
    theirs: dict[str, Any] = found.get("settings") or {}
    for name, value in _compared(items, answers or AnswerOptions()).items():
        if (other := theirs.get(name, value)) != value:
            raise CheckpointError(
                f"the results of {items.section} in {results} were made with {name} {other}, not {value}",
                hint=f"compare models with the same settings: {_option(name, other)}",
            )
    if found.get("items") != items_hash(items.items):
        raise CheckpointError(
            f"the results of {items.section} in {results} are of other items",
            hint="compare models on the same items: the same files, --shots, --shots-from and --limit",
        )
    if len(lines) < len(items.items):
        raise CheckpointError(
            f"{results} has {len(lines):,} of {len(items.items):,} items of {items.section}",
            hint="finish that evaluation first, with the command that began it",
        )
    forms = items.task.forms
    if forms is None:
        return multiple_choice_score(items.items, lines)
    return answer_score(items.items, lines, forms)


def _option(name: str, value: Any) -> str:
    """Return what to write on the command line for a setting."""
    if isinstance(value, bool):
        return f"add --{name}" if value else f"leave --{name} out"
    return f"--{name} {value}"


def measures(items: TaskItems, score: Score) -> dict[str, tuple[float, ...]]:
    """Return the scores of each item by the measures that the task defines."""
    names = items.task.normalizations if items.task.forms is None else score.correct
    return {name: score.correct[name] for name in names}
