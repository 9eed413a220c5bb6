"""Encodings of tiktoken and of `bytemill.compat.tiktoken`, made from the same parts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken_ext.openai_public

from bytemill.compat import tiktoken as ours
from tests.support.oracles import read_ranks

BYTES: dict[bytes, int] = {bytes([byte]): byte for byte in range(256)}
WORDS = [
    b"ab", b" a", b" ab", b"abc", b"bc", b"  ", b"   ", b"\n\n", b" \n", "é".encode(), b"a\xc3",
    "字".encode()[:2], "字".encode(), b"aa", b"aaaa", b"<x", b"12",
]  # fmt: skip
RANKS = BYTES | {token: 256 + i for i, token in enumerate(WORDS)}
PIECES = ["ab", "a", "b", " ", "  ", "\n", "é", "字", "!", "12", "<x>", "<y>", "<", "x>", "<|endoftext|>"]
"""What texts are made of: tokens, special tokens and parts of them."""
SPECIAL = {"<x>": 300, "<y>": 301, "<|endoftext|>": 302, "12": 303}


@dataclass(frozen=True)
class Pair:
    """One encoding, here and in tiktoken."""

    ours: ours.Encoding
    theirs: tiktoken.Encoding


@lru_cache(maxsize=256)
def toy(pattern: str) -> Pair:
    """A small vocabulary with any pattern. One special token is an ordinary one too, with another id."""
    parts: dict[str, Any] = {"pat_str": pattern, "mergeable_ranks": RANKS, "special_tokens": SPECIAL}
    return Pair(ours.Encoding("toy", **parts), tiktoken.Encoding("toy", **parts))


@pytest.fixture(scope="session")
def published(shared_data: Path) -> Callable[[str], Pair]:
    """Gives the published encoding of a name, with tiktoken's own pattern and special tokens."""

    @lru_cache
    def build(name: str) -> Pair:
        file = {"o200k_harmony": "o200k_base", "gpt2": "r50k_base"}.get(name, name)
        with pytest.MonkeyPatch.context() as patch:
            ranks = read_ranks(shared_data / f"{file}.tiktoken")
            if name.startswith(
                "o200k"
            ):  # the names and special tokens matter, and 200,000 tokens take seconds
                ranks = dict(islice(ranks.items(), 20_000))
            for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
                patch.setattr(tiktoken_ext.openai_public, loader, lambda *_, **__: ranks)
            parts = getattr(tiktoken_ext.openai_public, name)()
        return Pair(ours.Encoding(**parts), tiktoken.Encoding(**parts))

    return build
