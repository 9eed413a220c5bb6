"""The reference of near duplicates: its words are those of the core, and the fast search finds the same clusters."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill._core import sketch_texts
from bytemill.curation import LineSettings, NearSettings, find_near_duplicates, find_repeated_units
from bytemill.curation.documents import packed
from bytemill.reference import jaccard, near_duplicates, repeated_lines, shingles, sketch, words

ALPHABET = "ab Zß.'_1²Ⅷ٣éǅİΣςñ़̈́ंกำเ京々〇ァーｱᎪ한𝒜😀🇩‍­\u0301"
FEW = st.lists(st.lists(st.sampled_from("abc"), max_size=12).map(" ".join), max_size=9)


def n_different_words(text: str) -> int:
    batch = packed([text])
    return len(sketch_texts(batch.data, batch.ends, 1)[1])


@given(st.text(ALPHABET, max_size=20), st.text(ALPHABET, max_size=8))
def test_words_are_those_of_the_core(text: str, other: str) -> None:
    own, others = ({word.text for word in words(each)} for each in (text, other))
    assert len(own) == n_different_words(text)
    assert len(own | others) == n_different_words(f"{text} \n{other}")
    batch = packed([text, " ".join(word.text for word in words(text))])
    _, grams, ends = sketch_texts(batch.data, batch.ends, 3)
    assert grams[: int(ends[0])].tolist() == grams[int(ends[0]) :].tolist()
    normal = unicodedata.normalize("NFC", text)
    for word in words(text):
        assert [each.text for each in words(normal[word.start : word.end])] == [word.text]


def test_words_of_all_characters_are_those_of_the_core() -> None:
    """Each assigned character, between letters; not those that only a newer Unicode has."""
    known = [
        chr(code)
        for code in (*range(0x18D10), *range(0x18D10, 0x40000, 31))
        if unicodedata.category(chr(code)) not in {"Cn", "Cs"}
    ]
    texts = [f"a{character}b" for character in known]
    batch = packed(texts)
    _, _, ends = sketch_texts(batch.data, batch.ends, 1)
    counts = np.diff(ends.astype(np.int64), prepend=0).tolist()
    different = [
        character
        for character, text, n in zip(known, texts, counts, strict=True)
        if n != len({word.text for word in words(text)})
    ]
    assert different == []


@given(FEW, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_fast_search_finds_the_clusters_of_the_definition(texts: list[str], threshold: float) -> None:
    chosen = NearSettings(threshold=threshold, bands=128, rows=1)  # misses a pair once in 10³⁸
    found = find_near_duplicates(texts, chosen, max_removed=1)
    assert found.first.tolist() == near_duplicates(texts, threshold)


def test_a_plain_sketch_finds_what_comparing_all_pairs_finds() -> None:
    texts = ["a b c d e f g h", "a b c d e f g h i", "x y z", "a b c d e f g H!", "", "x y z"]
    expected = near_duplicates(texts, 0.7)
    assert expected == [0, 0, 2, 0, 4, 2]
    assert near_duplicates(texts, 0.7, bands=32, rows=4) == expected
    assert near_duplicates(texts, 0.7, bands=1, rows=128) == [0, 1, 2, 0, 4, 2]


@pytest.mark.parametrize("n_common", [20, 60])
def test_sketches_agree_in_proportion_to_the_similarity(n_common: int) -> None:
    first, second = (
        " ".join([*(f"w{k}" for k in range(n_common)), *(f"{name}{k}" for k in range(40))]) for name in "xy"
    )
    sets = shingles(first, 1), shingles(second, 1)
    pairs = zip(*(sketch(own, 1000) for own in sets), strict=True)
    assert sum(a == b for a, b in pairs) / 1000 == pytest.approx(jaccard(*sets), abs=0.06)


@given(st.lists(st.text("ab \n", max_size=12), max_size=8), st.integers(2, 3))
def test_repeated_lines_are_those_of_the_definition(texts: list[str], min_documents: int) -> None:
    with find_repeated_units(texts, LineSettings(min_documents=min_documents)) as repeated:
        assert [repeated.removed(number) for number in range(len(texts))] == repeated_lines(
            texts, min_documents
        )
