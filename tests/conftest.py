"""Fixtures that several test modules share."""

import gc
import importlib
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

import bytemill
from bytemill._core import NAMED_PATTERNS
from bytemill.datasets import DECLARATION
from bytemill.formats.spec import TokenizerSpec
from bytemill.system.paths import cache_folder

from .support import published_vocabularies, unexpected_skips
from .support.command_server import quick_command
from .support.environments import use_regex_of_unicode_16
from .support.s3_server import S3Server, s3_server

# The hypothesis profiles of all property tests. `ci` draws the same examples every time, `night` ten times as many.
# There is no deadline, so that no test fails because the machine is busy.
examples = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("quick", examples)
settings.register_profile("ci", examples, derandomize=True, database=None)
settings.register_profile("night", examples, max_examples=300)
settings.load_profile("ci" if os.environ.get("CI") else "quick")

# Background jobs of a shell without job control ignore SIGINT, and the processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

use_regex_of_unicode_16()

# The processes of the tests have the streams that processes of a user have, and do not compile every module anew.
os.environ.pop("PYTHONUNBUFFERED", None)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY / "tests" / "data"


def full_data_folder() -> Path | None:
    """The folder of whole texts: $BYTEMILL_TEST_DATA, else ../shared/data beside the repository; None if absent."""
    folder = Path(os.environ.get("BYTEMILL_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    return folder if folder.is_dir() else None


def pytest_configure(config: pytest.Config) -> None:
    """Let an unexpected skip fail."""
    config.pluginmanager.register(unexpected_skips, "unexpected_skips")


# Modules and tests live until the end. Walking through them again and again would take a tenth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what the tests make alone, and less often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def pytest_unconfigure() -> None:
    """Let what libraries hold be freed at the end; they report it otherwise."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no doctests in the tests: what they import would be imported, programs included."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of whole texts on a machine that has only the texts of the repository."""
    if full_data_folder() is not None:
        return
    extra = [item for item in items if "full_data" in getattr(item, "fixturenames", ())]
    if extra:
        config.hook.pytest_deselected(items=extra)
        items[:] = [item for item in items if item not in extra]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests and their processes neither read nor fill the user's cache, except for what torch compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache_folder("compiled")))
        patch.setenv("BYTEMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_syncing() -> Iterator[None]:
    """Syncing is for power cuts; thousands of small files would take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def commands_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A folder with a quick `bytemill`, where the system can fork."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        yield None
        return
    with quick_command(tmp_path_factory.mktemp("commands")) as folder:
        yield folder


@pytest.fixture(scope="session")
def running_s3_server() -> Iterator[S3Server]:
    """An S3 server for the whole session."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(running_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The S3 server, to which the environment leads."""
    for name, value in running_s3_server.environment.items():
        monkeypatch.setenv(name, value)
    running_s3_server.requests.clear()
    yield running_s3_server
    running_s3_server.latency = 0.0


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts of `tests/data`, the bundled declaration, and the published files of the vocabularies."""
    folder = tmp_path_factory.mktemp("data") / "shared_data"
    shutil.copytree(
        DATA, folder, ignore=shutil.ignore_patterns("vocabularies", "README.md", ".gitattributes")
    )
    shutil.copytree(DECLARATION, folder / "udhr", ignore=shutil.ignore_patterns(".gitattributes"))
    published_vocabularies.restore(DATA / "vocabularies", folder)
    return folder


@pytest.fixture(scope="session")
def full_data() -> Path:
    """The folder of whole texts. Tests that use it are extras: without the folder they are deselected."""
    folder = full_data_folder()
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def simple_bpe_model(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file of simple-bpe: GPT-2's pattern, 2,048 tokens of TinyStories and one special token."""
    tokenizer = bytemill.train(shared_data / "tinystories.txt", 2049, ["<|endoftext|>"])
    ids = {token: token_id for token_id, token in tokenizer.vocab.items()}
    lines = ["simple-bpe v1", NAMED_PATTERNS["gpt2"], "1", "<|endoftext|> 2048"]
    lines += [f"{ids[left]} {ids[right]}" for left, right in tokenizer.merges]
    path = tmp_path_factory.mktemp("simple_bpe") / "stories.model"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return path


@pytest.fixture
def small_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of memory count from 50 MB for the process as it stands, whatever other tests have brought into it."""
    monkeypatch.setattr("bytemill.training.memory_budget.resident_bytes", lambda: 50_000_000)


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The package `transformers`. Its import takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: Any = importlib.import_module("transformers")
        # What is brought in only when it is asked for.
        _ = module.AutoTokenizer, module.PreTrainedTokenizerFast
    return module


MERGES = [(b"a", b"b"), (b"ab", b"ab"), (b" ", b"ab"), (b"\xc3", b"\xa9"), (b'"', b"\\")]


@pytest.fixture
def make_spec() -> Callable[..., TokenizerSpec]:
    """Makes a tokenizer of a few merges, with fields replaced by keyword."""

    def make(**fields: object) -> TokenizerSpec:
        vocab = {byte: bytes([byte]) for byte in range(256)}
        vocab |= {256 + i: left + right for i, (left, right) in enumerate(MERGES)}
        defaults: dict[str, object] = {
            "pattern": NAMED_PATTERNS["gpt2"],
            "special_tokens": {"<|endoftext|>": 261},
            "vocab": vocab,
            "merges": list(MERGES),
        }
        return TokenizerSpec(**(defaults | fields))  # type: ignore[arg-type]

    return make
