"""Start of the command line: what is imported, and how it can be interrupted."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import COMMAND

from bytemill.cli import main
from bytemill.cli.signals import InterruptOnSignals, exit_on_signals

INTERRUPT_AT_IMPORT = """
import os, signal, sys

class Interrupt:
    left = int(sys.argv.pop(1))
    started = False

    def find_spec(self, name, path=None, target=None):
        self.started |= name == "bytemill.cli.invocation"
        self.left -= self.started
        if self.left == 0:
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Interrupt())
from bytemill.cli import main
from bytemill.cli.signals import InterruptOnSignals, exit_on_signals
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("name", "n_imports"), [("SIGINT", 1), ("SIGTERM", 10), ("SIGINT", 50), ("SIGTERM", 100), ("SIGINT", 200)]
)
def test_an_interrupt_while_modules_are_imported_is_one_line(name: str, n_imports: int):
    """The handlers are installed by the light modules before `invocation`."""
    code = INTERRUPT_AT_IMPORT.replace("{signal}", name)
    outcome = subprocess.run(
        [sys.executable, "-c", code, str(n_imports), "tokenizer", "--help"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, b"", b"interrupted\n")


SCRIPT = [str(Path(sys.executable).with_name("bytemill"))]


def test_ctrl_c_at_any_time_prints_no_traceback_of_bytemill():
    for number, milliseconds in enumerate(range(0, 320, 40)):
        command = [*(COMMAND, SCRIPT)[number % 2], "tokenizer", "--help"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        if process.returncode == 130:
            assert said == b"interrupted\n"
        else:  # it has ended, or Python had not yet reached the command line
            assert b"invocation.py" not in said


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ignored_signals_stay_ignored(name: str):
    """As `nohup` and `&` in a script start a process."""
    code = INTERRUPT_AT_IMPORT.replace("{signal}", name)
    code = code.replace("class Interrupt", f"signal.signal(signal.{name}, signal.SIG_IGN)\n\nclass Interrupt")
    outcome = subprocess.run(
        [sys.executable, "-c", code, "20", "--version"], capture_output=True, timeout=60, check=False
    )
    assert (outcome.returncode, outcome.stderr) == (0, b"")


class InterruptedWrite(io.RawIOBase):
    """A stream whose first write is interrupted by a signal."""

    is_interrupted = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.is_interrupted:
            self.is_interrupted = True
            os.kill(os.getpid(), signal.SIGINT)
        return memoryview(data).nbytes


@contextlib.contextmanager
def handler(handle: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handle)
    yield
    signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    with handler(signal.default_int_handler):
        exit_on_signals()
        yield


def stopped_by_signals() -> AbstractContextManager[Any]:
    from bytemill.lm.processes import stop_signals  # torch takes seconds to import

    return stop_signals()


@pytest.mark.parametrize(
    ("handling", "expected"),
    [
        (ended_by_signals, SystemExit),
        (InterruptOnSignals, KeyboardInterrupt),
        (stopped_by_signals, None),
        (lambda: handler(lambda *_: print("interrupted", flush=True)), RuntimeError),  # what must not be done
    ],
)
def test_a_signal_handler_does_not_write_to_a_stream_that_is_being_written(
    handling: Callable[[], AbstractContextManager[Any]],
    expected: type[BaseException] | None,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(os, "_exit", sys.exit)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(InterruptedWrite())))
    raised = contextlib.nullcontext() if expected is None else pytest.raises(expected)
    with handling(), raised:
        print("step 1", flush=True)


def test_commands_run_outside_the_main_thread_and_restore_handlers(run: Callable[..., Any], work: Path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    outcomes: list[int] = []
    arguments = ["tokenizer", "train", "corpus.txt", "-n", "300", "-q"]
    thread = threading.Thread(target=lambda: outcomes.append(main(arguments)))
    thread.start()
    thread.join()
    assert outcomes == [0]
    assert run(*arguments, "--overwrite").status == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def imported_by(code: str) -> set[str]:
    """The modules that are loaded after `code` in a new process."""
    code += "\nimport json, sys; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    return set(json.loads(outcome.stderr.splitlines()[-1]))


def test_importing_the_package_imports_nothing_else_of_it():
    modules = imported_by("import bytemill")
    assert {name for name in modules if name.startswith("bytemill")} == {"bytemill"}
    assert not modules & {"numpy", "dataclasses", "inspect"}


def test_the_tokenizer_needs_neither_corpora_nor_training():
    modules = imported_by("from bytemill import Tokenizer")
    assert not {f"bytemill.{name}" for name in ("corpus", "training", "shards", "lm")} & modules
    assert not modules & {"numpy", "pydantic", "rich", "cyclopts", "torch", "pyarrow"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["tokenizer", "train", "--help"]], ids=" ".join
)
def test_help_imports_no_large_libraries(arguments: list[str]):
    modules = imported_by(f"from bytemill.cli import main; main({arguments})")
    assert not modules & {"numpy", "pydantic", "torch", "pyarrow", "huggingface_hub", "jinja2"}
    assert not modules & {"cyclopts.completion", "bytemill.cli.quickstart"}
    assert not {f"bytemill.{name}" for name in ("corpus", "training", "shards", "lm", "analysis")} & modules


def test_showing_a_tokenizer_imports_no_corpora(tokenizer_file: str):
    modules = imported_by(
        f"from bytemill.cli import main; assert main(['tokenizer', 'show', '{tokenizer_file}']) == 0"
    )
    assert not {f"bytemill.{name}" for name in ("corpus", "training", "shards", "lm")} & modules


def test_encoding_a_corpus_imports_no_large_libraries(tokenizer_file: str):
    """Validation of records takes longer to import than encoding a small corpus."""
    arguments = ["data", "encode", tokenizer_file, "corpus.txt", "--output", "shards"]
    modules = imported_by(f"from bytemill.cli import main; assert main({arguments}) == 0")
    assert not modules & {"pydantic", "jinja2", "torch", "pyarrow", "cyclopts.completion"}
