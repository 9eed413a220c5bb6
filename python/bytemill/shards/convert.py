"""Shards of one layout to shards of another: the same ids, laid out anew."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bytemill._core import __version__
from bytemill.errors import ShardError
from bytemill.profiling import phase
from bytemill.shards.layouts import layout_named
from bytemill.shards.lock import claim_folder, remove_growing
from bytemill.shards.manifest import Manifest, ShardSettings, SourceInfo, write_manifest
from bytemill.shards.separators import move_separators
from bytemill.shards.shard_writer import ShardWriter
from bytemill.shards.token_source import TokenBlock, TokenSource, find_separator, open_tokens
from bytemill.shards.verify import require_intact

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from bytemill.shards.layouts import Dtype, Layout

DEFAULT_SHARD_TOKENS = 100_000_000
UNKNOWN_FINGERPRINT = "unknown"
"""In the manifest of ids whose tokenizer nobody named."""

_MOVED = {True: "goes in front of each document", False: "goes behind each document"}


class NamedTokenizer(Protocol):
    """What is asked of the tokenizer that made the ids."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class ConvertProgress:
    """How far a conversion has come."""

    n_tokens: int
    total_tokens: int
    n_shards: int
    """Shards that stand under their names."""


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
    source_layout: str | None = None,
    source_dtype: str | None = None,
    note: Callable[[str], None] | None = None,
    progress: Callable[[ConvertProgress], None] | None = None,
    overwrite: bool = False,
    verify: bool = True,
) -> Manifest:
    """Lay out the ids at `source` anew in `out_folder`, in constant memory; the manifest that is written there.

    `source` is a folder of shards, or files of other programs (see `open_tokens`, which `source_layout` and
    `source_dtype` are for). `shard_tokens` are as many as in the source by default.

    Documents end where the source says so: by its document index, by the files of its layout, or at the id `separator`
    (a special token by its id, or by its text if `tokenizer` is given; shards with a manifest name it themselves).
    Where the layout wants the separator at the other end of documents it is moved there, and every document has one
    then; `keep_separators` leaves all ids as they are. A document index is written where documents are known, unless
    `document_index` is False.

    `tokenizer` is the one that made the ids. Shards with a manifest name its fingerprint; for others it is asked for,
    or stays unknown.
    `verify` compares the sha256 of every source file with the manifest first. `note` receives a
    sentence when separators move.

    Raises `ShardError` for a source that cannot be read, is damaged or belongs to another tokenizer, for an
    `out_folder` that must not be replaced, and where the layout cannot hold the ids or needs to know the documents;
    `OutputError` where writing fails. After an interruption the next run starts afresh.
    """
    target = layout_named(layout)
    tokens = open_tokens(source, layout=source_layout, dtype=source_dtype)
    _check(tokens, tokenizer, Path(source), Path(out_folder))
    if verify and tokens.manifest:
        require_intact(tokens.files[0].parent, tokens.manifest)
    find_separator(tokens, separator, tokenizer.special_tokens if tokenizer else {})
    if target.whole_documents and not tokens.knows_documents:
        raise ShardError(
            f"the layout {layout} is made of documents, and nothing in {source} says where they end",
            hint="name the id that separates them: separator=50256 (--separator 50256) for GPT-2",
        )
    if document_index and not tokens.knows_documents:
        raise ShardError(
            f"nothing in {source} says where documents end",
            hint="name the id that separates them: separator=50256 (--separator 50256) for GPT-2",
        )
    known = tokens.manifest
    n_vocab = known.n_vocab if known else tokenizer.n_vocab if tokenizer else None
    dtype = target.dtype(_narrowest(tokens, n_vocab))
    if shard_tokens is None:
        shard_tokens = known.settings.shard_tokens if known else DEFAULT_SHARD_TOKENS
    if shard_tokens < 1:
        raise ShardError(f"shard_tokens is {shard_tokens}; a shard holds at least one token")
    target.header(dtype, shard_tokens)  # refuses too many before a folder is touched
    fingerprint = known.fingerprint if known else tokenizer.fingerprint if tokenizer else UNKNOWN_FINGERPRINT
    folder = Path(out_folder)
    has_index = tokens.knows_documents and document_index is not False
    with phase("convert"), claim_folder(folder, overwrite=overwrite), contextlib.ExitStack() as stack:
        writer = ShardWriter(folder, target, dtype, shard_tokens, fingerprint, document_index=has_index)
        stack.callback(writer.close)
        limits = _Limits(tokens, n_vocab if n_vocab is not None else 2**32)
        n_documents = 0
        if note and _moves(tokens, target, keep_separators):
            note(
                f"the separator, {tokens.separator}, {_MOVED[target.separator_in_front]} (not with --keep-separators)"
            )
        for block in _arranged(limits.checked(), tokens, target, keep_separators):
            writer.append([block.tokens], block.ends.astype(np.uint64))
            n_documents += len(block.ends)
            if progress:
                progress(ConvertProgress(limits.n_tokens, tokens.n_tokens, len(writer.shards)))
        shards, documents = writer.finish()
        manifest = dataclasses.replace(
            known or _manifest_of(tokens),
            bytemill_version=__version__,
            fingerprint=fingerprint,
            n_vocab=n_vocab if n_vocab is not None else limits.highest + 1,
            dtype=dtype,
            n_tokens=writer.n_tokens,
            n_documents=n_documents if tokens.knows_documents else known.n_documents if known else 0,
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
        write_manifest(folder, manifest)
        remove_growing(folder)
    return manifest


def _check(tokens: TokenSource, tokenizer: NamedTokenizer | None, source: Path, out_folder: Path) -> None:
    """Refuse what would lose or mix up ids, before anything is written."""
    if tokens.n_tokens == 0:
        raise ShardError(f"{source} holds no token")
    if any(file.parent.resolve() == out_folder.resolve() for file in tokens.files):
        raise ShardError(f"{out_folder} holds the ids themselves", hint="give another folder for the result")
    if tokens.manifest and tokenizer and tokenizer.fingerprint != tokens.manifest.fingerprint:
        raise ShardError(
            f"the shards in {source} were made with the tokenizer {tokens.manifest.fingerprint}, "
            f"this one is {tokenizer.fingerprint}",
            hint="name the tokenizer that they were made with, or none",
        )


def _manifest_of(tokens: TokenSource) -> Manifest:
    """What can be said of the ids of other programs."""
    return Manifest(
        bytemill_version=__version__,
        fingerprint=UNKNOWN_FINGERPRINT,
        n_vocab=0,
        dtype="uint32",
        n_tokens=0,
        n_bytes=0,
        n_documents=0,
        n_replaced=0,
        shards=(),
        sources=tuple(SourceInfo(str(file), file.stat().st_size) for file in tokens.files),
        settings=ShardSettings(0, "all", "strict", None, False),
    )


def _settings(
    tokens: TokenSource,
    tokenizer: NamedTokenizer | None,
    *,
    is_moved: bool,
    shard_tokens: int,
    has_index: bool,
) -> ShardSettings:
    """What the result has around documents, as far as it is known."""
    before = (tokens.manifest or _manifest_of(tokens)).settings
    names = {token: text for text, token in tokenizer.special_tokens.items()} if tokenizer else {}
    separator = before.document_separator if tokens.separator is None else names.get(tokens.separator)
    return dataclasses.replace(
        before,
        shard_tokens=shard_tokens,
        document_index=has_index,
        document_separator=separator or before.document_separator,
        append_separator=is_moved or before.append_separator,
    )


def _narrowest(tokens: TokenSource, n_vocab: int | None) -> Dtype:
    if n_vocab is not None:
        return "uint16" if n_vocab <= 1 << 16 else "uint32"
    return "uint16" if tokens.dtype in ("uint8", "uint16") else "uint32"


class _Limits:
    """Lets blocks pass whose ids are within the vocabulary."""

    def __init__(self, tokens: TokenSource, n_vocab: int) -> None:
        self.n_tokens = 0
        self.highest = 0
        self._source = tokens
        self._n_vocab = n_vocab

    def checked(self) -> Iterator[TokenBlock]:
        for block in self._source.blocks():
            lowest, highest = int(block.tokens.min()), int(block.tokens.max())
            if lowest < 0 or highest >= self._n_vocab:
                bad = lowest if lowest < 0 else highest
                place = self._source.place(self.n_tokens + int(np.argmax(block.tokens == bad)))
                raise ShardError(
                    f"{place} is {bad:,}, no id of a vocabulary of {self._n_vocab:,}",
                    hint="the file is damaged, of another dtype, or of another tokenizer",
                )
            self.highest = max(self.highest, highest)
            self.n_tokens += len(block.tokens)
            yield block


def _arranged(
    blocks: Iterator[TokenBlock], tokens: TokenSource, target: Layout, keep_separators: bool
) -> Iterator[TokenBlock]:
    """`blocks` with the separators where the layout wants them."""
    if tokens.separator is None or not _moves(tokens, target, keep_separators):
        return blocks
    return move_separators(blocks, tokens.separator, to_front=target.separator_in_front)


def _moves(tokens: TokenSource, target: Layout, keep_separators: bool) -> bool:
    is_elsewhere = target.separator_in_front != tokens.separator_in_front
    return tokens.separator is not None and is_elsewhere and not keep_separators
