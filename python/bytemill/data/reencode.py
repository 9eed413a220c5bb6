"""Re-encode shards with another tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.data.corpus_reader import OnError, ShardCorpus
from bytemill.data.encode import encode_with
from bytemill.data.settings import EncodeSettings
from bytemill.data.token_source import find_separator, open_tokens
from bytemill.data.verification import require_intact
from bytemill.errors import SpecialTokenError
from bytemill.formats.spec import special_rules

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.data.manifest import Manifest
    from bytemill.data.pipeline import EncodeProgress
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
    """Open shards as a corpus for another tokenizer (see `ShardCorpus`).

    Args:
        source: A shard folder, or files of other programs (see `open_tokens`).
        tokenizer: The tokenizer that encoded them.
        target: The tokenizer that encodes the corpus.
        separator: Id or text of the token between documents. By default the manifest's separator, else the special
            token at the start of documents; in files of other programs `<|endoftext|>`. Without any, all ids are one
            document. A document index or sidecar files take precedence.
        on_error: Handling of broken documents (see `ShardCorpus`).
        source_layout: Layout of files without a manifest.
        source_dtype: Type of the ids in files that do not store it.
        progress: Called with the ids searched for special tokens so far, and all ids.
        verify: Compare the sha256 of every source file with the manifest first.

    Raises:
        ShardError: If the source cannot be read, is damaged or is of another tokenizer.
    """
    tokens = open_tokens(source, layout=source_layout, dtype=source_dtype)
    tokens.refuse_masks()
    if verify and tokens.manifest:
        require_intact(tokens.files[0].parent, tokens.manifest)
    if separator is None and tokens.manifest is None and _END_OF_TEXT in tokenizer.special_tokens:
        separator = _END_OF_TEXT
    find_separator(tokens, separator, tokenizer.special_tokens)
    prepended = tokens.manifest.settings.prepended if tokens.manifest else None
    if not tokens.knows_documents and prepended in tokenizer.special_tokens:
        tokens.separate_at(tokenizer.special_tokens[prepended or ""], in_front=True)
    # Special tokens that also match surrounding text or white space cannot be represented in plain text.
    rules = special_rules(target.special_tokens, target.token_flags, target.core.normalizer)
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
    documents: str | None = None,
    separators: bool | None = None,
    prepend: str | bool | None = None,
    validation_fraction: float = 0.0,
    split_seed: int = 0,
    shuffle_seed: int | None = None,
    num_threads: int | None = None,
    progress: Callable[[EncodeProgress], None] | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
    recheck: bool = False,
) -> Manifest:
    """Encode a `shard_corpus` with another tokenizer. Resumes and raises as `encode_corpus`.

    Args:
        corpus: The corpus.
        target: The tokenizer.
        out_folder: The output folder.
        layout: Layout of the result; by default as in the source. The same holds for the next two options.
        shard_tokens: Ids per shard.
        document_index: Write `documents.npy`.
        documents: Special token that ends documents; by default the source's, else `<|endoftext|>`.
        separators: Add it to every document; by default if the source has one.
        prepend: Special token at the start of every document; by default the source's if `target` has it. False for
            none.
        validation_fraction: As for `encode_corpus`.
        split_seed: As for `encode_corpus`.
        shuffle_seed: As for `encode_corpus`.
        num_threads: Threads of the encoder; by default one per core.
        progress: As for `encode_corpus`.
        note: As for `encode_corpus`.
        overwrite: Replace existing shards.
        recheck: As for `encode_corpus`.

    Returns:
        The manifest of the result.
    """
    settings = reencode_settings(
        corpus,
        target,
        layout=layout,
        shard_tokens=shard_tokens,
        document_index=document_index,
        documents=documents,
        separators=separators,
        prepend=prepend,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        shuffle_seed=shuffle_seed,
    )
    return encode_with(
        target,
        corpus,
        out_folder,
        settings,
        num_threads=num_threads,
        progress=progress,
        note=note,
        overwrite=overwrite,
        recheck=recheck,
    )


def reencode_settings(corpus: ShardCorpus, target: Tokenizer, **explicit: Any) -> EncodeSettings:
    """Return the settings with which `reencode_shards` encodes: explicit ones, else those of the source.

    Args:
        corpus: The corpus.
        target: The tokenizer.
        explicit: Settings; None stands for the source's.

    Raises:
        ShardError: A setting is out of range.
        SpecialTokenError: The target has no token for the source's separator.
    """
    around = corpus.around
    explicit = {name: value for name, value in explicit.items() if value is not None}
    separator = explicit.get("documents") or _separator_of(target, around.separator)
    source: dict[str, Any] = {
        "layout": around.layout,
        "document_index": around.has_index,
        "allowed_special": corpus.allowed_special or "none",
        "documents": separator,
        "separators": separator is not None,
        "prepend": around.prepended if around.prepended in target.special_tokens else False,
    }
    if around.shard_tokens is not None:
        source["shard_tokens"] = around.shard_tokens
    return EncodeSettings(**(source | explicit))


def _separator_of(target: Tokenizer, separator: str | None) -> str | None:
    """Return the separator of the result, or None if the source has none."""
    if separator is None:
        return None
    for token in (separator, _END_OF_TEXT):
        if token in target.special_tokens:
            return token
    raise SpecialTokenError(
        f"the separator {separator!r} is not a special token of the new tokenizer",
        hint=f"name one of its special tokens (--documents): {', '.join(target.special_tokens) or 'none'}",
    )
