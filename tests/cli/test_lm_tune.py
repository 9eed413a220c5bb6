"""`bytemill lm tune` and `lm chat`: from rows of conversations to a model that answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Run = Callable[..., Any]
TEMPLATE = (
    "{% for m in messages %}{{ {'system': 'S', 'user': 'Q', 'assistant': 'A'}[m.role] }}{{ m.content }}<|endoftext|>"
    "{% endfor %}{% if add_generation_prompt %}A{% endif %}"
)
SIZES = (
    "--model.context-length 24 --model.d-model 32 --model.num-layers 1 --model.num-heads 2 --model.d-ff 64 "
    "--training.device cpu --training.steps 2 --training.batch-size 8 --data.tokenizer tok --data.train shards"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from bytemill.lm.training import preparation

    monkeypatch.setattr(preparation, "matmul_rate", lambda *_: 1e10)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ok(run: Run, line: str, *words: str, stdin: str = "") -> Any:
    outcome = run(line, *words, stdin=stdin)
    assert outcome.status == 0, outcome.err
    return outcome


@pytest.fixture
def base(work: Path, run: Run) -> Path:
    """A folder with the tokenizer `tok`, which has a chat template, the shards `chats` and the run `base`."""
    tok = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    tok.chat_template = TEMPLATE
    (work / "tok").mkdir()
    tok.save(work / "tok")
    rows = [{"prompt": str(n), "response": f"{n}!"} for n in range(9)]
    (work / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    ok(run, "data encode tok corpus.txt -o shards -q")
    ok(run, "data encode tok --conversations chats.jsonl -o chats -q")
    ok(run, f"lm train {SIZES} --run.folder base -q")
    return work


def test_a_model_is_tuned_and_answers(base: Path, run: Run) -> None:
    tune = "lm tune sft base --data.tokenizer tok --data.train chats --run.folder chat --optimizer.learning-rate 0.01"
    out = ok(run, f"{tune} --training.steps 60 --training.batch-size 8")
    assert "trained 60 steps" in out.out
    answers = ok(run, "lm chat chat --temperature 0 --max-tokens 4", stdin="3\n7\n/reset\n5\n").out
    assert answers.split() == ["3!", "7!", "5!"]
    config = ok(run, "lm train chat --print-config").out
    assert '"sft"' in config
    rows = [{"messages": [{"role": "user", "content": str(n)}], "answer": f"{n}!"} for n in range(4)]
    (base / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (base / "mine.py").write_text("def same(prompt, answer, row): return float(answer == row['answer'])\n")
    grpo = (
        "lm tune grpo chat --tuning.prompts prompts.jsonl --tuning.reward mine.py:same --tuning.max-tokens 4"
    )
    out = ok(run, f"{grpo} --run.folder solver --training.steps 2 --tuning.prompts-per-step 4")
    assert "reward 0.9" in out.err or "reward 1.0" in out.err
    assert ok(run, "lm chat solver --temperature 0 --max-tokens 4", stdin="3\n").out.split() == ["3!"]


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "lm chat base --max-tokens 20",
            "which with an answer of max_tokens 20 exceeds the context",
            "write less",
        ),
        ("lm tune sft nowhere --data.train chats", "nowhere", ""),
        ("lm tune grpo base", "tuning.prompts is not set", "--tuning.prompts prompts.jsonl"),
        ("lm tune dpo base --data.train chats --run.folder x", "does not hold pairs", "--conversations"),
        ("lm tune sft base --run.folder x", "data.train is not set", "--data.train DIR"),
    ],
)
def test_what_cannot_work_is_said_at_once(base: Path, run: Run, line: str, message: str, hint: str) -> None:
    outcome = run(line, stdin="a long message\n")
    assert message in outcome.err
    assert hint in outcome.err
    assert not (base / "x").exists()


def test_a_model_without_a_template_cannot_chat(base: Path, run: Run) -> None:
    (base / "base" / "chat_template.jinja").unlink()
    outcome = run("lm chat base", stdin="1\n")
    assert outcome.status == 1
    assert "has no chat template" in outcome.err
