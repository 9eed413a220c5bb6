"""One cell in a process of its own: `python -m bytemill.experiment.cell_process`, started by `runner`."""

from __future__ import annotations

import json
import os
import sys
import time
from threading import Thread
from typing import Any, TextIO

from bytemill.errors import BytemillError, OutputError
from bytemill.experiment.job import Job, perform

_FAILED, _INTERRUPTED = 1, 130
_LOCK_SECONDS = 10
"""How long the process of a killed study may keep its run locked."""


def main() -> int:
    """Perform the job in the first line of standard input, and return the exit code."""
    # Only records may go to the pipe; what libraries print goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = Job.from_dict(json.loads(sys.stdin.readline()))
    Thread(target=_exit_with_the_study, daemon=True).start()
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            perform(job, lambda record: _send(pipe, record))
        except KeyboardInterrupt:
            return _INTERRUPTED
        except OutputError as error:
            if "another process is training" not in str(error) or time.monotonic() > deadline:
                return _fail(pipe, error)
            time.sleep(0.2)
        except BaseException as error:
            return _fail(pipe, error)
        else:
            return 0


def _fail(pipe: TextIO, error: BaseException) -> int:
    hint = error.hint if isinstance(error, BytemillError) else None
    message = str(error) if isinstance(error, BytemillError) else f"{type(error).__name__}: {error}"
    _send(pipe, {"kind": "error", "message": message, "hint": hint})
    return _FAILED


def _send(pipe: TextIO, record: dict[str, Any]) -> None:
    pipe.write(json.dumps(record) + "\n")
    pipe.flush()


def _exit_with_the_study() -> None:
    """End this process when its standard input is closed: the study was killed."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter ends
    os._exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
