"""A worker process of the local executor: reads tasks from standard input, and writes what they return.

Its standard output belongs to the messages, so what tasks print goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

from bytemill.cluster.messages import read_message, write_message


def main() -> None:
    """Run tasks until standard input ends."""
    # Ctrl-C reaches the driver too, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    context: Any = None
    while (new_context := read_message(tasks)) is not None and (data := read_message(tasks)) is not None:
        try:
            if new_context:
                context = pickle.loads(new_context)
            task, item = pickle.loads(data)
            message = pickle.dumps((task(context, item), None))
        except BaseException as error:
            message = pickle.dumps((None, portable(error)))
        write_message(results, message)


def portable(error: BaseException) -> BaseException:
    """Return an exception that can be pickled: the same one, or a RuntimeError with its text."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
