"""Render report templates: the Jinja environment, and the data types that its macros take."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bytemill.analysis.inspection import visible
from bytemill.report.tokens import shortened, token_spans
from bytemill.system import units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.report.charts import Chart


@dataclass(frozen=True)
class Table:
    """Text cells with a header and a caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_text_columns: int = 1
    """Leading columns that hold text. The others hold numbers, which are aligned right."""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption and, optionally, its numbers."""

    chart: Chart
    caption: str
    table: Table | None = None


def render(template: str, package: str, **context: Any) -> str:
    """Render a report.

    Args:
        template: File name in the `templates` folder of the package.
        package: Importable name of the package.
        **context: Variables of the template. All text is escaped.

    Returns:
        An HTML document that loads nothing from elsewhere.
    """
    return environment(package).get_template(template).render(context)


def visible_lines(text: str) -> str:
    """Return lines with control characters, and bytes of file names that are not UTF-8, made visible."""
    return "\n".join(visible(os.fsencode(line)) for line in text.split("\n"))


def environment(package: str = "bytemill.report") -> Environment:
    """Create the environment for templates of `package`, which can extend and import those of `bytemill.report`.

    Args:
        package: Importable name of a package with a `templates` folder.
    """
    packages = dict.fromkeys((package, "bytemill.report"))
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., object]] = {
        "bytes": units.format_bytes,
        "count": units.format_count,
        "ratio": units.format_ratio,
        "seconds": units.format_seconds,
        "share": units.format_share,
        "plural": units.plural,
        "visible": visible,
        "visible_lines": visible_lines,
        "shortened": shortened,
        "token_spans": token_spans,
    }
    # The page allows this script alone, by its hash.
    script = resources.files("bytemill.report").joinpath("templates/page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own: dict[str, str] = {"script": Markup(script), "script_hash": f"sha256-{digest}"}  # noqa: S704 - our own file
    templates.globals.update(own)  # pyright: ignore[reportUnknownMemberType] (untyped in Jinja)
    templates.filters.update(filters)  # pyright: ignore[reportUnknownMemberType] (untyped in Jinja)
    return templates
