"""Vocabularies as columns."""

import numpy as np
import pytest

import bytemill
from bytemill.studio.tokenizer_cache import smallest_size
from bytemill.studio.vocabulary_table import NO_TOKEN, vocabulary_table


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


def test_the_smallest_size_is_one_that_works(tokenizer: bytemill.Tokenizer):
    size = smallest_size(tokenizer)
    assert size == 257
    assert len(tokenizer.truncate(size)) == size


def test_a_tokenizer_whose_ids_do_not_follow_its_merges_has_no_smallest_size():
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"the", 257: b"th"}
    assert smallest_size(bytemill.Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")])) is None
