"""Text of a study: the same documents for every tokenizer, cut by bytes and never inside a character."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import CorpusError
from bytemill.experiment.documents import cut, document_order, store_text

if TYPE_CHECKING:
    from pathlib import Path


@given(st.text(max_size=40), st.integers(0, 200))
def test_a_cut_is_the_longest_beginning_of_whole_characters(text: str, n_bytes: int):
    data = text.encode()
    found = cut(data, n_bytes)
    lengths = [len(text[:n].encode()) for n in range(len(text) + 1)]
    assert len(found) == max(length for length in lengths if length <= n_bytes)
    assert data.startswith(found)


def test_an_order_is_a_permutation_that_depends_on_seed_and_pass():
    orders = [document_order(20, seed, epoch).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_stored_documents_are_those_of_the_corpus_without_separators(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one<|endoftext|>zwei é<|endoftext|><|endoftext|>drei")
    stored = store_text([str(tmp_path / "a.txt")], tmp_path / "t", documents="<|endoftext|>")
    assert list(stored.documents()) == [b"one", "zwei é".encode(), b"drei"]
    limited = store_text([str(tmp_path / "a.txt")], tmp_path / "l", documents="<|endoftext|>", max_bytes=9)
    assert list(limited.documents()) == [b"one", b"zwei "]
    before = stored.sha256
    (tmp_path / "a.txt").write_text("other")
    assert store_text([str(tmp_path / "a.txt")], tmp_path / "t", documents="<|endoftext|>").sha256 != before
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(CorpusError):
        store_text([str(tmp_path / "empty.txt")], tmp_path / "e")
    with pytest.raises(CorpusError, match=r"documents is '<\|typo\|>', which does not occur in .*a\.txt"):
        store_text([str(tmp_path / "a.txt")], tmp_path / "typo", documents="<|typo|>")


def test_text_in_order_has_exactly_the_bytes_asked_for_and_repeats_when_it_ends(tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n".join(str(n) * 5 for n in range(10)))
    stored = store_text([str(tmp_path / "a.txt")], tmp_path / "t", documents="line")
    assert stored.n_bytes == 50
    once = list(stored.in_order(3, 50))
    assert sorted(once) == [str(n) * 5 for n in range(10)]
    more = list(stored.in_order(3, 82))
    assert more[:10] == once
    assert sum(map(len, more)) == 82
    assert more[10] != once[0] or more[11] != once[1]
    assert len(more[-1]) == 2
