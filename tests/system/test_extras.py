"""Installation hints."""

import importlib
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bytemill.errors import MissingExtraError
from bytemill.system import extras

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_is_synchronised_and_an_installed_package_is_extended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "_ROOT", ROOT)
    assert extras.install_hint("data") == "uv sync --extra data"
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    assert extras.install_hint("data") == "pip install 'bytemill[data]'"


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    extra_of = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for name, extra in extras.EXTRA_OF.items():
        # The package of a module may have a longer name: fasttext-predict has fasttext.
        packages = [requirement.partition(">=")[0].replace("-", "_") for requirement in extra_of[extra]]
        assert any(package == name or package.startswith(f"{name}_") for package in packages)
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtraError, match=f"that needs the package {name}") as caught:
            extras.import_library(name, "that")
        assert caught.value.hint == extras.install_hint(extra)


def test_transformers_accepts_the_environment() -> None:
    dependency_versions = importlib.import_module("transformers.dependency_versions_table").deps
    assert Requirement(dependency_versions["regex"]).specifier.contains(version("regex"))


def test_the_data_extra_brings_what_urls_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert any(
        requirement.startswith("fsspec[http]") for requirement in project["optional-dependencies"]["data"]
    )
