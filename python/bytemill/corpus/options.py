"""What decides which documents a corpus gives, apart from where they are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bytemill.errors import CorpusError

Format = Literal["text", "jsonl", "parquet", "arrow", "warc"]
EncodingErrors = Literal["strict", "replace", "skip"]
OnError = Literal["fail", "skip"]


@dataclass(frozen=True)
class CorpusOptions:
    """The options of a `Corpus`, which describes them; raises `CorpusError` for one that cannot be."""

    format: Format | Literal["auto"] = "auto"
    field: str = "text"
    documents: str = "file"
    limit_bytes: int | None = None
    sample: float | None = None
    seed: int = 0
    encoding_errors: EncodingErrors = "strict"
    on_error: OnError = "fail"

    def __post_init__(self) -> None:
        _check_one_of("format", self.format, ("auto", *get_args(Format)))
        _check_one_of("encoding_errors", self.encoding_errors, get_args(EncodingErrors))
        _check_one_of("on_error", self.on_error, get_args(OnError))
        if not self.field or not all(self.path):
            raise CorpusError(
                f"the field is {self.field!r}", hint='name one, for example "text" or "meta.text"'
            )
        if not self.documents:
            raise CorpusError(
                "documents is empty", hint='give "file", "line", or the special token that ends documents'
            )
        if self.limit_bytes is not None and self.limit_bytes < 1:
            raise CorpusError(f"limit_bytes is {self.limit_bytes}", hint="give at least 1")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise CorpusError(
                f"sample is {self.sample}", hint="give the fraction to take, above 0 and at most 1"
            )

    @property
    def path(self) -> list[str]:
        r"""The names that lead to the field, from the outside in.

        >>> CorpusOptions(field=r"meta.file\.name").path
        ['meta', 'file.name']
        """
        return [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", self.field)]

    @property
    def separator(self) -> str | None:
        """The special token that ends documents, None where there is none."""
        return None if self.documents in ("file", "line") else self.documents

    @property
    def share(self) -> float:
        """The fraction of the documents that is taken."""
        return 1.0 if self.sample is None else self.sample

    def describe(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return dict(vars(self))


def checked_weight(name: str, weight: object) -> float:
    """`weight` as a positive finite number. Raises `CorpusError`, or TypeError for what is no number."""
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise TypeError(f"the weight of {name} must be a number, not {weight!r:.40}")
    if not (weight > 0 and math.isfinite(weight)):
        raise CorpusError(
            f"the weight of {name} is {weight}",
            hint="give a number above 0; leave an input out that has none",
        )
    return float(weight)


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it. Raises `CorpusError`.

    >>> [parse_bytes(text) for text in ("512", "2GB", "1.5 MB", "10MiB", "3k")]
    [512, 2000000000, 1500000, 10485760, 3000]
    """
    units = {"": 1}
    for power, letter in enumerate("kmgtp", start=1):
        units |= {letter: 1000**power, f"{letter}b": 1000**power, f"{letter}ib": 1024**power}
    units["b"] = 1
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower().replace("_", ""))
    if match is None or match[2] not in units:
        raise CorpusError(f"{text!r} is no number of bytes", hint="write it like 500MB, 2GB or 10MiB")
    number, unit = match.groups()
    whole, _, fraction = number.partition(".")
    scale = 10 ** len(fraction)
    return int(whole + fraction) * units[unit] // scale


def _check_one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise CorpusError(f"{name} is {value!r}", hint=f"give {', '.join(map(repr, choices))}")
