"""The step `extract`: the text of web pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bytemill.corpus.html import decoded, is_html, page_text
from bytemill.curation.steps import Measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.curation.steps import Page, Payload


@dataclass(frozen=True, kw_only=True)
class ExtractSettings:
    """What is taken of a page."""

    main_content: bool = True
    """Leave out menus, headers, footers and comments; without it all visible text is taken."""
    links: bool = False
    """Write the targets of links."""


class Extract:
    """Takes the text of web pages by resiliparse. Documents that are text already stay as they are.

    Pages without text are removed, and those of other types, such as PDF.
    """

    Settings: ClassVar = ExtractSettings
    thresholds: ClassVar[frozenset[str]] = frozenset()
    measures: ClassVar[tuple[str, ...]] = ("type", "encoding")

    def __init__(self, settings: ExtractSettings) -> None:
        self._settings = settings

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """See `DocumentStep`."""
        return [self._measured(page.payload, page.source) for page in pages]

    def _measured(self, payload: Payload | None, name: str) -> Measured:
        if payload is None:
            return Measured({"type": "text"})
        kind = "application/pdf" if payload.data.startswith(b"%PDF-") else payload.content_type
        kind = kind.partition(";")[0].strip().lower() or "text/html"
        if kind == "text/plain":
            text, encoding = decoded(payload.data, payload.content_type, name=name)
            return Measured({"type": kind, "encoding": encoding}, text.encode("utf-8", "replace").decode())
        if not is_html(kind):
            return Measured({"type": kind}, "")
        found = page_text(
            payload.data,
            payload.content_type,
            main_content=self._settings.main_content,
            links=self._settings.links,
            name=name,
        )
        return Measured({"type": kind, "encoding": found.encoding}, found.text, found.title)

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:
        """See `DocumentStep`."""
        kind = values["type"]
        if kind == "text":
            return [] if page.n_bytes else ["empty"]
        if kind != "text/plain" and not is_html(kind):
            return ["pdf" if kind == "application/pdf" else "type"]
        return [] if values["bytes"] else ["empty"]
