"""Files of prompts: JSON lines, or lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.corpus import not_utf8, read_decompressed, resolve_inputs
from bytemill.errors import CorpusError
from bytemill.lm.tuning.rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path


def read_prompts(path: Path) -> list[str]:
    """Read prompts from a file: the field `prompt` of JSON lines (`.jsonl`), or the lines of a text that are not blank.

    Raises:
        CorpusError: The file cannot be read, or has no prompts.
    """
    if ".jsonl" in path.name:
        return [str(row["prompt"]) for row in read_rows(path, ("prompt",))]
    (source, *others) = resolve_inputs([path])
    if others:
        raise CorpusError(f"{path} matches {len(others) + 1} files", hint="name one of them")
    data = b"".join(read_decompressed(source))
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise not_utf8(source, error) from error
    if not (prompts := [line for line in lines if line.strip()]):
        raise CorpusError(f"{path} contains no prompts", hint="write one on each line")
    return prompts
