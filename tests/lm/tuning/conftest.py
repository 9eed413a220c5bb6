"""A small model of sums, trained once, and prompts for it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved

SIZES = {
    "model.context_length": 16,
    "model.d_model": 32,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.d_ff": 64,
}


@pytest.fixture(scope="session")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tok.json`, `prompts.jsonl` and the run `base`, which has seen 60 batches of sums."""
    from bytemill.data import encode_corpus
    from bytemill.lm.training.config import resolve
    from bytemill.lm.training.trainer import train

    folder = tmp_path_factory.mktemp("sums")
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    tokenizer.save(folder / "tok.json")
    chooser = random.Random(0)
    pairs = [(chooser.randrange(5), chooser.randrange(5)) for _ in range(400)]
    texts = [{"text": f"{a}+{b}={a + b}"} for a, b in pairs]
    (folder / "text.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs[:30]]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encode_corpus(tokenizer, [folder / "text.jsonl"], folder / "shards")
    values = {
        **SIZES,
        "data.tokenizer": str(folder / "tok.json"),
        "data.train": [str(folder / "shards")],
        "data.packing": "documents",
        "training.steps": 60,
        "training.batch_size": 16,
        "training.device": "cpu",
        "run.folder": str(folder / "base"),
        "optimizer.learning_rate": 3e-3,
    }
    train(resolve([("test", values)], n_vocab=257))
    return folder


@pytest.fixture
def settings(sums: Path, tmp_path: Path) -> Callable[..., Resolved]:
    """Return a function that makes the settings of a run that tunes `base` by a method."""
    from bytemill.lm.training.config import resolve
    from bytemill.lm.training.preparation import initial_layers
    from bytemill.lm.tuning.tune import DEFAULTS

    def make(method: str, **values: Any) -> Resolved:
        own = {
            **DEFAULTS[method],
            "training.init_from": str(sums / "base"),
            "tuning.method": method,
            "training.device": "cpu",
            "training.steps": 6,
            "run.folder": str(tmp_path / "run"),
            "run.checkpoint_every": 2,
            **(
                {"tuning.prompts": [str(sums / "prompts.jsonl")], "tuning.max_tokens": 4}
                if method == "grpo"
                else {}
            ),
            **{name.replace("__", "."): value for name, value in values.items()},
        }
        return resolve([*initial_layers(str(sums / "base"), None), ("test", own)], n_vocab=257)

    return make
