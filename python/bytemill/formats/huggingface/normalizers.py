"""The normalizer of a tokenizer.json, as the steps of `NormalizerSteps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import bool_at, is_object, shown
from bytemill.formats.huggingface.components import Table

if TYPE_CHECKING:
    from bytemill.formats.spec import NormalizerSteps

NORMALIZERS: Table[tuple[str, ...]] = Table(
    "normalizer",
    "normalizers",
    hint="normalize texts before encoding them, and set 'normalizer' to null",
)
"""What each normalizer is as a step; an empty one changes nothing."""

# Regular expressions of Replace with their contents. Spaces at the end are trimmed after U+2581 has replaced them.
_EXPRESSIONS: dict[tuple[str, str], tuple[str, ...]] = {
    (r"\A +", ""): ("TrimSpaces", "left"),
    (r"▁+\z", ""): ("TrimSpaces", "right"),
    (" {2,}", " "): ("JoinSpaces",),
    (" {2,}", "▁"): ("JoinSpaces",),
    (r"\s+", " "): ("JoinWhiteSpace",),
}
_OF_STEP = {step: expression for expression, step in reversed(_EXPRESSIONS.items())}
_MAX_STEPS = 64


@NORMALIZERS.row("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
def _plain(step: dict[str, Any], _: str) -> tuple[str, ...]:
    return (step["type"],)


@NORMALIZERS.row(
    "Replace",
    settings="a string that is not empty, or the regular expressions "
    + ", ".join(f"`{expression}`" for expression in dict.fromkeys(each for each, _ in _EXPRESSIONS)),
)
def _replace(step: dict[str, Any], path: str) -> tuple[str, ...]:
    match step:
        case {"pattern": {"String": str(before)}, "content": str(after)} if before:
            return ("Replace", before, after)
        case {"pattern": {"Regex": str(expression)}, "content": str(after)} if found := _EXPRESSIONS.get(
            (expression, after)
        ):
            return found
        case _:
            pattern = step.get("pattern")
            what = shown(next(iter(pattern.values()), None) if is_object(pattern) else pattern)
            raise TokenizerFileError(f"{path} is 'Replace' with {what} as pattern, which is not supported")


@NORMALIZERS.row("Prepend", settings="a text that is not empty")
def _prepend(step: dict[str, Any], path: str) -> tuple[str, ...]:
    match step:
        # Hugging Face's library repeats the first character if the text is empty.
        case {"prepend": str(text)} if text:
            return ("Prepend", text)
        case _:
            raise TokenizerFileError(f"{path}.prepend is {shown(step.get('prepend'))}, not a text")


@NORMALIZERS.row("Strip")
def _strip(step: dict[str, Any], path: str) -> tuple[str, ...]:
    left = bool_at(step.get("strip_left", True), f"{path}.strip_left")
    right = bool_at(step.get("strip_right", True), f"{path}.strip_right")
    return ("Strip", "both" if left and right else "left" if left else "right") if left or right else ()


def from_normalizer(value: Any, location: str) -> NormalizerSteps:
    """Return the steps of a `normalizer` object or of null.

    Raises:
        TokenizerFileError: The object is damaged, or a step is not supported.
    """
    steps: list[tuple[str, ...]] = []
    for step in [] if value is None else NORMALIZERS.read_all(value, location):
        # The steps without arguments change nothing a second time.
        if step and not (steps and steps[-1] == step and len(step) == 1):
            steps.append(step)
    if len(steps) > _MAX_STEPS:
        raise TokenizerFileError(f"{location} has {len(steps)} steps; at most {_MAX_STEPS} are supported")
    return tuple(steps)


def to_normalizer(steps: NormalizerSteps) -> dict[str, Any] | None:
    """Return the `normalizer` object of steps without `Metaspace`; None for no steps."""
    objects = [_object_of(step) for step in steps]
    if len(objects) > 1:
        return {"type": "Sequence", "normalizers": objects}
    return objects[0] if objects else None


def _object_of(step: tuple[str, ...]) -> dict[str, Any]:
    if (found := _OF_STEP.get(step)) is not None:
        return {"type": "Replace", "pattern": {"Regex": found[0]}, "content": found[1]}
    match step:
        case "Replace", before, after:
            return {"type": "Replace", "pattern": {"String": before}, "content": after}
        case "Prepend", text:
            return {"type": "Prepend", "prepend": text}
        case "Strip", sides:
            return {"type": "Strip", "strip_left": sides != "right", "strip_right": sides != "left"}
        case _:
            return {"type": step[0]}
