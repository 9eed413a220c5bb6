"""From one file format to another, with a proof that it is the same tokenizer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill._core import pretoken_spans
from bytemill.errors import OutputError, TokenizerError
from bytemill.formats import minbpe
from bytemill.formats.files import read_bytes
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.save import FORMATS, format_of_name, left_out, publish, rendered
from bytemill.system.output_file import check_output_file
from bytemill.tokenizer.open_tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from types import EllipsisType

    from bytemill.formats.patterns import Pattern
    from bytemill.formats.save import WrittenFormat
    from bytemill.formats.spec import TokenizerSpec

Proof: TypeAlias = Literal["fingerprint", "ids", "none"]

SAMPLE = (
    "The quick brown fox can't have jumped over 13 lazy dogs, WE'LL see: it's 1,234,567.89 times…\n\n"
    "  def f(x: int) -> list[int]:\r\n\treturn [x**2 for _ in range(10_000)]  # naïve\n"
    "Ünïcödé — “ﬁ” Ελληνικά, русский язык, עברית, العربية, हिन्दी, ไทย, 日本語とかな, 한국어, 中文字符。\n"
    "👩‍👩‍👧‍👦 🇪🇺 e\u0301 \u00a0\u200b\u3000\u2028 \x00\x1f\x7f \ufffd \U0010ffff      \n\n\n \t "
)
"""A text with something of everything that patterns and merges treat differently."""


@dataclass(frozen=True)
class Conversion:
    """What was written, and how it is known to be the same tokenizer."""

    source: Path
    files: list[Path]
    written_format: WrittenFormat
    tokenizer: Tokenizer
    """The one that was read."""
    proof: Proof
    """`fingerprint`: the new files, read again, have the same one. `ids`: they give the same pre-tokens and ids
    for a sample text of every kind and the text of all tokens, and every special token. `none`: no tool reads
    such a file."""
    left_out: list[str]
    """What the tokenizer has and the new files do not say."""
    warnings: list[str]
    """What the user of the new files should know beyond that."""

    def to_dict(self) -> dict[str, Any]:
        """The conversion for JSON."""
        return {
            "input": str(self.source),
            "output": [str(file) for file in self.files],
            "format": self.written_format,
            "n_vocab": self.tokenizer.n_vocab,
            "fingerprint": self.tokenizer.fingerprint,
            "proof": self.proof,
            "left_out": self.left_out,
            "warnings": self.warnings,
        }


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    written_format: WrittenFormat | None = None,
    *,
    pattern: str | Pattern | EllipsisType | None = ...,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
    overwrite: bool = False,
) -> Conversion:
    """Write the tokenizer in `source` to `target`, in the format that its name asks for or that is given.

    `pattern` and `special_tokens` are for a source that holds neither. What is to be written is read again and
    compared before a file appears under its name. Raises TokenizerFileError and TokenizerError where the source
    is refused or the format cannot say what it says, and OutputError where a file cannot be written or, without
    `overwrite`, is there already.
    """
    source, target = Path(source), Path(target)
    if str(target) == "-":
        raise OutputError("a tokenizer is written to files, not to standard output", hint="Give a file name.")
    if written_format is None:
        written_format = format_of_name(target)
    tokenizer = open_tokenizer(source, pattern=pattern, special_tokens=special_tokens)
    spec = tokenizer.to_spec()
    is_simple_bpe = written_format == "vocab" and _is_simple_bpe(source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        files = rendered(spec, target, written_format, special_tokens_as_they_are=is_simple_bpe)
    for file in files:
        if file.parent.exists():
            check_output_file(file, overwrite=overwrite)
    proof = _prove(tokenizer, spec, files, written_format)
    publish(files, target)
    return Conversion(
        source=source,
        files=list(reversed(files)),
        written_format=written_format,
        tokenizer=tokenizer,
        proof=proof,
        left_out=left_out(spec, written_format),
        warnings=[str(warning.message) for warning in caught],
    )


def check_can_be_saved(pattern: str | Pattern | None, special_tokens: Sequence[str]) -> None:
    """Raises `TokenizerError` where no tokenizer.json can say this pattern and these special tokens.

    Asked before training: what cannot be saved after it would be lost.
    """
    single_bytes = {byte: bytes([byte]) for byte in range(256)}
    tokenizer_json.write(Tokenizer(single_bytes, [], special_tokens, pattern=pattern).to_spec())


def _is_simple_bpe(source: Path) -> bool:
    return source.is_file() and minbpe.dialect_of(read_bytes(source)) == "simple-bpe"


def _prove(
    tokenizer: Tokenizer, spec: TokenizerSpec, files: Mapping[Path, bytes], written_format: WrittenFormat
) -> Proof:
    """Read the files again and compare. Raises TokenizerError where they are another tokenizer."""
    if written_format == "vocab":
        return "none"
    with TemporaryDirectory() as folder:
        copies = [Path(folder) / file.name for file in files]
        for copy, data in zip(copies, files.values(), strict=True):
            copy.write_bytes(data)
        again = _load_again(copies[-1], spec, written_format)
    if again.fingerprint == tokenizer.fingerprint:
        return "fingerprint"
    difference = _difference(tokenizer, again)
    if difference is not None:
        raise TokenizerError(
            f"read again, the {FORMATS[written_format].title} is another tokenizer: {difference}",
            hint="Nothing is written. This is a bug of bytemill: please report it with the file.",
        )
    return "ids"


def _load_again(file: Path, spec: TokenizerSpec, written_format: WrittenFormat) -> Tokenizer:
    if written_format == "gpt2":
        # Only some of its special tokens can be told from others.
        return Tokenizer.load(file, special_tokens=spec.special_tokens)
    return Tokenizer.load(file)


def _difference(one: Tokenizer, other: Tokenizer) -> str | None:
    """In what two tokenizers differ on a sample text, their tokens and their special tokens; None: nothing."""
    if one.special_tokens != other.special_tokens:
        return "its special tokens are not the same"
    if one.vocab != other.vocab:
        return "its tokens are not the same"
    texts = [
        SAMPLE,
        SAMPLE.join(one.special_tokens),
        "".join(token.decode("utf-8", "ignore") for token in one.vocab.values()),
    ]
    for text in texts:
        # Ids alone would not tell patterns apart with a vocabulary of few merges.
        if pretoken_spans(text, one.pattern) != pretoken_spans(text, other.pattern):
            return f"it cuts a text that begins with {text[:20]!r} into other pre-tokens"
        if one.encode(text) != other.encode(text):
            return f"its ids for a text that begins with {text[:20]!r} are not the same"
    for token in one.vocab.values():
        if one.core.encode_bytes(token) != other.core.encode_bytes(token):
            return f"its ids for {token!r} are not the same"
    return None
