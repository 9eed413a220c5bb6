"""Items are found in documents wherever a plain comparison of words finds them, and nowhere else."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill.curation import ContaminationIndex, Item, Match, overlap_by_item, without_matches
from bytemill.curation.contamination import GramIndex, read_items, write_items
from bytemill.curation.documents import packed
from bytemill.errors import CurationError
from bytemill.reference import words

WORDS = st.sampled_from(
    ["cat", "CAT", "dog.", "naïve", "«犬»", "straße", "İx", "Σας", "1,5", "\ud800", "e\u0301a", "a犬b"]
)
TEXTS = st.lists(WORDS, max_size=25).map(" ".join)


def grams(text: str, n: int) -> list[tuple[str, ...]]:
    own = [word.text for word in words(text)]
    return [tuple(own[at : at + n]) for at in range(len(own) - n + 1)]


@example("a犬b a犬b", ["a犬b"], 2)
@given(
    TEXTS,
    st.lists(TEXTS.map(lambda text: text.replace("\ud800", "")), min_size=1, max_size=5),
    st.integers(2, 4),
)
def test_matches_are_those_of_a_plain_comparison(text: str, items: list[str], n: int) -> None:
    own = [set(grams(item, n)) for item in items]
    if not any(own):
        with pytest.raises(CurationError, match="needs to be found"):
            ContaminationIndex([Item("a", item) for item in items], n)
        return
    index = ContaminationIndex([Item(str(number), item) for number, item in enumerate(items)], n)
    assert index.n_short == sum(not each for each in own)
    found = index.matches(text)
    assert index.batch_matches(packed(["x", text, ""])) == [[], found, []]
    in_text = grams(text, n)
    for number, expected in enumerate(own):
        covered = {at + k for at, gram in enumerate(in_text) if gram in expected for k in range(n)}
        matches = [match for match in found if match.item == str(number)]
        assert sum(match.n_words for match in matches) == len(covered)
        for match in matches:
            span = grams(unicodedata.normalize("NFC", text)[match.start : match.end], n)
            assert len(span) == match.n_words - n + 1
            # N-grams that touch are one match, so those across their border need not be the item's.
            found_there = {at + k for at, gram in enumerate(span) if gram in expected for k in range(n)}
            assert found_there == set(range(match.n_words))
    ends = [(match.item, match.start, match.end) for match in found]
    assert len(set(ends)) == len(ends)


def test_text_that_is_wrapped_anew_is_found_and_cut() -> None:
    question = "Natalia sold clips to 48 of her friends in April, and then she sold half as many in May."
    index = ContaminationIndex([Item("gsm8k:0", question)])
    wrapped = "> natalia sold\n> clips to 48 of her\n> friends in april - and then she\n> sold HALF as many in may\n"
    page = f"Exercises:\n{wrapped}\nAnswer: 72"
    (match,) = index.matches(page)
    assert match.n_words == 19
    assert without_matches(page, [match]) == "Exercises:\n> \n\nAnswer: 72"
    assert index.matches(page.replace("friends", "relatives")) == []


def test_overlap_counts_documents_once() -> None:
    documents = [
        [Match("b", 0, 9, 13), Match("b", 20, 30, 15)],
        [Match("a", 0, 9, 14), Match("b", 1, 2, 13)],
        [],
        [Match("c", 0, 9, 14)],
    ]
    rows = [(row.item, row.n_documents, row.n_words) for row in overlap_by_item(documents)]
    assert rows == [("b", 2, 15), ("a", 1, 14), ("c", 1, 14)]


def test_overlapping_matches_are_cut_once() -> None:
    assert (
        without_matches("abcdefgh", [Match("y", 3, 6, 2), Match("x", 1, 4, 2), Match("z", 4, 5, 2)]) == "agh"
    )


def test_items_are_read_as_written(tmp_path: Path) -> None:
    items = [Item("quiz:0", "How\nmany?"), Item("quiz:1", "Who 犬?")]
    write_items(tmp_path / "items.jsonl", items)
    assert read_items(tmp_path / "items.jsonl") == items
    (tmp_path / "own.txt").write_text("One question\n\nAnother one\n", encoding="utf-8")
    assert read_items(tmp_path / "own.txt") == [Item("own:0", "One question"), Item("own:1", "Another one")]
    (tmp_path / "bad.jsonl").write_text('{"text": "fine"}\n{"question": "none"}\n', encoding="utf-8")
    with pytest.raises(CurationError, match=r"bad\.jsonl:2: an item needs"):
        read_items(tmp_path / "bad.jsonl")
    (tmp_path / "bad.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(CurationError, match=r"bad\.jsonl:1"):
        read_items(tmp_path / "bad.jsonl")
    with pytest.raises(CurationError, match="must be 2 to 64"):
        ContaminationIndex(items, 1)


def test_an_index_of_no_text_finds_nothing() -> None:
    index = GramIndex([], 3)
    assert not index.may_have(packed(["a b c d"])).any()
    assert index.find(list(words("a b c d"))) == []
