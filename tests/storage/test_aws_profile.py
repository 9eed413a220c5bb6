"""Profiles in `~/.aws` are used where nothing else grants access."""

import pickle
from pathlib import Path

import pytest

from bytemill.corpus import Corpus
from bytemill.storage import StoreFolder
from tests.support.s3_server import KEY, S3Server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> Path:
    """A home folder with two profiles, and no credentials in the environment."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = AKIDDEFAULT\naws_secret_access_key = a\n"
        "[other]\naws_access_key_id=AKIDOTHER\naws_secret_access_key=b\naws_session_token=token-of-other\n"
    )
    (folder / "config").write_text("[default]\nregion = eu-west-1\n[profile other]\nregion=eu-north-1\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return folder


def headers_of_next(s3: S3Server, url: str) -> dict[str, str]:
    s3.requests.clear()
    StoreFolder(url).get("a")
    return s3.requests[-1].headers


def test_the_default_profile(home: Path, s3: S3Server):
    headers = headers_of_next(s3, s3.bucket())
    assert "Credential=AKIDDEFAULT/" in headers["authorization"]
    assert "/eu-west-1/s3/" in headers["authorization"]


def test_another_profile(home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_PROFILE", "other")
    headers = headers_of_next(s3, s3.bucket())
    assert "Credential=AKIDOTHER/" in headers["authorization"]
    assert "/eu-north-1/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "token-of-other"


def test_the_environment_comes_first(home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "c")
    assert f"Credential={KEY}/" in headers_of_next(s3, s3.bucket())["authorization"]


def test_a_damaged_file_is_no_error_of_its_own(home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    (home / "credentials").write_text("no section\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "c")
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert f"Credential={KEY}/" in headers_of_next(s3, s3.bucket())["authorization"]


def test_corpora(home: Path, s3: S3Server):
    url = s3.bucket()
    StoreFolder(url).put("a.txt", b"text")
    s3.requests.clear()
    corpus = Corpus(f"{url}/a.txt")
    assert b"AKIDDEFAULT" not in pickle.dumps(corpus)
    assert corpus.source_names == pickle.loads(pickle.dumps(corpus)).source_names  # noqa: S301
    assert {"Credential=AKIDDEFAULT/" in request.headers["authorization"] for request in s3.requests} == {
        True
    }
