"""Credentials: the profiles in `~/.aws`, which obstore does not read, and errors for stores without any.

Without credentials obstore asks the metadata service of a virtual machine, for seconds to minutes, and its error shows
that address.
"""

from __future__ import annotations

import configparser
import importlib
import os
from pathlib import Path
from typing import Any

from bytemill.errors import StorageError

OTHER_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables of credentials that obstore finds itself."""
_HINTS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile of ~/.aws with AWS_PROFILE; for a public "
    "bucket set AWS_SKIP_SIGNATURE=true; to use the role of a machine set "
    "AWS_METADATA_ENDPOINT=http://169.254.169.254",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`; for a "
    "public bucket set GOOGLE_SKIP_SIGNATURE=true",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN; for a public "
    "container set AZURE_SKIP_SIGNATURE=true",
}
_METADATA_SERVICES = ("169.254.", "metadata.google.internal", "Account must be specified")
"""Parts of messages of obstore that has found no credentials, and no account."""

_SIGNS_OF_A_ROLE = (
    "AWS_METADATA_ENDPOINT",
    "AWS_EXECUTION_ENV",
    "ECS_CONTAINER_METADATA_URI",
    "ECS_CONTAINER_METADATA_URI_V4",
    "KUBERNETES_SERVICE_HOST",
)
"""Variables of places where a metadata service may grant access."""
_MACHINE_FILES = ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/board_vendor", "/sys/hypervisor/uuid")


def profile_options() -> dict[str, Any]:
    """Return arguments of obstore for the profile of `AWS_PROFILE`, or the default one; none if it is not needed.

    With the package boto3 that is any kind of profile, renewed when it expires; without it, keys in the file.
    """
    profile = os.environ.get("AWS_PROFILE")
    if profile is None and any(name in os.environ for name in OTHER_CREDENTIALS):
        return {}
    keys = _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile or "default")
    name = profile or "default"
    settings = _section("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}")
    if not keys and not settings:
        return {}
    config = (
        {} if any(each in os.environ for each in ("AWS_REGION", "AWS_DEFAULT_REGION")) else _region(settings)
    )
    provider = _boto3_provider()
    if provider is not None:
        return {"config": config, "credential_provider": provider}
    named = {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "token": "aws_session_token",
    }
    own = {ours: keys[theirs] for ours, theirs in named.items() if theirs in keys}
    return {"config": {**config, **own}}


def _region(settings: dict[str, str]) -> dict[str, str]:
    return {"region": settings["region"]} if "region" in settings else {}


def _section(variable: str, name: str, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.environ.get(variable) or Path("~/.aws").expanduser() / name, encoding="utf-8")
    except (configparser.Error, OSError, RuntimeError, UnicodeDecodeError):
        return {}
    return dict(parser[section]) if parser.has_section(section) else {}


def _boto3_provider() -> Any:
    try:
        return importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider()
    except (ImportError, ValueError):  # without boto3, or without credentials
        return None


def require_credentials(url: str) -> None:
    """Raise StorageError for an S3 URL if neither the environment nor a profile nor the machine grants access."""
    if not url.startswith(("s3://", "s3a://")) or any(
        os.environ.get(name) for name in (*OTHER_CREDENTIALS, *_SIGNS_OF_A_ROLE)
    ):
        return
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes", "on"):
        return
    options = profile_options()
    if "credential_provider" in options or "access_key_id" in options.get("config", {}):
        return
    if not _is_on_ec2():
        raise _missing(url)


def missing_credentials(url: str, error: BaseException) -> StorageError | None:
    """Return the error for a request that failed because there are no credentials, or None for another failure."""
    is_missing = any(each in str(error) for each in _METADATA_SERVICES) or "locate credentials" in str(error)
    return _missing(url) if is_missing and _hint(url) else None


def _missing(url: str) -> StorageError:
    return StorageError(f"there are no credentials for {url}", hint=_hint(url))


def _hint(url: str) -> str | None:
    scheme = url.rpartition("::")[2].partition("://")[0]
    family = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az"}.get(
        scheme, scheme
    )
    return _HINTS.get(family)


def _is_on_ec2() -> bool:
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    for name in _MACHINE_FILES:
        try:
            text = Path(name).read_text(encoding="utf-8", errors="replace").lower()
        except OSError:
            continue
        if "amazon" in text or text.startswith("ec2"):
            return True
    return False
