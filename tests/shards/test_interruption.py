"""Whatever ends a run early, no half shard and no manifest is left, and the next run starts clean."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bytemill import Corpus
from bytemill.data.unfinished import held, remove_leftovers
from bytemill.errors import OutputError, ShardError
from bytemill.shards import EncodeProgress, TokenShards, encode_corpus, read_manifest, verify

from .packed_documents import END, TOKENIZER, Documents, files_of, names, tokenizer_of_bytes


def interrupt_at(n_shards: int) -> Callable[[EncodeProgress], None]:
    def progress(step: EncodeProgress) -> None:
        if step.n_shards >= n_shards:
            raise KeyboardInterrupt

    return progress


def is_complete(path: Path | str, out: Path) -> bool:
    """Encode again, and tell whether there was nothing to do."""
    seen: list[EncodeProgress] = []
    encode_corpus(TOKENIZER, path, out, progress=seen.append)
    return [step.already_complete for step in seen] == [True]


def test_ctrl_c_keeps_finished_shards_which_the_next_run_replaces(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    once = Documents(["0123456789" * 100_000] * 40, 1_000_000, can_resume=False)
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(TOKENIZER, once, out, shard_tokens=300_000, progress=interrupt_at(4))
    assert {"UNFINISHED.txt", "shard_00000.npy", "shard_00003.npy"} <= {*names(out)}
    assert not any(name.startswith(".") or name == "manifest.json" for name in names(out))
    with pytest.raises(ShardError, match="are unfinished") as caught:
        read_manifest(out)
    assert "again" in str(caught.value.hint)
    manifest = encode_corpus(TOKENIZER, corpus / "b.txt", out, shard_tokens=30)
    assert names(out) == ["manifest.json", *(shard.file for shard in manifest.shards)]
    assert verify(out) == []


def test_ctrl_c_before_the_first_shard_leaves_no_trace(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    for folder_existed in (False, True):
        if folder_existed:
            out.mkdir()
        with pytest.raises(KeyboardInterrupt):
            encode_corpus(TOKENIZER, corpus / "a.txt", out, progress=interrupt_at(0))
        assert out.exists() == folder_existed
        assert not folder_existed or names(out) == []


KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from bytemill.data.unfinished import lock_folder
from bytemill.data.layouts import layout_named
from bytemill.data.shard_writer import ShardWriter
folder = Path(sys.argv[1])
with lock_folder(folder, overwrite=False):
    writer = ShardWriter(folder, layout_named("datatrove"), "uint16", 100, "f", document_index=True)
    writer.append([np.zeros(550, np.uint16)], np.arange(50, 551, 50).astype(np.uint64))
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_run_left_without_a_journal_is_cleared_away(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    assert killed.returncode == -signal.SIGKILL
    # The mark, the lock, five shards with two files each beside them, their ends, half a shard and half an index.
    assert len(names(out)) == 2 + 5 * 3 + 6 + 2
    assert sum(name.endswith(".partial") for name in names(out)) == 8
    encode_corpus(TOKENIZER, corpus / "a.txt", out)
    assert names(out) == ["manifest.json", "shard_00000.npy"]


FULL_DISK = """
import resource, sys
from bytemill import Corpus, Tokenizer
from bytemill.errors import OutputError
from bytemill.shards import encode_corpus
tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
for limit, folder in ((1000, "manifest"), (300, "shard")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        encode_corpus(tokenizer, Corpus.from_texts(["x" * 2000]), folder, shard_tokens=400)
    except OutputError as error:
        print(error.errno, error, error.hint, sep="|")
"""


def test_a_full_disk_leaves_no_half_shard_and_says_what_to_do(tmp_path: Path) -> None:
    """The limit on file sizes stands in for the disk: at 300 bytes no shard fits, at 1000 no manifest."""
    for name in ("manifest", "shard"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-W", "error", "-c", FULL_DISK]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr == ""
    for name, line in zip(("manifest", "shard"), done.stdout.splitlines(), strict=True):
        code, message, hint = line.split("|")
        assert int(code) == errno.EFBIG
        assert f"{name}/" in message
        assert "run it again" in hint
    assert names(tmp_path / "manifest") == ["UNFINISHED.txt", *(f"shard_0000{i}.npy" for i in range(5))]
    assert names(tmp_path / "shard") == []


def test_no_space_at_the_last_sync_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match=f"{out}.*no space is left") as caught:
            encode_corpus(TOKENIZER, corpus / "a.txt", out)
    assert caught.value.errno == errno.ENOSPC
    assert not out.exists()
    encode_corpus(TOKENIZER, corpus / "a.txt", out)
    assert verify(out) == []


def test_checkpoints_are_on_the_disk_before_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
    )
    documents = Documents(["text " * 200] * 5, 300)
    encode_corpus(TOKENIZER, documents, tmp_path / "out", document_index=True, checkpoint_bytes=1)
    first = next(index for index, name in enumerate(synced) if name.startswith(".progress.json"))
    assert {".shard_00000.npy.partial", ".documents.npy.partial"} <= {*synced[:first]}


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/out"):
        with pytest.raises(OutputError, match="file is a file, not a folder"):
            encode_corpus(TOKENIZER, corpus / "a.txt", tmp_path / place)


def test_two_runs_into_one_folder_do_not_mix(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    refused: list[str] = []

    def run_a_second(_step: EncodeProgress) -> None:
        with pytest.raises(ShardError, match="another process is writing shards") as caught:
            encode_corpus(TOKENIZER, corpus / "b.txt", out, overwrite=True)
        refused.append(str(caught.value))

    encode_corpus(TOKENIZER, corpus / "a.txt", out, progress=run_a_second)
    assert refused
    assert names(out) == ["manifest.json", "shard_00000.npy"]
    assert verify(out) == []


def test_the_same_work_again_is_already_complete(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"shard_tokens": 30}
    first = encode_corpus(TOKENIZER, str(corpus / "*.txt"), out, **options)
    written = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    shutil.copytree(corpus, tmp_path / "elsewhere")  # new inodes, the same times
    for folder in (corpus, tmp_path / "elsewhere"):
        seen: list[EncodeProgress] = []
        assert encode_corpus(TOKENIZER, str(folder / "*.txt"), out, progress=seen.append, **options) == first
        assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == written
        assert [(step.already_complete, step.n_tokens) for step in seen] == [(True, first.n_tokens)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shard_tokens": 31}, "shard_tokens was 30, now it is 31"),
        ({"errors": "replace"}, "errors was 'strict'"),
        ({"allowed_special": "none"}, "allowed_special was 'all'"),
        ({"separators": False}, "document_separator was '<|endoftext|>'"),
        ({"document_index": True}, "document_index was False"),
        ({"prepend": END, "documents": END}, "prepended was None, now it is '<|endoftext|>'"),
        ({"layout": "bin"}, "layout was 'npy', now it is 'bin'"),
        ({"start": "<s>"}, "encoded with tokenizer"),
        ({"inputs": ["a.txt"]}, "corpus.sources"),
        ({"inputs": ["b.txt", "a.txt"]}, "corpus.sources"),
        ({"inputs": None}, "can be read only once"),
        ({"append": "b.txt"}, "corpus.sources"),
        ({"touch": "b.txt"}, "b.txt has changed since"),
    ],
)
def test_other_work_is_refused_unless_it_shall_overwrite(
    tmp_path: Path, corpus: Path, change: dict[str, Any], says: str
) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"shard_tokens": 30}
    inputs: list[str] | None = ["a.txt", "b.txt"]
    encode_corpus(TOKENIZER, [corpus / name for name in inputs], out, **options)
    before = files_of(out)
    change = dict(change)
    tokenizer = tokenizer_of_bytes(start=change.pop("start", None))
    inputs = change.pop("inputs", inputs)
    if name := change.pop("append", None):
        (corpus / name).write_bytes((corpus / name).read_bytes() + b"more")
    if name := change.pop("touch", None):
        later = (out / "manifest.json").stat().st_mtime + 5
        os.utime(corpus / name, (later, later))
    options |= change

    def corpus_again() -> Any:
        return Corpus.from_texts(["a text"]) if inputs is None else [corpus / name for name in inputs]

    with pytest.raises(ShardError) as caught:
        encode_corpus(tokenizer, corpus_again(), out, **options)
    assert says in str(caught.value)
    assert "overwrite" in str(caught.value.hint)
    assert files_of(out) == before
    manifest = encode_corpus(tokenizer, corpus_again(), out, **options, overwrite=True)
    index = ["documents.npy"] if manifest.documents else []
    assert names(out) == [*index, "manifest.json", *(shard.file for shard in manifest.shards)]
    assert read_manifest(out) == manifest
    assert verify(out) == []


def test_shards_that_are_gone_are_not_called_complete(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    encode_corpus(TOKENIZER, corpus / "a.txt", out, shard_tokens=10)
    (out / "shard_00001.npy").unlink()
    with pytest.raises(ShardError, match=r"shard_00001\.npy is missing"):
        encode_corpus(TOKENIZER, corpus / "a.txt", out, shard_tokens=10)
    encode_corpus(TOKENIZER, corpus / "a.txt", out, shard_tokens=10, overwrite=True)
    assert verify(out) == []
    # A part that has no manifest any more is one that is not there.
    split: dict[str, Any] = {"documents": "line", "validation_fraction": 0.5}
    (corpus / "a.txt").write_text("".join(f"line {number}\n" for number in range(40)))
    encode_corpus(TOKENIZER, corpus / "a.txt", tmp_path / "split", **split)
    (tmp_path / "split" / "validation" / "manifest.json").unlink()
    with pytest.raises(ShardError, match="train already contains a manifest"):
        encode_corpus(TOKENIZER, corpus / "a.txt", tmp_path / "split", **split)


def test_files_of_unknown_origin_are_not_removed(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "shard_00000.npy").write_bytes(b"precious")
    (out / "README.md").write_bytes(b"mine")
    with pytest.raises(ShardError, match=r"contains shard_00000\.npy but no manifest\.json"):
        encode_corpus(TOKENIZER, corpus / "a.txt", out)
    assert files_of(out) == {"README.md": b"mine", "shard_00000.npy": b"precious"}
    for _ in range(2):
        encode_corpus(TOKENIZER, corpus / "a.txt", out, overwrite=True)
        assert names(out) == ["README.md", "manifest.json", "shard_00000.npy"]
        assert len(TokenShards(out).arrays) == 1


def restored(path: Path, text: str, mtime_ns: int) -> None:
    """Write a text as `cp -p` and `rsync -t` do: with the time of another file."""
    path.write_text(text, "utf-8")
    os.utime(path, ns=(mtime_ns, mtime_ns))


def test_another_text_of_the_same_size_and_an_older_time_is_not_the_result(
    tmp_path: Path, corpus: Path
) -> None:
    out, path = tmp_path / "out", corpus / "a.txt"
    path.write_text("first " * 20_000, "utf-8")
    encode_corpus(TOKENIZER, path, out)
    mtime_ns = path.stat().st_mtime_ns
    old = mtime_ns - 10**12
    middle = "first " * 10_000 + "FIRST " + "first " * 9_999
    for text, time, says in (
        ("other " * 20_000, old, "other text"),
        (middle, mtime_ns, "other text"),
        ("first " * 19_999 + "FIRST ", mtime_ns, "other text"),
        ("first " * 20_000, old, "changed since"),
    ):
        restored(path, text, time)
        with pytest.raises(ShardError, match=rf"a\.txt has {says}"):
            encode_corpus(TOKENIZER, path, out)
        if says == "other text":  # which no comparison of all text can accept
            with pytest.raises(ShardError, match="other text"):
                encode_corpus(TOKENIZER, path, out, recheck=True)
    restored(path, "first " * 20_000, mtime_ns)
    assert is_complete(path, out)


@pytest.mark.parametrize(
    "options", [{}, {"layout": "megatron", "document_index": True, "validation_fraction": 0.4}]
)
def test_recheck_compares_all_text(tmp_path: Path, corpus: Path, options: dict[str, Any]) -> None:
    out, path = tmp_path / "out", corpus / "a.txt"
    text = "".join(f"Line {number}{END}" for number in range(20_000))
    path.write_text(text, "utf-8")
    options = {"shard_tokens": 50_000, "documents": END, **options}
    first = encode_corpus(TOKENIZER, path, out, **options)
    before = {each: each.read_bytes() for each in out.rglob("shard_*")}
    os.utime(path)
    with pytest.raises(ShardError, match=r"a\.txt has changed since") as caught:
        encode_corpus(TOKENIZER, path, out, **options)
    assert "--recheck" in str(caught.value.hint)
    assert encode_corpus(TOKENIZER, path, out, recheck=True, **options) == first
    assert encode_corpus(TOKENIZER, path, out, **options) == first  # the manifest has the new time
    assert {each: each.read_bytes() for each in out.rglob("shard_*")} == before
    mtime_ns = path.stat().st_mtime_ns
    restored(path, text.replace("Line 5000<", "LINE 5000<"), mtime_ns)  # between the samples
    assert encode_corpus(TOKENIZER, path, out, **options) == first
    with pytest.raises(ShardError, match=r"the text is not that of the shards: shard_0000\d\.\w+ would have"):
        encode_corpus(TOKENIZER, path, out, recheck=True, **options)
    assert {each: each.read_bytes() for each in out.rglob("shard_*")} == before


def test_what_was_left_after_the_manifest_is_removed_and_named(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    encode_corpus(TOKENIZER, corpus / "a.txt", out)
    finished = names(out)
    (out / "progress.json").write_bytes(b"mine")
    notes: list[str] = []
    encode_corpus(TOKENIZER, corpus / "a.txt", out, note=notes.append)
    assert notes == []  # without the mark of an encoding it belongs to the user
    (out / ".units").mkdir()
    for name in (".units/1.ids", ".units.json", ".lock", "UNFINISHED.txt", ".shard_00001.npy.partial"):
        (out / name).write_bytes(b"")
    encode_corpus(TOKENIZER, corpus / "a.txt", out, note=notes.append)
    assert names(out) == finished
    (note,) = notes
    assert note.startswith("removed what an encoding left that was killed at its end: ")
    assert all(f"{out}/{name}" in note for name in (".units", ".units.json", ".lock", "progress.json"))


def test_the_lock_of_a_running_encoding_is_not_left_over(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    encode_corpus(TOKENIZER, corpus / "a.txt", out)
    with held(out):
        with pytest.raises(ShardError, match="another process is writing shards"):
            remove_leftovers(out, [out])
        assert (out / ".lock").exists()
    assert remove_leftovers(out, [out]) == []
