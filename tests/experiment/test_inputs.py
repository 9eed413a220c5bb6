"""What models need: documents cut by bytes, budgets in whole steps, models of equal size, files that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import CorpusError, RunConfigError
from bytemill.experiment.documents import cut, document_order, store_text
from bytemill.experiment.inputs import StudyInputs, allowance, padded_sizes, with_equal_parameters
from bytemill.experiment.study import load_study
from bytemill.lm import preset
from bytemill.lm.planning import flops_per_token, n_parameters

from .test_damage import BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.experiment.inputs import Allowance

SHAPE = preset("tiny", vocab_size=1024)


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


@given(st.floats(1.0, 8.0), st.integers(1, 64), st.floats(1e6, 1e9))
def test_every_rule_stays_within_one_step_of_its_amount(
    bytes_per_token: float, batch_size: int, amount: float
):
    per_step = batch_size * SHAPE.context_length
    flops = flops_per_token(SHAPE)
    rules: tuple[tuple[Literal["bytes", "tokens", "flops"], float, Callable[[Allowance], float]], ...] = (
        ("bytes", amount, lambda own: own.n_tokens * bytes_per_token),
        ("tokens", amount, lambda own: own.n_tokens),
        ("flops", amount * flops, lambda own: own.n_tokens * flops),
    )
    for rule, given_amount, spent in rules:
        own = allowance(rule, given_amount, SHAPE, batch_size, bytes_per_token)
        one_step = spent(own) / own.n_steps
        assert own.n_tokens == own.n_steps * per_step
        assert given_amount - one_step <= spent(own) <= given_amount * (1 + 1e-9)
        assert own.flops == pytest.approx(own.n_tokens * flops)
    timed = allowance("time", 100, SHAPE, batch_size, bytes_per_token, tokens_per_second=amount)
    assert timed.n_tokens <= 100 * amount < timed.n_tokens + per_step


def test_a_budget_below_one_step_is_an_error():
    with pytest.raises(RunConfigError, match="fewer than the 256 of one step"):
        allowance("tokens", 255, SHAPE.replace(context_length=64), 4, 4.0)
    with pytest.raises(RunConfigError, match="of one step"):
        allowance("time", 10, SHAPE, 4, 4.0)


def test_vocabularies_are_padded_to_a_multiple_or_alike():
    assert padded_sizes({"a": 50257, "b": 64}, "multiple") == {"a": 50304, "b": 64}
    assert padded_sizes({"a": 50257, "b": 64}, "alike") == {"a": 50304, "b": 50304}


def test_equal_parameters_lower_the_feed_forward_width_alone():
    shapes = {
        name: preset("tinystories", vocab_size=size) for name, size in (("a", 2048), ("b", 4096), ("c", 5000))
    }
    equal = with_equal_parameters(shapes)
    assert equal["a"] == shapes["a"]
    for name, shape in equal.items():
        assert (
            abs(n_parameters(shape) - n_parameters(shapes["a"])) <= 8 * 3 * shape.d_model * shape.num_layers
        )
        assert shape.replace(d_ff=shapes[name].d_ff) == shapes[name]
    with pytest.raises(RunConfigError, match="no feed-forward width"):
        with_equal_parameters({"a": shapes["a"], "b": preset("tinystories", vocab_size=50_000)})


@pytest.mark.parametrize("how", BYTES)
def test_what_a_run_keeps_is_made_again_if_it_is_damaged(study_file: Path, tmp_path: Path, how: str):
    def prepared() -> dict[str, bytes]:
        own = StudyInputs(load_study(study_file), tmp_path / "out", tmp_path)
        assert own.train_text.n_bytes
        assert own.tokenizers
        assert own.context_bytes
        files = [path for path in sorted((tmp_path / "out").rglob("*")) if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    whole = prepared()
    for name in whole:
        if name.endswith(("about.json", "ends.npy", ".inputs", "train/text.bin")):
            path = tmp_path / name
            path.write_bytes(BYTES[how](path.read_bytes()))
    if how not in ("zeros", "ones"):  # which keep the size of the text
        assert prepared() == whole


def test_a_damaged_speed_is_an_error(study_file: Path, tmp_path: Path):
    own = StudyInputs(load_study(study_file), tmp_path, tmp_path)
    own.rates_path.write_text('{"own/mini": "fast"}')
    with pytest.raises(RunConfigError, match=r"probe.json is damaged: rates.own/mini is 'fast'"):
        _ = own.rates
