"""The step `contamination`: documents with words in a row of evaluation items are removed, cut or marked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bytemill.curation.contamination import ContaminationIndex, without_matches
from bytemill.curation.documents import packed
from bytemill.curation.steps import Measured
from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.curation.contamination import Match
    from bytemill.curation.steps import Page

_MAX_ITEMS = 20
"""Most names of items that are measured for a document."""


@dataclass(frozen=True, kw_only=True)
class ContaminationSettings:
    """What is searched for, and what happens to documents with it."""

    items: tuple[str, ...]
    """Files of items; `data contamination items` writes them."""
    n: int = 13
    """Words in a row."""
    cut: bool = False
    """Cut the words out of the texts."""
    on_match: Literal["remove", "keep"] = "remove"
    """Remove documents with matches, or keep them with their measurements."""

    def __post_init__(self) -> None:
        if not self.items:
            raise CurationError("no files of items", hint='items = ["items.jsonl"]')


class Contamination:
    """Removes, cuts or marks documents that contain evaluation items."""

    Settings: ClassVar = ContaminationSettings
    thresholds: ClassVar[frozenset[str]] = frozenset({"on_match"})
    files: ClassVar[tuple[str, ...]] = ("items",)
    measures: ClassVar[tuple[str, ...]] = ("matches", "words", "items")

    def __init__(self, settings: ContaminationSettings) -> None:
        self._settings = settings

    @cached_property
    def _index(self) -> ContaminationIndex:
        return ContaminationIndex.load(self._settings.items, self._settings.n)

    @property
    def identity(self) -> dict[str, str]:
        """The content of the files. Raises CorpusError or CurationError if they hold no items."""
        _ = self._index
        return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in self._settings.items}

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """See `DocumentStep`."""
        found = self._index.batch_matches(packed(page.text for page in pages), num_threads=1)
        return [self._measured(page.text, matches) for page, matches in zip(pages, found, strict=True)]

    def _measured(self, text: str, matches: list[Match]) -> Measured:
        values: dict[str, Any] = {
            "matches": len(matches),
            "words": sum(match.n_words for match in matches),
            "items": sorted({match.item for match in matches})[:_MAX_ITEMS],
        }
        return Measured(values, without_matches(text, matches) if self._settings.cut and matches else None)

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:  # noqa: ARG002
        """See `DocumentStep`."""
        return ["evaluation_item"] if values["matches"] and self._settings.on_match == "remove" else []
