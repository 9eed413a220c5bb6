"""Show the examples of docstrings, which begin with `>>>`, as blocks of code."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.MULTILINE)
FLAGS = re.compile(r" *# doctest: .*$", flags=re.MULTILINE)


class Examples(griffe.Extension):
    """Fence the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of `obj`, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    shown = FLAGS.sub("", example[0]).replace('getfixture("tmp_path")', "Path()")
    return f"```pycon\n{shown}\n```"
