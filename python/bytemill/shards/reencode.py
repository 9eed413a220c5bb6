"""Shards of one tokenizer to shards of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import SpecialTokenError
from bytemill.formats.spec import special_rules
from bytemill.shards.encode import encode_corpus
from bytemill.shards.shard_corpus import OnError, ShardCorpus
from bytemill.shards.token_source import find_separator, open_tokens
from bytemill.shards.verify import require_intact

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.shards.manifest import Manifest
    from bytemill.shards.pipeline import EncodeProgress
    from bytemill.tokenizer.tokenizer import Tokenizer

_END_OF_TEXT = "<|endoftext|>"


def shard_corpus(
    source: str | os.PathLike[str],
    tokenizer: Tokenizer,
    target: Tokenizer,
    *,
    separator: int | str | None = None,
    on_error: OnError = "fail",
    source_layout: str | None = None,
    source_dtype: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    verify: bool = True,
) -> ShardCorpus:
    """The documents at `source`, which `tokenizer` made, as a corpus for `target` (see `ShardCorpus`).

    `source` is a folder of shards, or files of other programs (see `open_tokens`). Documents end where the source says
    so, or at the id `separator` (or special token of `tokenizer`); by default at the one that the manifest names, or at
    the one that it says they begin with, and in files of other programs at `<|endoftext|>`. Where nothing is known all
    is one document.

    `verify` compares the sha256 of every source file with the manifest first.

    Raises `ShardError` for a source that cannot be read, is damaged or belongs to another tokenizer.
    """
    tokens = open_tokens(source, layout=source_layout, dtype=source_dtype)
    if verify and tokens.manifest:
        require_intact(tokens.files[0].parent, tokens.manifest)
    if separator is None and tokens.manifest is None and _END_OF_TEXT in tokenizer.special_tokens:
        separator = _END_OF_TEXT
    find_separator(tokens, separator, tokenizer.special_tokens)
    prepended = tokens.manifest.settings.prepended if tokens.manifest else None
    if not tokens.knows_documents and prepended in tokenizer.special_tokens:
        tokens.separate_at(tokenizer.special_tokens[prepended or ""], in_front=True)
    # Some special tokens are found by what stands around them too, or take up white space: text does not carry them.
    rules = special_rules(target.special_tokens, target.token_flags, target.normalizer)
    plain = {text: token for text, token in target.special_tokens.items() if text not in rules}
    return ShardCorpus(tokens, tokenizer, plain, on_error=on_error, progress=progress)


def reencode_shards(
    corpus: ShardCorpus,
    target: Tokenizer,
    out_folder: str | os.PathLike[str],
    *,
    layout: str | None = None,
    shard_tokens: int | None = None,
    document_index: bool | None = None,
    document_separator: str | None = None,
    append_separator: bool | None = None,
    prepend: str | bool | None = None,
    validation_fraction: float = 0.0,
    split_seed: int = 0,
    num_threads: int | None = None,
    progress: Callable[[EncodeProgress], None] | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Encode a `shard_corpus` with `target` to `out_folder`: the manifest that is written there.

    What is not said is as it was in the source: layout, size of shards, document index, and the tokens around
    documents, where `target` has those too. `document_separator` and `prepend` name others, `append_separator=False`
    and `prepend=False` leave them out. Everything else is as in `encode_corpus`, which does the work: workers,
    resuming after an interruption, what is raised. A document without text has no tokens.
    """
    around = corpus.around
    separator = document_separator or _separator_of(target, around.separator)
    if append_separator is None:
        append_separator = separator is not None
    if prepend is None:
        prepend = around.prepended if around.prepended in target.special_tokens else False
    size = shard_tokens or around.shard_tokens
    options: dict[str, Any] = {} if size is None else {"shard_tokens": size}
    return encode_corpus(
        target,
        corpus,
        out_folder,
        layout=layout or around.layout,
        document_index=around.has_index if document_index is None else document_index,
        allowed_special=corpus.allowed_special or "none",
        document_separator=separator,
        append_separator=append_separator,
        prepend=prepend,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        num_threads=num_threads,
        progress=progress,
        overwrite=overwrite,
        **options,
    )


def _separator_of(target: Tokenizer, separator: str | None) -> str | None:
    """The special token of `target` that stands where `separator` stood; None where none stood."""
    if separator is None:
        return None
    for token in (separator, _END_OF_TEXT):
        if token in target.special_tokens:
            return token
    raise SpecialTokenError(
        f"the documents are separated by {separator!r}, which the new tokenizer does not have",
        hint=f"name one of its special tokens (--document-separator): {', '.join(target.special_tokens) or 'none'}",
    )
