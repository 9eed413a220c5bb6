"""A sample of what `python -m benchmarks exactness` compares by the million: strings against `regex` and tiktoken."""

from pathlib import Path

import pytest
import regex
from benchmarks.texts import generated

from benchmarks import exactness


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k", "llama3"])
def test_random_strings_split_as_the_expression_says(name: str) -> None:
    for text in generated.draw(seed=2026, batch=0, n_strings=5_000):
        assert exactness.same_pretokens(name, text), ascii(text)


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k", "llama3"])
def test_random_strings_have_the_ids_of_tiktoken(
    name: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTEMILL_TEST_DATA", str(shared_data))
    assert exactness.encoders(name) is not None
    for text in generated.draw(seed=2026, batch=1, n_strings=1_000):
        assert exactness.same_ids(name, text), ascii(text)


class TestRandomStrings:
    def test_are_the_same_for_a_seed_and_others_for_each_batch(self) -> None:
        draw = generated.draw
        assert draw(1, 0, 100) == draw(1, 0, 100)
        assert draw(1, 0, 100) != draw(1, 1, 100)

    def test_change_class_at_every_offset_of_a_block(self) -> None:
        strings = generated.draw(1, 0, 20_000)
        changes = {match.end() % 64 for text in strings for match in regex.finditer(r"^(.)\1+(?!\1)", text)}
        assert changes == set(range(64))

    def test_hold_every_kind_of_character(self) -> None:
        drawn = set("".join(generated.draw(1, 0, 20_000)))
        assert drawn >= set(generated.CHOSEN)
        assert drawn >= {chr(code) for code in range(128)}
        assert len({character for character in drawn if ord(character) > 0xFFFF}) > 1_000


def test_a_difference_is_found_and_shown_at_its_shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "encoders", lambda _name: None)
    job = exactness.Job("random", seed=1, batch=0, n_strings=3_000)
    assert exactness.compare(job, ("gpt2",))[2] == []
    wrong = regex.compile(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{Nd}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+|.")
    monkeypatch.setattr(exactness, "expression", lambda _name: wrong)
    (difference,) = exactness.compare(job, ("gpt2",))[2]
    assert difference.what == "pre-tokens"
    assert len(difference.text) == 2, "two numbers that are no digits"
    assert regex.fullmatch(r"[\p{N}\s]{2}", difference.text)


def test_a_file_is_cut_into_stretches_at_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"line\xff\n" * 30_000)
    jobs = list(exactness.pieces_of(file))
    assert len(jobs) == 3
    assert "".join(text for job in jobs for text in job.texts()) == "line\ufffd\n" * 30_000
