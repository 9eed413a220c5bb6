"""Downloads over plain HTTP: complete and checked, or absent."""

import hashlib
from pathlib import Path

import pytest

from bytemill.datasets.fetch import DownloadProgress, download_url
from bytemill.errors import DownloadError, OutputError

from .file_server import CONTENT, FileServer

SHA256 = hashlib.sha256(CONTENT).hexdigest()


def fetch(server: FileServer, target: Path) -> list[DownloadProgress]:
    progress: list[DownloadProgress] = []
    url = f"{server.url}/sample.txt"
    download_url(url, target, n_bytes=len(CONTENT), sha256=SHA256, show=progress.append)
    return progress


def test_a_file_is_complete_and_alone_in_its_folder(server: FileServer, tmp_path: Path):
    progress = fetch(server, tmp_path / "texts" / "sample.txt")
    assert (tmp_path / "texts" / "sample.txt").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "texts").iterdir()] == ["sample.txt"]
    assert progress[-1] == DownloadProgress("downloading", len(CONTENT), len(CONTENT))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[:-1] + b"?", r"its sha256 is [0-9a-f]{64}, not "),
        (CONTENT[:-1], f"it has {len(CONTENT) - 1:,} bytes, not {len(CONTENT):,}"),
        (CONTENT + b"?" * 3_000_000, f"it has more than {len(CONTENT):,} bytes"),
    ],
    ids=["another content", "too short", "too long"],
)
def test_another_file_is_refused_and_leaves_the_old_one(
    server: FileServer, tmp_path: Path, content: bytes, message: str
):
    server.content = content
    target = tmp_path / "sample.txt"
    target.write_bytes(b"old")
    with pytest.raises(DownloadError, match=message):
        fetch(server, target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_refusal_names_the_status(server: FileServer, tmp_path: Path):
    server.statuses.append(404)
    with pytest.raises(DownloadError, match=r"the server answers 404 \(Not Found\)"):
        fetch(server, tmp_path / "sample.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_output_error(server: FileServer, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        fetch(server, tmp_path / "file" / "sample.txt")
    assert server.requests == []
