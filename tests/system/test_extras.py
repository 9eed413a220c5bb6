"""Installation hints."""

import tomllib
from pathlib import Path

import pytest

from bytemill.system import extras

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_is_synchronised_and_an_installed_package_is_extended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "_ROOT", ROOT)
    assert extras.install_hint("data") == "uv sync --extra data"
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    assert extras.install_hint("data") == "pip install 'bytemill[data]'"


def test_the_data_extra_brings_what_urls_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert any(
        requirement.startswith("fsspec[http]") for requirement in project["optional-dependencies"]["data"]
    )
