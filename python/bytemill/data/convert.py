"""Convert shards to another layout, with the same ids."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bytemill._core import __version__
from bytemill.data.layouts import layout_named
from bytemill.data.manifest import Manifest, ShardSettings, SourceInfo
from bytemill.data.shard_writer import ShardWriter
from bytemill.data.target import target_of
from bytemill.data.token_source import TokenBlock, TokenSource, find_separator, open_tokens
from bytemill.data.unfinished import is_replaced_name
from bytemill.data.verification import require_intact
from bytemill.errors import ShardError
from bytemill.profiling import phase
from bytemill.storage.input_check import check_folder_is_no_input

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from bytemill.data.layouts import Dtype, Layout


DEFAULT_SHARD_TOKENS = 100_000_000
UNKNOWN_FINGERPRINT = "unknown"
"""Fingerprint in manifests of ids from an unknown tokenizer."""

_N_IDS: dict[Dtype, int] = {"uint16": 1 << 16, "uint32": 1 << 32}
"""Number of ids that each type holds."""
_MOVED = {True: "is moved to the start of each document", False: "is moved to the end of each document"}


class NamedTokenizer(Protocol):
    """The tokenizer that encoded the ids."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class ConvertProgress:
    """Progress of a conversion."""

    n_tokens: int
    total_tokens: int
    n_shards: int
    """Finished shards."""


def convert_shards(
    source: str | os.PathLike[str],
    out_folder: str | os.PathLike[str],
    *,
    layout: str,
    shard_tokens: int | None = None,
    separator: int | str | None = None,
    keep_separators: bool = False,
    document_index: bool | None = None,
    tokenizer: NamedTokenizer | None = None,
    dtype: Dtype | None = None,
    source_layout: str | None = None,
    source_dtype: str | None = None,
    note: Callable[[str], None] | None = None,
    progress: Callable[[ConvertProgress], None] | None = None,
    overwrite: bool = False,
    verify: bool = True,
) -> Manifest:
    """Convert shards to another layout in constant memory. An interrupted conversion starts over.

    Args:
        source: A shard folder, or files of other programs (see `open_tokens`).
        out_folder: The output folder, or its URL.
        layout: Layout of the result (`bytemill.data.layouts`).
        shard_tokens: Ids per shard; by default as in the source.
        separator: Id of the token between documents, or its text if `tokenizer` is set. By default the manifest's.
            Documents end according to the source's document index, else its sidecar files, else the separator.
        keep_separators: Leave all ids unchanged. By default separators are moved to the end of documents that the
            layout expects, and every document gets one.
        document_index: Write `documents.npy`; by default if the ends of documents are known.
        tokenizer: The tokenizer that encoded the ids. By default the manifest's fingerprint, else unknown.
        dtype: Type of the ids in the result. By default uint16 if the vocabulary has at most 65,536 ids, else uint32.
            The vocabulary is the manifest's or the tokenizer's; if it is unknown, the highest id decides.
        source_layout: Layout of files without a manifest.
        source_dtype: Type of the ids in files that do not store it.
        note: Called with a sentence if separators are moved.
        progress: Called after each block. An exception that it raises stops the conversion.
        overwrite: Replace existing shards.
        verify: Compare the sha256 of every source file with the manifest first.

    Returns:
        The manifest of the result.

    Raises:
        ShardError: If the source cannot be read, is damaged or is of another tokenizer; if `out_folder` contains other
            shards; or if the layout cannot represent the ids or documents.
        OutputError: If writing fails, or if `out_folder` is, contains or lies in the source.
        StorageError: If an object store cannot be read or written.
    """
    target = layout_named(layout)
    tokens = open_tokens(source, layout=source_layout, dtype=source_dtype)
    tokens.refuse_masks()
    _check(tokens, tokenizer, Path(source))
    check_folder_is_no_input(
        out_folder, files=map(str, tokens.files), folders=tokens.folders, replaced=is_replaced_name
    )
    if verify and tokens.manifest:
        require_intact(tokens.files[0].parent, tokens.manifest)
    find_separator(tokens, separator, tokenizer.special_tokens if tokenizer else {})
    if (target.whole_documents or document_index) and not tokens.knows_documents:
        needs = f"layout {layout}" if target.whole_documents else "a document index"
        raise ShardError(
            f"{needs} needs the ends of documents, which are unknown in {source}",
            hint="name the separator, for GPT-2: --separator 50256 (separator=50256)",
        )
    known = tokens.manifest
    n_vocab = known.n_vocab if known else tokenizer.n_vocab if tokenizer else None
    stored_dtype = target.dtype(_dtype(tokens, n_vocab, dtype))
    if shard_tokens is None:
        shard_tokens = known.settings.shard_tokens if known else DEFAULT_SHARD_TOKENS
    if shard_tokens < 1:
        raise ShardError(f"shard_tokens is {shard_tokens}; it must be at least 1")
    target.header(stored_dtype, shard_tokens)  # checks the number before a folder is touched
    fingerprint = known.fingerprint if known else tokenizer.fingerprint if tokenizer else UNKNOWN_FINGERPRINT
    has_index = tokens.knows_documents and document_index is not False
    with (
        phase("convert"),
        target_of(out_folder).opened(overwrite=overwrite) as out,
        contextlib.ExitStack() as stack,
    ):
        uploads = out.uploads
        writer = ShardWriter(
            out.folder,
            target,
            stored_dtype,
            shard_tokens,
            fingerprint,
            document_index=has_index,
            tag=out.tag,
            finished=(lambda shard: uploads.add_shard(0, shard)) if uploads else None,
        )
        stack.callback(writer.close)
        checked = _CheckedIds(tokens, n_vocab if n_vocab is not None else 2**32, stored_dtype)
        n_documents = 0
        if note and _moves(tokens, target, keep_separators):
            note(
                f"separator {tokens.separator} {_MOVED[target.separator_in_front]} (--keep-separators leaves it)"
            )
        for block in _arranged(checked.blocks(), tokens, target, keep_separators):
            writer.append([block.tokens], block.ends.astype(np.uint64))
            n_documents += len(block.ends)
            if progress:
                progress(ConvertProgress(checked.n_tokens, tokens.n_tokens, len(writer.shards)))
            if uploads:
                uploads.wait_for_space()
        shards, documents = writer.finish()
        n_known = known.n_documents if known else 0
        manifest = _manifest(
            tokens,
            known,
            bytemill_version=__version__,
            fingerprint=fingerprint,
            n_vocab=n_vocab if n_vocab is not None else checked.highest + 1,
            dtype=stored_dtype,
            n_tokens=writer.n_tokens,
            n_documents=n_documents if tokens.knows_documents else n_known,
            shards=shards,
            layout=layout,
            documents=documents,
            separator_id=tokens.separator,
            settings=_settings(
                tokens,
                tokenizer,
                is_moved=_moves(tokens, target, keep_separators),
                shard_tokens=shard_tokens,
                has_index=has_index,
            ),
        )
        return out.publish([manifest])[0]


def _check(tokens: TokenSource, tokenizer: NamedTokenizer | None, source: Path) -> None:
    """Check the source before anything is written."""
    if tokens.n_tokens == 0:
        raise ShardError(f"{source} contains no tokens")
    if tokens.manifest and tokenizer and tokenizer.fingerprint != tokens.manifest.fingerprint:
        raise ShardError(
            f"the shards in {source} were encoded with tokenizer {tokens.manifest.fingerprint}, "
            f"but this one is {tokenizer.fingerprint}",
            hint="name the tokenizer that encoded them, or none",
        )


def _manifest(tokens: TokenSource, known: Manifest | None, **values: Any) -> Manifest:
    """Make the manifest of the result, from the source's if it has one."""
    if known is not None:
        return replace(known, **values)
    sources = tuple(SourceInfo(name=str(file), n_bytes=file.stat().st_size) for file in tokens.files)
    return Manifest(n_bytes=0, n_replaced=0, sources=sources, **values)


def _settings(
    tokens: TokenSource,
    tokenizer: NamedTokenizer | None,
    *,
    is_moved: bool,
    shard_tokens: int,
    has_index: bool,
) -> ShardSettings:
    """Make the settings of the result, as far as they are known."""
    before = ShardSettings(
        shard_tokens=shard_tokens,
        allowed_special="all",
        errors="strict",
        document_separator=None,
        append_separator=False,
    )
    before = tokens.manifest.settings if tokens.manifest else before
    names = {token: text for text, token in tokenizer.special_tokens.items()} if tokenizer else {}
    separator = before.document_separator if tokens.separator is None else names.get(tokens.separator)
    return replace(
        before,
        shard_tokens=shard_tokens,
        document_index=has_index,
        document_separator=separator or before.document_separator,
        append_separator=is_moved or before.append_separator,
    )


def _dtype(tokens: TokenSource, n_vocab: int | None, dtype: Dtype | None) -> Dtype:
    """Return the type of the ids: the requested one, else the narrowest for the vocabulary or for the highest id."""
    if dtype is not None:
        if dtype not in _N_IDS:
            raise ShardError(f"dtype is {dtype!r}", hint=f"use one of {', '.join(_N_IDS)}")
        return dtype
    if n_vocab is None and tokens.dtype in ("uint8", "uint16"):
        return "uint16"
    if n_vocab is None:
        n_vocab = max(int(block.tokens.max()) for block in tokens.blocks()) + 1
    return "uint16" if n_vocab <= _N_IDS["uint16"] else "uint32"


class _CheckedIds:
    """Checks that ids are in the vocabulary, and that their type holds them."""

    def __init__(self, tokens: TokenSource, n_vocab: int, dtype: Dtype) -> None:
        self.n_tokens = 0
        self.highest = 0
        self._source = tokens
        self._n_vocab = n_vocab
        self._dtype: Dtype = dtype

    def blocks(self) -> Iterator[TokenBlock]:
        for block in self._source.blocks():
            lowest, highest = int(block.tokens.min()), int(block.tokens.max())
            if lowest < 0 or highest >= self._n_vocab:
                bad = lowest if lowest < 0 else highest
                where = self._source.locate(self.n_tokens + int(np.argmax(block.tokens == bad)))
                raise ShardError(
                    f"{where} is {bad:,}, which is not in a vocabulary of {self._n_vocab:,}",
                    hint="the file is damaged, or has another dtype or tokenizer",
                )
            if highest >= _N_IDS[self._dtype]:
                where = self._source.locate(self.n_tokens + int(np.argmax(block.tokens == highest)))
                raise ShardError(
                    f"{where} is {highest:,}, which {self._dtype} cannot hold",
                    hint='use --dtype uint32 (dtype="uint32"), or leave it out',
                )
            self.highest = max(self.highest, highest)
            self.n_tokens += len(block.tokens)
            yield block


def _arranged(
    blocks: Iterator[TokenBlock], tokens: TokenSource, target: Layout, keep_separators: bool
) -> Iterator[TokenBlock]:
    """Return blocks with the separators at the end of documents that the layout expects."""
    if tokens.separator is None or not _moves(tokens, target, keep_separators):
        return blocks
    return move_separators(blocks, tokens.separator, to_front=target.separator_in_front)


def _moves(tokens: TokenSource, target: Layout, keep_separators: bool) -> bool:
    is_elsewhere = target.separator_in_front != tokens.separator_in_front
    return tokens.separator is not None and is_elsewhere and not keep_separators


def move_separators(blocks: Iterable[TokenBlock], separator: int, *, to_front: bool) -> Iterator[TokenBlock]:
    """Yield blocks in which every document has one separator, at its start or at its end.

    The separator at the other end is removed. Documents without one get one too, so that they remain separated.

    Args:
        blocks: Blocks of ids with the ends of documents.
        separator: Id of the separator.
        to_front: Put it at the start of documents, not at the end.
    """
    starts_new = True
    """True if the next token begins a document."""
    for block in blocks:
        n_tokens, ends = len(block.tokens), block.ends
        if not n_tokens and not len(ends):
            continue
        starts = _starts(ends, n_tokens, starts_new)
        is_kept = np.ones(n_tokens, dtype=bool)
        candidates = ends[ends > 0] - 1 if to_front else starts[starts < n_tokens]
        # The candidate of a document without tokens is in the next document, which loses its separator anyway.
        is_kept[candidates[block.tokens[candidates] == separator]] = False
        n_dropped = np.concatenate((np.zeros(1, np.int64), np.cumsum(~is_kept)))
        inserted = starts if to_front else ends
        tokens = np.insert(block.tokens[is_kept], inserted - n_dropped[inserted], separator)
        n_before = np.arange(len(ends)) + (starts_new if to_front else True)
        yield TokenBlock(tokens, ends - n_dropped[ends] + n_before)
        starts_new = bool(len(ends) and ends[-1] == n_tokens)


def _starts(ends: NDArray[np.int64], n_tokens: int, starts_new: bool) -> NDArray[np.int64]:
    """Return the starts of the documents in a block."""
    first = np.zeros(1 if starts_new else 0, np.int64)
    starts = np.concatenate((first, ends))
    return starts[:-1] if len(ends) and ends[-1] == n_tokens else starts
