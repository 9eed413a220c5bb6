"""A file written atomically stands under its name whole or not at all, whatever happens on the way."""

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bytemill.errors import OutputError
from bytemill.system import atomic_files as atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_holds_what_was_written_and_nothing_else_stays(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a.bin", b"\x00\xff\r\n")
    atomic.write_text(tmp_path / "b.txt", "grün\nrot\r\n")
    atomic.write_json(tmp_path / "c.json", {"näme": [1, "日本"]})
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff\r\n"
    assert (tmp_path / "b.txt").read_bytes() == "grün\nrot\r\n".encode()
    assert (tmp_path / "c.json").read_text("utf-8") == '{\n  "näme": [\n    1,\n    "日本"\n  ]\n}\n'
    assert names(tmp_path) == ["a.bin", "b.txt", "c.json"]


def test_json_keeps_file_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    atomic.write_json(tmp_path / "a.json", {"source": name})
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"source": name}


def test_text_and_bytes_files_take_their_names_at_the_end_of_the_block(tmp_path: Path) -> None:
    with atomic.open_text(tmp_path / "t") as text, atomic.AtomicFile(tmp_path / "b") as data:
        text.write("eins\n")
        text.write("zwei\n")
        data.write(b"drei")
        assert not (tmp_path / "t").exists()
        assert not (tmp_path / "b").exists()
    assert (tmp_path / "t").read_bytes() == b"eins\nzwei\n"
    assert (tmp_path / "b").read_bytes() == b"drei"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("in the block"), SystemExit(3)])
@pytest.mark.parametrize("opened", [atomic.open_text, atomic.AtomicFile])
def test_an_exception_in_the_block_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, opened: Callable[..., object], error: BaseException
) -> None:
    (tmp_path / "f").write_bytes(b"old")

    def write() -> None:
        with opened(tmp_path / "f") as file:  # type: ignore[attr-defined]
            file.write("new" if opened is atomic.open_text else b"new")
            raise error

    with pytest.raises(type(error)):
        write()
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_an_error_of_reading_within_the_block_is_not_called_an_error_of_writing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic.AtomicFile(tmp_path / "f"):
        (tmp_path / "absent").read_bytes()
    assert names(tmp_path) == []


def test_an_interrupt_while_syncing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_bytes(tmp_path / "f", b"new")
    assert names(tmp_path) == []


def test_file_is_synced_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def recorded(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, [name for name in names(tmp_path) if not name.endswith(".tmp")]))

    monkeypatch.setattr(os, "fsync", recorded)
    atomic.write_bytes(tmp_path / "f", b"new")
    assert seen == [("file", []), ("folder", ["f"])]


@pytest.mark.parametrize(
    ("place", "code", "says", "hint"),
    [
        ("absent/f", errno.ENOENT, "absent does not exist", "mkdir -p"),
        ("file/f", errno.ENOTDIR, "file is a file, not a folder", "another path"),
        ("folder", errno.EISDIR, "it is a folder", "name a file"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_with_a_hint(
    tmp_path: Path, place: str, code: int, says: str, hint: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError) as caught:
        atomic.write_bytes(tmp_path / place, b"new")
    assert caught.value.errno == code
    assert str(tmp_path / place) in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert names(tmp_path) == ["file", "folder"]


def test_write_protected_files_and_folders_are_respected(tmp_path: Path) -> None:
    protected = tmp_path / "f"
    protected.write_bytes(b"old")
    protected.chmod(0o444)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    if os.access(protected, os.W_OK):
        pytest.skip("platform: this user writes everywhere")
    for place in (protected, closed / "f"):
        with pytest.raises(OutputError, match="permission denied") as caught:
            atomic.write_bytes(place, b"new")
        assert caught.value.errno == errno.EACCES
    assert protected.read_bytes() == b"old"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_the_system_refuses_at_the_last_sync_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(OutputError) as caught:
        atomic.write_bytes(tmp_path / "f", b"new")
    assert caught.value.errno == code
    assert caught.value.hint
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path: Path) -> None:
    """The limit on file sizes stands in for the disk; Python ignores SIGXFSZ, so writing fails with EFBIG."""
    (tmp_path / "f").write_bytes(b"old")
    script = textwrap.dedent(
        """
        import resource, sys
        from bytemill.system import atomic_files as atomic
        from bytemill.errors import OutputError
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        def in_pieces(opened, piece):
            with opened(sys.argv[1]) as file:
                for _ in range(30):
                    file.write(piece)
        for write in (
            lambda: atomic.write_bytes(sys.argv[1], bytes(300_000)),
            lambda: in_pieces(atomic.AtomicFile, bytes(10_000)),
            lambda: in_pieces(atomic.open_text, "x" * 10_000),
        ):
            try:
                write()
            except OutputError as error:
                print(error.errno, error, error.hint, sep="|")
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "f")],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [int(code) for code, _, _ in lines] == [errno.EFBIG] * 3
    assert all(str(tmp_path / "f") in message and "limit" in hint for _, message, hint in lines)
    assert done.stderr == ""
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_permissions_follow_the_umask_or_the_file_that_was_there(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic.write_bytes(tmp_path / "new", b"")
    finally:
        os.umask(before)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o604)
    atomic.write_bytes(tmp_path / "old", b"new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o604


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("elsewhere/real")
    atomic.write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_bytes() == b"new"
    assert names(tmp_path / "elsewhere") == ["real"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    atomic.write_bytes(pipe, b"through the pipe")
    reader.join(10)
    assert received == [b"through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_longest_names_work(tmp_path: Path) -> None:
    for name in ("x" * 255, "漢" * 85):
        atomic.write_bytes(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"


@pytest.fixture
def partial(tmp_path: Path) -> atomic.PartialFile:
    """A file of ten bytes that was not finished."""
    file = atomic.PartialFile(tmp_path / "f")
    file.append(b"0123456789")
    file.close()
    return file


def test_a_partial_file_takes_its_name_when_it_is_committed(tmp_path: Path) -> None:
    file = atomic.PartialFile(tmp_path / "f")
    file.append(b"one")
    file.append(memoryview(b"two"))
    assert (file.n_bytes, names(tmp_path)) == (6, [".f.partial"])
    file.commit()
    assert names(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"onetwo"


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_partial_file_is_resumed_at_the_bytes_that_are_known(
    tmp_path: Path, partial: atomic.PartialFile, is_finished: bool
) -> None:
    if is_finished:
        partial.temporary.rename(partial.path)
    file = atomic.PartialFile(tmp_path / "f", n_bytes=4)
    file.append(b"ABC")
    file.commit()
    assert (tmp_path / "f").read_bytes() == b"0123ABC"


def test_a_partial_file_that_is_too_short_or_gone_cannot_be_resumed(
    tmp_path: Path, partial: atomic.PartialFile
) -> None:
    with pytest.raises(OutputError, match=r"cannot resume .*f: \.f\.partial has 10 bytes of 11"):
        atomic.PartialFile(tmp_path / "f", n_bytes=11)
    partial.temporary.unlink()
    with pytest.raises(OutputError, match="has 0 bytes of 1"):
        atomic.PartialFile(tmp_path / "f", n_bytes=1)


def test_a_partial_file_starts_over_by_default(tmp_path: Path, partial: atomic.PartialFile) -> None:
    atomic.PartialFile(tmp_path / "f").commit()
    assert (tmp_path / "f").read_bytes() == b""
    assert names(tmp_path) == ["f"]


KILLED = """
import os, sys
from bytemill.system.atomic_files import AtomicFile
AtomicFile(sys.argv[1]).write(b"x")
os.kill(os.getpid(), 9)
"""


def test_temporary_files_of_killed_processes_are_removed_by_the_next_writer_or_by_name(
    tmp_path: Path,
) -> None:
    for name in ("a.counts", "b.counts", "shard_00000.npy"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], check=False)
    assert len(names(tmp_path)) == 3
    atomic.write_bytes(tmp_path / "a.counts", b"new")
    left, other, written = names(tmp_path)
    assert (left[:10], other[:17], written) == (".b.counts.", ".shard_00000.npy.", "a.counts")
    atomic.remove_temporaries(tmp_path, "shard_*.npy")
    assert names(tmp_path) == [left, written]


def test_temporary_files_of_live_writers_remain(tmp_path: Path) -> None:
    with atomic.AtomicFile(tmp_path / "f") as first:
        first.write(b"first")
        atomic.write_bytes(tmp_path / "f", b"second")
        atomic.remove_temporaries(tmp_path, "*")
        assert len(names(tmp_path)) == 2
    assert (tmp_path / "f").read_bytes() == b"first"
    assert names(tmp_path) == ["f"]


def test_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    atomic.make_folder(tmp_path / "a" / "b")
    atomic.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "file", tmp_path / "file" / "b"):
        with pytest.raises(OutputError, match="file is a file, not a folder"):
            atomic.make_folder(place)


@pytest.mark.skipif(sys.platform == "win32", reason="platform: no flock")
def test_the_temporary_file_is_locked_until_it_has_its_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def replace_locked(self: Path, target: Path) -> Path:
        atomic.remove_temporaries(tmp_path, target.name)
        assert self.exists(), "removed by another writer"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_locked)
    atomic.write_bytes(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new"
