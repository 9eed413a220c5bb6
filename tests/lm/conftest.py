"""A small corpus, its tokenizer and its shards."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import bytemill
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.training.config import Resolved, resolve

END = "<|endoftext|>"


def sizes(
    vocab_size: int, context_length: int, d_model: int, num_layers: int, num_heads: int, d_ff: int
) -> dict[str, Any]:
    """The sizes of a model by name."""
    return dict(locals())


TINY = {
    "model.context_length": 16, "model.d_model": 16, "model.num_layers": 2, "model.num_heads": 2,
    "model.d_ff": 32, "training.device": "cpu", "training.batch_size": 4, "schedule.warmup_steps": 1,
    "run.validation_windows": 4, "run.sample_tokens": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Corpus:
    """A folder with a tokenizer, training shards and validation shards."""

    folder: Path
    tokenizer: bytemill.Tokenizer
    text: str

    @property
    def data(self) -> dict[str, Any]:
        """Settings with the paths of the data."""
        return {
            "data.tokenizer": str(self.folder / "tokenizer.json"),
            "data.train": str(self.folder / "train"),
            "data.validation": str(self.folder / "validation"),
        }


def sentences(seed: int, n: int) -> str:
    chance = random.Random(seed)
    nouns, verbs = ("cat", "dog", "naïve bird", "犬", "child"), ("saw", "ate", "liked", "déjà-vued")
    return "".join(
        f"The {chance.choice(nouns)} {chance.choice(verbs)} the {chance.choice(nouns)}."
        + (END if chance.random() < 0.2 else " ")
        for _ in range(n)
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    text = sentences(1, 600)
    tokenizer = bytemill.train_from_iterator([text], 300, [END])
    tokenizer.save(folder / "tokenizer.json")
    bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts([text]), folder / "train", shard_tokens=1000)
    bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts([sentences(2, 80)]), folder / "validation")
    return Corpus(folder, tokenizer, text)


@pytest.fixture
def settings(corpus: Corpus, tmp_path: Path) -> Callable[..., Resolved]:
    """Resolve settings of a tiny run in the folder `run`; `__` in keywords stands for a dot."""

    def make(**changes: Any) -> Resolved:
        changed = {key.replace("__", "."): value for key, value in changes.items()}
        values = {**TINY, **corpus.data, "run.folder": str(tmp_path / "run"), **changed}
        return resolve([("the test", values)], n_vocab=corpus.tokenizer.n_vocab)

    return make


class RankServer:
    """Processes that are forked from one that has imported torch, which takes seconds."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("rank_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self,
        n: int,
        resolved: Resolved,
        *,
        largest_file: dict[int, int] | None = None,
        last_call: dict[int, int] | None = None,
        hangs: dict[int, int] | None = None,
    ) -> list[str | None]:
        """Train in `n` processes; see `rank_server.py`."""
        sections = resolved.config.to_dict().items()
        config = {f"{section}.{name}": value for section, own in sections for name, value in own.items()}
        limits = {"largest_file": largest_file or {}, "last_call": last_call or {}, "hangs": hangs or {}}
        return self._answer({"n": n, "config": config, **limits})

    def check(self, n: int, name: str, **options: Any) -> None:
        """Call a function of `parallel_checks` in `n` processes."""
        assert self._answer({"n": n, "check": name, "options": options}) == [None] * n

    def _answer(self, request: dict[str, Any]) -> list[str | None]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    server = RankServer()
    yield server
    server.process.kill()
    server.process.communicate()


@pytest.fixture(scope="session")
def model(corpus: Corpus) -> TransformerLM:
    """A model with the vocabulary of the corpus, and large weights, so that its predictions are not uniform."""
    config = ModelConfig(**sizes(corpus.tokenizer.n_vocab, 24, 16, 2, 2, 32))
    made = TransformerLM(config, seed=3)
    with torch.no_grad():
        made.lm_head.weight.mul_(4)
    return made.eval()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """For tiny models, a second thread costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def quick_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the measurement of the device, which takes a third of a second per run."""
    monkeypatch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
