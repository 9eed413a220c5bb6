"""Vocabularies as columns."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bytemill
from bytemill.errors import TokenizerError
from bytemill.studio.vocabulary_table import NO_TOKEN, smallest_size, vocabulary_table

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def tokenizer() -> bytemill.Tokenizer:
    return bytemill.train_from_iterator(["the cat sat on the mat " * 9], 268, ["<|endoftext|>"])


def test_columns_hold_every_token(tokenizer: bytemill.Tokenizer):
    table = vocabulary_table(tokenizer)
    starts = np.concatenate([[0], table.lengths.cumsum()]).astype(int)
    vocab = tokenizer.vocab
    for i in range(tokenizer.n_vocab):
        assert table.data[starts[i] : starts[i + 1]] == vocab.get(i, b"")
        info = tokenizer.token(i)
        assert (None if table.ranks[i] == NO_TOKEN else table.ranks[i]) == info.rank
        if info.parts is not None:
            assert (table.left[i], table.right[i]) == info.parts
            assert table.counts is not None
            assert table.counts[table.ranks[i]] == info.count


def test_ids_without_a_token_have_no_bytes():
    vocab = {i: bytes([i]) for i in range(256)} | {300: b"th"}
    tokenizer = bytemill.Tokenizer(vocab, [(b"t", b"h")])
    table = vocabulary_table(tokenizer)
    assert len(table.lengths) == 301
    assert table.lengths[256:300].sum() == 0
    assert table.ranks[300] == 0


@pytest.mark.parametrize(
    "name", ["gpt2", "cl100k_base", "own", "special in the middle", "token without a merge", "unordered"]
)
def test_the_smallest_size_is_the_one_that_truncation_takes(
    name: str, tokenizer: bytemill.Tokenizer, shared_data: Path
):
    vocab = {i: bytes([i]) for i in range(256)}
    merges = [(b"t", b"h"), (b"th", b"e")]
    tokenizers: dict[str, Callable[[], bytemill.Tokenizer]] = {
        "own": lambda: tokenizer,
        "special in the middle": lambda: bytemill.Tokenizer(
            vocab | {256: b"th", 258: b"the"}, merges, {"<s>": 257, "<e>": 300}
        ),
        "token without a merge": lambda: bytemill.Tokenizer(
            vocab | {256: b"th", 257: b"the", 258: b"zz"}, merges
        ),
        "unordered": lambda: bytemill.Tokenizer(vocab | {256: b"the", 257: b"th"}, merges),
        "gpt2": lambda: bytemill.Tokenizer.load(shared_data / "gpt2_vocab.json"),
        "cl100k_base": lambda: bytemill.Tokenizer.load(shared_data / "cl100k_base.tiktoken"),
    }
    own = tokenizers[name]()
    size = smallest_size(own)
    if size is None:
        with pytest.raises(TokenizerError, match="cannot truncate"):
            own.truncate(len(own) - 1)
    else:
        assert len(own.truncate(size)) == size
        with pytest.raises(TokenizerError, match="too small"):
            own.truncate(size - 1)
