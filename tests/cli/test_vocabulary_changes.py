"""`bytemill tokenizer extend`, `trim` and `lint`, and `bytemill lm adapt`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bytemill
from bytemill import Tokenizer
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.training.saved_model import load_trained, write_model_folder

Run = Callable[..., Any]

DOMAIN = "zygomorphic zygomorphic corolla zygomorphic\n" * 30


@pytest.fixture
def domain(tokenizer_file: str, work: Path) -> Tokenizer:
    (work / "domain.txt").write_text(DOMAIN)
    return Tokenizer.load(tokenizer_file)


def test_extend_says_what_is_new(domain: Tokenizer, run: Run):
    outcome = run("tokenizer extend tokenizer.json domain.txt --add 6 -q")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    tok = Tokenizer.load("extended.json")
    assert tok.fingerprint == bytemill.extend(domain, "domain.txt", 6).fingerprint
    outcome = run("tokenizer extend tokenizer.json domain.txt --add 6 -o again.json --json")
    document = json.loads(outcome.out)
    assert document["new_ids"] == [300, 301, 302, 303, 304, 305]
    assert (document["fingerprint"], document["n_new"]) == (tok.fingerprint, 6)
    outcome = run("tokenizer extend tokenizer.json domain.txt --add 6")
    assert outcome.err.splitlines() == [
        "error: extended.json already exists",
        "hint: choose another name, or replace it with --overwrite",
    ]
    shown = run("tokenizer extend tokenizer.json domain.txt --add 6 --overwrite").out
    assert shown.startswith("extended.json: 306 tokens, 6 of them new\n\n  new ids         300 to 305\n")


def test_extend_writes_a_rank_file_and_shows_the_tokens_of_words(domain: Tokenizer, work: Path, run: Run):
    (work / "words.txt").write_text(" zygote\n the\n")
    outcome = run("tokenizer extend tokenizer.json --words words.txt -o words.tiktoken")
    assert outcome.status == 0
    assert "' zygote': " in outcome.out
    assert "' the': a token already" in outcome.out
    tok = Tokenizer.load("words.tiktoken")
    assert [tok.vocab[i] for i in tok.encode(" zygote")] == [b" zygote"]
    both = run("tokenizer extend tokenizer.json domain.txt --add 3 --words words.txt -o both.json --json")
    assert json.loads(both.out)["n_new"] == 3 + json.loads(both.out)["words"][" zygote"].__len__()
    added = run("tokenizer extend tokenizer.json --words words.txt --as-added -o added.json --json")
    assert json.loads(added.out)["words"] == {" zygote": ["' zygote'"], " the": []}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("extend tokenizer.json", "say what to add: --add N"),
        ("extend tokenizer.json domain.txt", "say how many tokens to learn"),
        ("extend tokenizer.json --add 5", "name INPUTS to learn from"),
        ("extend tokenizer.json domain.txt --add 5 --as-added", "--as-added is about words"),
        ("extend tokenizer.json domain.txt --add 5 --counts a --counts b", "use --counts once"),
        ("extend tokenizer.json domain.txt --add 0", "Must be >= 1"),
        ("trim tokenizer.json", "say what to remove"),
        ("trim tokenizer.json --min-count 5", "whose tokens --min-count counts"),
    ],
)
def test_unclear_commands_are_refused(domain: Tokenizer, run: Run, line: str, message: str):
    outcome = run(f"tokenizer {line}")
    assert outcome.status == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("extend missing.json domain.txt --add 5", "error: missing.json: no such file"),
        ("extend tokenizer.json missing.txt --add 5", "error: no such file: missing.txt"),
        ("extend tokenizer.json --words nowords.txt", "error: cannot read nowords.txt"),
        ("trim tokenizer.json domain.txt -n 100", "error: vocab_size 100 is too small"),
        ("trim tokenizer.json domain.txt -n 1000", "error: vocab_size 1000 is more than the 300 tokens"),
        ("trim tokenizer.json domain.txt -n 270 -o listing.vocab", "error: a listing cannot be loaded again"),
        ("lint missing.json", "error: missing.json: no such file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    domain: Tokenizer, work: Path, run: Run, line: str, error: str
):
    before = sorted(work.iterdir())
    outcome = run(f"tokenizer {line}")
    assert outcome.status == 1
    assert error in outcome.err
    assert len(outcome.err.splitlines()) <= 2
    assert sorted(work.iterdir()) == before


def test_trim_writes_the_tokenizer_and_the_id_map(domain: Tokenizer, run: Run):
    outcome = run("tokenizer trim tokenizer.json domain.txt -n 280")
    assert outcome.status == 0
    assert outcome.out.startswith(
        "trimmed.json: 280 tokens of 300, 20 removed\n\n  id map               id_map.npy\n"
    )
    tok, id_map = Tokenizer.load("trimmed.json"), np.load("id_map.npy")
    expected = bytemill.trim(domain, bytemill.count_tokens(domain, [DOMAIN]), vocab_size=280)
    assert tok.fingerprint == expected.tokenizer.fingerprint
    assert np.array_equal(id_map, expected.id_map)
    again = run("tokenizer trim tokenizer.json domain.txt -n 280 -o other.json")
    assert again.err.startswith("error: id_map.npy already exists")
    document = json.loads(
        run("tokenizer trim tokenizer.json domain.txt --min-count 2 --overwrite --json").out
    )
    assert (document["id_map"], document["n_vocab"]) == ("id_map.npy", len(Tokenizer.load("trimmed.json")))
    Path("keep.txt").write_text(" the\n")
    assert run("tokenizer trim tokenizer.json --keep keep.txt -o kept.json --id-map kept.npy -q").out == ""
    assert [left + right for left, right in Tokenizer.load("kept.json").merges][-1] == b" the"


def test_lint_exits_with_one_on_errors_and_with_strict_on_warnings(domain: Tokenizer, work: Path, run: Run):
    outcome = run("tokenizer lint tokenizer.json domain.txt --html page.html")
    assert outcome.status == 0
    assert outcome.out.splitlines()[-1] == "tokenizer.json: 300 tokens, 0 errors, 0 warnings"
    assert 'id="unused"' in Path("page.html").read_text()
    document = json.loads(run("tokenizer lint tokenizer.json --json").out)
    assert (document["n_errors"], document["n_warnings"], document["n_tokens"]) == (0, 0, 300)
    domain.with_special_tokens(["pad"]).save("pad.json")
    assert run("tokenizer lint pad.json").status == 0
    strict = run("tokenizer lint pad.json --strict")
    assert (strict.status, strict.out.splitlines()[0]) == (
        1,
        "warning special-token-as-text: 1 special tokens that ordinary text can spell",
    )
    content = json.loads((work / "tokenizer.json").read_text())
    content["model"]["vocab"]["xyz"] = 300
    Path("dead.json").write_text(json.dumps(content))
    dead = run("tokenizer lint dead.json -q")
    assert dead.status == 1
    assert dead.out.splitlines()[1] == "    300 'xyz' (its bytes give 120 121 122)"


def test_adapt_moves_a_model_and_scores_it(domain: Tokenizer, work: Path, run: Run):
    config = ModelConfig(
        vocab_size=300,
        context_length=32,
        d_model=16,
        num_layers=1,
        num_heads=2,
        d_ff=32,
        tied_embeddings=True,
    )
    model = TransformerLM(config, seed=0)
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    write_model_folder(work / "model", config, weights, domain, source="a test")
    run("tokenizer extend tokenizer.json domain.txt --add 6 -q")
    outcome = run("lm adapt model --tokenizer extended.json -o adapted --text domain.txt")
    assert outcome.status == 0
    assert outcome.out.startswith("adapted: 300 tokens kept, 6 new, 0 dropped; 306 rows\n")
    rows = [line.split() for line in outcome.out.splitlines()[2:]]
    assert [row[0] for row in rows[1:]] == ["before", "after", "difference"]
    assert load_trained("adapted").tokenizer.fingerprint == Tokenizer.load("extended.json").fingerprint
    again = run("lm adapt model --tokenizer extended.json -o adapted")
    assert "error: adapted is not empty\n" in again.err
    document = json.loads(
        run("lm adapt model --tokenizer extended.json -o zero --init zero --text domain.txt --json").out
    )
    assert document["difference"]["bits_per_byte"] == pytest.approx(
        document["after"]["bits_per_byte"] - document["before"]["bits_per_byte"]
    )
    assert document["after"]["bytes_per_token"] > document["before"]["bytes_per_token"]
