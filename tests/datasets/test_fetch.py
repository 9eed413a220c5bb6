"""Data sets by name: from the caches, from a user-supplied file, or by download, complete and checked or absent."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest

from bytemill import datasets
from bytemill.datasets import DownloadProgress
from bytemill.datasets.catalogue import DATASETS
from bytemill.datasets.fetch import download_url
from bytemill.errors import CorpusError, DownloadError, OutputError
from bytemill.lm.hellaswag import read_items

from .conftest import point_hub_at
from .file_server import CONTENT, REVISION, FileServer


def test_a_hub_file_is_downloaded_once_into_the_hub_cache(cache: Path, tmp_path: Path, server: FileServer):
    assert datasets.find("sample") is None
    progress: list[DownloadProgress] = []
    path = datasets.get("sample", progress=progress.append)
    assert path.is_relative_to(tmp_path / "hub")
    assert path.read_bytes() == CONTENT
    assert datasets.find("sample") == path
    n_requests = len(server.requests)
    assert server.requests[-1][:2] == (
        "GET",
        f"/datasets/somebody/sample/resolve/{REVISION}/folder/sample.txt",
    )
    assert datasets.get("sample") == path
    assert len(server.requests) == n_requests
    assert {each.step for each in progress} == {"downloading", "checking"}
    assert progress[-1] == DownloadProgress("checking", len(CONTENT), len(CONTENT))
    assert not cache.exists()


def test_a_plain_url_is_downloaded_once_into_the_own_cache(cache: Path, server: FileServer):
    assert datasets.find("plain") is None
    assert datasets.get("plain") == cache / "plain.txt" == datasets.find("plain")
    assert datasets.get("plain").read_bytes() == CONTENT
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["sample", "plain"])
def test_the_output_is_a_file_or_a_folder(name: str, cache: Path, tmp_path: Path):
    assert datasets.get(name, tmp_path / "mine.txt") == tmp_path / "mine.txt"
    assert datasets.get(name, tmp_path) == tmp_path / f"{name}.txt"
    assert datasets.get(name, f"{tmp_path}/new/") == tmp_path / "new" / f"{name}.txt"
    assert (tmp_path / "new" / f"{name}.txt").read_bytes() == CONTENT
    assert not cache.exists()


@pytest.mark.parametrize("name", ["sample", "plain"])
def test_a_file_of_another_size_is_refused_or_replaced(name: str, cache: Path):
    cache.mkdir(parents=True)
    (cache / f"{name}.txt").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="it has 4 bytes, not"):
        datasets.get(name)
    assert datasets.get(name, overwrite=True).read_bytes() == CONTENT
    assert datasets.get(name).read_bytes() == CONTENT


def test_damage_that_keeps_the_size_is_found_on_request(cache: Path):
    cache.mkdir(parents=True)
    (cache / "plain.txt").write_bytes(b"?" + CONTENT[1:])
    datasets.get("plain")
    with pytest.raises(DownloadError, match="its sha256 is"):
        datasets.get("plain", verify=True)
    datasets.get("plain", overwrite=True)
    datasets.get("plain", verify=True)


def test_a_hub_file_with_another_checksum_is_refused(cache: Path, server: FileServer):
    server.content = b"?" + CONTENT[1:]
    with pytest.raises(DownloadError, match="its sha256 is"):
        datasets.get("sample")
    server.content = CONTENT
    assert datasets.get("sample", overwrite=True).read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["sample", "plain"])
def test_a_user_supplied_file_is_checked_and_copied(
    name: str, cache: Path, tmp_path: Path, server: FileServer
):
    own = tmp_path / "own.txt"
    own.write_bytes(CONTENT)
    assert datasets.get(name, from_file=own) == cache / f"{name}.txt" == datasets.find(name)
    assert datasets.get(name).read_bytes() == CONTENT
    assert own.exists()
    assert server.requests == []


@pytest.mark.parametrize(
    ("content", "message"), [(CONTENT[1:], "bytes, not"), (b"?" + CONTENT[1:], "sha256 is")]
)
def test_another_file_is_not_taken_for_the_data_set(
    cache: Path, tmp_path: Path, content: bytes, message: str
):
    own = tmp_path / "own.txt"
    own.write_bytes(content)
    with pytest.raises(DownloadError, match=message):
        datasets.get("sample", from_file=own)
    assert datasets.find("sample") is None


def test_a_missing_user_supplied_file_is_an_error(cache: Path, tmp_path: Path):
    with pytest.raises(CorpusError, match=r"cannot read .*own\.txt: No such file"):
        datasets.get("sample", from_file=tmp_path / "own.txt")


def test_an_unknown_name_lists_the_known_ones(cache: Path):
    with pytest.raises(CorpusError, match="no data set of that name") as caught:
        datasets.get("tinystory")
    assert "did you mean tinystories?" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["sample", "plain"])
def test_without_a_connection_the_hint_names_the_url_and_the_command_for_a_local_file(
    name: str, cache: Path, tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    point_hub_at("http://127.0.0.1:1", tmp_path, monkeypatch)
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match=f"^{name}: cannot download .*: Connection refused$") as caught:
        datasets.get(name)
    assert "\n" not in str(caught.value)
    assert f"download {DATASETS[name].url} on another machine" in str(caught.value.hint)
    assert f"bytemill data get {name} --from-file FILE" in str(caught.value.hint)
    assert datasets.find(name) is None


def test_offline_mode_is_one_line_and_uses_what_is_cached(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match=r"^sample: cannot download .*offline") as caught:
        datasets.get("sample")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    path = datasets.get("sample")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert datasets.get("sample") == path


def test_a_missing_huggingface_hub_names_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match="need huggingface_hub") as caught:
        datasets.get("sample")
    assert "hub" in str(caught.value.hint)
    assert "--from-file FILE" in str(caught.value.hint)
    assert datasets.get("plain").read_bytes() == CONTENT


def test_a_full_disk_is_an_output_error(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def fill(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fill)
    with pytest.raises(OutputError, match="no space is left"):
        datasets.get("sample")


def test_the_catalogue_is_complete():
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert re.fullmatch("[0-9a-f]{64}", dataset.sha256), name
        assert dataset.n_bytes > 1_000_000
        assert dataset.licence
        # A fixed revision: the content of "main" may change.
        assert re.match(r"https://.*/[0-9a-f]{40}/", dataset.url), name
    assert len({dataset.file_name for dataset in DATASETS.values()}) == len(DATASETS)
    assert len({dataset.sha256 for dataset in DATASETS.values()}) == len(DATASETS)
    assert [dataset.name for dataset in datasets.available()] == list(DATASETS)


def test_missing_items_of_hellaswag_name_the_command_that_gets_them(tmp_path: Path):
    with pytest.raises(CorpusError, match="No such file") as caught:
        read_items(tmp_path / "hellaswag_val.jsonl")
    assert "bytemill data get hellaswag" in str(caught.value.hint)


def test_hf_endpoint_names_a_mirror_which_cannot_change_a_file(server: FileServer, tmp_path: Path):
    environment = {
        **os.environ,
        "HF_ENDPOINT": server.url,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "BYTEMILL_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-m", "bytemill", "data", "get", "tinystories-valid"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    error, hint = answer.stderr.splitlines()[-2:]
    assert error.endswith(
        f"is not the published file of tinystories-valid: it has {len(CONTENT):,} bytes, not 22,502,601"
    )
    assert hint.startswith("hint: --overwrite downloads it again")
    assert any(path.startswith("/datasets/roneneldan/TinyStories/resolve/") for _, path, _ in server.requests)


# Downloads over plain HTTP


SHA256 = hashlib.sha256(CONTENT).hexdigest()


def downloaded(server: FileServer, target: Path) -> list[DownloadProgress]:
    progress: list[DownloadProgress] = []
    url = f"{server.url}/sample.txt"
    download_url(url, target, n_bytes=len(CONTENT), sha256=SHA256, show=progress.append)
    return progress


def test_a_file_is_complete_and_alone_in_its_folder(server: FileServer, tmp_path: Path):
    progress = downloaded(server, tmp_path / "texts" / "sample.txt")
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
        downloaded(server, target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_refusal_names_the_status(server: FileServer, tmp_path: Path):
    server.statuses.append(404)
    with pytest.raises(DownloadError, match=r"the server answers 404 \(Not Found\)"):
        downloaded(server, tmp_path / "sample.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_output_error(server: FileServer, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        downloaded(server, tmp_path / "file" / "sample.txt")
    assert server.requests == []
