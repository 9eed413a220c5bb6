"""Training within a memory budget: equal merges, a respected bound, no files left behind."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bytemill
from bytemill import Corpus, OutputError, TokenizerError
from bytemill.training import memory_budget as budget
from bytemill.training.counting import CountingSettings, count_corpus, count_texts
from bytemill.training.work_folder import WorkFolder

END = "<|endoftext|>"
N_WORDS = 300_000


def many_words(path: Path, n: int = N_WORDS) -> Path:
    """Write text of mostly unique pre-tokens, which fills tables of a few megabytes several times."""
    # Pre-tokens of letters alone; every fifth is a long one.
    letters = bytes.maketrans(b"0123456789", b"abcdefghij")
    numbers = (number * 2654435761 % 10**10 for number in range(n))
    words = (b"%010d" % number + b"7" * (20 * (number % 5 == 0)) for number in numbers)
    path.write_bytes(b" ".join(words).translate(letters))
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_words(tmp_path_factory.mktemp("budget") / "words.txt")


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_process: None) -> Iterator[Path]:
    """A folder for temporary files that must be empty after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def test_merges_are_those_without_a_budget_and_the_report_says_what_it_cost(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bytemill.train(corpus, 600, [END])
    plan = budget.CountingPlan(2, 1 << 16, 6_000_000)
    monkeypatch.setattr(budget.MemoryBudget, "counting", lambda *_args, **_options: plan)  # pyright: ignore[reportUnknownLambdaType]
    tokenizer = bytemill.train(
        corpus, 600, [END], max_memory=budget.resident_bytes() + 80_000_000, num_threads=2
    )
    assert tokenizer.merges == expected.merges
    report, plain = tokenizer.training_report, expected.training_report
    assert report is not None
    assert plain is not None
    assert report.n_pretokens == plain.n_pretokens
    assert report.n_unique_pretokens == plain.n_unique_pretokens
    assert report.spilled_runs >= 2
    assert report.spilled_bytes > 1_000_000
    assert report.spill_seconds > 0
    assert (plain.spilled_bytes, plain.spilled_runs, plain.max_memory) == (0, 0, None)


def test_every_kind_of_input_is_counted_within_tables_of_any_size(corpus: Path) -> None:
    text = corpus.read_text("utf-8")[:1_000_000]
    texts = [text[start : start + 50_000] for start in range(0, len(text), 50_000)]
    with WorkFolder() as work:
        expected = count_texts(texts, CountingSettings(), work).items()
    plan = budget.CountingPlan(3, 1 << 16, 1_500_000)

    class Fixed(budget.MemoryBudget):
        def counting(self, *_: object, **__: object) -> budget.CountingPlan:
            return plan

    options = CountingSettings(budget=Fixed(0))
    with WorkFolder() as work:
        from_texts = count_texts(texts, options, work)
        assert from_texts.counts.is_on_disk
        assert from_texts.counts.spilled[1] > 1
        assert from_texts.items() == expected
    with WorkFolder() as work:
        from_batches = count_corpus(Corpus.from_texts(texts), options, work)
        assert from_batches.items() == expected


def test_the_bound_is_kept(tmp_path: Path) -> None:
    path = many_words(tmp_path / "words.txt", 600_000)
    program = f"""
from pathlib import Path
import bytemill
from bytemill.system import memory
# Peaks that are reset would be forgotten.
memory._CLEAR_REFS = Path("/nowhere/at/all")
bytemill.train({str(path)!r}, 1000, max_memory={{max_memory}}, num_threads=2)
print(memory.peak_bytes())
"""

    def peak(max_memory: str | None) -> int:
        command = [sys.executable, "-c", program.format(max_memory=repr(max_memory))]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    assert peak(None) > 125_000_000
    assert peak("115MB") <= 115_000_000


def test_a_budget_that_is_too_small_names_one_that_would_do(corpus: Path) -> None:
    with pytest.raises(TokenizerError, match="too little for counting") as caught:
        bytemill.train(corpus, 300, max_memory="10MB")
    assert caught.value.hint is not None
    least = caught.value.hint.split()[3]
    assert bytemill.train(corpus, 300, max_memory=f"{int(least.removesuffix('MB')) + 40}MB").n_vocab == 300


@pytest.mark.parametrize("value", ["much", "", "0", 0, -5, "3XB"])
def test_invalid_budgets_are_refused(corpus: Path, value: object) -> None:
    with pytest.raises(TokenizerError, match="max_memory is"):
        bytemill.train(corpus, 300, max_memory=value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="max_memory must be"):
        bytemill.train(corpus, 300, max_memory=1.5)  # type: ignore[arg-type]


def test_a_small_corpus_touches_no_disk(tmp_path: Path, temporary_folder: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_text("low lower newest", "utf-8")
    temporary_folder.rmdir()
    bytemill.train(path, 258, max_memory="400MB", work_folder=tmp_path / ".work")
    assert not (tmp_path / ".work").exists()
    temporary_folder.mkdir()


def limited(program: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that may write files of at most a megabyte."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, preexec_fn=limit, env={**os.environ, **env}, check=False
    )


def test_a_full_disk_is_an_output_error_and_leaves_nothing(
    corpus: Path, tmp_path: Path, temporary_folder: Path
) -> None:
    program = """
import sys
import bytemill
from bytemill.training import memory_budget as budget
try:
    bytemill.train(sys.argv[1], 300, max_memory=budget.resident_bytes() + 45_000_000, num_threads=1)
except bytemill.OutputError as error:
    print(error)
    print(error.hint)
"""
    outcome = limited(program, str(corpus), env={"TMPDIR": str(temporary_folder)})
    assert outcome.returncode == 0, outcome.stderr
    message, hint = outcome.stdout.splitlines()
    assert "the file would grow beyond the size limit" in message
    assert "run it again" in hint
    assert not list(temporary_folder.iterdir())


def test_ctrl_c_removes_the_temporary_folder(tmp_path: Path, temporary_folder: Path) -> None:
    pipe = tmp_path / "endless.txt"
    os.mkfifo(pipe)
    program = """
import sys
import bytemill
try:
    bytemill.train(sys.argv[1], 300, max_memory="300MB")
except KeyboardInterrupt:
    sys.exit(7)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(pipe)],
        env={**os.environ, "TMPDIR": str(temporary_folder)},
        # Where these tests run in the background, the shell has had SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    try:
        with pipe.open("wb", buffering=0) as writer:
            deadline = time.monotonic() + 60
            while not list(temporary_folder.iterdir()) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert list(temporary_folder.iterdir())
            writer.write(b"low lower newest ")
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 7
    finally:
        process.kill()
        process.wait()
    assert not list(temporary_folder.iterdir())


def test_folders_of_killed_runs_are_removed_and_those_of_running_ones_are_kept(
    temporary_folder: Path,
) -> None:
    dead = temporary_folder / "bytemill-counting-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "run-000001").write_bytes(b"entries")
    with WorkFolder() as first:
        alive = first.open()
        assert not dead.exists()
        with WorkFolder() as second:
            second.open()
            assert alive.exists()
    assert not alive.exists()


def test_one_run_at_a_time_counts_in_a_folder(tmp_path: Path) -> None:
    with WorkFolder(tmp_path / "work") as work:
        work.open()
        with (
            pytest.raises(OutputError, match="another process is counting in"),
            WorkFolder(tmp_path / "work") as other,
        ):
            other.open()
        assert (tmp_path / "work").exists()
    assert not (tmp_path / "work").exists()
