"""The command line as a process: streams, signals, pipes that close, terminals, help."""

import contextlib
import inspect
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from tests.cli.commands import commands

import bytemill

CONTROL_CODE = re.compile(rb"\x1b")

Process = Callable[..., subprocess.CompletedProcess[bytes]]
Start = Callable[..., subprocess.Popen[bytes]]


def wait_for(process: subprocess.Popen[bytes], seconds: float = 60) -> int:
    """The exit status."""
    return process.wait(timeout=seconds)


def feed(write: Callable[[bytes], object]) -> None:
    """Writes text in the background for as long as somebody reads it."""

    def work() -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                write(b"the cat sat on the mat\n" * 10_000)

    threading.Thread(target=work, daemon=True).start()


def interrupt_when_busy(process: subprocess.Popen[bytes], sign: bytes) -> tuple[int, bytes]:
    """Send SIGINT once standard error has `sign`; return the exit status and the whole standard error.

    The input of the process must not end, so that nothing but the signal can end the process.
    """
    assert process.stderr is not None
    said = b""
    while sign not in said:
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, f"ended too early: {said!r}"
        said += piece
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    status = wait_for(process)
    return status, said + process.stderr.read()


@pytest.mark.parametrize(
    ("chain", "command"), [pytest.param(*pair, id=" ".join(pair[0])) for pair in commands()]
)
def test_every_command_has_help_with_examples_that_fits_80_columns(
    run: Callable[..., Any], chain: tuple[str, ...], command: App
):
    outcome = run(*chain, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    assert f"Usage: bytemill {' '.join(chain)}" in outcome.out
    assert "\x1b" not in outcome.out
    assert "[ARGS" not in outcome.out, "the usage must name the arguments"
    epilogue = command.help_epilogue or ""
    examples = epilogue.partition("Examples:\n")[2]
    assert f"  bytemill {' '.join(chain)}" in examples
    lines = [*inspect.cleandoc(command.help).splitlines(), *epilogue.splitlines()]
    assert [line for line in lines if len(line) > 80] == []
    wrong = run(*chain, "--no-such-option")
    assert wrong.status == 2
    assert f"hint: see `{' '.join(['bytemill', *chain, '--help'])}`\n" in wrong.err


def test_help_of_the_groups_lists_their_commands(run: Callable[..., Any]):
    top = run("--help").out
    for chain in ([], ["tokenizer"], ["data"], ["lm"], ["experiment"], ["--install-completion"]):
        wrong = run(*chain, "--no-such-option")
        assert (wrong.status, run(*chain, "--help").status) == (2, 0)
        assert f"hint: see `{' '.join(['bytemill', *chain, '--help'])}`\n" in wrong.err
    assert all(name in top for name in ("quickstart", "tokenizer", "data", "BYTEMILL_DEBUG", "Exit code"))
    assert run().out == top
    tokenizer = run("tokenizer --help").out
    assert all(name in tokenizer for name in ("train", "encode", "decode", "show", "inspect"))


def test_version_is_that_of_the_package(process: Process):
    outcome = process("--version")
    first, core, python, torch, ray = outcome.stdout.decode().splitlines()
    assert (outcome.returncode, first) == (0, f"bytemill {bytemill.__version__}")
    assert re.fullmatch(r"  core    (AVX-512, )?(AVX2, |NEON, )?portable", core)
    assert python.startswith("  python  3.")
    assert re.fullmatch(r"  torch   (\d+\.\d+.*|not installed)", torch)
    assert re.fullmatch(r"  ray     (\d+\.\d+.*|not installed)", ray)


def test_results_and_the_rest_are_on_different_streams(work: Path, process: Process):
    outcome = process("tokenizer", "train", "corpus.txt", "-n", "300", "--json")
    assert outcome.returncode == 0
    assert json.loads(outcome.stdout)["n_vocab"] == 300
    assert outcome.stderr.startswith(b"counting pre-tokens: ")
    assert not CONTROL_CODE.search(outcome.stdout + outcome.stderr)


def test_a_failure_leaves_standard_output_empty(work: Path, process: Process):
    outcome = process("tokenizer", "show", "nothing.json")
    assert (outcome.returncode, outcome.stdout) == (1, b"")
    assert b"Traceback" not in outcome.stderr


def test_texts_are_printed_whatever_the_encoding_of_the_stream(tokenizer_file: str, process: Process):
    outcome = process("tokenizer", "inspect", tokenizer_file, "é", PYTHONIOENCODING="ascii")
    assert outcome.returncode == 0, outcome.stderr
    assert b"\\u27e8" in outcome.stdout


def test_a_closed_standard_output_is_no_crash(tokenizer_file: str):
    command = f"{sys.executable} -m bytemill tokenizer encode {tokenizer_file} text >&-"
    outcome = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="platform: no device that is always full")
def test_a_full_standard_output_is_an_error(tokenizer_file: str):
    command = f"{sys.executable} -m bytemill tokenizer encode {tokenizer_file} text >/dev/full"
    outcome = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(b"error: standard output: No space left on device\nhint: ")
    assert b"Traceback" not in outcome.stderr
    assert b"Exception ignored" not in outcome.stderr


@pytest.mark.parametrize(
    "arguments", [["encode"], ["inspect", "--quiet"], ["show", "--tokens"]], ids=" ".join
)
def test_a_reader_that_stops_early_ends_the_command_quietly(
    tokenizer_file: str, start: Start, arguments: list[str]
):
    Path("long.txt").write_text("the cat sat on the mat\n" * 20_000)  # far more than a pipe holds
    name, *options = arguments
    source = [] if name == "show" else ["--file", "long.txt"]
    process = start(
        "tokenizer", name, tokenizer_file, *options, *source, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    if name != "show":
        assert process.stdout.read(10)
    process.stdout.close()
    assert wait_for(process) == 0
    assert process.stderr.read() == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_is_complete_if_the_process_is_stopped_and_continued(
    tokenizer_file: str, start: Start, monkeypatch: pytest.MonkeyPatch, unbuffered: str
):
    """As Ctrl-Z and `fg` do. A pipe then takes a part of what is written; Python's streams may forget the rest."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    text = "the cat sat on the mat\n" * 40_000
    Path("long.txt").write_text(text)
    expected = bytemill.Tokenizer.load(tokenizer_file).encode(text)
    process = start("tokenizer", "encode", tokenizer_file, "--file", "long.txt", stdout=subprocess.PIPE)
    assert process.stdout is not None
    written = b""
    # Every time that the pipe is full, and so a writer waits in the middle of something.
    for _ in range(20):
        time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        written += os.read(process.stdout.fileno(), 30_000)
    written += process.stdout.read()
    assert wait_for(process) == 0
    assert list(map(int, written.split())) == expected


def test_help_to_a_closed_pipe_ends_quietly(start: Start):
    process = start("tokenizer", "train", "--help", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert wait_for(process) == 0
    assert process.stderr.read() == b""


def test_ctrl_c_ends_training_on_a_pipe_that_does_not_end(work: Path, start: Start):
    process = start(
        "tokenizer",
        "train",
        "-",
        "-n",
        "300",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    feed(process.stdin.write)
    status, said = interrupt_when_busy(process, b"counting pre-tokens")
    assert status == 130
    assert said.endswith(
        b"interrupted\nhint: tokenizer.json was not written: run the same command again to start over\n"
    )
    assert b"Traceback" not in said
    assert [path.name for path in work.iterdir()] == ["corpus.txt"]


def test_ctrl_c_ends_training_that_waits_for_a_named_pipe(work: Path, start: Start):
    os.mkfifo("pipe")
    process = start("tokenizer", "train", "pipe", "-n", "300", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open("pipe", "wb", buffering=0) as pipe:  # noqa: PTH123
        feed(pipe.write)
        status, said = interrupt_when_busy(process, b"counting pre-tokens")
    assert status == 130
    assert b"interrupted\n" in said


def test_ctrl_c_in_the_middle_of_encoding_says_how_to_go_on(tokenizer_file: str, start: Start):
    arguments = ["data", "encode", tokenizer_file, "-", "-o", "shards", "--shard-tokens", "1000000"]
    process = start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    feed(process.stdin.write)
    status, said = interrupt_when_busy(process, b"encoding")
    assert status == 130
    assert b"hint: run the same command again" in said
    # What is finished stays, marked as unfinished, and the next run takes the folder over.
    assert not Path("shards/manifest.json").exists()
    again = start("data", "encode", tokenizer_file, "corpus.txt", "-o", "shards", "-q")
    assert wait_for(again) == 0
    assert Path("shards/manifest.json").exists()


def on_terminal(*arguments: str, typed: bytes = b"", **environment: str) -> bytes:
    """What a command writes to a terminal that is its standard input, output and error.

    `typed` is typed once it has said something.
    """
    controller, terminal = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "bytemill", *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=clean | {"TERM": "xterm-256color", "COLUMNS": "80"} | environment,
        start_new_session=True,
    )
    os.close(terminal)
    written = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([controller], [], [], 0.2)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            piece = os.read(controller, 65536)
        except OSError:  # the other end is closed
            break
        written += piece
        if typed:
            os.write(controller, typed)
            typed = b""
    try:
        assert process.wait(timeout=60) == 0, written
    finally:
        process.kill()
        os.close(controller)
    return written


def test_colours_appear_on_a_terminal_and_nowhere_else(tokenizer_file: str, process: Process):
    arguments = ["tokenizer", "inspect", tokenizer_file, "the cat"]
    coloured, plain = on_terminal(*arguments), on_terminal(*arguments, NO_COLOR="1")
    assert b"\x1b[38;5;16;48;5;153mthe\x1b[0m" in coloured
    assert "│".encode() not in coloured
    assert not CONTROL_CODE.search(plain)
    assert "│".encode() in plain
    assert not CONTROL_CODE.search(on_terminal(*arguments, TERM="dumb"))
    assert not CONTROL_CODE.search(process(*arguments).stdout)
    assert CONTROL_CODE.search(process(*arguments, FORCE_COLOR="1").stdout)


def test_progress_is_a_bar_on_a_terminal_that_is_gone_at_the_end(work: Path):
    Path("corpus.txt").write_text("".join(f"word{number} and " for number in range(200_000)))
    written = on_terminal("tokenizer", "train", "corpus.txt", "-n", "1000")
    assert b"counting pre-tokens" in written
    assert b"\x1b[?25h" in written  # the cursor is shown again
    assert b"tokenizer.json" in written
    quiet = on_terminal("tokenizer", "train", "corpus.txt", "-n", "1000", "--overwrite", "-q")
    assert quiet == b""


def test_typed_input_ends_with_one_ctrl_d(tokenizer_file: str):
    written = on_terminal(
        "tokenizer", "encode", tokenizer_file, "--count", typed=b"the cat\n\x04", NO_COLOR="1"
    )
    n_tokens = bytemill.Tokenizer.load(tokenizer_file).count("the cat\n")
    assert written.startswith(b"note: reading what you type; end with Ctrl-D")
    assert written.endswith(f"\r\n{n_tokens}\r\n".encode())
    decoded = on_terminal("tokenizer", "decode", tokenizer_file, typed=b"65 66\n\x04", NO_COLOR="1")
    assert decoded.endswith(b"\r\nAB")
