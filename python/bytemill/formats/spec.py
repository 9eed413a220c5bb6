"""What a tokenizer file says, whatever its format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

Ties: TypeAlias = Literal["bytes", "huggingface"]

GivenSpecialTokens: TypeAlias = Mapping[str, int] | Iterable[str]
"""Special tokens that a caller names for a file that does not: with their ids, or for the next free ones."""


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer as data: what the formats read and write, and what `Tokenizer` is built from.

    Exactly one of `merges` and `ranks` is set: `merges` for BPE by an ordered list of merges, `ranks` (token bytes
    -> id, which is also the priority) for tiktoken's rank files, which record no merges.
    """

    pattern: str | None
    """Regular expression of the pre-tokenizer; None: the text between special tokens is one pre-token."""
    special_tokens: dict[str, int]
    vocab: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Ordinary tokens by id, special tokens left out. Empty when `ranks` is set."""
    merges: list[tuple[bytes, bytes]] | None = None
    ranks: dict[bytes, int] | None = None
    whole_pretoken_lookup: bool = False
    """True: a pre-token that is itself a token is that token even if no sequence of merges leads there."""
    ties: Ties | None = None
    """How training broke ties between equally frequent pairs, where the file records it."""
    merge_counts: list[int] | None = None
    """How often each merge's pair stood in the corpus when it was merged, where the file records it."""


def given_ids(special_tokens: GivenSpecialTokens) -> Mapping[str, int] | None:
    """Special tokens and their ids, None where they are named without."""
    return cast("Mapping[str, int]", special_tokens) if isinstance(special_tokens, Mapping) else None
