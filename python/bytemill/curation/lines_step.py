"""The step `lines`: cut lines or paragraphs that several documents share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bytemill.curation.lines import LineSettings, find_repeated_units, without_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bytemill.curation.steps import Page, Part


class Lines:
    """Cuts lines that several documents have. A document of which nothing is left is removed."""

    Settings: ClassVar = LineSettings
    thresholds: ClassVar[frozenset[str]] = frozenset()
    measures: ClassVar[tuple[str, ...]] = ("n_cut",)
    changes_text: ClassVar[bool] = True

    def __init__(self, settings: LineSettings) -> None:
        self._settings = settings

    def sketch(self, pages: Sequence[Page]) -> bytes:  # noqa: ARG002
        """See `CorpusStep`."""
        return b""

    def decide(self, parts: Sequence[Part], folder: Path) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        """See `CorpusStep`."""
        texts = _Texts(parts)
        with find_repeated_units(texts, self._settings, folder=folder) as repeated:
            number = 0
            for ids in texts.ids:
                found: list[tuple[str, dict[str, Any]]] = []
                for each in ids:
                    cut = repeated.removed(number)
                    found.append((each, {"n_cut": len(cut), "cut": cut}))
                    number += 1
                yield found

    def applied(self, page: Page, values: dict[str, Any]) -> str | None:
        """See `CorpusStep`."""
        if not values["cut"]:
            return None
        return without_units(page.text, values["cut"], self._settings.unit).strip("\n")

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:  # noqa: ARG002
        """See `Step`."""
        return ["empty"] if values.get("bytes") == 0 else []


@dataclass
class _Texts:
    """The texts of all parts, which can be read several times."""

    parts: Sequence[Part]

    def __post_init__(self) -> None:
        self.ids: list[list[str]] = []
        """The ids of the documents of each part that was read last."""

    def __iter__(self) -> Iterator[str]:
        self.ids = []
        for part in self.parts:
            self.ids.append([])
            for page in part.pages():
                self.ids[-1].append(page.id)
                yield page.text
