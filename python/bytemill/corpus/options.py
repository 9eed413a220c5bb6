"""Options that determine which documents a corpus yields, and what errors say about them."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from bytemill.errors import CorpusError, SpecialTokenError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

Errors = Literal["strict", "replace", "skip"]
OnError = Literal["fail", "skip"]

SKIP_HINT = 'on_error="skip" (--on-error skip) leaves broken documents out and counts them'
REPLACE_HINT = 'errors="replace" (--errors replace) reads malformed bytes as U+FFFD'

_MAX_FIELDS = 20
"""Most fields that a hint lists."""
MAX_DOCUMENT_BYTES = 256_000_000
"""Default bound on a document that is held in memory as a whole."""


@dataclass(frozen=True)
class CorpusOptions:
    """Options of a `Corpus`; see there.

    Raises:
        CorpusError: A value is out of range.
    """

    format: str = "auto"
    field: str = "text"
    documents: str = "file"
    limit_bytes: int | None = None
    sample: float | None = None
    seed: int = 0
    errors: Errors = "strict"
    on_error: OnError = "fail"
    max_document_bytes: int = MAX_DOCUMENT_BYTES

    def __post_init__(self) -> None:
        _check_one_of("errors", self.errors, get_args(Errors))
        _check_one_of("on_error", self.on_error, get_args(OnError))
        if not self.field or not all(self.path):
            raise CorpusError(
                f"field is {self.field!r}", hint='name a field, for example "text" or "meta.text"'
            )
        if not self.documents:
            raise CorpusError(
                "documents is empty", hint='use "file", "line", or the special token that ends documents'
            )
        if self.limit_bytes is not None and self.limit_bytes < 1:
            raise CorpusError(f"limit_bytes is {self.limit_bytes}", hint="use a limit of at least 1")
        if self.max_document_bytes < 1:
            raise CorpusError(
                f"max_document_bytes is {self.max_document_bytes}", hint="use a bound of at least 1"
            )
        if self.sample is not None and not 0 < self.sample <= 1:
            raise CorpusError(f"sample is {self.sample}", hint="use a fraction above 0 and at most 1")

    @property
    def path(self) -> list[str]:
        r"""The names that lead to the field, outermost first.

        >>> CorpusOptions(field=r"meta.file\.name").path
        ['meta', 'file.name']
        """
        return [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", self.field)]

    @property
    def separator(self) -> str | None:
        """The special token that ends documents, or None."""
        return None if self.documents in ("file", "line") else self.documents

    @property
    def share(self) -> float:
        """The fraction of documents to take."""
        return 1.0 if self.sample is None else self.sample

    def describe(self) -> dict[str, Any]:
        """Return all options as JSON values."""
        return dict(vars(self))


def check_separator(separator: str, special_tokens: Collection[str], *, more: str = "") -> None:
    """Check that what ends documents is a special token.

    Args:
        separator: The value of `documents`.
        special_tokens: The special tokens.
        more: Another way out, for the hint.

    Raises:
        SpecialTokenError: It is none of them.
    """
    if separator in special_tokens:
        return
    close = difflib.get_close_matches(separator, special_tokens, 1)
    guess = f"did you mean {close[0]}? " if close else ""
    known = ", ".join(special_tokens) or "none"
    raise SpecialTokenError(
        f"documents is {separator!r}, which is not a special token",
        hint=f'{guess}documents are "file", "line" or one of the special tokens: {known}{more}',
    )


def checked_weight(name: str, weight: object) -> float:
    """Return `weight` as a positive finite number.

    Raises:
        CorpusError: The number is not positive or not finite.
        TypeError: `weight` is not a number.
    """
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise TypeError(f"the weight of {name} must be a number, not {weight!r:.40}")
    if not (weight > 0 and math.isfinite(weight)):
        raise CorpusError(
            f"the weight of {name} is {weight}",
            hint="use a number above 0, or remove the input",
        )
    return float(weight)


def parse_bytes(text: str) -> int:
    """Parse a number of bytes such as "2GB" (powers of ten) or "10MiB".

    Raises:
        CorpusError: The text is not a number of bytes.

    >>> [parse_bytes(text) for text in ("512", "2GB", "1.5 MB", "10MiB", "3k")]
    [512, 2000000000, 1500000, 10485760, 3000]
    """
    units = {"": 1}
    for power, letter in enumerate("kmgtp", start=1):
        units |= {letter: 1000**power, f"{letter}b": 1000**power, f"{letter}ib": 1024**power}
    units["b"] = 1
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower().replace("_", ""))
    if match is None or match[2] not in units:
        raise CorpusError(f"{text!r} is not a number of bytes", hint="write it like 500MB, 2GB or 10MiB")
    number, unit = match.groups()
    whole, _, fraction = number.partition(".")
    scale = 10 ** len(fraction)
    return int(whole + fraction) * units[unit] // scale


def _check_one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise CorpusError(f"{name} is {value!r}", hint=f"use one of {', '.join(map(repr, choices))}")


def fields_of(value: object) -> list[str]:
    r"""Return the paths of the strings in an object, as the option `field` writes them; of all values if none is one.

    >>> fields_of({"id": 1, "body": "x", "meta": {"a.b": "y", "n": 2}}), fields_of({"id": 1})
    (['body', 'meta.a\\.b'], ['id'])
    """
    paths = list(_paths(value))
    return [path for path, leaf in paths if isinstance(leaf, str)] or [path for path, _ in paths]


def _paths(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        return
    for name, inner in cast("dict[Any, object]", value).items():
        path = prefix + str(name).replace(".", "\\.")
        if isinstance(inner, dict) and inner:
            yield from _paths(cast("object", inner), f"{path}.")
        else:
            yield path, inner


def choose_field(wanted: str, fields: Sequence[str], option: str) -> str:
    """Return the hint that names the fields there are, and the one that was probably meant.

    >>> choose_field("txt", ["id", "text"], "--field (field=)")
    "did you mean 'text'? choose one with --field (field=): id, text"
    """
    close = difflib.get_close_matches(wanted, fields, n=1)
    # A longer path that ends with the name, or the name in another case.
    close = close or [each for each in fields if each.rpartition(".")[2].lower() == wanted.lower()][:1]
    listing = ", ".join(fields[:_MAX_FIELDS]) + (", …" if len(fields) > _MAX_FIELDS else "")
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}choose one with {option}: {listing}"


def document_too_large(where: str, max_document_bytes: int) -> CorpusError:
    """Make the error for a document that must not be held in memory."""
    return CorpusError(
        f"{where} is larger than max_document_bytes ({max_document_bytes:,})",
        hint="raise max_document_bytes (--max-document-bytes), or leave such documents out with "
        'on_error="skip" (--on-error skip)',
    )


def damaged(what: str, why: str) -> CorpusError:
    """Make the error for a file, or a part of it, that cannot be read to its end."""
    return CorpusError(f"{what} is damaged: {why}", hint="get an intact copy, or leave the file out")
