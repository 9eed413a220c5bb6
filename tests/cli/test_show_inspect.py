"""`bytemill tokenizer show` and `inspect`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bytemill

Run = Callable[..., Any]


@pytest.fixture
def tokenizer(tokenizer_file: str) -> bytemill.Tokenizer:
    return bytemill.Tokenizer.load(tokenizer_file)


def test_show_prints_the_summary(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer show tokenizer.json")
    assert outcome.status == 0
    summary = dict(line.strip().split("  ", 1) for line in outcome.out.splitlines()[2:10])
    assert {name: value.strip() for name, value in summary.items()} == {
        "tokens": "300",
        "merges": "43",
        "special tokens": "<|endoftext|> = 299",
        "pattern": "gpt2",
        "ties": "greatest pair of byte strings",
        "counts": "of each merge in training",
        "array type": "uint16",
        "fingerprint": tokenizer.fingerprint,
    }
    assert "█" in outcome.out
    assert "\x1b" not in outcome.out


def test_show_json_has_the_same_summary(tokenizer: bytemill.Tokenizer, run: Run):
    summary = json.loads(run("tokenizer show tokenizer.json --json").out)
    assert summary["n_tokens"] == summary["n_vocab"] == 300
    assert summary["pattern_name"] == "gpt2"
    assert summary["special_tokens"] == {"<|endoftext|>": 299}
    assert summary["fingerprint"] == tokenizer.fingerprint
    assert sum(summary["token_sizes"].values()) == 299
    longest = max(len(left + right) for left, right in tokenizer.merges)
    assert len(bytes.fromhex(summary["longest_tokens"][0]["bytes"])) == longest


def test_tokens_too_long_to_look_at_are_cut_for_people_alone(run: Run, work: Path):
    (work / "rulers.txt").write_text("-" * 4096)
    trained = run("tokenizer train rulers.txt -n 266 -o rulers.json")
    shown = run("tokenizer show rulers.json")
    for outcome in (trained, shown):
        assert f"'{'-' * 60}…'" in outcome.out
        assert "-" * 61 not in outcome.out
    summary = json.loads(run("tokenizer show rulers.json --json").out)
    assert summary["longest_tokens"][0]["text"] == "-" * 512


def test_show_token_says_what_it_is_merged_from(tokenizer: bytemill.Tokenizer, run: Run):
    info = tokenizer.token(298)
    outcome = run("tokenizer show tokenizer.json --token 298 --token 299")
    assert outcome.out.startswith("298  ")
    assert f"rank   {info.rank} " in outcome.out
    assert info.parts is not None
    for part in info.parts:
        assert f"    {part}  '" in outcome.out
    assert "special token" in outcome.out
    line, other = run("tokenizer show tokenizer.json --token 298 --token 65 --json").out.splitlines()
    assert json.loads(line)["parts"] == list(info.parts)
    assert json.loads(line)["count"] == info.count
    assert json.loads(other) == {
        "id": 65, "text": "A", "bytes": "41", "special": False, "rank": None, "parts": None, "count": None
    }  # fmt: skip


def test_show_tokens_lists_all_of_them(tokenizer: bytemill.Tokenizer, run: Run):
    lines = run("tokenizer show tokenizer.json --tokens --json").out.splitlines()
    listed = {entry["id"]: bytes.fromhex(entry["bytes"]) for entry in map(json.loads, lines)}
    assert listed == tokenizer.vocab
    table = run("tokenizer show tokenizer.json --tokens").out.splitlines()
    assert len(table) == 301
    assert table[11].split() == ["10", "'↵'"]


def test_show_of_an_unknown_token_is_an_error(tokenizer_file: str, run: Run):
    outcome = run("tokenizer show tokenizer.json --token 300")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "error: no token has the id 300\nhint: the ids of this tokenizer are 0 to 299\n"


def test_inspect_sets_tokens_apart_off_a_terminal(tokenizer: bytemill.Tokenizer, run: Run):
    text = "the cat\n\tsat<|endoftext|>"
    outcome = run("tokenizer", "inspect", "tokenizer.json", text)
    first, second, _, totals = outcome.out.splitlines()
    whole = (first + "│" + second).replace("↵│", "\n│").replace("␉", "\t")
    assert whole.split("│") == [
        token.decode() for token in tokenizer.decode_tokens_bytes(tokenizer.encode(text))
    ]
    n_tokens = len(tokenizer.encode(text))
    n_bytes = len(text.encode())
    assert totals == (
        f"{n_tokens} tokens, {n_bytes} bytes, {len(text)} characters, {n_bytes / n_tokens:.2f} bytes/token"
    )


def test_inspect_makes_parts_of_characters_and_controls_visible(tokenizer_file: str, run: Run):
    outcome = run("tokenizer inspect tokenizer.json", "€\x1b[31m\u202e\x7f\xa0")
    assert "⟨e2⟩│⟨82⟩│⟨ac⟩│␛│[" in outcome.out
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    assert "␡" in outcome.out


def test_inspect_ids_stand_below_their_tokens(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer inspect tokenizer.json 'the cat xyz' --ids")
    tokens, ids, *_ = outcome.out.splitlines()
    assert ids.split() == list(map(str, tokenizer.encode("the cat xyz")))
    assert [tokens[ids.index(number)] for number in ids.split()[:2]] == ["t", "·"]


def test_inspect_explain_replays_every_merge(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer inspect tokenizer.json 'the cat the' --explain")
    merges = [step for part in tokenizer.explain("the cat the") for step in part.steps]
    lines = outcome.out.splitlines()
    assert {f"rank {step.rank} " for step in merges} == {
        " ".join(line.split()[:2]) + " " for line in lines if line.startswith("  rank")
    }
    assert lines[0].startswith("the → the (")


def test_inspect_json_has_offsets_and_explanations(tokenizer: bytemill.Tokenizer, run: Run):
    text = "the € cat"
    outcome = run("tokenizer", "inspect", "tokenizer.json", text, "--json", "--explain")
    document = json.loads(outcome.out)
    assert [token["id"] for token in document["tokens"]] == tokenizer.encode(text)
    data = text.encode()
    for token in document["tokens"]:
        assert data[token["start"] : token["end"]].hex() == token["bytes"]
    assert [i for part in document["explanations"] for i in part["ids"]] == tokenizer.encode(text)


def test_inspect_with_a_smaller_vocabulary_uses_the_first_merges(tokenizer: bytemill.Tokenizer, run: Run):
    text = "the cat the"
    outcome = run(
        "tokenizer", "inspect", "tokenizer.json", text, "--vocab-size", "260", "--json", "--explain"
    )
    smaller = tokenizer.truncate(260)
    assert smaller.encode(text) != tokenizer.encode(text)
    assert [token["id"] for token in json.loads(outcome.out)["tokens"]] == smaller.encode(text)
    outcome = run("tokenizer", "inspect", "tokenizer.json", text, "--vocab-size", "3")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("error: ")


def test_inspect_reads_files(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer inspect tokenizer.json --file corpus.txt --json")
    with open("corpus.txt", encoding="utf-8") as file:  # noqa: PTH123
        ids = tokenizer.encode(file.read())
    assert [token["id"] for token in json.loads(outcome.out)["tokens"]] == ids


def test_inspect_shows_the_progress_of_a_long_text(tokenizer: bytemill.Tokenizer, run: Run):
    Path("long.txt").write_text("~" * 70_000)
    result = run("tokenizer inspect tokenizer.json --file long.txt")
    assert result.err.startswith("inspecting: 65,536 of 70,000 tokens")
    assert run("tokenizer inspect tokenizer.json --file long.txt -q").err == ""
    assert run("tokenizer inspect tokenizer.json '~'").err == ""


def test_inspect_svg_prints_an_image_with_the_ids(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer inspect tokenizer.json 'the cat' --svg")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("<svg ")
    for token_id in tokenizer.encode("the cat"):
        assert f">{token_id}</text>" in outcome.out


def test_inspect_svg_takes_no_other_form_of_output(tokenizer_file: str, run: Run):
    outcome = run("tokenizer inspect tokenizer.json 'the cat' --svg --json")
    assert outcome.status == 2
    assert "--svg" in outcome.err
