"""Truncation of a tokenizer to its first merges."""

from __future__ import annotations

import operator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerMetadata, TokenizerSpec


def truncate(spec: TokenizerSpec, vocab_size: int) -> TokenizerSpec:
    """Implement `Tokenizer.truncate`.

    Training chooses one merge after the other without looking ahead, so the first merges of a vocabulary are those of a
    smaller one.
    """
    try:
        vocab_size = operator.index(vocab_size)
    except TypeError:
        raise TypeError(f"vocab_size must be an int, not {type(vocab_size).__name__}") from None
    if spec.characters is not None:
        raise TokenizerError(
            "cannot truncate a tokenizer whose smallest tokens are characters",
            hint="train a smaller one with SentencePiece",
        )
    if spec.shape.suffix is not None:
        raise TokenizerError(f"cannot truncate a tokenizer whose words end with {spec.shape.suffix!r}")
    made = _ids_of_merges(spec)
    special_ids = set(spec.special_tokens.values())
    n_tokens = len(spec.vocab.keys() | special_ids)
    n_ids = max(spec.vocab.keys() | special_ids) + 1
    if n_tokens <= vocab_size <= n_ids:
        return spec
    if vocab_size > n_ids:
        raise TokenizerError(
            f"vocab_size {vocab_size} is more than the {n_tokens} tokens of this tokenizer",
            hint=f"give a vocab_size of at most {n_tokens}, or train a larger tokenizer",
        )
    n_merges, n_kept = len(made), n_tokens
    while n_kept > vocab_size and n_merges:
        n_merges -= 1
        # A special token that is also the product of a merge stays.
        n_kept -= made[n_merges] not in special_ids
    if n_kept > vocab_size:
        raise TokenizerError(
            f"vocab_size {vocab_size} is too small: 256 bytes and the special tokens make {n_kept}",
            hint=f"give a vocab_size of at least {n_kept}",
        )
    dropped = set(made[n_merges:])
    vocab = {token_id: token for token_id, token in spec.vocab.items() if token_id not in dropped}
    special_tokens = _renumbered(spec.special_tokens, max(vocab))
    new_ids: dict[int, int | None] = dict.fromkeys(dropped)
    new_ids |= {spec.special_tokens[text]: token_id for text, token_id in special_tokens.items()}
    return replace(
        spec,
        vocab=vocab,
        merges=(spec.merges or [])[:n_merges],
        special_tokens=special_tokens,
        metadata=_with_new_ids(spec.metadata, new_ids),
        merge_counts=spec.merge_counts and spec.merge_counts[:n_merges],
    )


def _with_new_ids(
    metadata: TokenizerMetadata | None, new_ids: dict[int, int | None]
) -> TokenizerMetadata | None:
    if metadata is None or metadata.post_processor is None:
        return metadata
    from bytemill.formats.huggingface.parts import with_new_ids

    return replace(metadata, post_processor=with_new_ids(metadata.post_processor, new_ids))


def _renumbered(special_tokens: dict[str, int], last: int) -> dict[str, int]:
    """Renumber the special tokens after the id `last` to follow it directly, in their order."""
    renumbered: dict[str, int] = {}
    next_id = last + 1
    for text, token_id in sorted(special_tokens.items(), key=lambda item: item[1]):
        if token_id > last:
            renumbered[text] = next_id
            next_id += 1
        else:
            renumbered[text] = token_id
    return renumbered


def _ids_of_merges(spec: TokenizerSpec) -> list[int]:
    """Return the ids of the products of the merges, in order.

    Raises:
        TokenizerError: The first merges are not the vocabulary that training with a smaller size would produce.
    """
    if spec.merges is None:
        raise TokenizerError(
            "cannot truncate ranks without an equivalent list of merges: some tokens are not merged from tokens of "
            "lower rank"
        )
    ids = {token: token_id for token_id, token in spec.vocab.items()}
    made = [ids[left + right] for left, right in spec.merges]
    if len(ids) != 256 + len(made):
        alone = ids.keys() - {left + right for left, right in spec.merges}
        token_id, token = min((ids[token], token) for token in alone if len(token) > 1)
        raise TokenizerError(f"cannot truncate: no merge produces token {token!r} (id {token_id})")
    last_byte = max(ids[bytes([byte])] for byte in range(256))
    for before, after in pairwise([last_byte, *made]):
        if after < before:
            raise TokenizerError(
                f"cannot truncate: ids do not follow the order of the merges, {spec.vocab[before]!r} (id {before}) "
                f"precedes {spec.vocab[after]!r} (id {after})"
            )
    return made
