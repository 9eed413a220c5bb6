"""The search of shards for n-grams finds exactly what a plain comparison of words finds."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.lm.benchmarks import overlap as module
from bytemill.lm.benchmarks.overlap import overlap
from bytemill.reference import words
from tests.support.examples import few

END = "<|endoftext|>"
WORDS = ("cat", "CAT", "dog.", "naïve", "«犬»", "straße", "İx", "Σας", "1,5", "e\u0301a", "a犬b")


def naive(text: str, n: int) -> set[tuple[str, ...]]:
    own = [word.text for word in words(text)]
    return {tuple(own[at : at + n]) for at in range(len(own) - n + 1)}


@few
@given(
    documents=st.lists(st.lists(st.sampled_from(WORDS), max_size=30), min_size=1, max_size=5),
    items=st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=6),
    space=st.sampled_from([" ", " - ", "\n"]),
    chunk=st.integers(1, 40),
    n=st.integers(2, 4),
)
def test_found_items_are_those_of_a_plain_comparison(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[list[str]],
    items: list[list[str]],
    space: str,
    chunk: int,
    n: int,
):
    folder = tmp_path_factory.mktemp("shards") / "shards"
    texts = [space.join(words) or "x" for words in documents]
    tokenizer = bytemill.train_from_iterator(["cat naïve 犬 " * 9], 268, [END])
    bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts([END.join(texts)]), folder)
    asked = [" ".join(words) for words in items]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_IDS", chunk)
        found = overlap(asked, [folder, folder], tokenizer, n=n)
    shutil.rmtree(folder)
    seen = set[tuple[str, ...]]().union(*(naive(text, n) for text in texts))
    assert list(found.found) == [bool(naive(text, n) & seen) for text in asked]
    assert found.n_short == sum(not naive(text, n) for text in asked)


def test_spaces_at_the_start_of_a_part_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A tokenizer that drops the first space of a text does not join the words of two parts."""
    monkeypatch.setattr(module, "_CHUNK_IDS", 1)
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], [END])
    words = " ".join(f"w{n}" for n in range(13))
    bytemill.encode_corpus(
        tokenizer, bytemill.Corpus.from_texts([f"before {words} after"]), tmp_path / "shards"
    )
    reported: list[tuple[int, int]] = []
    own = overlap(
        [words, words[:-1]],
        [tmp_path / "shards"],
        tokenizer,
        progress=lambda done, total: reported.append((done, total)),
    )
    assert own.found == (True, False)
    assert reported[-1] == (own.n_tokens, own.n_tokens)
