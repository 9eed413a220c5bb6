"""`bytemill data report`."""

import json
from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_a_page_is_written_beside_the_result(run: Callable[..., Outcome], work: Path) -> None:
    pages = ["A page of more than a few words, which stays.", "Short."]
    Path("crawl.jsonl").write_text("".join(json.dumps({"text": page}) + "\n" for page in pages))
    Path("recipe.toml").write_text('[[step]]\nuse = "rules"\nremove = { short = "words < 5" }\n')
    assert run("data curate recipe.toml crawl.jsonl -o clean -q").status == 0
    assert run("data report clean").out == "clean/report.html\n"
    page = Path("clean/report.html").read_text(encoding="utf-8")
    assert "words &lt; 5: words is 1" in page
    assert run("data report clean -o own.html --json").out == '{\n  "path": "own.html"\n}\n'
    assert Path("own.html").read_text(encoding="utf-8") == page
    other = run("data report .")
    assert other.status == 1
    assert "is not the output of a curation" in other.err
