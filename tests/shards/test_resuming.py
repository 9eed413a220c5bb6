"""Stopped at any moment and started again, an encoding gives the files that it would have given at once."""

import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bytemill.corpus import documents as batches
from bytemill.errors import OutputError, ShardError
from bytemill.shards import EncodeProgress, encode_corpus, read_manifest, verify

from .packed_documents import END, TOKENIZER, Documents, documents, files_of, tokenizer_of_bytes

TESTS = Path(__file__).parents[1]

KINDS: dict[str, dict[str, Any]] = {
    "npy": {"shard_tokens": 5_000, "document_index": True},
    "split": {"shard_tokens": 3_000, "document_index": True, "documents": END, "validation_fraction": 0.3},
    "llmc": {"layout": "llmc", "shard_tokens": 5_000, "documents": END, "shuffle_seed": 5},
    "megatron": {"layout": "megatron", "shard_tokens": 5_000, "prepend": END, "document_index": True},
    "datatrove": {"layout": "datatrove", "shard_tokens": 2_000, "documents": END},
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shuffled corpus is cut into batches of this size."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 700)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """The files of a run that nobody disturbed, by kind."""
    made: dict[str, dict[str, bytes]] = {}

    def files(kind: str) -> dict[str, bytes]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            encode_corpus(TOKENIZER, documents(), folder / "out", num_threads=1, **KINDS[kind])
            made[kind] = files_of(folder / "out")
        return made[kind]

    return files


def run_killed(runs: dict[Path, tuple[str, Sequence[float]]]) -> dict[Path, list[str]]:
    """Run a kind in each folder, killed at these moments, and return how each run ended."""
    options = {
        str(out): {"kills": list(kills), "encode": {**KINDS[kind], "checkpoint_bytes": 1}}
        for out, (kind, kills) in runs.items()
    }
    command = [sys.executable, "-m", "shards.killed_runs", json.dumps(options)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == ""
    return {Path(out): ended for out, ended in json.loads(done.stdout).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_checkpoints_change_nothing(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]], kind: str
) -> None:
    out = tmp_path / "out"
    encode_corpus(TOKENIZER, documents(), out, num_threads=3, checkpoint_bytes=1, **KINDS[kind])
    assert files_of(out) == undisturbed(kind)
    for manifest in out.rglob("manifest.json"):
        assert verify(manifest.parent) == []


def check_killed(
    folder: Path,
    undisturbed: Callable[[str], dict[str, bytes]],
    moments: Callable[[random.Random], Sequence[float]],
    n: int = 1,
) -> None:
    """Run each kind `n` times, killed at the moments that are drawn."""
    runs: dict[Path, tuple[str, Sequence[float]]] = {}
    for kind in KINDS:
        chance = random.Random(kind)
        runs |= {folder / f"{kind}-{number}": (kind, moments(chance)) for number in range(n)}
    for out, ended in run_killed(runs).items():
        assert ended[-1] == "done"
        assert "killed" in ended
        assert {*ended} <= {"killed", "done"}
        assert files_of(out) == undisturbed(runs[out][0]), out


def test_killed_before_any_step_the_work_goes_on_to_the_same_files(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]]
) -> None:
    check_killed(tmp_path, undisturbed, lambda chance: [chance.randrange(10, 450) for _ in range(3)])


@pytest.mark.slow
def test_killed_twice_before_any_two_steps_the_work_goes_on_to_the_same_files(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]]
) -> None:
    check_killed(tmp_path, undisturbed, lambda chance: [chance.randrange(1_000), chance.randrange(200)], n=20)


@pytest.mark.slow
def test_killed_at_twenty_random_moments_the_work_goes_on_to_the_same_files(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]]
) -> None:
    chance = random.Random()
    check_killed(tmp_path, undisturbed, lambda _: [chance.uniform(0.0, 0.2) for _ in range(20)])


def stop_at(n_bytes: int, error: BaseException) -> Callable[[EncodeProgress], None]:
    def progress(step: EncodeProgress) -> None:
        if step.n_bytes >= n_bytes and not step.is_shuffling:
            raise error

    return progress


@pytest.mark.parametrize("kind", KINDS)
def test_after_ctrl_c_the_work_goes_on(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bytemill.data import pipeline

    monkeypatch.setattr(pipeline, "_GROUP_BYTES", 1)
    out, source = tmp_path / "out", documents()
    options = {**KINDS[kind], "checkpoint_bytes": 1}
    for part in (3, 2):
        progress = stop_at(source.total_bytes // part, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            encode_corpus(TOKENIZER, source, out, progress=progress, **options)
        assert (out / "progress.json").exists()
        assert (out / "UNFINISHED.txt").exists()
    seen: list[EncodeProgress] = []
    encode_corpus(TOKENIZER, source, out, progress=seen.append, **options)
    first = next(event for event in seen if not event.is_shuffling)
    assert 0 < first.n_bytes_before < first.n_bytes
    assert files_of(out) == undisturbed(kind)


def test_ctrl_c_ends_the_command_within_a_second(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the quick brown fox\n" * 1_000_000)
    script = (
        "import sys, signal; from shards.packed_documents import TOKENIZER;"
        "from bytemill.shards import encode_corpus;"
        "encode_corpus(TOKENIZER, [sys.argv[1]] * 50, sys.argv[2], checkpoint_bytes=1 << 23)"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "corpus.txt"), str(tmp_path / "out")],
        cwd=TESTS,
        stderr=subprocess.PIPE,
        # Who runs tests in the background makes them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    try:
        while not (tmp_path / "out" / "progress.json").exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert (tmp_path / "out" / "progress.json").exists()


def test_with_a_full_disk_the_work_stops_and_goes_on_when_there_is_room(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]]
) -> None:
    """The limit on file sizes stands in for the disk."""
    out = tmp_path / "out"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, hard))
    try:
        with pytest.raises(OutputError, match="beyond the size limit"):
            encode_corpus(TOKENIZER, documents(), out, checkpoint_bytes=1, **KINDS["npy"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    encode_corpus(TOKENIZER, documents(), out, **KINDS["npy"])
    assert files_of(out) == undisturbed("npy")


@pytest.fixture(scope="session")
def interrupt(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Path]:
    """Make a folder that an interrupted run of a kind has left."""
    from bytemill.data import pipeline

    made: dict[str, Path] = {}

    def copy(out: Path, kind: str) -> Path:
        if kind not in made:
            source = documents()
            progress = stop_at(source.total_bytes // 2, KeyboardInterrupt())
            folder = tmp_path_factory.mktemp("interrupted") / "out"
            options = {**KINDS[kind], "progress": progress, "checkpoint_bytes": 1}
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(pipeline, "_GROUP_BYTES", 1)
                with pytest.raises(KeyboardInterrupt):
                    encode_corpus(TOKENIZER, source, folder, **options)
            made[kind] = folder
        return Path(shutil.copytree(made[kind], out))

    return copy


@pytest.fixture
def interrupted(tmp_path: Path, interrupt: Callable[[Path, str], Path]) -> Path:
    """A folder that an interrupted run has left, of shards of the kind npy."""
    return interrupt(tmp_path / "out", "npy")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shard_tokens": 5_001}, "shard_tokens was 5000, now it is 5001"),
        ({"document_index": False}, "document_index was True"),
        ({"layout": "bin"}, "layout was 'npy', now it is 'bin'"),
        ({"prepend": END, "documents": END}, "prepended was None"),
        ({"allowed_special": "none"}, "allowed_special was 'all'"),
        ({"start": "<s>"}, "tokenizer was"),
        ({"texts": ["other"]}, "corpus.n_texts was"),
    ],
)
def test_other_settings_are_refused_and_what_was_done_stays(
    interrupted: Path, undisturbed: Callable[[str], dict[str, bytes]], change: dict[str, Any], says: str
) -> None:
    before = files_of(interrupted)
    change = dict(change)
    tokenizer = tokenizer_of_bytes(start=change.pop("start", None))
    source = Documents(change.pop("texts")) if "texts" in change else documents()
    with pytest.raises(ShardError, match="contains an unfinished encoding with other settings") as caught:
        encode_corpus(tokenizer, source, interrupted, **{**KINDS["npy"], **change})
    assert says in str(caught.value)
    assert caught.value.hint is not None
    assert "--overwrite" in caught.value.hint
    assert files_of(interrupted) == before
    encode_corpus(TOKENIZER, documents(), interrupted, **KINDS["npy"])
    assert files_of(interrupted) == undisturbed("npy")


def test_overwriting_begins_afresh(interrupted: Path) -> None:
    encode_corpus(TOKENIZER, Documents(["abc"]), interrupted, overwrite=True)
    assert sorted(files_of(interrupted)) == ["manifest.json", "shard_00000.npy"]
    assert read_manifest(interrupted).n_tokens == 4


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[min(200, len(data) // 2)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "pattern", "damage", "says"),
    [
        ("npy", ".shard_*.npy.partial", cut, "has 100 bytes of "),
        ("npy", ".shard_*.npy.partial", Path.unlink, "cannot be read"),
        ("npy", ".shard_*.npy.partial", flip, "has other content than it had"),
        ("npy", "shard_*.npy", flip, "has sha256"),
        ("npy", "shard_*.npy", Path.unlink, "is missing"),
        ("split", ".documents.npy.partial", flip, "has other content than it had"),
        ("megatron", "shard_*.idx", cut, "has 100 bytes"),
        ("megatron", ".shard_*.ends.partial", flip, "has other content than it had"),
    ],
)
def test_what_was_damaged_in_between_is_made_again(
    tmp_path: Path,
    undisturbed: Callable[[str], dict[str, bytes]],
    kind: str,
    pattern: str,
    damage: Callable[[Path], None],
    says: str,
    interrupt: Callable[[Path, str], Path],
) -> None:
    out = interrupt(tmp_path / "out", kind)
    found = sorted(out.rglob(pattern))
    damage(found[-1])
    notes: list[str] = []
    encode_corpus(TOKENIZER, documents(), out, note=notes.append, **KINDS[kind])
    assert files_of(out) == undisturbed(kind)
    (note,) = notes
    assert note.startswith(f"{out} was damaged after the interruption, so the encoding starts over: ")
    assert says in note


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (["version"], 1, "version is 1; it must be 3"),
        (["identity"], ..., "identity is missing"),
        (["n_bytes_read"], "7", "n_bytes_read is '7'; it must be a valid integer"),
        (["carry"], [1], "carry[0] is 1; it must be a valid string"),
        (["position", "source"], "first", "position.source is 'first'; it must be a valid integer"),
        (["parts", 0, "source_bytes"], [-1], "parts[0].source_bytes[0] is -1; it must be greater than"),
        (["writers", 0, "n_tokens"], None, "writers[0].n_tokens is None; it must be a valid integer"),
        (["writers", 0, "shards", 0, "file"], "/etc", "it must be the file name of a shard"),
        (["n_bytes_read"], 7, "its sha256 does not match its content"),
        ([], [], "it is not a JSON object"),
    ],
)
def test_a_damaged_journal_is_named_by_its_key(
    interrupted: Path, key: list[Any], value: object, says: str
) -> None:
    journal = interrupted / "progress.json"
    document: Any = json.loads(journal.read_bytes())
    inner = document
    for name in key[:-1]:
        inner = inner[name]
    if not key:
        document = value
    elif value is ...:
        del inner[key[-1]]
    else:
        inner[key[-1]] = value
    journal.write_text(json.dumps(document))
    with pytest.raises(ShardError) as caught:
        encode_corpus(TOKENIZER, documents(), interrupted, **KINDS["npy"])
    assert str(caught.value).startswith(f"{journal} is damaged: ")
    assert says in str(caught.value)
    assert "--overwrite" in str(caught.value.hint)
    encode_corpus(TOKENIZER, documents(), interrupted, **KINDS["npy"], overwrite=True)
    assert verify(interrupted) == []


def test_a_source_that_cannot_be_read_again_starts_afresh(
    tmp_path: Path, undisturbed: Callable[[str], dict[str, bytes]]
) -> None:
    out, source = tmp_path / "out", documents()
    source.can_resume = False
    progress = stop_at(source.total_bytes // 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(TOKENIZER, source, out, progress=progress, checkpoint_bytes=1, **KINDS["npy"])
    assert not (out / "progress.json").exists()
    encode_corpus(TOKENIZER, source, out, **KINDS["npy"])
    assert files_of(out) == undisturbed("npy")
