"""The findings about a vocabulary as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.report.rendering import Table, render
from bytemill.tokenizer.explanation import show_token

if TYPE_CHECKING:
    from bytemill.tokenizer.surgery.findings import Lint

_MAX_ROWS = 2000
"""Tokens of one finding that the page lists."""


def lint_page(found: Lint, name: str) -> str:
    """Return an HTML document with all findings.

    Args:
        found: The findings.
        name: Name of the tokenizer.
    """
    tables = [
        Table(
            f"{len(finding.examples):,} {finding.message}",
            ("token", "", "id"),
            [(show_token(each.token), each.why, f"{each.id:,}") for each in finding.examples[:_MAX_ROWS]],
            n_text_columns=2,
        )
        for finding in found.findings
    ]
    sections = list(zip(found.findings, tables, strict=True))
    return render(
        "lint.html", "bytemill.report", name=name, found=found, sections=sections, max_rows=_MAX_ROWS
    )
