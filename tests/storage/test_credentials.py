"""Profiles in `~/.aws` are used where nothing else grants access. Without any, the error says what to set."""

import pickle
from pathlib import Path

import pytest

from bytemill.corpus import Corpus
from bytemill.errors import CorpusError, StorageError
from bytemill.storage import StoreFolder
from bytemill.storage import credentials as module
from bytemill.storage.credentials import missing_credentials, require_credentials
from tests.support.s3_server import KEY, S3Server


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> None:
    for name in (
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SKIP_SIGNATURE"),
        "AWS_EC2_METADATA_DISABLED",
        *module.OTHER_CREDENTIALS,
        *module._SIGNS_OF_A_ROLE,
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setattr(module, "_MACHINE_FILES", (str(tmp_path / "vendor"),))


def test_no_request_is_made_without_credentials(s3: S3Server) -> None:
    url = "s3://a-bucket-without-keys/folder"  # no other test has opened it
    s3.requests.clear()
    with pytest.raises(StorageError, match=f"there are no credentials for {url}") as caught:
        StoreFolder(url)
    assert "AWS_ACCESS_KEY_ID" in str(caught.value.hint)
    assert "AWS_SKIP_SIGNATURE" in str(caught.value.hint)
    with pytest.raises(CorpusError, match="there are no credentials for s3://") as refused:
        Corpus(f"{url}/a.txt")
    assert refused.value.hint == caught.value.hint
    assert not s3.requests


def test_a_public_bucket_is_read_without_a_signature(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    store = StoreFolder(s3.bucket())
    s3.requests.clear()
    store.get("a")
    assert "authorization" not in s3.requests[-1].headers


def test_variables_that_may_grant_access() -> None:
    for name in (*module.OTHER_CREDENTIALS, *module._SIGNS_OF_A_ROLE):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, "something")
            require_credentials("s3://bucket/folder")


def test_a_profile_with_keys_or_a_machine_of_amazon_may_grant_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vendor").write_text("Amazon EC2\n")
    require_credentials("s3://bucket/folder")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageError):
        require_credentials("s3://bucket/folder")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-west-1\n")
    with pytest.raises(StorageError):
        require_credentials("s3://bucket/folder")
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id=A\naws_secret_access_key=b\n"
    )
    require_credentials("s3://bucket/folder")


@pytest.mark.parametrize(
    ("url", "message", "variable"),
    [
        ("s3://b/a", "Error performing PUT http://169.254.169.254/latest/api/token", "AWS_ACCESS_KEY_ID"),
        ("s3://b/a", "Unable to locate credentials", "AWS_ACCESS_KEY_ID"),
        ("gs://b/a", "GET http://169.254.169.254/computeMetadata/v1/", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://b/a", "GET http://169.254.169.254/metadata/identity/", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("abfs://b/a", "MicrosoftAzure error: Account must be specified", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_a_metadata_service_that_was_asked_is_not_shown(url: str, message: str, variable: str) -> None:
    error = missing_credentials(url, OSError(message))
    assert error is not None
    assert str(error) == f"there are no credentials for {url}"
    assert variable in str(error.hint)


def test_other_failures_are_not_taken_for_missing_credentials() -> None:
    assert missing_credentials("s3://b/a", OSError("Connection refused")) is None
    assert missing_credentials("http://h/a", OSError("http://169.254.1.1/a: refused")) is None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two profiles in the home folder."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = AKIDDEFAULT\naws_secret_access_key = a\n"
        "[other]\naws_access_key_id=AKIDOTHER\naws_secret_access_key=b\naws_session_token=token-of-other\n"
    )
    (folder / "config").write_text("[default]\nregion = eu-west-1\n[profile other]\nregion=eu-north-1\n")
    monkeypatch.delenv("AWS_REGION", raising=False)
    return folder


def headers_of_next(s3: S3Server, url: str) -> dict[str, str]:
    s3.requests.clear()
    StoreFolder(url).get("a")
    return s3.requests[-1].headers


def test_a_profile_is_used_unless_the_environment_has_keys(
    home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    headers = headers_of_next(s3, s3.bucket())
    assert "Credential=AKIDDEFAULT/" in headers["authorization"]
    assert "/eu-west-1/s3/" in headers["authorization"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "c")
    assert f"Credential={KEY}/" in headers_of_next(s3, s3.bucket())["authorization"]
    # A profile that is named counts more.
    monkeypatch.setenv("AWS_PROFILE", "other")
    headers = headers_of_next(s3, s3.bucket())
    assert "Credential=AKIDOTHER/" in headers["authorization"]
    assert "/eu-north-1/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "token-of-other"


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
