"""Conversion of tokenizer files between formats, with verification."""

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
from bytemill.formats.registry import FORMATS, format_of_name, left_out, render, write_files
from bytemill.storage import is_url, local_output, shown, uploaded
from bytemill.storage.files import check_output_object
from bytemill.storage.input_check import check_file_is_no_input
from bytemill.system.atomic_files import check_output_file
from bytemill.tokenizer import open_tokenizer
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from types import EllipsisType

    from bytemill.formats.patterns import Pattern
    from bytemill.formats.spec import SpecialTokens, TokenizerSpec

Proof: TypeAlias = Literal["fingerprint", "ids", "none"]

SAMPLE = (
    "The quick brown fox can't have jumped over 13 lazy dogs, WE'LL see: it's 1,234,567.89 times…\n\n"
    "  def f(x: int) -> list[int]:\r\n\treturn [x**2 for _ in range(10_000)]  # naïve\n"
    "Ünïcödé — “ﬁ” Ελληνικά, русский язык, עברית, العربية, हिन्दी, ไทย, 日本語とかな, 한국어, 中文字符。\n"
    "👩‍👩‍👧‍👦 🇪🇺 e\u0301 \u00a0\u200b\u3000\u2028 \x00\x1f\x7f \ufffd \U0010ffff      \n\n\n \t "
)
"""A text with every kind of character that patterns and merges treat differently."""


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion: the files and how they were verified."""

    source: Path
    files: list[Path]
    written_format: str
    tokenizer: Tokenizer
    """The source tokenizer, with added special tokens."""
    proof: Proof
    """How the new files were verified. `fingerprint`: loading them gives the same fingerprint. `ids`: loading them
    gives the same pre-tokens and ids for a sample text, all tokens and all special tokens. `none`: a listing, which
    cannot be loaded."""
    left_out: list[str]
    """What the new files do not store, one phrase per item."""
    warnings: list[str]
    """Further warnings for the user."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "input": shown(self.source),
            "output": [shown(file) for file in self.files],
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
    written_format: str | None = None,
    *,
    pattern: str | Pattern | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
    add_special_tokens: SpecialTokens = (),
    overwrite: bool = False,
) -> Conversion:
    """Convert a tokenizer file. The output is verified before a file appears under its name.

    Args:
        source: A file, a folder, or a name, as in `open_tokenizer`.
        target: The output file or folder, or its URL.
        written_format: Output format; by default the one that the name of `target` selects.
        pattern: Pattern of a source that stores none.
        special_tokens: Special tokens of a source that stores none.
        add_special_tokens: Further special tokens; see `Tokenizer.with_special_tokens`.
        overwrite: Replace existing files.

    Raises:
        TokenizerFileError: The source cannot be read.
        TokenizerError: The format cannot represent the tokenizer.
        OutputError: A file cannot be written, is an input, or exists and `overwrite` is not set.
        StorageError: The object store cannot be written.
    """
    source, target = Path(source), Path(target)
    if str(target) == "-":
        raise OutputError("a tokenizer cannot be written to standard output", hint="give a file name")
    if written_format is None:
        written_format = format_of_name(target)
    tokenizer = open_tokenizer(source, pattern=pattern, special_tokens=special_tokens)
    if add_special_tokens:
        tokenizer = tokenizer.with_special_tokens(add_special_tokens)
    spec = tokenizer.to_spec()
    is_raw = written_format == "vocab" and _is_simple_bpe(source)
    options = {"raw_special_tokens": True} if is_raw else {}
    with local_output(target) as local:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            files = render(spec, local, written_format, **options)
        final = [uploaded(file, local, target) for file in files]
        for file in final:
            check_file_is_no_input(file, _files_of(source))
            if is_url(file):
                check_output_object(file, overwrite=overwrite)
            elif file.parent.exists():
                check_output_file(file, overwrite=overwrite)
        proof = _prove(tokenizer, spec, files, written_format)
        write_files(files, local)
    return Conversion(
        source=source,
        files=final[::-1],
        written_format=written_format,
        tokenizer=tokenizer,
        proof=proof,
        left_out=left_out(spec, written_format),
        warnings=[str(warning.message) for warning in caught],
    )


def check_can_be_saved(pattern: str | Pattern | None, special_tokens: Sequence[str]) -> None:
    """Raise `TokenizerError` if a tokenizer.json cannot store this pattern and these special tokens.

    Called before training, so that its result can be saved.
    """
    single_bytes = {byte: bytes([byte]) for byte in range(256)}
    tokenizer_json.write(Tokenizer(single_bytes, [], special_tokens, pattern=pattern).to_spec())


def _files_of(source: Path) -> list[Path]:
    return [source, *source.iterdir()] if source.is_dir() else [source]


def _is_simple_bpe(source: Path) -> bool:
    return source.is_file() and minbpe.dialect_of(read_bytes(source)) == "simple-bpe"


def _prove(
    tokenizer: Tokenizer, spec: TokenizerSpec, files: Mapping[Path, bytes], written_format: str
) -> Proof:
    """Load the new files and compare. Raises TokenizerError if they are another tokenizer."""
    if written_format == "vocab":
        return "none"
    with TemporaryDirectory() as folder:
        copies = [Path(folder) / file.name for file in files]
        for copy, data in zip(copies, files.values(), strict=True):
            copy.write_bytes(data)
        reloaded = _reload(copies[-1], spec, written_format)
    if reloaded.fingerprint == tokenizer.fingerprint:
        return "fingerprint"
    difference = _difference(tokenizer, reloaded)
    if difference is not None:
        raise TokenizerError(
            f"verification failed, the {FORMATS[written_format].title} would be another tokenizer: {difference}",
            hint="nothing was written; this is a bug in bytemill: please report it with the file",
        )
    return "ids"


def _reload(file: Path, spec: TokenizerSpec, written_format: str) -> Tokenizer:
    if written_format == "gpt2":
        # The format does not mark special tokens.
        return Tokenizer.load(file, special_tokens=spec.special_tokens)
    return Tokenizer.load(file)


def _difference(one: Tokenizer, other: Tokenizer) -> str | None:
    """Describe the first difference between two tokenizers, if any."""
    if one.special_tokens != other.special_tokens:
        return "different special tokens"
    if one.vocab != other.vocab:
        return "different tokens"
    texts = [
        SAMPLE,
        SAMPLE.join(one.special_tokens),
        "".join(token.decode("utf-8", "ignore") for token in one.vocab.values()),
    ]
    for text in texts:
        # With few merges, different patterns give the same ids.
        if pretoken_spans(text, one.pattern) != pretoken_spans(text, other.pattern):
            return f"different pre-tokens for a text that begins with {text[:20]!r}"
        if one.encode(text) != other.encode(text):
            return f"different ids for a text that begins with {text[:20]!r}"
    for token in one.vocab.values():
        if one.core.encode_bytes(token) != other.core.encode_bytes(token):
            return f"different ids for {token!r}"
    return None
