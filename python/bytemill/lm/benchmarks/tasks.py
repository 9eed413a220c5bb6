"""Tasks: how the files of a benchmark are read, and how its items are put to a model.

Prompts are those of lm-evaluation-harness, so that scores can be compared with published ones. Examples (k-shot) are
the first ones of their file or, for MMLU, of the subject.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus.formats import library
from bytemill.errors import CorpusError
from bytemill.lm.benchmarks.answers import GSM8K_FORMS, LETTER_FORMS, AnswerForm, AnswerItem
from bytemill.lm.hellaswag import hellaswag_item
from bytemill.lm.hellaswag import read_items as read_hellaswag
from bytemill.lm.item_files import read_text
from bytemill.lm.multiple_choice import NORMALIZATIONS, MultipleChoiceItem
from bytemill.lm.tuning.rows import read_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bytemill.lm.tuning.rows import Row

    Item = MultipleChoiceItem | AnswerItem

LETTERS = ("A", "B", "C", "D")
_MMLU_FILE = re.compile(r"(.+)_(test|dev|val)(\.csv(?:\.\w+)?)")
_BETWEEN = "\n\n"
"""Text between examples."""


@dataclass(frozen=True)
class Task:
    """A benchmark."""

    title: str
    """The name that it was published under."""
    read: Callable[[Path], list[Any]]
    """Return the items of a file or folder, without examples."""
    normalizations: tuple[str, ...] = NORMALIZATIONS
    """Multiple choice: how log-likelihoods are divided; the first ones of `multiple_choice.NORMALIZATIONS`."""
    forms: Mapping[str, AnswerForm] | None = None
    """Generated answers: how an answer is found in what the model writes, by name. None for multiple choice."""
    stop: tuple[str, ...] = ()
    """Generated answers end before these."""
    introduction: Callable[[str], str] = lambda _: ""
    """Text before the examples, by group."""
    examples: Callable[[Path], list[Path]] = lambda _: []
    """Files of examples that belong to a file or folder of items."""


def load_items(
    name: str,
    path: str | os.PathLike[str],
    *,
    shots: int = 0,
    examples: str | os.PathLike[str] | None = None,
    limit: int | None = None,
) -> list[Any]:
    """Return the items of a task, each after its examples.

    Args:
        name: One of `TASKS`.
        path: File of items, which may be compressed; for MMLU also the folder of its subjects.
        shots: Number of examples before each item. An item is never its own example.
        examples: File of examples; by default those that belong to the items, such as SUBJECT_dev.csv.
        limit: Number of items; by default all.

    Returns:
        `MultipleChoiceItem` or `AnswerItem` objects.

    Raises:
        CorpusError: A file cannot be read or has another format, or there are too few examples.
    """
    task = TASKS[name]
    items: list[Item] = task.read(Path(path))[:limit]
    if not shots:
        return [_after(item, "", task) for item in items]
    files = [Path(examples)] if examples else task.examples(Path(path))
    if not files:
        raise CorpusError(
            f"{name} has no examples that belong to {path}",
            hint=f"name a file of examples: --shots-from {name}=FILE",
        )
    found: list[Item] = [item for file in files for item in task.read(file)]
    by_group: dict[str, list[Item]] = {}
    for item in found:
        by_group.setdefault(item.group, []).append(item)
    return [_with_examples(name, item, by_group.get(item.group, []), shots) for item in items]


def _with_examples(name: str, item: Item, examples: Sequence[Item], shots: int) -> Item:
    chosen = [example for example in examples[: shots + 1] if example.record() != item.record()][:shots]
    if len(chosen) < shots:
        raise CorpusError(
            f"{name}{item.group and ' ' + item.group} has {len(chosen)} examples, and --shots asks for {shots}",
            hint=f"lower --shots, or name another file: --shots-from {name}=FILE",
        )
    shown = "".join(f"{example.example()}{_BETWEEN}" for example in chosen)
    return _after(item, shown, TASKS[name])


def _after(item: Item, examples: str, task: Task) -> Item:
    introduction = task.introduction(item.group)
    return replace(item, context=examples + item.context, text=item.own_text, introduction=introduction)


def _rows(path: Path, fields: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of JSON lines or of a Parquet file, each with its position for messages."""
    if path.suffix == ".parquet":
        parquet = library("pyarrow.parquet", str(path))
        try:
            rows = cast("list[Row]", parquet.read_table(path).to_pylist())
        except (OSError, ValueError) as error:
            raise CorpusError(f"cannot read {path}: {error}") from error
        for number, row in enumerate(rows):
            position = f"{path}: row {number + 1:,}"
            if missing := [name for name in fields if row.get(name) is None]:
                raise CorpusError(f"{position} has no {missing[0]!r}, but {', '.join(map(repr, row))}")
            yield position, row
        return
    for number, row in enumerate(read_rows(path, fields)):
        yield f"{path}: row {number + 1:,}", row


def _hellaswag(path: Path) -> list[MultipleChoiceItem]:
    if path.suffix != ".parquet":
        return read_hellaswag(path)
    return [hellaswag_item(row, position) for position, row in _rows(path, ("endings", "label"))]


def _arc(path: Path) -> list[MultipleChoiceItem]:
    """Read ARC (Clark et al. 2018): JSON lines of AllenAI, or the rows of Hugging Face's `allenai/ai2_arc`."""
    return [_arc_item(row, position) for position, row in _rows(path, ("question", "answerKey"))]


def _arc_item(row: Row, position: str) -> MultipleChoiceItem:
    question: Any = row["question"]
    try:
        if isinstance(question, dict):
            pairs = [(own["label"], own["text"]) for own in cast("Row", question)["choices"]]
            question = cast("Row", question)["stem"]
        else:
            pairs = list(zip(row["choices"]["label"], row["choices"]["text"], strict=True))
        texts = tuple(str(text) for _, text in pairs)
        label = [str(own) for own, _ in pairs].index(str(row["answerKey"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{position} is not an item of ARC: {error!r}",
            hint="an item needs question, choices with label and text, and answerKey, one of the labels",
        ) from error
    text = f"{question} {texts[label]}"
    return MultipleChoiceItem(f"Question: {question}\nAnswer:", texts, label, text=text)


@dataclass(frozen=True)
class Question:
    """A question of MMLU."""

    subject: str
    question: str
    choices: tuple[str, ...]
    label: int

    @property
    def prompt(self) -> str:
        choices = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, self.choices, strict=True)]
        return "\n".join([self.question.strip(), *choices, "Answer:"])

    @property
    def text(self) -> str:
        return f"{self.question} {self.choices[self.label]}"


def _mmlu(path: Path) -> list[MultipleChoiceItem]:
    """Read MMLU (Hendrycks et al. 2021): its CSV files, or the rows of Hugging Face's `cais/mmlu`."""
    return [
        MultipleChoiceItem(own.prompt, LETTERS, own.label, group=own.subject, text=own.text)
        for own in questions(path)
    ]


def _mmlu_answers(path: Path) -> list[AnswerItem]:
    return [
        AnswerItem(own.prompt, LETTERS[own.label], group=own.subject, text=own.text)
        for own in questions(path)
    ]


def questions(path: Path) -> list[Question]:
    """Return the questions of a file or folder of MMLU. Raises `CorpusError` for another format."""
    if path.is_dir():
        files = sorted(
            file
            for file in (*path.glob("*_test.csv*"), *path.glob("test/*_test.csv*"))
            if _MMLU_FILE.fullmatch(file.name)
        )
        if not files:
            raise CorpusError(f"{path} has no files SUBJECT_test.csv, which MMLU consists of")
        return [question for file in files for question in questions(file)]
    if name := _MMLU_FILE.fullmatch(path.name):
        return list(_csv_questions(path, name[1]))
    if ".csv" in path.suffixes:
        return list(_csv_questions(path, path.name.partition(".")[0]))
    return [_mmlu_question(row, position) for position, row in _rows(path, ("question", "choices", "answer"))]


def _csv_questions(path: Path, subject: str) -> Iterator[Question]:
    rows = csv.reader(io.StringIO(read_text(path), newline=""))
    for row in rows:
        if len(row) != 6 or row[5].strip() not in LETTERS:
            raise CorpusError(
                f"{path}:{rows.line_num} is not a question of MMLU",
                hint="a row has six columns: question, four choices, and A, B, C or D",
            )
        yield Question(subject, row[0], tuple(row[1:5]), LETTERS.index(row[5].strip()))


def _mmlu_question(row: Row, position: str) -> Question:
    choices, answer = row["choices"], row["answer"]
    label = LETTERS.index(answer) if answer in LETTERS else answer
    if not isinstance(choices, list) or len(cast("list[Any]", choices)) != 4 or label not in range(4):
        raise CorpusError(
            f"{position} is not a question of MMLU",
            hint="it needs question, four choices, and answer: 0 to 3, or A to D",
        )
    texts = tuple(map(str, cast("list[Any]", choices)))
    return Question(str(row.get("subject") or ""), str(row["question"]), texts, int(label))


def _mmlu_introduction(subject: str) -> str:
    about = f" about {' '.join(subject.split('_'))}" if subject else ""
    return f"The following are multiple choice questions (with answers){about}.{_BETWEEN}"


def _mmlu_examples(path: Path) -> list[Path]:
    """Return the files SUBJECT_dev.csv beside or, as MMLU is published, in `dev` beside `test`."""
    folder = path if path.is_dir() else path.parent
    folders = (folder, folder / "dev", folder.parent / "dev")
    found = sorted(file for folder in folders for file in folder.glob("*_dev.csv*"))
    own = None if path.is_dir() else _MMLU_FILE.fullmatch(path.name)
    return [file for file in found if own is None or file.name.startswith(f"{own[1]}_dev.")]


def _gsm8k(path: Path) -> list[AnswerItem]:
    """Read GSM8K (Cobbe et al. 2021)."""
    return [
        AnswerItem(f"Question: {row['question']}\nAnswer:", str(row["answer"]), text=str(row["question"]))
        for _, row in _rows(path, ("question", "answer"))
    ]


TASKS: dict[str, Task] = {
    "hellaswag": Task("HellaSwag", _hellaswag),
    "arc": Task("ARC", _arc),
    "mmlu": Task(
        "MMLU",
        _mmlu,
        normalizations=("sum",),
        introduction=_mmlu_introduction,
        examples=_mmlu_examples,
    ),
    "mmlu-answers": Task(
        "MMLU, generated",
        _mmlu_answers,
        forms=LETTER_FORMS,
        stop=("\n\n",),
        introduction=_mmlu_introduction,
        examples=_mmlu_examples,
    ),
    "gsm8k": Task(
        "GSM8K",
        _gsm8k,
        forms=GSM8K_FORMS,
        stop=("Question:", "</s>", "<|im_end|>"),
    ),
}
"""Tasks by name."""
