"""The command `bytemill` in processes forked from one that has imported torch, which takes seconds.

The server is this file as a program. `quick_command` starts it and writes an executable `bytemill` that passes its
arguments, its folder, its environment and its standard streams to the server, and ends with the status of the command.
Beside it is `quick-python`, which runs `-c CODE` in the same way. The processes that a command starts are that one too.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PYTHON = "quick-python"

_IMPORTED = (
    *("torch", "torch.fx.experimental.symbolic_shapes", "scipy.stats", "jinja2", "gguf", "huggingface_hub"),
    *(
        f"bytemill.cli.{name}"
        for name in ("tokenizer", "data", "data_convert", "lm", "lm_training", "experiment")
    ),
    *("bytemill.lm.training.trainer", "bytemill.lm.evaluate", "bytemill.lm.interchange.export_model"),
    *("bytemill.lm.interchange.import_model", "bytemill.lm.tuning.tune", "bytemill.experiment.runner"),
)
"""What several commands import."""

# -S, -E and -s: nothing is imported that the client does not need. What is closed here reads and writes nothing there.
_CLIENT = """#!{python} -SEs
import json, os, socket, sys
while (lowest := os.open(os.devnull, os.O_RDWR)) < 3:
    pass
os.close(lowest)
if {is_python} and sys.argv[1:2] != ["-c"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "little")], [0, 1, 2])
    server.sendall(request)
    sys.exit(int(server.recv(16) or b"137"))
"""


@contextlib.contextmanager
def quick_command(folder: Path) -> Iterator[Path]:
    """Start the server, and yield a folder for PATH with the command. The caller has a system with `fork`."""
    address = str(folder / "server")
    for client in (folder / "bytemill", folder / PYTHON):
        is_python = client.name == PYTHON
        client.write_text(_CLIENT.format(python=sys.executable, address=address, is_python=is_python))
        client.chmod(0o755)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # torch reads it when it is imported
    command = [sys.executable, __file__, address]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment) as server:
        try:
            while not Path(address).exists():
                assert server.poll() is None, "the command server has ended"
                time.sleep(0.02)
            yield folder
        finally:
            server.kill()


def serve(address: str) -> None:
    """Run commands for ever."""
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from bytemill.lm.training import preparation

    preparation.matmul_rate = lambda *_, **__: 1e10  # which takes a third of a second to measure
    sys.executable = str(Path(address).with_name(PYTHON))

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes that have ended leave nothing behind
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address + ".new")
        listener.listen()
        Path(address + ".new").rename(address)
        while True:
            client, _ = listener.accept()
            size, descriptors, _, _ = socket.recv_fds(client, 4, 3)
            data, n_bytes = b"", int.from_bytes(size, "little")
            while len(data) < n_bytes:
                data += client.recv(n_bytes - len(data))
            if os.fork() == 0:
                listener.close()
                _answer(client, json.loads(data), descriptors)
            client.close()
            for descriptor in descriptors:
                os.close(descriptor)


def _answer(
    client: socket.socket, request: tuple[list[str], str, dict[str, str]], descriptors: list[int]
) -> None:
    """Run a command in a process of its own, and send its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        client.close()
        _run(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        client.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
    os._exit(0)


def _run(request: tuple[list[str], str, dict[str, str]], descriptors: list[int]) -> None:
    arguments, folder, environment = request
    status = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        # As a new interpreter does: the streams of the server know that theirs can seek, or cannot.
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        if arguments[:1] == ["-c"]:
            sys.argv = ["-c", *arguments[2:]]
            exec(arguments[1], {"__name__": "__main__"})  # noqa: S102 (what a test or the package starts)
            status = 0
        else:
            sys.argv = ["bytemill", *arguments]
            from bytemill.cli import main

            status = main() or 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
