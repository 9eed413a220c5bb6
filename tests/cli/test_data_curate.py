"""`bytemill data curate`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from .conftest import Outcome

RECIPE = '[[step]]\nuse = "mask"\n[[step]]\nuse = "rules"\nremove.short = "words < {}"\n'
PAGES = ["Write to ann@example.org about the mill by the river.", "Too short.", "Another text of six words."]


@pytest.fixture
def web(work: Path) -> Path:
    """A recipe and pages in the current folder."""
    Path("recipe.toml").write_text(RECIPE.format(5))
    Path("web.jsonl").write_text("".join(json.dumps({"text": page}) + "\n" for page in PAGES))
    return work


def texts(which: str) -> list[str]:
    data = zstandard.decompress(Path(f"clean/{which}/part-00000.jsonl.zst").read_bytes(), 1 << 20)
    return [json.loads(line)["text"] for line in data.decode().splitlines()]


def test_texts_are_curated_and_counted(run: Callable[..., Outcome], web: Path) -> None:
    done = run("data curate recipe.toml web.jsonl -o clean")
    assert done.status == 0
    assert done.out.startswith("clean: 2 documents of 3, ")
    assert "short" in done.out
    assert texts("kept") == [PAGES[0].replace("ann@example.org", "|||EMAIL_ADDRESS|||"), PAGES[2]]
    again = run("data curate recipe.toml web.jsonl -o clean --json")
    assert "nothing to do" in again.err
    assert json.loads(again.out)["funnel"]["kept_documents"] == 2
    Path("recipe.toml").write_text(RECIPE.format(7))
    assert run("data curate --rethreshold recipe.toml clean -q").out == ""
    assert texts("removed") == [PAGES[1], PAGES[2]]


def test_a_dry_run_writes_nothing(run: Callable[..., Outcome], web: Path) -> None:
    plan = run("data curate recipe.toml web.jsonl -o clean --dry-run")
    assert "steps: mask, rules" in plan.out
    assert "of 3 documents 2 stay" in plan.out
    assert not Path("clean").exists()
    estimate = json.loads(run("data curate recipe.toml web.jsonl -o clean --jobs 2 --dry-run --json").out)
    assert (estimate["n_documents"], estimate["n_kept"]) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("recipe.toml web.jsonl", 2, "name RECIPE, INPUTS and --output DIR"),
        ("recipe.toml -o clean", 2, "name RECIPE, INPUTS and --output DIR"),
        ("recipe.toml clean -o other --rethreshold", 2, "--rethreshold needs RECIPE and the output folder"),
        ("recipe.toml web.jsonl -o clean --jobs 2 --executor ray", 2, "--jobs N stands for"),
        ("recipe.toml missing.jsonl -o clean", 1, "missing.jsonl"),
        ("missing.toml web.jsonl -o clean", 1, "cannot read missing.toml"),
        ("recipe.toml empty --rethreshold", 1, "empty holds no measurements"),
        ("recipe.toml web.jsonl -o web.jsonl", 1, "web.jsonl"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: str, status: int, message: str, run: Callable[..., Outcome], web: Path
) -> None:
    done = run(f"data curate {arguments}")
    assert done.status == status
    assert message in done.err
    assert done.err.count("error: ") == 1
