"""`bytemill studio`: how it starts, what it refuses, and how it ends."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.conftest import COMMAND

Run = Callable[..., Any]


@contextmanager
def started(*arguments: str, cwd: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start the command; gives the process and the address that it prints."""
    process = subprocess.Popen(
        [*COMMAND, "studio", "--no-open", "--port", "0", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, process.communicate(timeout=60)
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=60)


def check_end(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    # Read here: what the first line's buffer holds, `communicate` does not see.
    assert process.stdout is not None
    assert "Press Ctrl-C" in process.stdout.readline()
    process.send_signal(number)  # with a connection still open
    _, err = process.communicate(timeout=60)  # a guard against hanging
    assert process.returncode == 130
    assert err == "interrupted\nhint: the studio has ended\n"


def test_it_serves_until_it_is_interrupted(work: Path, tokenizer_file: str):
    with (
        started(tokenizer_file, cwd=work) as (process, url),
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        assert "bytemill studio" in client.get("/").text
        found = client.get("/api/v1/sources").json()["tokenizers"]
        assert found[0]["origin"] == "named"
        check_end(process, signal.SIGINT)


def test_another_port_is_taken_if_the_first_is_in_use(work: Path):
    from bytemill.studio.server import listen

    first, second = listen(), listen()
    with first.socket, second.socket:
        assert first.url != second.url


def test_a_port_in_use_is_an_error(work: Path, run: Run):
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        outcome = run("studio", "--port", str(own.getsockname()[1]), "--no-open")
    assert outcome.status == 1
    assert "cannot listen on 127.0.0.1" in outcome.err
    assert "--port 0" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.json"], "nothing.json: no such file or folder"),
        (["--root", "nothing"], "nothing is not a folder"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--allow-host", "https://studio.example"], "https://studio.example is not the name of a host"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_what_cannot_be_served_is_an_error_with_a_hint(
    work: Path, run: Run, arguments: list[str], message: str
):
    outcome = run("studio", "--no-open", *arguments)
    assert outcome.status == 1
    assert f"error: {message}" in outcome.err
    assert "hint: " in outcome.err


def test_without_its_libraries_it_says_what_to_install(work: Path):
    code = (
        "import importlib.util as util, sys; found = util.find_spec; "
        "util.find_spec = lambda name, *own: None if name == 'uvicorn' else found(name, *own); "
        "from bytemill.cli import main; sys.exit(main(['studio', '--no-open']))"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert outcome.returncode == 1
    assert "bytemill studio needs fastapi and uvicorn" in outcome.stderr
    assert "--extra studio" in outcome.stderr


def test_beyond_this_machine_the_address_has_a_token(work: Path):
    with started("--allow-host", "studio.example", cwd=work) as (process, url):
        own, _, token = url.partition("?token=")
        assert len(token) >= 32
        assert httpx.get(own, trust_env=False).status_code == 401
        name = {"host": "studio.example"}
        assert httpx.get(url, headers=name, trust_env=False).status_code == 303
        assert httpx.get(url, headers={"host": "other.example"}, trust_env=False).status_code == 421
        check_end(process, signal.SIGTERM)
