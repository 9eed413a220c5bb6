"""Near duplicates: confirmed pairs only, the same with any batches and threads; wrong settings are refused."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill.corpus import Corpus
from bytemill.curation import NearIndex, NearSettings, detection_curve, find_near_duplicates
from bytemill.errors import CurationError
from bytemill.tokenizer import Tokenizer

BYTES = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])


def shingles(text: str, n: int = 5) -> set[tuple[str, ...]]:
    """The definition, for ASCII text of letters and spaces."""
    words = text.lower().split()
    return {tuple(words[k : k + n]) for k in range(max(1, len(words) - n + 1))} if words else set()


def jaccard(a: str, b: str) -> float:
    one, other = shingles(a), shingles(b)
    return len(one & other) / len(one | other) if one | other else 0.0


def random_words(source: random.Random, n: int) -> list[str]:
    return ["".join(source.choices("abcdefghij", k=6)) for _ in range(n)]


def planted(similarity: float, n_pairs: int) -> tuple[list[str], set[int]]:
    """Originals, then for each a copy with another end, at the similarity or slightly above."""
    source = random.Random(f"{similarity}")
    originals = [random_words(source, source.randrange(100, 400)) for _ in range(n_pairs)]
    copies: list[str] = []
    for words in originals:
        n_changed = int((len(words) - 4) * (1 - similarity) / (1 + similarity))
        copies.append(" ".join(words[: len(words) - n_changed] + random_words(source, n_changed)))
    texts = [" ".join(words) for words in originals] + copies
    assert all(
        similarity <= jaccard(texts[k], texts[n_pairs + k]) < similarity + 0.02 for k in range(n_pairs)
    )
    return texts, set(range(n_pairs, 2 * n_pairs))


@pytest.mark.parametrize(("similarity", "recall"), [(0.9, 0.99), (0.8, 0.95)])
def test_planted_pairs_are_found_and_nothing_else(similarity: float, recall: float) -> None:
    texts, copies = planted(similarity, 1000)
    found = find_near_duplicates(texts)
    removed = set(np.flatnonzero(found.is_removed).tolist())
    assert removed <= copies
    assert len(removed) >= recall * len(copies)
    assert all(found.first[k] == k - 1000 for k in removed)


def template(n_documents: int) -> list[str]:
    source = random.Random(5)
    frame = " ".join(random_words(source, 80))
    return [f"{frame} {' '.join(random_words(source, 60))}" for _ in range(n_documents)]


@pytest.mark.parametrize("n_documents", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_documents_of_one_template_with_distinct_content_stay(n_documents: int) -> None:
    found = find_near_duplicates(template(n_documents))
    assert found.n_candidates > n_documents  # the bands do propose pairs
    assert found.n_removed < 0.001 * n_documents


FEW = st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12).map(" ".join), max_size=12)


@given(FEW, st.integers(1, 5))
@settings(deadline=None)
def test_similarities_are_exact_and_batches_and_threads_change_nothing(texts: list[str], size: int) -> None:
    whole = find_near_duplicates(texts, max_removed=1, num_threads=1)
    with NearIndex(num_threads=2) as index:
        for start in range(0, len(texts), size):
            index.add(texts[start : start + size])
        parts = index.find()
    assert whole.first.tolist() == parts.first.tolist()
    assert whole.similarity.tolist() == parts.similarity.tolist()
    assert all(np.array_equal(a, b) for a, b in zip(whole.pairs, parts.pairs, strict=True))
    for document, (first, similarity) in enumerate(zip(whole.first, whole.similarity, strict=True)):
        assert similarity == (1 if first == document else jaccard(texts[first], texts[document]))
    for a, b, similarity in zip(*whole.pairs, strict=True):
        assert similarity == jaccard(texts[a], texts[b]) >= 0.8


def test_tokens_may_take_the_place_of_words() -> None:
    texts = ["abcdefghijklmnop", "something else", "abcdefghijklmnop!"]
    found = find_near_duplicates(texts, NearSettings(threshold=0.9), tokenizer=BYTES)
    assert found.first.tolist() == [0, 1, 0]


def test_an_input_that_would_lose_more_than_half_is_named(tmp_path: Path) -> None:
    text = " ".join(random_words(random.Random(1), 50))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    corpus = Corpus([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    with pytest.raises(CurationError, match=r"b\.txt: 1 of 1 documents would be removed") as caught:
        find_near_duplicates(corpus)
    assert caught.value.hint is not None
    assert find_near_duplicates(corpus, max_removed=1).first.tolist() == [0, 0]


def test_the_detection_curve_is_that_of_measured_pairs() -> None:
    ((_, expected),) = detection_curve(8, 12, [0.8])
    texts, copies = planted(0.8, 1000)
    found = find_near_duplicates(texts, NearSettings(threshold=0.75, bands=10, rows=9), max_removed=1)
    ((_, at_800), (_, at_815)) = detection_curve(10, 9, [0.8, 0.815])
    assert expected < at_800
    assert at_800 - 0.06 < found.n_removed / len(copies) < at_815 + 0.06


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threshold": 0.0}, "above 0"),
        ({"threshold": 1.5}, "above 0"),
        ({"n": 0}, "n is 0"),
        ({"bands": 16, "rows": 9}, "do not divide a sketch"),
        ({"bands": 4}, "do not divide a sketch"),
        ({"bands": 4, "rows": 32}, "4 bands of 32 rows find 0.3% of the pairs"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(CurationError, match=message) as caught:
        NearSettings(**wrong)  # pyright: ignore[reportArgumentType]
    assert caught.value.hint


def test_the_hint_names_bands_that_are_accepted() -> None:
    for threshold in (0.3, 0.5, 0.7, 0.8, 0.95, 1.0):
        chosen = NearSettings(threshold=threshold)
        assert NearSettings(threshold=threshold, bands=chosen.bands, rows=chosen.rows) == chosen
