"""One process of a training run that `launch` has started: `python -m bytemill.lm.training.rank_process`."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from threading import Thread
from typing import Any, TextIO

from bytemill.errors import BytemillError
from bytemill.lm.training.config import Resolved, config_from_dict
from bytemill.lm.training.trainer import train

_FAILED, _INTERRUPTED = 1, 130


def main() -> int:
    """Train with the settings in the first line of standard input, and return the exit code."""
    # Only records may go to the pipe; what libraries print goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    Thread(target=_exit_with_the_launcher, daemon=True).start()
    resolved = Resolved(config_from_dict(request["config"]), request["origins"])
    try:
        train(resolved, overwrite=request["overwrite"], on_record=lambda record: _send(pipe, record))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:
        _send(pipe, _described(error))
        os._exit(_FAILED)  # libraries would wait for the other processes
    return 0


def _described(error: BaseException) -> dict[str, Any]:
    return {
        "kind": "error",
        "type": type(error).__name__,
        "message": str(error),
        "hint": error.hint if isinstance(error, BytemillError) else None,
        "traceback": "".join(traceback.format_exception(error)),
        "time": time.time(),
    }


def _send(pipe: TextIO, record: dict[str, Any]) -> None:
    pipe.write(json.dumps(record) + "\n")
    pipe.flush()


def _exit_with_the_launcher() -> None:
    """End this process when its standard input is closed."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter ends
    os._exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
