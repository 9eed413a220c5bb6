"""The step `classifier`: the probability of a label, by a model of `data classifier train` or of fastText."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bytemill.curation.classifier import QualityModel
from bytemill.curation.documents import packed
from bytemill.curation.steps import Measured
from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.curation.steps import Page


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """Which probabilities stay.

    Raises:
        CurationError: A threshold is not between 0 and 1.
    """

    model: str
    """A `.safetensors` file of `data classifier train`, or a `.bin` or `.ftz` file of fastText."""
    label: str
    """The label whose probability is measured."""
    least: float = 0.0
    """Documents with a lower probability are removed."""
    most: float = 1.0
    """Documents with a higher probability are removed."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most <= 1:
            raise CurationError(
                f"least is {self.least} and most is {self.most}", hint="use 0 ≤ least ≤ most ≤ 1"
            )


class Classifier:
    """Removes documents by the probability of a label."""

    Settings: ClassVar = ClassifierSettings
    thresholds: ClassVar[frozenset[str]] = frozenset({"least", "most"})
    files: ClassVar[tuple[str, ...]] = ("model",)
    measures: ClassVar[tuple[str, ...]] = ("score",)

    def __init__(self, settings: ClassifierSettings) -> None:
        self._settings = settings
        self._path = Path(settings.model)

    @cached_property
    def _model(self) -> QualityModel:
        return QualityModel.load(self._path)

    @property
    def identity(self) -> dict[str, str]:
        """The content of the model. Raises CurationError if it cannot be read or lacks the label."""
        self._model.column(self._settings.label)
        return {"model": hashlib.sha256(self._path.read_bytes()).hexdigest()}

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """See `DocumentStep`."""
        column = self._model.column(self._settings.label)
        scores = self._model.batch_scores(packed(page.text for page in pages))[:, column]
        return [Measured({"score": round(score, 6)}) for score in scores.tolist()]

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:  # noqa: ARG002
        """See `DocumentStep`."""
        score: float = values["score"]
        rules: list[str] = []
        if score < self._settings.least:
            rules.append("low")
        if score > self._settings.most:
            rules.append("high")
        return rules
