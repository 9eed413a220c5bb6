"""Tokenizers that several modules use, each with an independent tokenizer of the same vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest
import tiktoken
from tests.support.oracles import read_ranks

import bytemill
from bytemill.formats.spec import TokenizerSpec

END = "<|endoftext|>"

# As tiktoken writes the patterns, apart from the core's own list. `\s++$` and possessive runs are tiktoken's.
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION +
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION +
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}  # fmt: skip

RANK_FILES: dict[str, tuple[str, dict[str, int]]] = {
    "gpt2": ("r50k_base.tiktoken", {END: 50256}),
    "cl100k": (
        "cl100k_base.tiktoken",
        {END: 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|endofprompt|>": 100276},
    ),
    "o200k": ("o200k_base.tiktoken", {END: 199999, "<|endofprompt|>": 200018}),
}

TRAINING_TEXT = """The quick brown fox, the slow fox and 1234567 other foxes; they're here, aren't they?
    WE'LL see. indented code(that = calls(things)) + 3.14159  # and a comment\r\n\r\n
snake_case camelCase HTTPServer
Жизнь прожить — не поле перейти. 今日は、世界。今日は。 naïve café e\u0301tude ½ ٣٤٥ हिन्दी भाषा 👩‍👩‍👧 😀😀
internationalization internationalisation counterrevolutionaries
======================== ---------------- aaaaaaa
"""


@dataclass(frozen=True)
class Peer:
    """One vocabulary, here and in tiktoken."""

    name: str
    ours: bytemill.Tokenizer
    theirs: tiktoken.Encoding

    def encode(self, text: str) -> list[int]:
        """The ids by tiktoken, with all special tokens recognised."""
        return self.theirs.encode(text, allowed_special="all")


@pytest.fixture(scope="session")
def peer_of(shared_data: Path) -> Callable[[str], Peer]:
    """Gives the published vocabulary of a name, read once."""

    @lru_cache
    def build(name: str) -> Peer:
        file, special = RANK_FILES[name]
        ranks = read_ranks(shared_data / file)
        ours = TokenizerSpec(pattern=name, special_tokens=special, ranks=ranks)
        theirs = tiktoken.Encoding(
            name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens=special
        )
        return Peer(name, bytemill.Tokenizer.from_spec(ours), theirs)

    return build


@pytest.fixture(scope="session", params=list(RANK_FILES))
def peer(request: pytest.FixtureRequest, peer_of: Callable[[str], Peer]) -> Peer:
    """Each of the published vocabularies."""
    return peer_of(request.param)


@pytest.fixture(scope="session")
def small() -> bytemill.Tokenizer:
    """A tokenizer of 500 tokens: merges of all lengths, most words in several tokens."""
    return bytemill.train_from_iterator([TRAINING_TEXT * 3], vocab_size=500, special_tokens=[END, "<|pad|>"])
