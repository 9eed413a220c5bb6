"""Conversion between normalizer steps and Hugging Face's `normalizer` objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import bool_at, shown
from bytemill.formats.huggingface.sequence import steps_of

if TYPE_CHECKING:
    from bytemill.formats.spec import NormalizerSteps

_WITHOUT_ARGUMENTS = frozenset(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"))
_SEVERAL_SPACES = " {2,}"
# Spaces at the end are trimmed after U+2581 has replaced them.
_TRIMMED = {"left": r"\A +", "right": r"▁+\z"}
_MAX_STEPS = 64


def from_normalizer(value: Any, location: str) -> NormalizerSteps:
    """Return the steps of a `normalizer` object or of null.

    Raises:
        TokenizerFileError: The object is damaged, or a step is not supported.
    """
    if value is None:
        return ()
    steps: list[tuple[str, ...]] = []
    for step, path in steps_of(value, location, "normalizers", "a normalizer"):
        parsed = _step(step, path)
        # The steps without arguments change nothing a second time.
        if not (steps and steps[-1] == parsed and len(parsed) == 1):
            steps.append(parsed)
    if len(steps) > _MAX_STEPS:
        raise TokenizerFileError(f"{location} has {len(steps)} steps; at most {_MAX_STEPS} are supported")
    return tuple(steps)


def to_normalizer(steps: NormalizerSteps) -> dict[str, Any] | None:
    """Return the `normalizer` object of steps without `Metaspace`; None for no steps."""
    objects = [_object(*step) for step in steps]
    if len(objects) > 1:
        return {"type": "Sequence", "normalizers": objects}
    return objects[0] if objects else None


def _object(name: str, *arguments: str) -> dict[str, Any]:
    match name, arguments:
        case "Replace", (before, after):
            return {"type": "Replace", "pattern": {"String": before}, "content": after}
        case "JoinSpaces", _:
            return {"type": "Replace", "pattern": {"Regex": _SEVERAL_SPACES}, "content": " "}
        case "TrimSpaces", (side,):
            return {"type": "Replace", "pattern": {"Regex": _TRIMMED[side]}, "content": ""}
        case "Prepend", (text,):
            return {"type": "Prepend", "prepend": text}
        case "Strip", (sides,):
            return {"type": "Strip", "strip_left": sides != "right", "strip_right": sides != "left"}
        case _:
            return {"type": name}


def _step(step: dict[str, Any], path: str) -> tuple[str, ...]:
    kind = step.get("type")
    match step:
        case {"type": str(name)} if name in _WITHOUT_ARGUMENTS:
            return (name,)
        case {"type": "Replace", "pattern": {"String": str(before)}, "content": str(after)} if before:
            return ("Replace", before, after)
        case {"type": "Replace", "pattern": {"Regex": str(expression)}, "content": ""} if (
            expression in _TRIMMED.values()
        ):
            return ("TrimSpaces", "left" if expression == _TRIMMED["left"] else "right")
        case {"type": "Replace", "pattern": {"Regex": str(expression)}, "content": " " | "▁"} if (
            expression == _SEVERAL_SPACES
        ):
            return ("JoinSpaces",)
        case {"type": "Prepend", "prepend": str(text)}:
            return ("Prepend", text)
        case {"type": "Strip"}:
            left = bool_at(step.get("strip_left", True), f"{path}.strip_left")
            right = bool_at(step.get("strip_right", True), f"{path}.strip_right")
            if left or right:
                return ("Strip", "both" if left and right else "left" if left else "right")
        case _:
            pass
    raise TokenizerFileError(
        f"{path} is {shown(kind)}, which is not supported"
        + (" with a regular expression as pattern" if kind == "Replace" else ""),
        hint="normalize texts before encoding them, and set 'normalizer' to null",
    )
