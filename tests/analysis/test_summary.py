"""Tokenizer summaries, and the check of an output file."""

import json
import os
from pathlib import Path

import pytest

import bytemill
from bytemill import Pattern
from bytemill.analysis.summary import describe, size_buckets, token_infos, training_to_dict
from bytemill.errors import OutputError, TokenizerError
from bytemill.system.atomic_files import check_output_file
from bytemill.tokenizer.conversion import check_can_be_saved


def test_a_summary_counts_what_the_tokenizer_has():
    tokenizer = bytemill.train_from_iterator(
        iter(["the cat and the hat, the end " * 9]),
        270,
        ["<a>", "<b>"],
        special_ids="first",
        pattern="cl100k",
    )
    summary = describe(tokenizer, n_longest=3)
    assert summary.special_tokens == {"<a>": 0, "<b>": 1}
    assert summary.pattern_name == "cl100k"
    assert summary.n_merges == len(tokenizer.merges)
    assert summary.n_tokens == summary.n_vocab == tokenizer.n_vocab
    assert sum(summary.token_sizes.values()) == summary.n_tokens - 2
    sizes = [len(token) for _, token in summary.longest_tokens]
    assert sizes == sorted((len(left + right) for left, right in tokenizer.merges), reverse=True)[:3]
    json.dumps(summary.to_dict())
    assert tokenizer.training_report is not None
    json.dumps(training_to_dict(tokenizer.training_report))


def test_gaps_between_ids_are_no_tokens():
    vocab = {byte: bytes([byte]) for byte in range(256)}
    tokenizer = bytemill.Tokenizer(vocab, [], {"<end>": 1000}, pattern=None)
    summary = describe(tokenizer)
    assert (summary.n_tokens, summary.n_vocab, summary.pattern, summary.pattern_name) == (
        257,
        1001,
        None,
        None,
    )
    assert [info.id for info in token_infos(tokenizer)] == [*range(256), 1000]


@pytest.mark.parametrize("token_id", [257, -1, 2**70])
def test_an_id_that_no_token_has_is_named(token_id: int):
    tokenizer = bytemill.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    with pytest.raises(TokenizerError, match=f"no token has the id {token_id}"):
        list(token_infos(tokenizer, [token_id]))


def test_buckets_leave_no_token_out():
    sizes = {1: 256, 2: 10, 7: 4, 19: 1, 100: 2}
    for last in range(2, 110):
        buckets = size_buckets(sizes, last)
        assert sum(n for _, n in buckets) == 273
        assert len(buckets) <= last


def test_an_output_file_is_left_as_it_is(tmp_path: Path):
    file = tmp_path / "tokenizer.json"
    check_output_file(file, overwrite=False)
    assert list(tmp_path.iterdir()) == []
    file.write_text("precious")
    check_output_file(file, overwrite=True)
    with pytest.raises(OutputError, match="already exists"):
        check_output_file(file, overwrite=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("tokenizer.json", "precious")]


def test_devices_and_pipes_may_be_written_to(tmp_path: Path):
    check_output_file(os.devnull, overwrite=False)
    os.mkfifo(tmp_path / "pipe")
    check_output_file(tmp_path / "pipe", overwrite=False)  # and does not wait for a reader


def test_what_no_file_can_hold_is_known_before_training():
    check_can_be_saved(None, [])
    check_can_be_saved(Pattern.regex(r"\p{L}+|[^\p{L}]+"), ["<|endoftext|>"])
    with pytest.raises(TokenizerError):
        check_can_be_saved(Pattern.regex(r"\w+"), [])
    with pytest.raises(TokenizerError):
        check_can_be_saved("gpt2", ["twice", "twice"])
