"""Locks on files."""

import subprocess
import sys
from pathlib import Path

from bytemill.system.locks import try_lock

HOLDER = """
import sys
from pathlib import Path
from bytemill.system.locks import try_lock
lock = try_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_is_held_once_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = try_lock(path)
    assert lock is not None
    with lock:
        assert try_lock(path) is None
    assert not path.exists()
    again = try_lock(path)
    assert again is not None
    again.release()


def test_a_killed_process_releases_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert try_lock(path) is None
        process.kill()
        process.wait()
    assert path.exists()
    lock = try_lock(path)
    assert lock is not None
    lock.release()
