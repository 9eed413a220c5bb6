"""Check that no output replaces an input, on this machine or in an object store.

What writes files calls one of the two functions before it writes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bytemill.errors import OutputError, StorageError
from bytemill.storage.location import shown, url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Name: TypeAlias = "str | os.PathLike[str]"


def check_file_is_no_input(output: Name, inputs: Iterable[Name | None]) -> None:
    """Check that an output file is none of the files that are read, by whatever name or link.

    Args:
        output: The output file, or its URL.
        inputs: Files that are read, or their URLs. None and names without a file are ignored.

    Raises:
        OutputError: It is one of them.
    """
    target = _located(output)
    for name in inputs:
        if name is not None and _is_same(target, _located(name)):
            raise _error(output, "is", name)


def check_folder_is_no_input(
    output: Name,
    *,
    files: Iterable[Name] = (),
    folders: Iterable[Name] = (),
    replaced: Callable[[str], bool] = lambda _: True,
) -> None:
    """Check that writing a folder replaces nothing that is read, by whatever name or link.

    The folder must not be, contain or lie in a folder that is read. It may contain files that are read, unless they
    have a name of the output.

    Args:
        output: The output folder, or its URL.
        files: Files that are read, or their URLs. Names without a file are ignored.
        folders: Folders that are read, or their URLs.
        replaced: Whether a file of this name in the output folder may be replaced or removed; by default any.

    Raises:
        OutputError: It does.
    """
    target = _located(output)
    for name in folders:
        source = _located(name)
        if _is_same(target, source):
            raise _error(output, "is", name)
        if _is_in(source, target):
            raise _error(output, "contains", name)
        if _is_in(target, source):
            raise _error(output, "lies in", name)
    for name in files:
        source = _located(name)
        if _is_same(target, source):
            raise _error(output, "is", name)
        own_name = source.resolve().name if isinstance(source, Path) else source.rpartition("/")[2]
        if replaced(own_name) and _is_in(source, target):
            raise _error(output, "contains", name)


def _error(output: Name, relation: str, name: Name) -> OutputError:
    what = "an input" if relation == "is" else f"the input {shown(name)}"
    return OutputError(f"{shown(output)} {relation} {what}", hint="choose another output")


def _located(name: Name) -> str | Path:
    """Return the URL of a store as a str, else the path."""
    text = os.fspath(name)
    try:
        return url_of(text) or Path(text)
    except StorageError:  # a scheme that only a corpus can have
        return Path(text.removeprefix("file://")) if text.startswith("file://") else text


def _is_same(first: str | Path, second: str | Path) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return first == second
    try:
        return second.exists() and (
            first.samefile(second) if first.exists() else first.resolve() == second.resolve()
        )
    except OSError:
        return False  # opening it reports the error


def _is_in(inner: str | Path, outer: str | Path) -> bool:
    """Check whether a file or folder lies in a folder, or will."""
    if isinstance(inner, str) or isinstance(outer, str):
        return isinstance(inner, str) and isinstance(outer, str) and inner.startswith(f"{outer}/")
    return any(_is_same(parent, outer) for parent in inner.resolve().parents)
