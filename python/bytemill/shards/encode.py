"""From a corpus to a folder of token shards, in constant memory."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bytemill._core import __version__
from bytemill.corpus import CorpusInputs, Source, is_texts, iter_texts, not_utf8, read_blocks, resolve_inputs
from bytemill.corpus.reading import BLOCK_BYTES
from bytemill.corpus.sources import empty_corpus
from bytemill.errors import CorpusError, ShardError, SpecialTokenError
from bytemill.shards.claim import claim_folder
from bytemill.shards.complete import complete_manifest
from bytemill.shards.manifest import Manifest, ShardSettings, SourceInfo, write_manifest
from bytemill.shards.npy import ShardWriter

AllowedSpecial: TypeAlias = Literal["all", "none", "none_raise"] | Collection[str]
Errors: TypeAlias = Literal["strict", "replace"]

TEXTS_NAME = "<texts>"
"""Name of the source in the manifest where the corpus is an iterable of str."""


class TokenStream(Protocol):
    """Encodes documents that arrive in pieces, one after another."""

    @property
    def n_replaced(self) -> int: ...
    def feed(self, data: str | bytes, /) -> NDArray[Any]: ...
    def finish(self) -> NDArray[Any]: ...


class StreamingCore(Protocol):
    """The part of the Rust encoder that shards are made with."""

    @property
    def dtype(self) -> Literal["uint16", "uint32"]: ...
    @property
    def n_vocab(self) -> int: ...
    def stream(
        self, allowed_special: AllowedSpecial, errors: Errors, num_threads: int | None
    ) -> TokenStream: ...


class ShardTokenizer(Protocol):
    """What a tokenizer must offer to write shards."""

    @property
    def core(self) -> StreamingCore: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class EncodeProgress:
    """How far the encoding of a corpus has come."""

    source: str
    """Name of the source that is being read."""
    n_bytes: int
    """Bytes of text read so far, of all sources."""
    total_bytes: int | None
    """Bytes of all sources; None where one of them is a stream of unknown size."""
    n_tokens: int
    n_shards: int
    """Shards that stand under their names."""
    already_complete: bool = False
    """True where the folder held the result before, and nothing was done."""


def encode_to_shards(
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs,
    out_folder: str | os.PathLike[str],
    *,
    shard_tokens: int = 100_000_000,
    allowed_special: AllowedSpecial = "all",
    errors: Errors = "strict",
    document_separator: str | None = None,
    append_separator: bool = False,
    num_threads: int | None = None,
    progress: Callable[[EncodeProgress], None] | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Encode a corpus to `out_folder` as `.npy` shards of `shard_tokens` ids each, the last one excepted.

    `inputs` are files, globs and "-" (see `resolve_inputs`), or an iterable of texts. Each file and each text
    is a document of its own: no token reaches across its end. `document_separator` names the special token
    that ends documents; the manifest then counts its occurrences as documents, and otherwise the files or
    texts. With `append_separator` it is appended to every file or text that is not empty and does not end
    with it already.

    Memory does not grow with the corpus. `progress` is called after each block of a few megabytes, in this
    thread; an exception that it raises stops the work.

    A folder that holds the complete result of the same settings, sources (name and size, unchanged since) and
    tokenizer is left as it is, and its manifest returned; one that holds anything else is refused unless
    `overwrite`. After an interruption the finished shards stay without a manifest, and the next run replaces
    them.

    Raises `CorpusError` for a corpus that cannot be read, is not UTF-8 (with `errors="strict"`) or is empty,
    `SpecialTokenError` for an unknown separator, `ShardError` for a folder that must not be replaced, and
    `OutputError` where the shards cannot be written.
    """
    settings = _checked_settings(
        tokenizer,
        shard_tokens=shard_tokens,
        allowed_special=allowed_special,
        errors=errors,
        document_separator=document_separator,
        append_separator=append_separator,
    )
    sources = None if is_texts(inputs) else resolve_inputs(inputs)
    folder = Path(out_folder)
    if not overwrite and (complete := complete_manifest(folder, tokenizer.fingerprint, sources, settings)):
        if progress:
            progress(_already_complete(complete))
        return complete
    encoding = _Encoding(tokenizer, settings, num_threads, _total_bytes(sources), progress)
    with claim_folder(folder, overwrite=overwrite):
        with ShardWriter(folder, tokenizer.core.dtype, shard_tokens) as writer:
            if is_texts(inputs):
                encoding.add_texts(inputs, writer)
            for source in sources or ():
                encoding.add_source(source, writer)
            if not encoding.n_bytes:
                raise empty_corpus([source.name for source in encoding.sources] or [TEXTS_NAME])
            shards = writer.finish()
        manifest = Manifest(
            bytemill_version=__version__,
            fingerprint=tokenizer.fingerprint,
            n_vocab=tokenizer.core.n_vocab,
            dtype=tokenizer.core.dtype,
            n_tokens=writer.n_tokens,
            n_bytes=encoding.n_bytes,
            n_documents=encoding.n_documents,
            n_replaced=encoding.n_replaced,
            shards=shards,
            sources=tuple(encoding.sources),
            settings=settings,
        )
        write_manifest(folder, manifest)
    return manifest


class _Encoding:
    """Feeds documents to the encoder and its ids to the shards, and counts what the manifest reports."""

    def __init__(
        self,
        tokenizer: ShardTokenizer,
        settings: ShardSettings,
        num_threads: int | None,
        total_bytes: int | None,
        progress: Callable[[EncodeProgress], None] | None,
    ) -> None:
        self.n_bytes = 0
        self.n_documents = 0
        self.n_replaced = 0
        self.sources: list[SourceInfo] = []
        self._new_stream = lambda: tokenizer.core.stream(
            settings.allowed_special, settings.errors, num_threads
        )
        self._separator = tokenizer.special_tokens.get(settings.document_separator or "")
        self._append_separator = settings.append_separator
        self._total_bytes = total_bytes
        self._progress = progress
        self._last_id: int | None = None
        # Options that the core refuses shall be refused before the folder is touched.
        self._new_stream()

    def add_source(self, source: Source, writer: ShardWriter) -> None:
        """Encode one file as one document."""
        n_bytes_before = self.n_bytes
        # A stream of its own, so that the place of an error counts from the beginning of the file.
        stream = self._new_stream()
        try:
            with contextlib.closing(read_blocks(source)) as blocks:
                for block in blocks:
                    self._take(stream.feed(block), writer)
                    self.n_bytes += len(block)
                    self._report(source.name, writer)
            self._end_document(stream, writer)
        except UnicodeDecodeError as error:
            raise not_utf8(source, error) from error
        self._end_source(source.name, n_bytes_before, stream, writer)

    def add_texts(self, texts: Iterable[str], writer: ShardWriter) -> None:
        """Encode each text as a document."""
        stream = self._new_stream()
        n_bytes_reported = 0
        for index, text in enumerate(iter_texts(texts)):
            try:
                data = text.encode()
            except UnicodeEncodeError as error:
                raise CorpusError(
                    f"item {index} of the corpus holds a lone surrogate at character {error.start}",
                    hint="text.encode('utf-8', 'replace').decode() puts '?' in its place",
                ) from error
            self._take(stream.feed(data), writer)
            self._end_document(stream, writer)
            self.n_bytes += len(data)
            if self.n_bytes - n_bytes_reported >= BLOCK_BYTES:
                self._report(TEXTS_NAME, writer)
                n_bytes_reported = self.n_bytes
        self._end_source(TEXTS_NAME, 0, stream, writer)

    def _take(self, ids: NDArray[Any], writer: ShardWriter) -> None:
        if not len(ids):
            return
        writer.append(ids)
        self._last_id = int(ids[-1])
        if self._separator is not None:
            self.n_documents += int(np.count_nonzero(ids == self._separator))

    def _end_document(self, stream: TokenStream, writer: ShardWriter) -> None:
        self._take(stream.finish(), writer)
        if self._separator is None:
            self.n_documents += 1
        elif self._append_separator and self._last_id not in (None, self._separator):
            self._take(np.array([self._separator]), writer)
        self._last_id = None

    def _end_source(self, name: str, n_bytes_before: int, stream: TokenStream, writer: ShardWriter) -> None:
        self.n_replaced += stream.n_replaced
        self.sources.append(SourceInfo(name, self.n_bytes - n_bytes_before))
        self._report(name, writer)

    def _report(self, source: str, writer: ShardWriter) -> None:
        if self._progress:
            self._progress(
                EncodeProgress(source, self.n_bytes, self._total_bytes, writer.n_tokens, len(writer.shards))
            )


def _checked_settings(
    tokenizer: ShardTokenizer,
    *,
    shard_tokens: int,
    allowed_special: AllowedSpecial,
    errors: Errors,
    document_separator: str | None,
    append_separator: bool,
) -> ShardSettings:
    if shard_tokens < 1:
        raise ShardError(f"shard_tokens is {shard_tokens}; a shard holds at least one token")
    if errors not in ("strict", "replace"):
        raise ShardError(f"errors is {errors!r}", hint='give "strict" or "replace"')
    if document_separator is not None and document_separator not in tokenizer.special_tokens:
        known = ", ".join(tokenizer.special_tokens) or "none"
        raise SpecialTokenError(
            f"the document separator {document_separator!r} is no special token of this tokenizer",
            hint=f"its special tokens: {known}",
        )
    if append_separator and document_separator is None:
        raise SpecialTokenError(
            "there is no document separator to append", hint='name one, for example "<|endoftext|>"'
        )
    allowed = allowed_special if isinstance(allowed_special, str) else tuple(sorted(allowed_special))
    return ShardSettings(shard_tokens, allowed, errors, document_separator, append_separator)


def _total_bytes(sources: list[Source] | None) -> int | None:
    total = 0
    for source in sources or ():
        if source.n_bytes is None:
            return None
        total += source.n_bytes
    return total if sources else None


def _already_complete(manifest: Manifest) -> EncodeProgress:
    return EncodeProgress(
        source=manifest.sources[-1].name,
        n_bytes=manifest.n_bytes,
        total_bytes=manifest.n_bytes,
        n_tokens=manifest.n_tokens,
        n_shards=len(manifest.shards),
        already_complete=True,
    )
