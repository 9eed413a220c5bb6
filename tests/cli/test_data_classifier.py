"""`bytemill data classifier`."""

import json
import random
from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_the_command_trains_and_scores(run: Callable[..., Outcome], work: Path) -> None:
    draw = random.Random(0)
    for name, marks in (("good", "theorem proof"), ("bad", "casino pills")):
        words = [*marks.split(), *(f"word{n}" for n in range(8))]
        texts = [" ".join(draw.choices(words, k=20)) for _ in range(400)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    trained = run("data classifier train good.jsonl bad.jsonl -o q.safetensors --hash-bits 12 --json")
    assert json.loads(trained.out)["labels"] == ["good", "bad"]
    shown = run("data classifier score q.safetensors good.jsonl bad.jsonl --keep-share 0.5 -o s.jsonl --json")
    (threshold,) = json.loads(shown.out)["thresholds"]
    assert threshold["keep"] == 0.5
    lines = [json.loads(line) for line in Path("s.jsonl").read_text().splitlines()]
    assert len(lines) == 800
    assert lines[400]["document"] == 0
    assert sum(line["scores"]["good"] >= threshold["threshold"] - 1e-6 for line in lines[:400]) > 380
    again = run("data classifier train good.jsonl bad.jsonl -o q.safetensors")
    assert again.status == 1
    assert "q.safetensors already exists" in again.err
    assert run("data classifier train good.jsonl -o x.safetensors").status == 2
    table = run("data classifier train a=good.jsonl b=bad.jsonl -o y.safetensors --hash-bits 12")
    assert "likely a" in table.out
