"""Running the command line: in this process, and in one of its own."""

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import bytemill
from bytemill.cli import main

COMMAND = [sys.executable, "-m", "bytemill"]

SMALL_TEXT = (
    "the cat sat on the mat, and the cat ate the rat.\n"
    "Whether it was hungry or merely bored nobody in the house could tell.\n"
) * 40 + "naïve café → déjà vu\n" * 5


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with `corpus.txt` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text(SMALL_TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="session")
def small_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    (path.parent / "corpus.txt").write_text(SMALL_TEXT, encoding="utf-8")
    bytemill.train([path.parent / "corpus.txt"], 300, ["<|endoftext|>"]).save(path)
    return path


@pytest.fixture
def tokenizer_file(work: Path, small_tokenizer: Path) -> str:
    """The name of a tokenizer with 300 tokens in the current folder."""
    return Path(shutil.copy(small_tokenizer, "tokenizer.json")).name


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs a command in this process, given as words or as a line and more words; `stdin` is what it finds there."""
    for name in ("NO_COLOR", "FORCE_COLOR", "BYTEMILL_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["bytemill"])

    def call(*arguments: str, stdin: str | bytes = b"") -> Outcome:
        line, *words = arguments or ("",)
        arguments = (*(shlex.split(line) if " " in line else arguments[:1]), *words)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capfd.readouterr()
        try:
            status = main(arguments)
        except SystemExit as error:
            status = int(error.code or 0)
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


def _environment(**more: str) -> dict[str, str]:
    """The environment for a process of its own, without what changes the output."""
    dropped = {"NO_COLOR", "FORCE_COLOR", "BYTEMILL_DEBUG", "COLUMNS", "PYTHONIOENCODING"}
    return {name: value for name, value in os.environ.items() if name not in dropped} | more


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs a command in a process of its own, off a terminal; keywords are environment variables."""

    def call(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            env=_environment(**environment),
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a command in a process of its own, which does not outlive the test."""
    running: list[subprocess.Popen[bytes]] = []

    def call(
        *arguments: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*COMMAND, *arguments], env=_environment(), stdin=stdin, stdout=stdout, stderr=stderr
        )
        running.append(process)
        return process

    yield call
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(OSError):
                    pipe.close()
