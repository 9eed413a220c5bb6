"""The documentation names what there is: commands, folders of the package, files that exist."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from bytemill.cli.app import app

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"


def read(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


def load(name: str) -> ModuleType:
    """A module in the folder of the documentation."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The module that writes the generated pages."""
    return load("reference_pages")


def test_the_chart_of_rates_shows_the_table_of_the_benchmarks() -> None:
    chart = load("rates_chart")
    assert (
        read("docs/images/rates.svg") == chart.draw(chart.rates(read("docs/reference/benchmarks.md"))) + "\n"
    )


def test_the_reference_is_what_the_program_says() -> None:
    # In a process of its own: other tests change modules.
    done = subprocess.run(
        [sys.executable, str(DOCS / "reference_pages.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), "run `python docs/reference_pages.py`"


def test_the_command_reference_has_the_help_of_every_command() -> None:
    page = read("docs/reference/commands.md")
    groups = [name for name in app if not name.startswith("-")]
    commands = [f"{group} {name}" for group in groups for name in app[group] if not name.startswith("-")]
    headings = re.findall(r"^#{2,3} bytemill (.+)$", page, flags=re.MULTILINE)
    assert sorted(headings) == sorted(groups + commands)
    assert "--vocab-size" in page
    assert "Examples:" in page
    assert "\x1b" not in page


def test_the_guide_to_the_command_line_lists_every_command(reference: ModuleType) -> None:
    page = read("docs/guides/cli.md")
    groups = {name for name in app if not name.startswith("-")} - {"quickstart"}
    for words in reference.commands(app):
        if words[0] not in groups or len(words) > 1:
            assert f"| `bytemill {' '.join(words)} " in page


def test_the_architecture_lists_every_folder_of_the_package_and_layers_in_their_order() -> None:
    page = read("docs/concepts/architecture.md")
    table = page[page.index("## The package") : page.index("## The language model")]
    listed = re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)
    folders = {path.parent.name for path in (REPOSITORY / "python" / "bytemill").glob("*/__init__.py")}
    assert set(listed) == folders
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    level = {name: i for i, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    assert [level[name] for name in listed] == sorted(level[name] for name in listed)


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_links_to_files_of_the_repository_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", read(page))
    assert targets
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []


def test_the_site_loads_nothing_from_elsewhere() -> None:
    settings = read("mkdocs.yml")
    assert re.search(r"^  font: false$", settings, flags=re.MULTILINE)
    assert re.search(r"^strict: true$", settings, flags=re.MULTILINE)
    assert not re.search(r"https?://", settings)
