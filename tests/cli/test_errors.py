"""What users read where something is wrong, word for word, and the exit status."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill.cli.failures import report
from bytemill.data import target
from bytemill.errors import CorpusError

Run = Callable[..., Any]

TRAIN = ["tokenizer", "train"]


ERRORS = [
    (
        "tokenizer train corpsu.txt -n 300 -o new.json",
        "no such file: corpsu.txt\nhint: did you mean corpus.txt?\n",
    ),
    (
        "tokenizer train texts -n 300 -o new.json",
        "the folder texts contains no corpus file\nhint: --format text ",
    ),
    (
        "tokenizer train empty.txt -n 300 -o new.json",
        "the corpus is empty: empty.txt holds 0 bytes\nhint: use an input that contains text\n",
    ),
    (
        "tokenizer train - -n 300 -q -o new.json",
        "the corpus is empty: <stdin> holds 0 bytes\nhint: use an input that contains text\n",
    ),
    ("tokenizer train corpus.txt -n 300 -o .", "cannot write .: it is a folder\n"),
    ("tokenizer show nothing.json", "nothing.json: no such file\n"),
    (
        "data encode tokenizer.json corpus.txt --output corpus.txt/shards",
        "cannot write corpus.txt/shards: corpus.txt is a file, not a folder\n",
    ),
]


@pytest.mark.parametrize(("command", "message"), ERRORS)
def test_an_error_names_the_file_and_what_to_do(tokenizer_file: str, run: Run, command: str, message: str):
    Path("texts").mkdir()
    Path("texts/picture.png").touch()
    Path("empty.txt").touch()
    outcome = run(command)
    assert (outcome.status, outcome.out) == (1, "")
    if "hint: " in message and message.endswith("\n"):
        assert outcome.err == f"error: {message}"
    assert outcome.err.startswith(f"error: {message}")
    assert ".jsonl, " in outcome.err or "--format" not in outcome.err, "the hint lists the formats"


def test_a_vocabulary_too_small_for_the_bytes_is_refused(work: Path, run: Run):
    outcome = run("tokenizer train corpus.txt -n 100")
    assert outcome.status == 1
    error, hint = outcome.err.splitlines()[-2:]
    assert error.startswith("error: vocab_size 100 is too small")
    assert hint == "hint: use a vocab_size of at least 257"
    assert not Path("tokenizer.json").exists()


@pytest.mark.parametrize("command", ["train", "encode", "inspect", "data"])
def test_what_is_not_utf8_is_named_with_its_place(tokenizer_file: str, run: Run, command: str):
    Path("latin.txt").write_bytes(b"caf\xe9 au lait\n")
    arguments = {
        "train": [*TRAIN, "latin.txt", "-n", "300", "-o", "new.json", "-q"],
        "encode": ["tokenizer", "encode", tokenizer_file, "--file", "latin.txt", "--count"],
        "inspect": ["tokenizer", "inspect", tokenizer_file, "--file", "latin.txt"],
        "data": ["data", "encode", tokenizer_file, "latin.txt", "--output", "shards", "-q"],
    }[command]
    outcome = run(*arguments)
    assert (outcome.status, outcome.out) == (1, "")
    error, hint = outcome.err.splitlines()
    assert error == "error: latin.txt:1: byte offset 3 (0xe9) is not valid UTF-8"
    assert hint.startswith("hint: ")
    assert "errors replace" in hint


@pytest.mark.parametrize(
    "content", ["", "{", "not a tokenizer\n", '{"model": {"type": "BPE"}}', "[1, 2]", "\x00\x01\x02"]
)
def test_a_damaged_tokenizer_file_is_named(work: Path, run: Run, content: str):
    Path("broken.json").write_text(content)
    outcome = run("tokenizer encode broken.json text")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("error: broken.json")
    assert "bug" not in outcome.err
    assert len(outcome.err.splitlines()) <= 2


def test_a_tokenizer_file_cut_off_anywhere_is_an_error_and_no_crash(tokenizer_file: str, run: Run):
    whole = Path(tokenizer_file).read_bytes()
    for place in range(0, len(whole) - 2, len(whole) // 23):
        Path("cut.json").write_bytes(whole[:place])
        outcome = run("tokenizer show cut.json")
        assert outcome.status == 1
        assert outcome.err.startswith("error: cut.json"), outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="platform: root may write everywhere")
def test_a_folder_without_permission_is_an_error(work: Path, run: Run):
    Path("locked").mkdir(mode=0o500)
    outcome = run(*TRAIN, "corpus.txt", "-n", "300", "-o", "locked/t.json")
    assert outcome.status == 1
    assert outcome.err.startswith("error: cannot write locked/t.json: permission denied\n")


def test_a_full_disk_is_an_error_with_a_hint(tokenizer_file: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "shards/shard_00000.npy")

    monkeypatch.setattr(target, "lock_folders", full)
    outcome = run("data encode tokenizer.json corpus.txt -o shards")
    assert outcome.status == 1
    assert "error: shards/shard_00000.npy: No space left on device\n" in outcome.err
    assert "hint: " in outcome.err


USAGE = [
    ("tokenizer train", 'command "tokenizer train" parameter --vocab-size requires an argument'),
    ("tokenizer train -n 300", "name INPUTS to train on, or files of counts with --counts FILE"),
    ("tokenizer train a -n 300 --counts b --counts c", "use --counts once with INPUTS"),
    (
        "tokenizer train a -n many",
        'invalid value for -n: "many" is not a count: write it like 32000, 32k or 1.5M',
    ),
    ("tokenizer train a -n 300 --ties up", 'invalid value "up" for --ties'),
    ("tokenizer train a -n 300 --threads 0", 'invalid value "0" for --threads. Must be >= 1'),
    ("tokenizer train a -n 300 --vocabsize 3", "unknown option: --vocabsize"),
    ("tokenizer tran", 'unknown command "tran". Did you mean "train"?'),
    ("tokenise", 'unknown command "tokenise". Did you mean "tokenizer"?'),
    ("data encode tokenizer.json a", 'command "data encode" parameter --output requires'),
    ("tokenizer encode tokenizer.json a --file b", "give TEXT or --file, not both"),
    ("tokenizer encode tokenizer.json --cuont", "unknown option: --cuont"),
]


@pytest.mark.parametrize(("words", "message"), USAGE)
def test_wrong_usage_is_status_2_and_points_at_the_help(
    tokenizer_file: str, run: Run, words: str, message: str
):
    outcome = run(words)
    assert (outcome.status, outcome.out) == (2, "")
    error, hint = outcome.err.splitlines()
    assert error.startswith(f"error: {message}")
    known = [word for word in words.split()[:2] if word in {"tokenizer", "train", "encode", "data"}]
    assert hint == f"hint: see `{' '.join(['bytemill', *known, '--help'])}`"


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--training.lr", "--optimizer.learning-rate"),
        ("--lr=1e-3", "--optimizer.learning-rate"),
        ("--training.learning_rate", "--optimizer.learning-rate"),
        ("--bs", "--training.batch-size"),
        ("--optimizer.wd", "--optimizer.weight-decay"),
        ("--model.n_layer", "--model.num-layers"),
        ("--max_iters", "--training.steps"),
        ("--optimizer.learnin-rate", "--optimizer.learning-rate"),
        ("--name", "--optimizer.name"),
    ],
)
def test_an_unknown_setting_suggests_the_whole_name_of_one(run: Run, option: str, meant: str):
    outcome = run("lm", "train", option, "3")
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: unknown option: {option}. Did you mean {meant}?\n")


def test_an_unknown_option_like_no_other_gets_no_suggestion(run: Run):
    assert run("lm train --xyzzy 3").err.startswith("error: unknown option: --xyzzy\n")


def test_a_count_may_have_a_unit(run: Run, work: Path):
    outcome = run("tokenizer train corpus.txt -n 0.3k -q")
    assert outcome.status == 0, outcome.err
    assert bytemill.Tokenizer.load("tokenizer.json").n_vocab == 300
    assert run("data encode tokenizer.json corpus.txt -o s --shard-tokens 1k").status == 0
    assert run("lm plan tiny --training-tokens 10B --model.vocab-size 32K").status == 0
    assert '"32.5" is not a count' in run("tokenizer train corpus.txt -n 32.5").err


def test_a_text_is_encoded_before_training(run: Run, tokenizer_file: str):
    Path("my texts").mkdir()
    Path("my texts/a.txt").write_text("the cat", "utf-8")
    for data in ("corpus.txt", "*.txt", "my texts"):
        settings = ["--model.preset", "tiny", "--data.tokenizer", tokenizer_file]
        outcome = run("lm", "train", *settings, "--data.train", data)
        assert outcome.status == 1
        command = shlex.join(["bytemill", "data", "encode", tokenizer_file, data, "-o", "shards"])
        assert outcome.err == (
            f"error: {data} is not a folder of shards\n"
            f"hint: encode it first: {command}; then train with --data.train shards\n"
        )
    outcome = run("data info corpus.txt")
    assert outcome.err == (
        "error: corpus.txt is a file, not a folder of shards\n"
        "hint: encode it first: bytemill data encode TOKENIZER corpus.txt -o DIR\n"
    )


def test_a_bug_is_called_one_and_says_how_to_see_it(work: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(bytemill.Tokenizer, "load", broken)
    outcome = run("tokenizer show tokenizer.json")
    assert outcome.status == 1
    assert outcome.err == (
        "error: bytemill has a bug: ZeroDivisionError: division by zero\n"
        "hint: run the command again with BYTEMILL_DEBUG=1 and report what it prints\n"
    )


def test_a_traceback_is_printed_only_when_asked_for(work: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    assert "Traceback" not in run(*TRAIN, "nothing.txt", "-n", "300").err
    monkeypatch.setenv("BYTEMILL_DEBUG", "1")
    outcome = run(*TRAIN, "nothing.txt", "-n", "300")
    assert outcome.status == 1
    assert outcome.err.startswith("Traceback (most recent call last):\n")
    assert "error: no such file: nothing.txt\n" in outcome.err


def test_names_with_control_codes_cannot_move_the_cursor(work: Path, run: Run):
    outcome = run(*TRAIN, "evil\x1b[2J.txt", "-n", "300")
    assert outcome.status == 1
    assert "\x1b" not in outcome.err
    assert "\\x1b[2J" in outcome.err


def test_notes_of_an_error_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    error = CorpusError("a.txt is damaged", hint="download it again")
    error.add_note("2 other units failed: b.txt, c.txt")
    assert report(error) == 1
    expected = "error: a.txt is damaged; 2 other units failed: b.txt, c.txt\nhint: download it again\n"
    assert capfd.readouterr().err == expected
