"""Rows of examples from JSON lines: prompts with responses, answers or preferences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus import read_decompressed, resolve_inputs
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

Row = dict[str, Any]
"""Values of a line by name."""


def read_rows(path: str | os.PathLike[str], fields: Sequence[str]) -> list[Row]:
    """Read the objects of a file of JSON lines, which may be compressed or in an object store.

    Args:
        path: The file, a folder of files, or a pattern.
        fields: Fields that every row must have.

    Raises:
        CorpusError: The file cannot be read, a line is no JSON object or lacks a field, or there is no line. The
            message names file and line.
    """
    rows: list[Row] = []
    for position, line in _lines(path):
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{position} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{position} is not a JSON object", hint=_hint(fields))
        found = cast("Row", row)
        if missing := [name for name in fields if found.get(name) is None]:
            raise CorpusError(
                f"{position} has no {missing[0]!r}, but {', '.join(map(repr, found)) or 'nothing'}",
                hint=_hint(fields),
            )
        rows.append(found)
    if not rows:
        raise CorpusError(f"{path} contains no rows", hint=_hint(fields))
    return rows


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the lines that are not blank, each with its file and number."""
    for source in resolve_inputs([path]):
        rest, number = b"", 0
        for block in (*read_decompressed(source), b"\n"):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                number += 1
                if line.strip():
                    yield f"{source.name}:{number}", line


def _hint(fields: Sequence[str]) -> str:
    return f"each line is a JSON object with {' and '.join(map(repr, fields))}"
