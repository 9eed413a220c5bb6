"""`bytemill data encode` and `info`."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bytemill
from bytemill.shards import TokenShards

Run = Callable[..., Any]


def test_encode_writes_the_shards_of_the_library(tokenizer_file: str, run: Run):
    arguments = "data encode tokenizer.json corpus.txt --output shards --shard-tokens 100"
    outcome = run(arguments)
    assert outcome.status == 0, outcome.err
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    text = Path("corpus.txt").read_text(encoding="utf-8") + "<|endoftext|>"
    assert np.array_equal(TokenShards("shards")[:], tokenizer.encode(text))
    assert outcome.out.startswith(f"shards: {tokenizer.count(text):,} tokens\n")
    assert outcome.err.startswith("encoding: ")
    assert re.search(r"\n  encoded in .*B/s, .* tokens/s\n$", outcome.out)


def test_the_special_token_of_documents_ends_every_input(tokenizer_file: str, run: Run):
    Path("a.txt").write_text("the cat")
    Path("b.txt").write_text("the rat")
    arguments = ["data", "encode", tokenizer_file, "[ab].txt", "--output", "shards", "--json", "-q"]
    manifest = json.loads(run(*arguments).out)
    assert manifest["n_documents"] == 2
    assert manifest["settings"]["document_separator"] == "<|endoftext|>"
    assert [source["name"] for source in manifest["sources"]] == ["a.txt", "b.txt"]
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    assert tokenizer.decode(TokenShards("shards")[:]) == "the cat<|endoftext|>the rat<|endoftext|>"


def test_documents_that_end_in_the_text_are_counted(tokenizer_file: str, run: Run):
    text = "the cat<|endoftext|>the rat<|endoftext|>"
    arguments = ["data", "encode", tokenizer_file, "-", "-o", "shards", "--documents", "<|endoftext|>"]
    assert run(*arguments, stdin=text).status == 0
    assert json.loads(run("data info shards --json").out)["n_documents"] == 2


def test_the_same_again_does_nothing_and_other_settings_are_refused(tokenizer_file: str, run: Run):
    arguments = ["data", "encode", tokenizer_file, "corpus.txt", "--output", "shards"]
    assert run(*arguments, "--quiet").status == 0
    written = Path("shards/shard_00000.npy").stat().st_mtime_ns
    again = run(*arguments)
    assert again.status == 0
    assert again.err == "note: shards already contains these shards: nothing to do\n"
    assert Path("shards/shard_00000.npy").stat().st_mtime_ns == written
    other = run(*arguments, "--no-separators")
    assert other.status == 1
    assert other.err.startswith("error: shards already contains other shards")
    assert "--overwrite" in other.err
    assert run(*arguments, "--no-separators", "--overwrite", "--quiet").status == 0


@pytest.mark.parametrize("more", [[], ["--validation-fraction", "0.5", "--split-seed", "1"]])
def test_a_byte_order_mark_is_noted_once(tokenizer_file: str, run: Run, more: list[str]):
    Path("marked.txt").write_bytes(b"\xef\xbb\xbfsome text")
    Path("other.txt").write_bytes(b"other text")
    note = "note: a UTF-8 byte-order mark was dropped from the start of 1 file"
    arguments = ["data", "encode", tokenizer_file, "marked.txt", "other.txt", "-o", "out", *more]
    for _ in range(2):  # the second time it is complete already
        outcome = run(*arguments)
        assert outcome.status == 0
        assert (outcome.out + outcome.err).count(note) == 1
    assert run("data info out").err.count(note) == 1
    assert note not in run(*arguments, "--overwrite", "--quiet").err
    tokens = json.loads(run("data info out --json").out)
    assert tokens["n_bytes"] == len("some textother text")


def test_quiet_says_nothing(tokenizer_file: str, run: Run):
    outcome = run("data encode tokenizer.json corpus.txt -o shards --quiet")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


def test_info_verifies_and_finds_damage(tokenizer_file: str, run: Run):
    run("data encode tokenizer.json corpus.txt --output shards --quiet")
    good = run("data info shards --verify")
    assert good.status == 0
    assert "verified: every shard matches the manifest" in good.out
    shard = Path("shards/shard_00000.npy")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert run("data info shards").status == 0
    bad = run("data info shards --verify")
    assert bad.status == 1
    assert "note: shard_00000.npy has sha256" in bad.err
    assert "error: the shards in shards are damaged" in bad.err
    as_json = run("data info shards --verify --json")
    assert as_json.status == 1
    assert len(json.loads(as_json.out)["problems"]) == 1


def test_info_removes_what_a_finished_encoding_left(tokenizer_file: str, run: Run):
    run("data encode tokenizer.json corpus.txt --output shards --quiet")
    before = sorted(Path("shards").iterdir())
    Path("shards/.units").mkdir()
    Path("shards/.units/a.ids").write_bytes(b"left")
    Path("shards/.lock").touch()
    outcome = run("data info shards")
    assert outcome.status == 0
    assert (
        "note: removed what an encoding left that was killed at its end: shards/.units, shards/.lock"
        in outcome.err
    )
    assert sorted(Path("shards").iterdir()) == before
    assert run("data info shards").err == ""


def test_recheck_accepts_the_same_text_with_another_time(tokenizer_file: str, run: Run):
    command = ("data", "encode", tokenizer_file, "corpus.txt", "--output", "shards")
    run(*command, "--quiet")
    Path("corpus.txt").touch()
    refused = run(*command)
    assert "error: shards already contains other shards: corpus.txt has changed since" in refused.err
    assert "hint: compare all text with --recheck; choose another folder" in refused.err
    checked = run(*command, "--recheck")
    assert "note: shards already contains these shards: nothing to do" in checked.err
    assert run(*command).status == 0


def test_an_unknown_separator_is_named(tokenizer_file: str, run: Run):
    outcome = run("data encode tokenizer.json corpus.txt -o shards --documents '<eos>'")
    assert outcome.status == 1
    assert outcome.err == (
        "error: documents is '<eos>', which is not a special token\n"
        'hint: documents are "file", "line" or one of the special tokens: <|endoftext|>\n'
    )
    assert not Path("shards").exists()


def test_documents_that_may_not_be_meant_are_noted(tokenizer_file: str, run: Run):
    arguments = ["data", "encode", tokenizer_file, "corpus.txt", "-o", "out", "--overwrite"]
    note = "note: <|endoftext|> divides none of the inputs: each of them is one document\n"
    for more in ([], ["--executor", "local", "--num-workers", "1"]):
        assert note in run(*arguments, "--documents", "<|endoftext|>", *more).err
    assert "note" not in run(*arguments, "--documents", "line").err
    bytemill.train("corpus.txt", 280, []).save("plain.json")
    arguments[2] = "plain.json"
    assert "no usual special token for the end of documents" in run(*arguments).err
    assert "note" not in run(*arguments, "--no-separators").err


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (
            "data encode tokenizer.json corpus.txt -o out --append-eot",
            "leave it out: <|endoftext|> ends every",
        ),
        ("data encode tokenizer.json corpus.txt -o out --document-separator x", "use --documents TOKEN"),
        ("data reencode s --from a --to b -o out --document-separator=x", "use --documents TOKEN"),
        ("tokenizer train corpus.txt -n 300 --no-special-tokens", "use --no-end-of-text"),
    ],
)
def test_an_option_that_exists_no_more_names_its_successor(
    tokenizer_file: str, run: Run, command: str, hint: str
):
    outcome = run(*command.split())
    assert outcome.status == 2
    assert outcome.err.startswith("error: unknown option: --")
    assert f"\nhint: {hint}" in outcome.err
    assert "Did you mean" not in outcome.err


def test_a_corpus_of_json_lines_is_split_indexed_and_laid_out(tokenizer_file: str, run: Run):
    stories = [f"story {number}: the cat sat on the mat" for number in range(60)]
    lines = [json.dumps({"story": story}) for story in stories]
    Path("stories.jsonl").write_text("\n".join([*lines[:30], "{broken", *lines[30:]]) + "\n")
    arguments = ["data", "encode", tokenizer_file, "stories.jsonl", "-o", "out", "--field", "story"]
    options = ["--on-error", "skip", "--layout", "llmc", "--document-index"]
    outcome = run(*arguments, *options, "--validation-fraction", "0.25")
    assert outcome.status == 0, outcome.err
    assert "out/train: " in outcome.out
    assert "out/validation: " in outcome.out
    assert outcome.err.endswith("note: 1 broken document was left out\n")
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    found: list[str] = []
    for part in ("train", "validation"):
        tokens, ends = TokenShards(f"out/{part}")[:], TokenShards(f"out/{part}").document_ends()
        assert ends is not None
        texts = [tokenizer.decode(ids) for ids in np.split(tokens, ends[:-1].astype(int))]
        assert all(text.startswith("<|endoftext|>story") for text in texts)
        found += [text.removeprefix("<|endoftext|>") for text in texts]
        assert 3 < len(texts) < 57
    assert sorted(found) == sorted(stories)
    both = run("data info out --verify")
    assert both.status == 0
    assert both.out.count("documents.npy") == 2
    report = json.loads(run("data info out --json").out)
    parts = report["parts"].values()
    for key in ("n_tokens", "n_bytes", "n_documents", "n_empty_documents"):
        assert report[key] == sum(part[key] for part in parts)
    assert report["n_documents"] == 60
    assert report["n_shards"] == sum(len(part["shards"]) for part in parts)


def test_begins_documents_with_the_token_named(tokenizer_file: str, run: Run):
    Path("lines.txt").write_text("the cat\nthe rat\n")
    arguments = ["data", "encode", tokenizer_file, "lines.txt", "-o", "out", "--documents", "line", "-q"]
    assert run(*arguments, "--bos", "<|endoftext|>").status == 0
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    assert tokenizer.decode(TokenShards("out")[:]) == "<|endoftext|>the cat<|endoftext|>the rat"
    assert run(*arguments, "--prepend-bos").status == 0


def test_an_interrupted_encoding_resumes_and_reports_it(tokenizer_file: str, run: Run):
    from bytemill.shards import encode_corpus

    def stop(_: Any) -> None:
        if Path("out/progress.json").exists():
            raise KeyboardInterrupt

    Path("many.txt").write_text("the cat sat on the mat\n" * 1_000_000)
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    corpus = bytemill.Corpus(["many.txt"], repeat_by_weight=True)
    try:
        encode_corpus(tokenizer, corpus, "out", progress=stop, checkpoint_bytes=1)
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        pass
    outcome = run("data encode tokenizer.json many.txt --output out")
    assert outcome.status == 0, outcome.err
    assert outcome.err.startswith("note: resuming an interrupted run at ")
    assert len(TokenShards("out")) == 1_000_000 * tokenizer.count("the cat sat on the mat\n") + 1
    profiled = run("data encode tokenizer.json many.txt --output again --profile --json")
    assert set(json.loads(profiled.out)["profile"]["phases"][0]) >= {"name", "seconds"}


@pytest.mark.parametrize("command", ["convert", "reencode"])
def test_a_damaged_source_shard_is_an_error_unless_not_verified(
    tokenizer_file: str, run: Run, command: str
) -> None:
    run("data encode tokenizer.json corpus.txt -o shards -q")
    shard = Path("shards/shard_00000.npy")
    data = bytearray(shard.read_bytes())
    data[-2] ^= 1
    shard.write_bytes(data)
    arguments = {
        "convert": ["shards", "out", "--layout", "bin"],
        "reencode": ["shards", "--from", tokenizer_file, "--to", tokenizer_file, "-o", "out"],
    }[command]
    refused = run("data", command, *arguments)
    assert refused.status == 1
    assert "error: the shards in shards are damaged: shard_00000.npy has sha256" in refused.err
    assert "--no-verify" in refused.err
    assert not Path("out").exists()
    unverified = run("data", command, *arguments, "--no-verify", "-q")
    assert unverified.status == 0, unverified.err
    assert len(TokenShards("out")) > 0


def test_a_url_as_output_is_an_error_where_it_is_not_supported(tokenizer_file: str, run: Run) -> None:
    run("data encode tokenizer.json corpus.txt -o shards -q")
    before = sorted(Path().iterdir())
    for arguments, message in (
        (["data", "convert", "shards", "ftp://bucket/x", "--layout", "bin"], "ftp:// names no store"),
        (
            ["data", "convert", "shards", "https://bucket/x", "--layout", "bin"],
            "https://bucket/x cannot be written: it is on",
        ),
        (["data", "encode", tokenizer_file, "corpus.txt", "-o", "hf://me/x"], "hf:// names no store"),
        (
            [
                "data",
                "reencode",
                "shards",
                "--from",
                tokenizer_file,
                "--to",
                tokenizer_file,
                "-o",
                "ftp://x/y",
            ],
            "ftp:// names no store",
        ),
        (
            ["tokenizer", "train", "corpus.txt", "--vocab-size", "300", "-o", "hf://x/y"],
            "hf:// names no store",
        ),
    ):
        outcome = run(*arguments)
        assert outcome.status == 1
        assert f"error: {message}" in outcome.err
        assert "hint: " in outcome.err
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_encoding_without_a_checkpoint_says_so(
    tokenizer_file: str, start: Callable[..., subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    process = start("data", "encode", tokenizer_file, "-", "-o", "out", stdin=-1, stderr=-1)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"the cat sat on the mat\n" * 1_000_000)
    process.stdin.flush()
    assert process.stderr.readline().startswith(b"encoding")
    process.send_signal(number)
    assert process.wait() == 130
    said = process.stderr.read().decode()
    assert (
        "interrupted\nhint: run the same command again to start over (there is no checkpoint yet)\n" in said
    )
    assert not Path("out").exists()


def test_the_hint_says_resume_only_with_a_checkpoint(tmp_path: Path) -> None:
    from bytemill.cli.failures import resume_hint

    assert "start over" in resume_hint(tmp_path)
    (tmp_path / "progress.json").write_text("{}")
    assert resume_hint(tmp_path) == "run the same command again to resume from the last checkpoint"


@pytest.fixture
def chats(tokenizer_file: str) -> str:
    """The folder of a tokenizer with a chat template, beside `chats.jsonl` and `pairs.jsonl`."""
    tok = bytemill.Tokenizer.load(tokenizer_file).with_special_tokens(["<|end|>"])
    tok.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}"
    tok.save("chat/")
    rows = [{"prompt": f"q{i}", "completion": "a" * i} for i in (1, 2, 50)]
    Path("chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pairs = [{"prompt": "q", "chosen": "good", "rejected": "bad"}]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
    return "chat"


def test_conversations_are_encoded_and_shown_with_their_targets(
    chats: str, run: Run, monkeypatch: pytest.MonkeyPatch
):
    outcome = run(f"data encode --conversations chats.jsonl {chats} -o shards --max-tokens 40")
    assert outcome.status == 0, outcome.err
    assert "conversations  2, 1 longer one left out, their ends in documents.npy, whole turns" in outcome.out
    assert re.search(r"\n  targets +\d+ tokens, \d+\.\d %\n", outcome.out)
    shown = run(f"data info shards --tokenizer {chats} --examples 1 --verify")
    assert "user: q1<|end|>\nassistant: «a<|end|>»\n" in shown.out
    assert "q2" not in shown.out
    assert "verified: every shard" in shown.out
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run(f"data info shards --tokenizer {chats} --examples 1").out
    assert "\x1b[2muser: q1<|end|>\nassistant: \x1b[0m\x1b[32ma<|end|>\x1b[0m" in coloured


def test_pairs_are_shown_as_two_sets(chats: str, run: Run):
    outcome = run(f"data encode {chats} --conversations pairs.jsonl -o pairs --json")
    assert outcome.status == 0, outcome.err
    assert [*json.loads(outcome.out)["parts"]] == ["chosen", "rejected"]
    shown = run(f"data info pairs --tokenizer {chats}").out
    assert "pairs/chosen: " in shown
    assert "«good<|end|>»" in shown
    assert "«bad<|end|>»" in shown
    assert run(f"data encode {chats} --conversations pairs.jsonl -o pairs").status == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("data encode chat -o out", "name INPUTS, or files of conversations with --conversations FILE"),
        ("data encode chat corpus.txt --conversations chats.jsonl -o out", "name INPUTS, or files of"),
        ("data encode chat --conversations chats.jsonl -o out --bos x", "leave out options of text"),
        ("data encode chat --conversations chats.jsonl -o out --documents line", "leave out options of text"),
        ("data encode chat corpus.txt -o out --max-tokens 5", "--max-tokens needs --conversations FILE"),
        ("data encode tokenizer.json --conversations chats.jsonl -o out", "has no chat template"),
        ("data encode chat --conversations corpus.txt -o out", "corpus.txt:1: the row is not JSON"),
        ("data encode chat --conversations chats.jsonl -o out --executor local", "encoded by one process"),
    ],
)
def test_conversations_that_cannot_be_encoded(chats: str, run: Run, arguments: str, error: str):
    outcome = run(arguments)
    assert outcome.status != 0
    assert error in outcome.err
    assert "bug" not in outcome.err
    assert not Path("out/manifest.json").exists()


def test_examples_need_the_tokenizer_of_the_conversations(chats: str, run: Run):
    assert run(f"data encode {chats} --conversations chats.jsonl -o shards").status == 0
    assert "was encoded with tokenizer" in run("data info shards --tokenizer tokenizer.json").err
    assert run("data encode tokenizer.json corpus.txt -o text").status == 0
    assert "the shards have no masks" in run("data info text --tokenizer tokenizer.json").err
