"""Parts of uploads that a killed process has left are listed and removed."""

import contextlib
import re
from pathlib import Path

import pytest

from bytemill.storage import StoreFolder
from bytemill.storage.aws_profile import Keys, access_keys
from bytemill.storage.unfinished_uploads import S3Requests, UnfinishedUpload, unfinished_uploads
from tests.support.s3_server import Request, S3Server, begin_upload


@pytest.fixture
def folder(s3: S3Server) -> StoreFolder:
    return StoreFolder(f"{s3.bucket()}/some/folder")


def test_uploads_are_listed_and_aborted(folder: StoreFolder):
    assert folder.unfinished_uploads() == []
    names = ["a.npy", "within/b c+ü&%20.npy"]
    ids = [begin_upload(folder.url, name) for name in names]
    begin_upload(folder.url + "-other", "a.npy")
    found = sorted(folder.unfinished_uploads(), key=lambda upload: upload.name)
    assert [(each.name, each.id) for each in found] == list(zip(names, ids, strict=True))
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?(\+00:00)?", each.started) for each in found
    )
    assert [each.name for each in (folder / "within").unfinished_uploads()] == ["b c+ü&%20.npy"]
    folder.abort_uploads([*found[:1], UnfinishedUpload("absent", "none", "")])
    assert folder.unfinished_uploads() == found[1:]
    folder.abort_uploads(found)
    assert folder.unfinished_uploads() == []


def test_a_bucket_of_its_own(s3: S3Server):
    bucket = StoreFolder(s3.bucket())
    begin_upload(bucket.url + "/a", "b.npy")
    assert [each.name for each in bucket.unfinished_uploads()] == ["a/b.npy"]


def test_long_lists_come_in_parts(folder: StoreFolder, s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    names = [f"{n:03}.npy" for n in range(7)]
    for name in names:
        begin_upload(folder.url, name)
    send = S3Requests.send

    def in_parts(self: S3Requests, method: str, key: str, query: dict[str, str]) -> str:
        return send(self, method, key, {**query, "max-uploads": "3"} if "uploads" in query else query)

    monkeypatch.setattr(S3Requests, "send", in_parts)
    # versitygw refuses the marker that it has given.
    expected = names if s3.root is None else names[:3]
    assert sorted(each.name for each in folder.unfinished_uploads()) == expected


def test_faults_are_repeated_and_refusals_are_silent(folder: StoreFolder, s3: S3Server):
    begin_upload(folder.url, "a.npy")
    left = ["500", "drop", "truncate"]

    def first_two(request: Request) -> str | None:
        return left.pop(0) if len(left) > 1 and "uploads" in request.path else None

    with s3.fault(first_two):
        assert len(folder.unfinished_uploads()) == 1
    for fault in ("403", "500"):
        with s3.fault(lambda request, fault=fault: fault if "uploads" in request.path else None):
            assert folder.unfinished_uploads() == []
        with s3.fault(lambda request, fault=fault: fault if request.method == "DELETE" else None):
            folder.abort_uploads(folder.unfinished_uploads())
        assert len(folder.unfinished_uploads()) == 1


def test_without_keys_nothing_is_asked(
    folder: StoreFolder, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3.requests.clear()
    assert folder.unfinished_uploads() == []
    assert not s3.requests
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert access_keys() is None


def test_keys_of_a_profile_and_their_token(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "credentials").write_text(
        "[own]\naws_access_key_id=AKIDOWN\naws_secret_access_key=b\naws_session_token=token-of-own\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "own")
    keys = access_keys()
    assert keys is not None
    assert keys == Keys("AKIDOWN", "b", "token-of-own")
    assert "token-of-own" not in repr(keys)
    s3.requests.clear()
    with contextlib.suppress(OSError):  # the server may know other keys only
        S3Requests(s3.bucket().removeprefix("s3://"), keys).send("GET", "", {"uploads": ""})
    headers = {name.lower(): value for name, value in s3.requests[-1].headers.items()}
    assert headers["x-amz-security-token"] == "token-of-own"
    assert "Credential=AKIDOWN/" in headers["authorization"]


def test_other_stores_are_not_asked():
    assert unfinished_uploads("gs://bucket/a") == unfinished_uploads("https://host/a") == []
