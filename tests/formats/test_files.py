"""Reading files is bounded and reports the reason of a failure."""

import os
import threading
from pathlib import Path

import pytest

from bytemill import Tokenizer, TokenizerFileError
from bytemill.formats import files


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.bin"
    path.touch()
    os.truncate(path, 4 << 30)  # a hole: it takes no room on the disk
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it is read"))
    with pytest.raises(TokenizerFileError, match=r"weights.bin has more than 256 MiB") as caught:
        Tokenizer.load(path)
    assert "not the weights" in (caught.value.hint or "")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_an_endless_device_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 3 << 20)
    with pytest.raises(TokenizerFileError, match="/dev/zero has more than 3 MiB"):
        Tokenizer.load("/dev/zero")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="platform: no named pipes here")
def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("minbpe v1\n\n0\n97 98\n",))
    writer.start()
    assert Tokenizer.load(pipe).encode("ab") == [256]
    writer.join()


def test_long_values_are_truncated_in_messages() -> None:
    assert files.shown("x" * 10**6, 10) == files.shown("x" * 100, 10) == "'xxxxxxxx…"
    assert files.shown(b"x" * 10**6, 10) == "b'xxxxxxx…"
    assert files.shown("x" * 8, 10) == "'xxxxxxxx'"
