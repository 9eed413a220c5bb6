"""Credentials for S3: the profiles in `~/.aws`, which obstore does not read."""

from __future__ import annotations

import configparser
import importlib
import os
from pathlib import Path
from typing import Any

OTHER_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables of credentials that obstore finds itself."""


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
