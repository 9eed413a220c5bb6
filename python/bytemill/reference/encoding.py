"""Step 3: encode text to ids, and decode ids to text.

A pre-token starts as its single bytes, and the merges apply in the order in which they were learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from bytemill.errors import SpecialTokenError, TokenizerError
from bytemill.reference.pretokens import check_special_tokens, pretoken_bytes, split_at_special_tokens
from bytemill.reference.training import single_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from bytemill.reference.training import Pair

AllowedSpecial: TypeAlias = "Literal['all', 'none', 'none_raise'] | Collection[str]"


class MergeStep(NamedTuple):
    """One merge in the encoding of a pre-token."""

    rank: int
    left: bytes
    right: bytes
    left_index: int
    """Index of the left token before the merge."""


def merge_by_rank(
    pretoken: bytes, rank_of: Callable[[bytes, bytes], int | None]
) -> tuple[list[bytes], list[MergeStep]]:
    """Merge the adjacent pair with the lowest rank, leftmost first, until no pair has a rank.

    Args:
        pretoken: UTF-8 of a pre-token.
        rank_of: Rank of a pair, or None if it does not merge.

    Returns:
        The tokens, and the merges in order.
    """
    tokens = single_bytes(pretoken)
    steps: list[MergeStep] = []
    while True:
        candidates = [
            MergeStep(rank, left, right, index)
            for index, (left, right) in enumerate(pairwise(tokens))
            if (rank := rank_of(left, right)) is not None
        ]
        if not candidates:
            return tokens, steps
        step = min(candidates, key=lambda candidate: (candidate.rank, candidate.left_index))
        tokens[step.left_index : step.left_index + 2] = [step.left + step.right]
        steps.append(step)


def apply_merges(pretoken: bytes, merge_ranks: Mapping[Pair, int]) -> list[bytes]:
    """Encode a pre-token with ranked merges: pairs in the table merge.

    >>> apply_merges(b"lower", {(b"o", b"w"): 0, (b"l", b"ow"): 1})
    [b'low', b'e', b'r']
    """
    tokens, _ = merge_by_rank(pretoken, lambda left, right: merge_ranks.get((left, right)))
    return tokens


def encode_by_ranks(pretoken: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """Encode a pre-token with ranked tokens, as tiktoken does. The id of a token is its rank.

    A pre-token that is a token is encoded as that token. Otherwise pairs merge whose concatenation is a token, whatever
    merge the token was learned from.

    Args:
        pretoken: UTF-8 of a pre-token.
        ranks: Rank of each token.

    Raises:
        TokenizerError: A byte of the pre-token is not a token.

    >>> encode_by_ranks(b"lowl", {b"l": 0, b"o": 1, b"w": 2, b"ow": 3, b"low": 4})
    [4, 0]
    """
    if pretoken in ranks:
        return [ranks[pretoken]]
    tokens, _ = merge_by_rank(pretoken, lambda left, right: ranks.get(left + right))
    return _ids_of(tokens, ranks)


def _ids_of(tokens: list[bytes], id_of: Mapping[bytes, int]) -> list[int]:
    for token in tokens:
        if token not in id_of:
            raise TokenizerError(f"the vocabulary has no token {token!r}", hint="add all 256 bytes to it")
    return [id_of[token] for token in tokens]


class ReferenceTokenizer:
    """A tokenizer that encodes and decodes by definition.

    Args:
        vocab: Bytes of each token by id. It may contain the special tokens.
        merges: Merges in rank order. None: the id of a token is its rank, as in tiktoken.
        special_tokens: Special tokens, or their ids by text. Without an id, a special token gets the highest id of a
            token with the same bytes, else the next free id.
        pattern: A pattern as in `pretokenize`.

    Raises:
        TokenizerError: Vocabulary, merges and special tokens contradict each other.

    >>> from bytemill.reference import train
    >>> vocab, merges = train("so so so", vocab_size=259, special_tokens=["<|end|>"])
    >>> tokenizer = ReferenceTokenizer(vocab, merges, ["<|end|>"])
    >>> tokenizer.encode("so so<|end|>")
    [256, 257, 258]
    >>> tokenizer.decode([256, 257, 258])
    'so so<|end|>'
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Sequence[Pair] | None,
        special_tokens: Sequence[str] | Mapping[str, int] = (),
        pattern: str | None = "gpt2",
    ) -> None:
        self.pattern = pattern
        self.vocab = dict(vocab)
        self.special_tokens = _add_special_tokens(self.vocab, special_tokens)
        special_ids = set(self.special_tokens.values())
        self._id_of = {token: number for number, token in self.vocab.items() if number not in special_ids}
        self._merge_ranks = None if merges is None else {pair: rank for rank, pair in enumerate(merges)}
        if self._merge_ranks is not None:
            # A special token may have the bytes of a merged token: then they share an id.
            for text, token_id in self.special_tokens.items():
                self._id_of.setdefault(text.encode(), token_id)
            for (left, right), rank in self._merge_ranks.items():
                for token in (left, right, left + right):
                    if token not in self._id_of:
                        raise TokenizerError(
                            f"merge {rank} of {left!r} and {right!r}: the vocabulary has no token {token!r}",
                            hint="pass the vocabulary and the merges of the same tokenizer",
                        )

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        return max(self.vocab, default=-1) + 1

    def encode(self, text: str, allowed_special: AllowedSpecial = "all") -> list[int]:
        """Encode a text.

        Args:
            text: A text.
            allowed_special: Special tokens to recognize: "all", "none" or a set; the others are plain text.
                "none_raise" raises if the text contains one.

        Raises:
            SpecialTokenError: The text contains a special token and `allowed_special` is "none_raise", or the set
                names an unknown special token.
            UnicodeEncodeError: The text contains a lone surrogate.
        """
        ids: list[int] = []
        for part, is_special in split_at_special_tokens(text, self._recognized(text, allowed_special)):
            if is_special:
                ids.append(self.special_tokens[part])
            else:
                for pretoken in pretoken_bytes(part, self.pattern):
                    ids += self.encode_pretoken(pretoken)
        return ids

    def encode_pretoken(self, pretoken: bytes) -> list[int]:
        """Encode the UTF-8 of one pre-token."""
        if self._merge_ranks is None:
            return encode_by_ranks(pretoken, self._id_of)
        return _ids_of(apply_merges(pretoken, self._merge_ranks), self._id_of)

    def _recognized(self, text: str, allowed_special: AllowedSpecial) -> set[str]:
        """Return the special tokens to split the text at."""
        if allowed_special == "all":
            return set(self.special_tokens)
        if allowed_special == "none":
            return set()
        if allowed_special == "none_raise":
            position = 0
            for part, is_special in split_at_special_tokens(text, self.special_tokens):
                if is_special:
                    raise SpecialTokenError(
                        f"the text has special token {part!r} at character {position}",
                        hint="pass allowed_special='all' to recognize it or 'none' to take it as plain text",
                    )
                position += len(part)
            return set()
        if isinstance(allowed_special, str):
            raise SpecialTokenError(
                f"allowed_special is {allowed_special!r}",
                hint="use 'all', 'none', 'none_raise' or a set of special tokens",
            )
        for name in allowed_special:
            if name not in self.special_tokens:
                raise SpecialTokenError(
                    f"allowed_special names {name!r}, which is not a special token of this tokenizer",
                    hint=f"its special tokens: {', '.join(map(repr, self.special_tokens)) or 'none'}",
                )
        return set(allowed_special)

    def decode_tokens_bytes(self, ids: Iterable[int]) -> list[bytes]:
        """Return the bytes of each token. Raises KeyError with the first unknown id."""
        return [self.vocab[token_id] for token_id in ids]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of the tokens, joined. Raises KeyError with the first unknown id."""
        return b"".join(self.decode_tokens_bytes(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the tokens, with U+FFFD for invalid UTF-8. Raises KeyError with the first unknown id."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


def _add_special_tokens(
    vocab: dict[int, bytes], special_tokens: Sequence[str] | Mapping[str, int]
) -> dict[str, int]:
    """Add the special tokens to `vocab` and return their ids."""
    check_special_tokens(special_tokens)
    id_of: dict[str, int] = {}
    for text in special_tokens:
        token = text.encode()
        if isinstance(special_tokens, Mapping):
            token_id = special_tokens[text]
        else:
            same_bytes = [known_id for known_id, known in vocab.items() if known == token]
            token_id = max(same_bytes, default=max(vocab, default=-1) + 1)
        if vocab.setdefault(token_id, token) != token:
            raise TokenizerError(
                f"special token {text!r} has id {token_id}, which token {vocab[token_id]!r} has already",
                hint="use another id",
            )
        id_of[text] = token_id
    return id_of
