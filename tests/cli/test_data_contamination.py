"""`bytemill data contamination`."""

import json
from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome

QUESTION = "A robe takes two bolts of blue fiber and half that much white fiber, so how many bolts are that?"


def test_items_of_a_benchmark_are_found_in_documents(run: Callable[..., Outcome], work: Path) -> None:
    rows = [{"question": QUESTION, "answer": "2 + 1 #### 3"}, {"question": "Too short?", "answer": "#### 1"}]
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pages = ["nothing here", "Homework.\n" + QUESTION.upper().replace(" ", "\n"), "nothing either"]
    Path("web.jsonl").write_text("".join(json.dumps({"text": page}) + "\n" for page in pages))
    assert run("data contamination items gsm8k=test.jsonl -o items.jsonl").status == 0
    found = run("data contamination find items.jsonl web.jsonl corpus.txt -o matches.jsonl --json")
    summary = json.loads(found.out)
    assert (summary["n_documents"], summary["n_contaminated"], summary["n_short_items"]) == (4, 1, 1)
    assert summary["items"] == [{"item": "gsm8k:0", "n_documents": 1, "n_words": 20}]
    (row,) = [json.loads(line) for line in Path("matches.jsonl").read_text().splitlines()]
    assert (row["source"], row["document"]) == ("web.jsonl", 1)
    (match,) = row["matches"]
    assert pages[1][match["start"] : match["end"]].split() == QUESTION.upper().rstrip("?").split()
    table = run("data contamination find items.jsonl web.jsonl")
    assert "1 of 3 documents" in table.out
    assert "gsm8k:0" in table.out
