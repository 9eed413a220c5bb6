"""Steps of a recipe, and their registry.

A step measures documents, and decides by what is measured alone, so that its thresholds can change later. A new step is
one module with a class and one call of `register_step`; settings in its `files` are names of files. Steps for each
document see batches of documents; steps for the corpus (`CorpusStep`) see all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Measurements = dict[str, dict[str, Any]]
"""What steps have measured, by the name of the step: JSON values."""


@dataclass(frozen=True)
class Payload:
    """What extraction makes a text of."""

    data: bytes
    content_type: str = ""


@dataclass
class Page:
    """A document on its way through the steps."""

    text: str
    source: str
    """Name of the input."""
    id: str
    """Number of the unit of work and of the document in it; it orders the documents."""
    n_bytes: int
    """Bytes as read: of the text, or of the web page."""
    offset: int | None = None
    """Where the record begins in the uncompressed input, if it is a WARC record."""
    url: str | None = None
    title: str | None = None
    measurements: Measurements = field(default_factory=dict[str, dict[str, Any]])
    payload: Payload | None = None
    source_number: int = 0
    removed_by: tuple[str, list[str]] | None = None
    """The first step that removes it, and its rules."""


class Measured(NamedTuple):
    """What a step found in a document."""

    values: dict[str, Any]
    """JSON values by name."""
    text: str | None = None
    """The text that replaces the document's, if it does."""
    title: str | None = None
    """The title, if it was found."""


class Step(Protocol):
    """What all steps have."""

    Settings: ClassVar[Any]
    """A frozen dataclass of the settings."""
    thresholds: ClassVar[frozenset[str]]
    """The settings that only `failed` uses."""
    measures: ClassVar[tuple[str, ...]]
    """Names of what it may measure."""

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:
        """Return the names of the rules that remove a document, by its measurements and those of earlier steps.

        Args:
            page: The document. Its text may be that of a later step.
            values: What this step measured.
        """
        ...


class DocumentStep(Step, Protocol):
    """A step that looks at each document for itself."""

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """Measure documents, whose results depend on each alone."""
        ...


class Part(Protocol):
    """A unit of work, as a step for the corpus sees it."""

    @property
    def number(self) -> int:
        """Number of the unit."""
        ...

    @property
    def source_names(self) -> Sequence[str]:
        """Names of the inputs, by number."""
        ...

    @property
    def is_new(self) -> bool:
        """Whether the documents that `sketches` describes are those of `pages`: no threshold has changed since."""
        ...

    def pages(self) -> Iterator[Page]:
        """Read the documents that reach the step."""
        ...

    def sketches(self) -> Iterator[bytes]:
        """Read what `CorpusStep.sketch` returned for each batch."""
        ...


class CorpusStep(Step, Protocol):
    """A step that compares all documents."""

    changes_text: ClassVar[bool]
    """Whether `applied` replaces texts."""

    def sketch(self, pages: Sequence[Page]) -> bytes:
        """Return what tasks can prepare of a batch of documents for `decide`."""
        ...

    def decide(self, parts: Sequence[Part], folder: Path) -> Iterable[list[tuple[str, dict[str, Any]]]]:
        """Yield for each part the id and the values of each of its documents, in order.

        Args:
            parts: The units, in order.
            folder: For temporary files.
        """
        ...

    def applied(self, page: Page, values: dict[str, Any]) -> str | None:
        """Return the text that replaces a document's, if it does."""
        ...


@dataclass(frozen=True)
class StepKind:
    """A registered step.

    Attributes:
        name: What recipes write for `use`.
        implementation: The class, or "module:class" to import it with the first recipe that uses it.
        is_for_corpus: Whether it compares all documents.
    """

    name: str
    implementation: Any
    is_for_corpus: bool = False

    def load(self) -> Any:
        """Return the class."""
        if not isinstance(self.implementation, str):
            return self.implementation
        module, _, name = self.implementation.partition(":")
        return getattr(import_module(module), name)


STEPS: dict[str, StepKind] = {}
"""Registered steps by name."""


def register_step(kind: StepKind) -> None:
    """Add a step, or replace the one of the same name."""
    STEPS[kind.name] = kind


def step_kind(name: str) -> StepKind:
    """Return a registered step. Raises CurationError for an unknown name."""
    if name not in STEPS:
        raise CurationError(f"there is no step {name!r}", hint=f"use one of {_listed(STEPS)}")
    return STEPS[name]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


for _name, _class in (
    ("extract", "extract:Extract"),
    ("language", "language:Language"),
    ("mask", "mask:Mask"),
    ("rules", "rules:Rules"),
    ("classifier", "classifier_step:Classifier"),
    ("contamination", "contamination_step:Contamination"),
):
    register_step(StepKind(_name, f"bytemill.curation.{_class}"))
for _name, _class in (("lines", "lines_step:Lines"), ("near", "near_step:Near")):
    register_step(StepKind(_name, f"bytemill.curation.{_class}", is_for_corpus=True))
