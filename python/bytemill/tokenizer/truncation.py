"""A smaller tokenizer from the first merges of a larger one."""

from __future__ import annotations

import operator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec


def truncate(spec: TokenizerSpec, vocab_size: int) -> TokenizerSpec:
    """See `Tokenizer.truncate`.

    Learning picks one merge after the other and never looks ahead, so the first merges of a vocabulary are those that a
    smaller one has.
    """
    try:
        vocab_size = operator.index(vocab_size)
    except TypeError:
        raise TypeError(f"vocab_size must be an int, not {type(vocab_size).__name__}") from None
    made = _ids_of_merges(spec)
    special_ids = set(spec.special_tokens.values())
    n_tokens = len(spec.vocab.keys() | special_ids)
    n_ids = max(spec.vocab.keys() | special_ids) + 1
    if n_tokens <= vocab_size <= n_ids:
        return spec
    if vocab_size > n_ids:
        raise TokenizerError(
            f"vocab_size {vocab_size} is more than the {n_tokens} tokens that there are",
            hint=f"give a vocab_size of at most {n_tokens}, or train a larger tokenizer",
        )
    n_merges, n_kept = len(made), n_tokens
    while n_kept > vocab_size and n_merges:
        n_merges -= 1
        # A special token that was the result of a merge too stays without it.
        n_kept -= made[n_merges] not in special_ids
    if n_kept > vocab_size:
        raise TokenizerError(
            f"vocab_size {vocab_size} is too small: 256 bytes and the special tokens make {n_kept}",
            hint=f"give a vocab_size of at least {n_kept}",
        )
    dropped = set(made[n_merges:])
    vocab = {token_id: token for token_id, token in spec.vocab.items() if token_id not in dropped}
    return replace(
        spec,
        vocab=vocab,
        merges=(spec.merges or [])[:n_merges],
        special_tokens=_moved_up(spec.special_tokens, max(vocab)),
        merge_counts=spec.merge_counts and spec.merge_counts[:n_merges],
    )


def _moved_up(special_tokens: dict[str, int], last: int) -> dict[str, int]:
    """`special_tokens` with those behind the id `last` directly behind it, in their order."""
    moved: dict[str, int] = {}
    next_id = last + 1
    for text, token_id in sorted(special_tokens.items(), key=lambda item: item[1]):
        if token_id > last:
            moved[text] = next_id
            next_id += 1
        else:
            moved[text] = token_id
    return moved


def _ids_of_merges(spec: TokenizerSpec) -> list[int]:
    """The ids of the results of the merges, in order.

    Raises TokenizerError where a smaller vocabulary would not be that of the first merges.
    """
    if spec.merges is None:
        raise TokenizerError(
            "a tokenizer by ranks that no list of merges stands for cannot be truncated: some of its tokens are not "
            "made of tokens of lower rank, so its first tokens are not what training would have given"
        )
    ids = {token: token_id for token_id, token in spec.vocab.items()}
    made = [ids[left + right] for left, right in spec.merges]
    if len(ids) != 256 + len(made):
        alone = ids.keys() - {left + right for left, right in spec.merges}
        token_id, token = min((ids[token], token) for token in alone if len(token) > 1)
        raise TokenizerError(
            f"token {token!r} (id {token_id}) is made by no merge, so no merge is its place to cut"
        )
    last_byte = max(ids[bytes([byte])] for byte in range(256))
    for before, after in pairwise([last_byte, *made]):
        if after < before:
            raise TokenizerError(
                f"the ids do not follow the merges: {spec.vocab[before]!r} (id {before}) comes before "
                f"{spec.vocab[after]!r} (id {after}) in training, so fewer merges would leave gaps in the ids"
            )
    return made
