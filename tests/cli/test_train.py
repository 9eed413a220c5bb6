"""`bytemill tokenizer train`."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import bytemill
from bytemill.cli.tokenizer_options import training_resume_hint
from bytemill.training.options import checkpoint_folder

Run = Callable[..., Any]


def test_trains_and_writes_what_the_library_trains(work: Path, run: Run):
    outcome = run("tokenizer train corpus.txt --vocab-size 300")
    assert outcome.status == 0
    expected = bytemill.train(["corpus.txt"], 300, ["<|endoftext|>"])
    assert bytemill.Tokenizer.load("tokenizer.json").fingerprint == expected.fingerprint


def test_hugging_face_opens_the_file(work: Path, run: Run):
    run("tokenizer train corpus.txt --vocab-size 300 --output mine.json")
    text = "the cat sat → café<|endoftext|>"
    ids = tokenizers.Tokenizer.from_file("mine.json").encode(text).ids
    assert bytemill.Tokenizer.load("mine.json").encode(text) == ids


def test_the_summary_is_on_stdout_and_progress_on_stderr(work: Path, run: Run):
    outcome = run("tokenizer train corpus.txt --vocab-size 300")
    lines = outcome.out.splitlines()
    assert lines[0] == "tokenizer.json: 300 tokens (256 bytes, 43 merges, 1 special token)"
    for expected in ("text", "pre-tokens", "phase", "count", "merge", "longest tokens"):
        assert any(line.strip().startswith(expected) for line in lines), expected
    assert outcome.err.startswith("counting pre-tokens: ")
    assert "learning merges: " in outcome.err
    assert "\x1b" not in outcome.out + outcome.err


def test_json_is_one_object_with_the_report(work: Path, run: Run):
    outcome = run("tokenizer train corpus.txt --vocab-size 300 --json --quiet")
    report = json.loads(outcome.out)
    assert outcome.err == ""
    assert report["output"] == "tokenizer.json"
    assert report["n_vocab"] == 300
    assert report["n_merges"] == 43
    assert report["n_bytes"] == Path("corpus.txt").stat().st_size
    assert [phase["name"] for phase in report["phases"]] == ["read", "count", "merge", "build"]
    assert report["fingerprint"] == bytemill.Tokenizer.load("tokenizer.json").fingerprint
    assert bytes.fromhex(report["longest_tokens"][0]["bytes"]).decode() == report["longest_tokens"][0]["text"]


def test_quiet_says_nothing(work: Path, run: Run):
    outcome = run("tokenizer train corpus.txt --vocab-size 300 -q")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    assert Path("tokenizer.json").is_file()


def test_reads_standard_input(work: Path, run: Run):
    text = Path("corpus.txt").read_bytes()
    outcome = run("tokenizer train - --vocab-size 300 --quiet", stdin=text)
    assert outcome.status == 0
    expected = bytemill.train(["corpus.txt"], 300, ["<|endoftext|>"])
    assert bytemill.Tokenizer.load("tokenizer.json").fingerprint == expected.fingerprint


def test_options_may_stand_between_inputs(work: Path, run: Run):
    Path("more.txt").write_text("and more\n" * 30)
    outcome = run("tokenizer train corpus.txt --vocab-size 300 more.txt --json --quiet")
    n_bytes = Path("corpus.txt").stat().st_size + Path("more.txt").stat().st_size
    assert json.loads(outcome.out)["n_bytes"] == n_bytes


def test_special_tokens_are_added_to_the_one_that_ends_documents_or_it_is_left_out(work: Path, run: Run):
    arguments = ["tokenizer", "train", "corpus.txt", "--vocab-size", "300", "--quiet"]
    special = ["--special-token", "<|user|>", "--special-token=--bot--"]
    end = ["--special-token", "<|endoftext|>"]
    for more, expected in (
        ([], ["<|endoftext|>"]),
        (special, ["<|endoftext|>", "<|user|>", "--bot--"]),
        ([*special, *end], ["<|user|>", "--bot--", "<|endoftext|>"]),
        (["--no-end-of-text", *special], ["<|user|>", "--bot--"]),
        (["--no-end-of-text", *end], ["<|endoftext|>"]),
        (["--no-end-of-text"], []),
    ):
        assert run(*arguments, *more, "--output", "t.json", "--overwrite").status == 0
        found = bytemill.Tokenizer.load("t.json").special_tokens
        assert sorted(found, key=found.__getitem__) == expected
    # The default is that of the library.
    assert run(*arguments, "--output", "t.json", "--overwrite").status == 0
    for trained in (
        bytemill.train("corpus.txt", 300),
        bytemill.train_from_iterator(["the cat sat on the mat"] * 9, 262),
    ):
        assert list(trained.special_tokens) == ["<|endoftext|>"]
    assert bytemill.train("corpus.txt", 300).fingerprint == bytemill.Tokenizer.load("t.json").fingerprint


def test_what_ends_documents_is_a_special_token(work: Path, run: Run):
    arguments = ["tokenizer", "train", "corpus.txt", "-n", "300", "--documents", "<|endoftxt|>", "-q"]
    for more in ([], ["--executor", "local", "--num-workers", "1"]):
        outcome = run(*arguments, *more)
        assert outcome.status == 1
        assert outcome.err.startswith("error: documents is '<|endoftxt|>', which is not a special token\n")
        assert "did you mean <|endoftext|>?" in outcome.err
    with pytest.raises(bytemill.SpecialTokenError, match="not a special token") as caught:
        bytemill.train(bytemill.Corpus("corpus.txt", documents="<|endoftext|>"), 300, [])
    assert "(special_tokens=) adds one" in str(caught.value.hint)
    assert run(*arguments, "--special-token", "<|endoftxt|>").status == 0


def test_options_reach_the_trainer(work: Path, run: Run):
    Path("corpus.txt").write_text("ab ab ab cd cd e1 e1" * 3 + "\xff", encoding="latin-1")
    options = "--special-ids first --pattern cl100k --ties huggingface --min-frequency 3 --errors replace"
    outcome = run(f"tokenizer train corpus.txt -n 260 {options} --threads 1 --json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["n_replaced"] == 1
    trained = bytemill.Tokenizer.load("tokenizer.json")
    expected = bytemill.train(
        ["corpus.txt"], 260, ["<|endoftext|>"],
        special_ids="first", pattern="cl100k", ties="huggingface", min_frequency=3, errors="replace",
    )  # fmt: skip
    assert trained.fingerprint == expected.fingerprint
    assert trained.special_tokens == {"<|endoftext|>": 0}
    assert trained.ties == "huggingface"


def test_a_custom_pattern_is_reported_as_slower(work: Path, run: Run):
    arguments = ["tokenizer", "train", "corpus.txt", "-n", "300", "--overwrite"]
    outcome = run(*arguments, "--pattern", r"regex:\p{L}++|[^\p{L}]+")
    assert outcome.status == 0
    assert outcome.err.count("note: this pattern needs a backtracking regex engine") == 1
    assert "regex engine" not in run(*arguments, "--pattern", r"regex:\p{L}+|[^\p{L}]+").err
    assert "regex engine" not in run(*arguments, "--pattern", "o200k").err
    assert "regex engine" not in run(*arguments, "--pattern", "none").err
    assert bytemill.Tokenizer.load("tokenizer.json").pattern is None


def test_a_pattern_that_no_file_can_hold_is_refused_before_training(work: Path, run: Run):
    outcome = run("tokenizer", "train", "corpus.txt", "-n", "300", "--pattern", r"regex:\w+|\W+")
    assert outcome.status == 1
    assert "\\w" in outcome.err
    assert "counting" not in outcome.err


def test_a_corpus_that_runs_out_of_pairs_is_a_note(work: Path, run: Run):
    Path("corpus.txt").write_text("ab")
    outcome = run("tokenizer train corpus.txt -n 300")
    assert outcome.status == 0
    assert "note: training ended after 1 of 43 merges" in outcome.err
    assert "Warning" not in outcome.err


def test_an_existing_file_is_kept_without_overwrite(work: Path, run: Run):
    Path("tokenizer.json").write_text("precious")
    arguments = ["tokenizer", "train", "corpus.txt", "-n", "300", "--quiet"]
    outcome = run(*arguments)
    assert outcome.status == 1
    assert outcome.err == (
        "error: tokenizer.json already exists\nhint: choose another name, or replace it with --overwrite\n"
    )
    assert Path("tokenizer.json").read_text() == "precious"
    assert run(*arguments, "--overwrite").status == 0
    assert bytemill.Tokenizer.load("tokenizer.json").n_vocab == 300


def test_an_output_that_cannot_be_written_is_known_before_training(work: Path, run: Run):
    outcome = run("tokenizer train corpus.txt -n 300 -o nowhere/tokenizer.json")
    assert outcome.status == 1
    assert "counting" not in outcome.err
    assert outcome.err.startswith(
        "error: cannot write nowhere/tokenizer.json: the folder nowhere does not exist\n"
    )


def test_counts_are_kept_and_added_up_with_weights(work: Path, run: Run):
    Path("more.txt").write_text("and more and more\n" * 30)
    arguments = ["tokenizer", "train", "-n", "300", "--overwrite"]
    for name in ("corpus", "more"):
        outcome = run(*arguments, f"{name}.txt", "--counts", f"{name}.bin")
        assert outcome.status == 0, outcome.err
        assert f"saved to {name}.bin" in outcome.out
    outcome = run(*arguments, "corpus.txt", "--counts", "corpus.bin")
    assert "read from corpus.bin" in outcome.out
    outcome = run(*arguments, "--counts", "corpus.bin", "--counts", "more.bin=2", "--json", "-q")
    assert outcome.status == 0, outcome.err
    corpus = bytemill.Corpus(["corpus.txt", "more.txt"], weights={"more.txt": 2.0})
    expected = bytemill.train(corpus, 300, ["<|endoftext|>"])
    assert bytemill.Tokenizer.load("tokenizer.json").merges == expected.merges
    assert json.loads(outcome.out)["from_counts"] is True
    assert run(*arguments, "more.txt", "--counts", "corpus.bin").status == 1
    assert run(*arguments, "--counts", "none.bin").status == 1


def test_the_cost_of_a_memory_bound_and_omissions_are_reported(work: Path, run: Run, small_process: None):
    arguments = "tokenizer train corpus.txt -n 280 --min-pretoken-count 2 --max-memory 1GB"
    outcome = run(arguments, "--json", "-q")
    report = json.loads(outcome.out)
    assert (report["max_memory"], report["spilled_bytes"], report["min_pretoken_count"]) == (10**9, 0, 2)
    outcome = run(arguments, "--overwrite", "--profile")
    assert outcome.status == 0
    assert "nothing: everything fitted within" in outcome.out
    assert "below 2" in outcome.out
    assert "profile:" in outcome.err
    assert run(arguments.replace("1GB", "1MB"), "--overwrite").status == 1


def test_json_lines_train_like_the_text_in_them(work: Path, run: Run):
    Path("rows.jsonl").write_text('{"text": "low low lower"}\n{"no": 1}\n{"text": "low newest"}\n')
    arguments = ["tokenizer", "train", "rows.jsonl", "-n", "262"]
    assert run(*arguments, "-q").status == 1
    outcome = run(*arguments, "--on-error", "skip")
    assert outcome.status == 0, outcome.err
    assert "note: 1 broken document was left out" in outcome.err
    expected = bytemill.train_from_iterator(["low low lower", "low newest"], 262, ["<|endoftext|>"])
    assert bytemill.Tokenizer.load("tokenizer.json").merges == expected.merges


# Several processes, interruptions, memory


def bytemill_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bytemill", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_until(is_true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_second_process_with_the_same_output_or_counts_fails_at_once(work: Path, run: Run):
    arguments = ["tokenizer", "train", "-", "-n", "300", "-q", "--counts", "c.counts"]
    first = bytemill_process(*arguments, stdin=subprocess.PIPE)
    wait_until(lambda: Path(".tokenizer.json.lock").exists() and Path(".c.counts.lock").exists(), first)
    outcome = run("tokenizer train corpus.txt -n 280 --overwrite")
    assert outcome.status == 1
    assert outcome.err == (
        "error: another process is writing tokenizer.json\n"
        "hint: wait until it has finished, or choose another output\n"
    )
    outcome = run("tokenizer train corpus.txt -n 280 --counts c.counts -o other.json")
    assert outcome.status == 1
    assert "error: another process is writing c.counts" in outcome.err
    assert run("tokenizer train corpus.txt -n 280 -o other.json -q").status == 0
    assert first.communicate(Path("corpus.txt").read_text("utf-8")) == ("", "")
    assert bytemill.Tokenizer.load("tokenizer.json").n_vocab == 300
    assert not list(work.glob(".*"))


def test_temporary_files_of_killed_processes_are_removed(work: Path, run: Run):
    for name in (".c.counts.0badcafe.tmp", ".tokenizer.json.deadbeef.tmp", ".other.json.deadbeef.tmp"):
        Path(name).write_text("half a file")
    outcome = run("tokenizer train corpus.txt -n 300 --counts c.counts -q")
    assert outcome.status == 0, outcome.err
    assert [path.name for path in work.glob(".*")] == [".other.json.deadbeef.tmp"]


@pytest.mark.skipif(
    sys.platform == "win32", reason="platform: SIGINT cannot be sent to another process there"
)
def test_an_interruption_without_a_checkpoint_does_not_promise_one(work: Path):
    process = bytemill_process("tokenizer", "train", "-", "-n", "300", stdin=subprocess.PIPE)
    wait_until(Path(".tokenizer.json.lock").exists, process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "tokenizer.json was not written: run the same command again to start over" in err
    assert "resume" not in err
    assert not list(work.glob(".*"))


def test_an_interruption_promises_to_resume_from_a_checkpoint_or_counts(work: Path):
    def note(folder: Path, counts: str | None) -> str:
        return training_resume_hint(Path("a.json"), folder, counts)

    folder = checkpoint_folder(Path("a.json"))
    in_units = training_resume_hint(Path("a.json"), folder, None, in_units=True)
    assert in_units.endswith("run the same command again to resume after the units that are finished")
    assert folder == Path(".a.json.counting")
    assert "to start over" in note(folder, None)
    folder.mkdir()
    assert "to start over" in note(folder, None)
    (folder / "journal.json").write_text("{}")
    assert "to resume from the last checkpoint" in note(folder, None)
    assert "to start over" in note(Path("none"), "c.counts")
    Path("c.counts").write_text("")
    assert "to train on the counts in c.counts" in note(Path("none"), "c.counts")


@pytest.mark.skipif(sys.platform != "linux", reason="platform: RLIMIT_AS is not enforced everywhere")
def test_too_little_memory_is_one_line_that_says_what_to_lower(work: Path):
    rng = random.Random(1)
    Path("words.txt").write_text(" ".join(f"{rng.getrandbits(60):x}" for _ in range(1_000_000)))
    program = """
import resource, sys
import numpy, cyclopts, bytemill.cli.app, bytemill.training.pipeline, bytemill.cli.profile, bytemill.cli.output
from bytemill.cli import main
with open("/proc/self/statm") as file:
    n_bytes = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (n_bytes + (48 << 20),) * 2)
sys.exit(main(["tokenizer", "train", "words.txt", "-n", "1000", "-q", "--threads", "1"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: training does not fit into memory\nhint: ")
    assert "--max-memory" in done.stderr
    assert "--threads" in done.stderr
    assert not Path("tokenizer.json").exists()


def test_a_byte_order_mark_is_noted_once(work: Path, run: Run):
    Path("corpus.txt").write_bytes(b"\xef\xbb\xbf" + Path("corpus.txt").read_bytes())
    outcome = run("tokenizer train corpus.txt -n 300")
    assert outcome.status == 0
    assert outcome.err.count("note: a UTF-8 byte-order mark was dropped from the start of 1 file") == 1
