"""Removal of tokens that texts rarely use.

Tokens form a graph: a merge makes one of two others. Only a token that no remaining merge joins to a longer one, a
leaf, can go: then its merge fires only where the token stands in the result. Without it, texts that do not contain the
token keep their segmentation, and all others still decode to the same bytes, because the 256 bytes stay.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import TokenizerError
from bytemill.formats.huggingface.parts import with_new_ids
from bytemill.tokenizer.surgery.vocabulary import check_byte_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from bytemill.formats.spec import TokenizerMetadata, TokenizerSpec
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Trimmed:
    """A tokenizer with fewer tokens."""

    tokenizer: Tokenizer
    id_map: NDArray[np.int32]
    """The new id of each old one, -1 for a token that is gone and for an id without a token."""
    removed: list[bytes]
    """The tokens that are gone, in the order of their removal."""

    n_uses_removed: int | None
    """Uses of the removed tokens in the text; None if no counts were given."""


def trim(
    base: Tokenizer,
    counts: Sequence[int] | NDArray[Any] | None = None,
    *,
    vocab_size: int | None = None,
    min_count: int | None = None,
    keep: Iterable[str | bytes] = (),
) -> Trimmed:
    """Remove tokens of a tokenizer, the least used first.

    A token is removed only when no remaining merge needs it. Its count then goes to the two tokens of its merge, which
    stand in its place. The remaining tokens get new ids without gaps, in the order of the old ones.

    Args:
        base: A byte-level BPE tokenizer with merges.
        counts: Uses of each id in a text, such as `bytemill.count_tokens` returns. None: no token is used, so that the
            last merges go first.
        vocab_size: Remove tokens until this many are left, special tokens included.
        min_count: Remove all tokens that are used less often.
        keep: Tokens to keep, or texts whose tokens are kept, with the tokens that their merges need. Without
            `vocab_size` and `min_count`, all other tokens are removed. Bytes and special tokens always stay.

    Returns:
        The new tokenizer, and the new id of each old one.

    Raises:
        TokenizerError: The base is not byte-level BPE or has ranks that no merges stand for, nothing says what to
            remove, `vocab_size` is below what has to stay, or `counts` belong to another tokenizer.

    >>> import bytemill
    >>> base = bytemill.train_from_iterator(["low low lower widest widest"], 264, ["<e>"])
    >>> trimmed = trim(base, bytemill.count_tokens(base, ["low lower"]), vocab_size=259)
    >>> trimmed.tokenizer.merges, trimmed.tokenizer.special_tokens
    ([(b'o', b'w'), (b'l', b'ow')], {'<e>': 258})
    """
    spec = check_byte_level(base, "trim")
    if spec.merges is None:
        raise TokenizerError(
            "cannot trim ranks without an equivalent list of merges: some tokens are not merged from tokens of lower "
            "rank"
        )
    keep = list(keep)
    if vocab_size is None and min_count is None and not keep:
        raise TokenizerError(
            "nothing says which tokens to remove",
            hint="set a vocabulary size, a smallest count or what to keep",
        )
    uses = _checked_counts(base, counts)
    graph = _Graph(base, spec, uses, _kept_ids(base, keep))
    n_tokens = len(spec.vocab.keys() | set(spec.special_tokens.values()))
    n_removable: int | None = None
    if vocab_size is not None:
        if vocab_size > n_tokens:
            raise TokenizerError(
                f"vocab_size {vocab_size} is more than the {n_tokens} tokens of this tokenizer",
                hint=f"give a vocab_size of at most {n_tokens}",
            )
        n_removable = n_tokens - vocab_size
    removed = graph.remove(n_removable, min_count)
    if n_removable is not None and len(removed) < n_removable and min_count is None:
        least = n_tokens - len(removed)
        raise TokenizerError(
            f"vocab_size {vocab_size} is too small: bytes, special tokens and tokens to keep, with what their merges "
            f"need, make {least}",
            hint=f"give a vocab_size of at least {least}",
        )
    new_spec, id_map = _without(spec, set(removed), base.n_vocab)
    n_uses = None if counts is None else int(uses[removed].sum()) if removed else 0
    vocab = base.vocab
    return Trimmed(type(base).from_spec(new_spec), id_map, [vocab[i] for i in removed], n_uses)


def _checked_counts(base: Tokenizer, counts: Sequence[int] | NDArray[Any] | None) -> NDArray[np.int64]:
    if counts is None:
        return np.zeros(base.n_vocab, dtype=np.int64)
    uses = np.asarray(counts, dtype=np.int64)
    if uses.shape != (base.n_vocab,):
        raise TokenizerError(
            f"counts have the shape {uses.shape}, but this tokenizer has {base.n_vocab} ids",
            hint="count with the tokenizer that is trimmed",
        )
    return uses


def _kept_ids(base: Tokenizer, keep: Iterable[str | bytes]) -> set[int]:
    kept: set[int] = set()
    for text in keep:
        token_id = base.token_to_id(text)
        if token_id is not None:
            kept.add(token_id)
        elif isinstance(text, str):
            kept.update(base.encode_ordinary(text))
        else:
            raise TokenizerError(f"cannot keep {text!r}: it is not a token")
    return kept


class _Graph:
    """The merge graph: which tokens remaining merges join to longer ones."""

    def __init__(self, base: Tokenizer, spec: TokenizerSpec, uses: NDArray[np.int64], kept: set[int]) -> None:
        ids = {token: token_id for token_id, token in spec.vocab.items()}
        self._uses = uses.copy()
        self._parts: dict[int, tuple[int, int]] = {}
        self._order: dict[int, int] = {}
        self._n_users = [0] * base.n_vocab
        for number, (left, right) in enumerate(spec.merges or ()):
            token_id = ids[left + right]
            self._parts[token_id] = ids[left], ids[right]
            self._order[token_id] = number
            self._n_users[ids[left]] += 1
            self._n_users[ids[right]] += 1
        fixed = kept | set(spec.special_tokens.values())
        self._removable = {i for i, token in spec.vocab.items() if len(token) > 1 and i not in fixed}

    def remove(self, n_tokens: int | None, min_count: int | None) -> list[int]:
        """Return the ids of up to `n_tokens` tokens in the order of their removal, of those below `min_count`."""
        leaves = [self._entry(i) for i in self._removable if not self._n_users[i]]
        heapq.heapify(leaves)
        removed: list[int] = []
        while leaves and (n_tokens is None or len(removed) < n_tokens):
            uses, _, token_id = heapq.heappop(leaves)
            if uses != self._uses[token_id]:
                heapq.heappush(leaves, self._entry(token_id))  # tokens made of it have gone since
                continue
            if min_count is not None and uses >= min_count:
                break
            removed.append(token_id)
            for part in self._parts.get(token_id, ()):
                self._uses[part] += uses
                self._n_users[part] -= 1
                if not self._n_users[part] and part in self._removable:
                    heapq.heappush(leaves, self._entry(part))
        return removed

    def _entry(self, token_id: int) -> tuple[int, int, int]:
        """Order by uses, then the last merges first; a token without a merge is the last of all."""
        return int(self._uses[token_id]), -self._order.get(token_id, len(self._order)), token_id


def _without(spec: TokenizerSpec, removed: set[int], n_ids: int) -> tuple[TokenizerSpec, NDArray[np.int32]]:
    kept = sorted((spec.vocab.keys() | set(spec.special_tokens.values())) - removed)
    id_map = np.full(n_ids, -1, dtype=np.int32)
    id_map[kept] = np.arange(len(kept), dtype=np.int32)
    new_ids: dict[int, int | None] = {old: int(new) if new >= 0 else None for old, new in enumerate(id_map)}
    gone = {spec.vocab[i] for i in removed}
    indices = [i for i, (left, right) in enumerate(spec.merges or ()) if left + right not in gone]
    merges, counts = spec.merges or [], spec.merge_counts
    new_spec = replace(
        spec,
        vocab={int(id_map[i]): token for i, token in spec.vocab.items() if i not in removed},
        merges=[merges[i] for i in indices],
        merge_counts=None if counts is None else [counts[i] for i in indices],
        special_tokens={text: int(id_map[i]) for text, i in spec.special_tokens.items()},
        metadata=_with_new_ids(spec.metadata, new_ids),
    )
    return new_spec, id_map


def _with_new_ids(
    metadata: TokenizerMetadata | None, new_ids: dict[int, int | None]
) -> TokenizerMetadata | None:
    if metadata is None or metadata.post_processor is None:
        return metadata
    return replace(metadata, post_processor=with_new_ids(metadata.post_processor, new_ids))
