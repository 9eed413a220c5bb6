"""Execute blocks of Python in one namespace.

Each line of standard input is a JSON list: the name of a page and its code. Each line of output is a JSON list: what
the code printed, and its traceback or null.
"""

import contextlib
import io
import json
import sys
import traceback


def main() -> None:
    """Serve until standard input ends."""
    names: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        page, code = json.loads(line)
        out, error = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(code, page, "exec"), names)  # noqa: S102 (the pages are ours)
        except BaseException:
            error = traceback.format_exc()
        print(json.dumps([out.getvalue(), error]), flush=True)


if __name__ == "__main__":
    main()
