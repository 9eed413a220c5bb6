"""A folder with tokenizers, texts, a run and a study, a studio that serves it, and a browser that opens it."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import bytemill
from bytemill.lm.training.config import resolve
from bytemill.lm.training.trainer import train
from bytemill.lm.tuning.tune import DEFAULTS, tune
from bytemill.shards import encode_conversations
from bytemill.studio.library import Library
from bytemill.studio.server import Address, Server, listen
from tests.experiment.made_up import write_study
from tests.lm.conftest import END, TINY, sentences

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '<img src=x onerror="window.hacked=1">'


@contextmanager
def running(library: Library, address: Address, *, device: str = "cpu") -> Generator[str]:
    """Answer requests on another thread inside the block; gives the URL."""
    started = threading.Event()
    server = Server(library, address, device, started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.socket]}, daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield address.url
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)


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


TEMPLATE = (
    "{% for m in messages %}{{ {'system': 'S', 'user': 'Q', 'assistant': 'A'}[m.role] }}{{ m.content }}<|endoftext|>"
    "{% endfor %}{% if add_generation_prompt %}A{% endif %}"
)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `plain`, whose tokenizer has no chat template, and it tuned as `sft`, `dpo` and `grpo`."""
    folder = tmp_path_factory.mktemp("tuned")
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], [END])
    tokenizer.save(folder / "tok.json")
    bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts(["1! 2! 3!"] * 20), folder / "text")
    tokenizer.chat_template = TEMPLATE
    (folder / "chat").mkdir()
    tokenizer.save(folder / "chat")

    def rows(name: str, row: Callable[[int], dict[str, Any]]) -> str:
        (folder / name).write_text("".join(json.dumps(row(n)) + "\n" for n in range(9)))
        return str(folder / name)

    chats = rows("chats.jsonl", lambda n: {"prompt": str(n), "response": f"{n}!"})
    pairs = rows("pairs.jsonl", lambda n: {"prompt": str(n), "chosen": f"{n}!", "rejected": "no"})
    prompts = rows(
        "prompts.jsonl", lambda n: {"messages": [{"role": "user", "content": str(n)}], "answer": str(n)}
    )
    for source in (chats, pairs):
        encode_conversations(tokenizer, source, source.removesuffix(".jsonl"))
    (folder / "mine.py").write_text(
        "def score(prompt, answer, row):\n    return {'reward': float('1' in answer), 'length': float(len(answer))}\n"
    )
    shape = {"model.context_length": 24, "model.d_model": 32, "model.num_layers": 1, "model.num_heads": 2}
    shape |= {"model.d_ff": 64, "training.device": "cpu", "training.batch_size": 8, "run.log_every": 1}
    n_threads = torch.get_num_threads()

    def run(name: str, method: str, n_steps: int, **values: Any) -> None:
        own = {
            **shape,
            "training.steps": n_steps,
            "run.folder": str(folder / name),
            "tuning.method": method,
            **values,
        }
        tune(resolve([("the test", {**DEFAULTS.get(method, {}), **own})], n_vocab=tokenizer.n_vocab))

    data = {"data.tokenizer": str(folder / "chat")}
    run(
        "plain",
        "none",
        1,
        **{"data.tokenizer": str(folder / "tok.json"), "data.train": [str(folder / "text")]},
    )
    data["training.init_from"] = str(folder / "plain")
    run("sft", "sft", 60, **data, **{"data.train": [str(folder / "chats")], "optimizer.learning_rate": 0.01})
    data["training.init_from"] = str(folder / "sft")
    run("dpo", "dpo", 3, **data, **{"data.train": [str(folder / "pairs")]})
    grpo = {
        "tuning.prompts": [prompts],
        "tuning.reward": f"{folder / 'mine.py'}:score",
        "tuning.max_tokens": 4,
    }
    grpo |= {"tuning.prompts_per_step": 2, "tuning.group_size": 4, "run.sample_every": 2}
    run("grpo", "grpo", 4, **data, **grpo)
    torch.set_num_threads(n_threads)
    return folder


@contextmanager
def client_of(library: Library) -> Generator[httpx.Client]:
    """A client of the API of a studio of its own."""
    with (
        running(library, listen(port=0)) as url,
        httpx.Client(base_url=f"{url}api/v1", timeout=60, trust_env=False) as own,
    ):
        yield own


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[httpx.Client]:
    """A client of the API of the studio that several tests share."""
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


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Path:
    """A folder of its own with a tokenizer, a text and a run, which are made again while a studio serves it."""
    folder = tmp_path / "own"
    folder.mkdir()
    shutil.copy(root / "tokenizer.json", folder / "own.json")
    (folder / "story.txt").write_text("The cat saw the dog.", encoding="utf-8")
    shutil.copytree(root / "runs" / "first", folder / "run")
    return folder


def train_run(root: Path, folder: Path, seed: int) -> None:
    """Train as `bytemill lm train --overwrite` does; checkpoints of steps 2, 4 and 6 remain."""
    values = {
        **TINY,
        "data.tokenizer": str(root / "tokenizer.json"),
        "data.train": str(root / "shards" / "train"),
        "training.steps": 6,
        "training.seed": seed,
        "run.checkpoint_every": 2,
        "run.keep_checkpoints": 3,
        "run.log_every": 1,
        "run.folder": str(folder),
    }
    n_threads = torch.get_num_threads()
    train(resolve([("the test", values)], n_vocab=300), overwrite=True)
    torch.set_num_threads(n_threads)


def train_tokenizer(path: Path) -> bytemill.Tokenizer:
    """Train another tokenizer of 300 tokens into the file of the first."""
    tokenizer = bytemill.train_from_iterator([sentences(7, 300).upper()], 300, [END])
    tokenizer.save(path)
    return tokenizer


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-web` runs: all tests of the folder `browser` but those marked `smoke`.

    They are skipped without a browser, unless $BYTEMILL_BROWSER is "required".
    """
    skip = pytest.mark.skip(reason="platform: no Chromium (apt-get install chromium)")
    is_skipped = CHROMIUM is None and os.environ.get("BYTEMILL_BROWSER") != "required"
    for item in items:
        if "studio/browser" not in item.path.as_posix():
            continue
        if item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.browser)
        if is_skipped:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser. A loop of Playwright runs while it is open, so no other test of the process may use asyncio.run."""
    assert CHROMIUM is not None, "there is no Chromium: apt-get install chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--force-prefers-reduced-motion"]
        )
        yield own
        own.close()


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Open the studio at a fragment; errors of the page and requests elsewhere fail the test."""
    contexts: list[Any] = []
    problems: list[str] = []

    def opened(fragment: str = "", *, address: str = url, is_quiet: bool = True, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address.rstrip("/"))
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(f"error: {error.stack}"))
        page.on("request", lambda request: note(request.url))
        if is_quiet:
            page.on("console", lambda message: note_error(message.text) if message.type == "error" else None)

        def note_error(text: str) -> None:
            # The page asks for news every three seconds, also when a test has just ended its server.
            if "net::ERR_CONNECTION_REFUSED" not in text:
                problems.append(text)

        def note(target: str) -> None:
            if not target.startswith((address, "data:", "blob:")):
                problems.append(f"request to {target}")

        page.goto(address + fragment)
        page.wait_for_selector("main .panel, main .empty")
        until(page, "!document.querySelector('main').textContent.startsWith('Opening')")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems, problems


def until(page: Any, expression: str, seconds: float = 60) -> None:
    """Wait until an expression of JavaScript is true. Playwright's own function needs eval, which the page forbids."""
    end = time.monotonic() + seconds
    # What is not there yet is not an error.
    safe = f"(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()"
    while not page.evaluate(safe):
        assert time.monotonic() < end, f"still false after {seconds} seconds: {expression}"
        page.wait_for_timeout(25)
