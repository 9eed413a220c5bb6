"""Nested `Sequence` objects of a tokenizer.json: normalizers, pre-tokenizers and decoders have them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.formats.files import array_at, object_at

if TYPE_CHECKING:
    from collections.abc import Iterator


def steps_of(value: Any, location: str, field: str, what: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects in nested sequences in order, with their paths; an object that is no sequence is the only one.

    Args:
        value: The object.
        location: Its path, for errors.
        field: Name of the array in a `Sequence`.
        what: What an object is, for errors.

    Raises:
        TokenizerFileError: A part is not an object, or a sequence has no array.
    """
    pending = [(value, location)]
    while pending:
        inner, path = pending.pop()
        step = object_at(inner, path, what)
        if step.get("type") == "Sequence":
            path = f"{path}.{field}"
            parts = array_at(step.get(field), path)
            pending.extend((part, f"{path}[{i}]") for i, part in reversed(list(enumerate(parts))))
        else:
            yield step, path
