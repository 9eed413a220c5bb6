"""bytemill's own record inside a tokenizer file: what the format itself has no field for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerFileError
from bytemill.formats.files import array_at, object_at, shown, wrong_value

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec

RECORD_FORMAT = 1
"""Version of the record."""


def record_of(spec: TokenizerSpec) -> dict[str, Any]:
    """Return the record of a tokenizer."""
    names = {expression: name for name, expression in NAMED_PATTERNS.items()}
    return {
        "format": RECORD_FORMAT,
        # An expression that is equivalent to a known pattern stays unchanged.
        "pattern": None if spec.pattern is None else names.get(spec.pattern, spec.pattern),
        "ties": spec.ties,
        "merge_counts": spec.merge_counts,
    }


def checked_record(record: Any, n_merges: int, location: str) -> dict[str, Any]:
    """Return a record from a file, with the pattern as a regular expression.

    Raises:
        TokenizerFileError: The record is invalid or was written by a newer version.
    """
    record = object_at(record, location)
    version, ties, counts = (record.get(field) for field in ("format", "ties", "merge_counts"))
    if type(version) is not int or version < 1:
        raise wrong_value(f"{location}.format", version, "a version number")
    if version > RECORD_FORMAT:
        raise TokenizerFileError(
            f"{location}.format is {version}; this version of bytemill reads up to {RECORD_FORMAT}",
            hint="upgrade bytemill: a newer version wrote the file",
        )
    if ties not in (None, "bytes", "huggingface"):
        raise TokenizerFileError(f"{location}.ties is {shown(ties)}, neither 'bytes' nor 'huggingface'")
    if counts is not None:
        counts = array_at(counts, f"{location}.merge_counts")
        if not set(map(type, counts)) <= {int}:
            raise TokenizerFileError(f"{location}.merge_counts is not an array of integers")
        if len(counts) != n_merges:
            raise TokenizerFileError(
                f"{location}.merge_counts has {len(counts)} counts for {n_merges} merges"
            )
    pattern = record.get("pattern")
    if isinstance(pattern, str):
        return record | {"pattern": NAMED_PATTERNS.get(pattern, pattern)}
    return record
