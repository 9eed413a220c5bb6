"""Repeated lines and paragraphs against the definition; a collision of hashes removes nothing."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill._core import text_units
from bytemill.curation import LineSettings, documents, find_repeated_units, lines, without_units
from bytemill.errors import CurationError

TEXTS = st.lists(st.text("ab \n", max_size=12), max_size=8)


def reference(texts: list[str], chosen: LineSettings) -> list[list[int]]:
    units = [[line.strip() for line in text.split("\n") if line.strip()] for text in texts]
    owners = {u: [k for k, of in enumerate(units) if u in of] for of in units for u in of}

    def is_removed(unit: str, document: int) -> bool:
        return (
            len(unit) >= chosen.min_bytes
            and len(owners[unit]) >= chosen.min_documents
            and not (chosen.keep_first and owners[unit][0] == document)
        )

    return [[n for n, unit in enumerate(of) if is_removed(unit, k)] for k, of in enumerate(units)]


@given(TEXTS, st.integers(2, 3), st.integers(1, 2), st.booleans(), st.sampled_from([1, 20, 1 << 20]))
@settings(deadline=None, max_examples=30)
def test_removed_lines_are_those_of_the_definition_in_batches_of_any_size(
    texts: list[str], min_documents: int, min_bytes: int, keep_first: bool, batch_bytes: int
) -> None:
    chosen = LineSettings(min_documents=min_documents, min_bytes=min_bytes, keep_first=keep_first)
    with (
        mock.patch.object(documents, "BATCH_BYTES", batch_bytes),
        find_repeated_units(texts, chosen) as repeated,
    ):
        removed = [repeated.removed(document) for document in range(len(texts))]
        assert removed == reference(texts, chosen)
        assert repeated.n_removed == sum(map(len, removed))
    for text, numbers in zip(texts, removed, strict=True):
        left = [line.strip() for line in without_units(text, numbers).split("\n") if line.strip()]
        all_lines = [line.strip() for line in text.split("\n") if line.strip()]
        assert left == [line for number, line in enumerate(all_lines) if number not in numbers]


def test_a_collision_of_hashes_removes_nothing() -> None:
    def colliding(*arguments: object) -> tuple[object, ...]:
        hashes, *rest = text_units(*arguments)  # pyright: ignore[reportArgumentType]
        return np.zeros_like(hashes), *rest

    with (
        mock.patch.object(lines, "text_units", colliding),
        find_repeated_units(["one\ntwo", "three\ntwo"]) as repeated,
    ):
        assert [repeated.removed(0), repeated.removed(1)] == [[], [1]]


def test_paragraphs_are_whole() -> None:
    texts = ["head\nline\n\nbody", "line\n\nother", "head\nline\n \nmore"]
    with find_repeated_units(texts, LineSettings(unit="paragraph")) as repeated:
        assert [repeated.removed(k) for k in range(3)] == [[], [], [0]]
    assert without_units(texts[2], [0], "paragraph") == "more"


def test_what_cannot_be_read_twice_and_wrong_settings_are_refused() -> None:
    with pytest.raises(CurationError, match="read twice"):
        find_repeated_units(iter(["a"]))
    for wrong in ({"unit": "word"}, {"min_documents": 1}, {"min_bytes": 0}):
        with pytest.raises(CurationError):
            LineSettings(**wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="platform: no /proc")
def test_few_files_are_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number}\nshared {number // 2}" for number in range(2000)]
    n_before = len(list(Path("/proc/self/fd").iterdir()))
    most = 0
    whole = documents.whole_documents

    def watched(own: documents.Documents) -> Iterator[documents.Batch]:
        nonlocal most
        for batch in whole(own):
            yield batch
            most = max(most, len(list(Path("/proc/self/fd").iterdir())) - n_before)

    monkeypatch.setattr(documents, "BATCH_BYTES", 1000)
    monkeypatch.setattr(lines, "whole_documents", watched)
    with find_repeated_units(texts) as repeated:
        assert repeated.n_removed == 1000
    assert most <= 4
