"""A folder with tokenizers, texts, a run and a study, and a studio that serves it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch

import bytemill
from bytemill.lm.training.config import resolve
from bytemill.lm.training.trainer import train
from bytemill.studio.library import Library
from bytemill.studio.server import listen, running
from tests.experiment.made_up import write_study
from tests.lm.conftest import END, TINY, sentences

HOSTILE = '<img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as users have it, with names that a page could take for markup."""
    folder = tmp_path_factory.mktemp("studio") / "root"
    folder.mkdir()
    text = sentences(1, 600)
    tokenizer = bytemill.train_from_iterator([text], 300, [END, HOSTILE])
    tokenizer.save(folder / "tokenizer.json")
    bytemill.train_from_iterator([text], 280, [END]).save(folder / "smaller.json")
    (folder / "story.txt").write_text(sentences(3, 40), encoding="utf-8")
    bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts([text]), folder / "shards" / "train")
    values = {
        **TINY,
        "data.tokenizer": str(folder / "tokenizer.json"),
        "data.train": str(folder / "shards" / "train"),
        "data.validation": str(folder / "shards" / "train"),
        "training.steps": 6,
        "run.validate_every": 2,
        "run.checkpoint_every": 2,
        "run.keep_checkpoints": 3,
        "run.sample_every": 3,
        "run.sample_prompt": "The",
        "run.log_every": 1,
        "run.folder": str(folder / "runs" / "first"),
    }
    n_threads = torch.get_num_threads()
    train(resolve([("the test", values)], n_vocab=tokenizer.n_vocab))
    torch.set_num_threads(n_threads)
    hostile = folder / "runs" / "<script>alert(1)</script>".replace("/", "∕")
    hostile.mkdir()
    records = [
        {"kind": "step", "step": step, "loss": 5.0 - step / 100, "bits_per_byte": 2.0, "grad_norm": 1.0,
         "learning_rate": 0.01, "n_tokens": 64 * step, "tokens_per_second": 1000.0, "flops_per_second": 1e6}
        for step in range(1, 101)
    ]  # fmt: skip
    (hostile / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (hostile / "config.toml").write_text(f"[model]\nvocab_size = 10\n[run]\nfolder = {json.dumps(HOSTILE)}\n")
    _make_study(folder / "study")
    return folder


def _make_study(folder: Path) -> None:
    """A study of which the models of one tokenizer are missing."""
    write_study(folder, n_seeds=2)
    grid = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps(grid | {"title": "Two sizes"}))
    (folder / "study.toml").write_text('title = "Two sizes"\n')
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text(
        "".join(line for line in lines if json.loads(line)["tokenizer"] != "c")
    )


@pytest.fixture(scope="session")
def url(root: Path) -> Iterator[str]:
    """The address of a studio, which several tests share."""
    with running(Library(root), listen(port=0)) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    """A client of the API."""
    with httpx.Client(base_url=f"{url}api/v1", timeout=60, trust_env=False) as own:
        yield own


def id_of(client: httpx.Client, name: str, kind: str = "tokenizers") -> str:
    """Return the id of a tokenizer, a text, a run, a study or a model by its name."""
    path = {
        "tokenizers": "sources",
        "texts": "sources",
        "runs": "runs",
        "studies": "runs",
        "models": "models",
    }[kind]
    return next(each["id"] for each in client.get(f"/{path}").json()[kind] if each["name"] == name)


def has_browser() -> bool:
    """Whether Debian's Chromium is there, which CI demands with BYTEMILL_BROWSER=required."""
    return os.environ.get("BYTEMILL_BROWSER") == "required" or Path("/usr/bin/chromium").exists()
