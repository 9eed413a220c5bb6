"""Chapter 3: from a text to ids, and back.

A pre-token starts as its single bytes, and the merges are done over in the order in which they were learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from bytemill.errors import SpecialTokenError, TokenizerError
from bytemill.reference.pretokens import check_special_tokens, pretokenize, split_at_special_tokens
from bytemill.reference.training import single_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from bytemill.reference.training import Pair

AllowedSpecial: TypeAlias = "Literal['all', 'none', 'none_raise'] | Collection[str]"


class MergeStep(NamedTuple):
    """One merge while a pre-token is encoded."""

    rank: int
    left: bytes
    right: bytes
    left_index: int
    """Place of the left part among the tokens at that time."""


def merge_by_rank(
    pretoken: bytes, rank_of: Callable[[bytes, bytes], int | None]
) -> tuple[list[bytes], list[MergeStep]]:
    """The tokens of a pre-token, and the merges that led to them.

    At each step the adjacent pair of the lowest rank is merged, the leftmost of several, until none has a
    rank.
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
    """The tokens of a pre-token by ranked merges: a pair may merge where it is in the table.

    >>> apply_merges(b"lower", {(b"o", b"w"): 0, (b"l", b"ow"): 1})
    [b'low', b'e', b'r']
    """
    tokens, _ = merge_by_rank(pretoken, lambda left, right: merge_ranks.get((left, right)))
    return tokens


def encode_by_ranks(pretoken: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """The ids of a pre-token by ranked tokens, as in tiktoken: the id of a token is its rank.

    A pre-token that is itself a token is that token. Otherwise a pair may merge where the two together are a
    token, no matter which merge that token was once learned by.

    Raises TokenizerError where a byte of the pre-token is no token.

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
            raise TokenizerError(f"the vocabulary has no token {token!r}", hint="give it all 256 bytes")
    return [id_of[token] for token in tokens]


class ReferenceTokenizer:
    """A tokenizer that encodes and decodes by the book.

    `vocab` has the bytes of each token by id and may hold the special tokens; `merges` are in the order of
    their ranks. With `merges=None` the id of a token is its rank, as in tiktoken. `special_tokens` are texts,
    or texts with their ids. A text without an id gets that of the token with the same bytes, the highest of
    several, since special tokens come last; where there is none, the next free one.

    Raises TokenizerError where vocabulary, merges and special tokens contradict each other.

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
            # A token that a merge makes may have been declared special: then both meanings share its id.
            for text, token_id in self.special_tokens.items():
                self._id_of.setdefault(text.encode(), token_id)
            for (left, right), rank in self._merge_ranks.items():
                for token in (left, right, left + right):
                    if token not in self._id_of:
                        raise TokenizerError(
                            f"merge {rank} of {left!r} and {right!r}: the vocabulary has no token {token!r}",
                            hint="give the vocabulary and the merges of one tokenizer",
                        )

    @property
    def n_vocab(self) -> int:
        """The highest id + 1."""
        return max(self.vocab, default=-1) + 1

    def encode(self, text: str, allowed_special: AllowedSpecial = "all") -> list[int]:
        """The ids of `text`.

        `allowed_special` says which special tokens are recognised: "all", "none" (they are plain text), a set
        of them (the others are plain text), or "none_raise", which raises SpecialTokenError where the text
        has one.

        Raises SpecialTokenError also for a name in the set that is no special token, and UnicodeEncodeError
        for a lone surrogate, which UTF-8 cannot write.
        """
        ids: list[int] = []
        for piece, is_special in split_at_special_tokens(text, self._recognised(text, allowed_special)):
            if is_special:
                ids.append(self.special_tokens[piece])
            else:
                for pretoken in pretokenize(piece, self.pattern):
                    ids += self.encode_pretoken(pretoken.encode())
        return ids

    def encode_pretoken(self, pretoken: bytes) -> list[int]:
        """The ids of one pre-token, given as UTF-8."""
        if self._merge_ranks is None:
            return encode_by_ranks(pretoken, self._id_of)
        return _ids_of(apply_merges(pretoken, self._merge_ranks), self._id_of)

    def _recognised(self, text: str, allowed_special: AllowedSpecial) -> set[str]:
        """The special tokens to cut out of the text."""
        if allowed_special == "all":
            return set(self.special_tokens)
        if allowed_special == "none":
            return set()
        if allowed_special == "none_raise":
            n_characters_before = 0
            for piece, is_special in split_at_special_tokens(text, self.special_tokens):
                if is_special:
                    raise SpecialTokenError(
                        f"the text has special token {piece!r} at character {n_characters_before}",
                        hint="pass allowed_special='all' to recognise it or 'none' to take it as plain text",
                    )
                n_characters_before += len(piece)
            return set()
        if isinstance(allowed_special, str):
            raise SpecialTokenError(
                f"allowed_special is {allowed_special!r}",
                hint="use 'all', 'none', 'none_raise' or a set of special tokens",
            )
        for name in allowed_special:
            if name not in self.special_tokens:
                raise SpecialTokenError(
                    f"allowed_special names {name!r}, which is no special token of this tokenizer",
                    hint=f"its special tokens: {', '.join(map(repr, self.special_tokens)) or 'none'}",
                )
        return set(allowed_special)

    def decode_tokens_bytes(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each token. Raises KeyError with the first id that no token has."""
        return [self.vocab[token_id] for token_id in ids]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, joined. Raises KeyError as `decode_tokens_bytes` does."""
        return b"".join(self.decode_tokens_bytes(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens, with U+FFFD for what is not UTF-8. Raises KeyError as `decode_bytes`."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


def _add_special_tokens(
    vocab: dict[int, bytes], special_tokens: Sequence[str] | Mapping[str, int]
) -> dict[str, int]:
    """The id of each special token, which `vocab` has afterwards."""
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
                f"special token {text!r} has id {token_id}, which is that of token {vocab[token_id]!r}",
                hint="give it an id of its own",
            )
        id_of[text] = token_id
    return id_of
