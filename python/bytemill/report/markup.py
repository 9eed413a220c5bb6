"""HTML and SVG from function calls; what is not marked as markup is text, and is escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def text(content: str) -> Markup:
    """`content` escaped, for elements and for attributes in quotes.

    >>> text('<b> & "')
    '&lt;b&gt; &amp; &quot;'
    """
    return content if isinstance(content, Markup) else Markup(html.escape(content, quote=True))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Parts one after another; those that are no markup are escaped.

    >>> join([tag("b", "a"), " < b"])
    '<b>a</b> &lt; b'
    """
    return Markup(between.join(text(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. A trailing `_` of an attribute's name is dropped, others become `-`; None leaves one out.

    >>> tag("td", "a < b", class_="right", data_id=3, title=None)
    '<td class="right" data-id="3">a &lt; b</td>'
    >>> tag("meta", charset="utf-8")
    '<meta charset="utf-8">'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def _shown(value: str | float) -> str:
    """Numbers with at most two decimals: a hundredth of a pixel is not seen."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
