"""From what a user names (files, folders, globs, lists, URLs, "-") to sources that are known to exist."""

import contextlib
import difflib
import errno
import glob
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, TypeAlias, TypeGuard, cast

from bytemill.corpus import folders
from bytemill.corpus.options import Format
from bytemill.corpus.remote import RemoteFile, is_url, remote_files
from bytemill.errors import CorpusError

CorpusInputs: TypeAlias = (
    "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Iterable[str] | Iterable[Mapping[str, Any]]"
)
"""A corpus as users give it: a name (of a file, a folder, a list, a URL, a glob, or "-"), a sequence of these, or an
iterable of texts or of rows, such as those of Hugging Face's datasets."""

_LONGEST_PATH = 4096
"""Characters of the longest path that Linux takes (macOS: 1,024)."""
_TEXT_HINT = "a str is the name of a file; give texts themselves as an iterator, for example iter([text])"


@dataclass(frozen=True)
class Source:
    """One place that text comes from, read from beginning to end."""

    name: str
    """The file as it was named, "<stdin>" for standard input."""
    n_bytes: int | None
    """Size in bytes; None where only reading tells (standard input, a pipe)."""
    path: Path | None
    """The file; None for standard input, and for what a URL names."""
    remote: RemoteFile | None = field(default=None, repr=False)
    """What a URL names."""
    given: str = field(default="", repr=False)
    """The name that led here, as it was given."""

    @property
    def is_stdin(self) -> bool:
        """True for standard input."""
        return self.path is None and self.remote is None

    @property
    def is_pipe(self) -> bool:
        """True for standard input, a named pipe or a device: nobody knows its size, and it can be read only once."""
        return self.n_bytes is None and self.remote is None

    def open(self) -> AbstractContextManager[BinaryIO]:
        """The bytes as a stream. Raises `CorpusError` where they cannot be had."""
        if self.remote is not None:
            return self.remote.open(self.name)
        if self.path is None:
            stdin = cast("TextIO | None", sys.stdin)  # None in daemons and under pythonw
            if stdin is None:
                raise CorpusError("standard input is closed", hint="name a file instead of '-'")
            return contextlib.nullcontext(stdin.buffer)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise unreadable(self.name, error) from error


def is_texts(inputs: object) -> TypeGuard[Iterable[Any]]:
    """True where `inputs` are documents themselves, and not names of files.

    Names come as a str, a path, or a sequence of these; documents as any other iterable, such as a generator or a
    dataset, or as a sequence of rows.

    >>> is_texts(["a.txt", "b.txt"]), is_texts(iter(["A text.", "Another one."])), is_texts([{"text": "A text."}])
    (False, True, True)
    """
    if isinstance(inputs, (str, os.PathLike)) or not isinstance(inputs, Iterable):
        return False
    if isinstance(inputs, (bytes, bytearray, memoryview)):
        return False
    if isinstance(inputs, Sequence) and not is_dataset(cast("object", inputs)):
        items = cast("Sequence[object]", inputs)
        return len(items) > 0 and isinstance(items[0], Mapping)
    return True


def is_dataset(inputs: object) -> bool:
    """True for Hugging Face's datasets, known by their class, so that the package need not be imported to ask."""
    return type(inputs).__module__.startswith("datasets.")


def resolve_inputs(inputs: object, format: Format | Literal["auto"] = "auto") -> list[Source]:  # noqa: A002
    """The sources that `inputs` name, in the order given, each checked to be there and readable.

    - A folder stands for the files in it and its folders that are of a known format (of `format`, where one is given),
      sorted by name; hidden ones are left out.
    - A name that is no file itself but holds `*`, `?` or `[` is a glob (`**` goes into folders); its files come sorted
      by name.
    - "@NAME", where there is no such file, stands for the names in the file NAME ("-": standard input), one a line.
    - A URL (`s3://…`, `memory://…`) may name a file or a folder, or be a glob.
    - "-" is standard input.

    A file named twice is read twice.

    Raises `CorpusError` where a name leads to no file or to what cannot be read, where a glob matches nothing, and
    where all files together are empty. Raises `TypeError` for what is no name.
    """
    is_name = isinstance(inputs, (str, os.PathLike))
    names = cast("object", [inputs] if is_name else inputs)
    if isinstance(names, (bytes, bytearray, memoryview)) or not isinstance(names, Sequence):
        raise TypeError(f"expected names of files, got {type(inputs).__name__}")
    sources: list[Source] = []
    for item in cast("Sequence[object]", names):
        given = _as_str(item)
        for name in _listed(given):
            sources += [replace(source, given=given) for source in _sources_of(name, format)]
    if sum(source.is_stdin for source in sources) + any(source.given == "@-" for source in sources) > 1:
        raise CorpusError("'-' is given twice, but standard input can be read only once")
    if not sources:
        raise CorpusError(
            "no input is given", hint="name a file, a folder, a glob such as 'data/*.txt', or '-'"
        )
    if all(source.n_bytes == 0 for source in sources):
        raise empty_corpus([source.name for source in sources])
    return sources


def empty_corpus(names: Sequence[str]) -> CorpusError:
    """The error for sources that hold not one byte between them."""
    what = names[0] if len(names) == 1 else f"each of the {len(names)} inputs ({names[0]}, …)"
    return CorpusError(f"the corpus is empty: {what} holds 0 bytes", hint="give some text")


def unreadable(name: str, error: OSError) -> CorpusError:
    """The error for a source that is there and cannot be read."""
    return CorpusError(f"cannot read {name}: {error.strerror or error}", hint="check permissions and disk")


def _as_str(name: object) -> str:
    text = os.fspath(cast("os.PathLike[str]", name)) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str):
        raise TypeError(f"expected the name of a file, got {name!r}")
    return text


def _listed(given: str) -> list[str]:
    """The names that a list holds, or the name itself where it is none."""
    if not given.startswith("@") or os.path.lexists(given) or len(given) < 2:
        return [given]
    source = _sources_of(given[1:], "auto")[0]
    try:
        with source.open() as stream:
            names = [line.strip() for line in stream.read().decode().splitlines()]
    except UnicodeDecodeError as error:
        raise CorpusError(f"{given}: the list of inputs is not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise unreadable(source.name, error) from error
    if names := [name for name in names if name]:
        return names
    raise CorpusError(
        f"the list {given[1:]} names no input", hint="write one a line: files, folders, globs, URLs"
    )


def _sources_of(name: str, format: Format | Literal["auto"]) -> list[Source]:  # noqa: A002
    if name == "-":
        return [Source(name="<stdin>", n_bytes=None, path=None)]
    if "\0" in name:
        raise CorpusError(f"{_shown(name)} is no name of a file: it holds a zero byte")
    if is_url(name) and not os.path.lexists(name):
        files, is_folder = remote_files(name)
        if is_folder:
            wanted = set(folders.corpus_files(name, [file for file, _, _ in files], format))
            files = [file for file in files if file[0] in wanted]
        return [Source(file, n_bytes, None, remote) for file, n_bytes, remote in files]
    if not glob.has_magic(name) or os.path.lexists(name):
        if os.path.isdir(name):  # noqa: PTH112  (False for a name that is too long)
            return [_file_source(file) for file in folders.files_in(name, format)]
        return [_file_source(name)]
    if len(name) > _LONGEST_PATH:
        # A text by mistake: to look for files would take minutes and more memory than there is.
        raise _missing(name)
    matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  (Path.glob drops a leading "./")
    files = [match for match in matches if not Path(match).is_dir()]
    if not files and matches:
        raise CorpusError(f"{name} matches folders and no file", hint=_glob_hint(matches[0].rstrip("/")))
    if not files:
        hint = _TEXT_HINT if _looks_like_text(name) else "check the pattern; '**' goes into all folders"
        raise CorpusError(f"no file matches {_shown(name)}", hint=hint)
    return [_file_source(file) for file in files]


def _file_source(name: str) -> Source:
    try:
        status = os.stat(name)  # noqa: PTH116  (Path("") would be the current folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ENAMETOOLONG:
            raise _missing(name) from error
        raise unreadable(name, error) from error
    if not os.access(name, os.R_OK):
        raise CorpusError(f"cannot read {name}: permission denied", hint="change its permissions: chmod +r")
    n_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
    return Source(name=name, n_bytes=n_bytes, path=Path(name))


def _missing(name: str) -> CorpusError:
    if not name.strip():
        return CorpusError(f"the name of the input is empty: {name!r}", hint="name a file, a glob, or '-'")
    if _looks_like_text(name):
        return CorpusError(f"no such file: {_shown(name)}", hint=_TEXT_HINT)
    path = Path(name)
    if path.is_symlink():
        return CorpusError(f"{name} is a link to {path.readlink()}, which does not exist")
    if not path.parent.is_dir():
        return CorpusError(f"no such file: {name}", hint=f"check the path: there is no folder {path.parent}")
    close = _close_names(path)
    hint = f"did you mean {' or '.join(close)}?" if close else f"{path.parent} holds none of a similar name"
    return CorpusError(f"no such file: {name}", hint=hint)


def _looks_like_text(name: str) -> bool:
    return "\n" in name or len(name) > 255


def _shown(name: str) -> str:
    return repr(f"{name[:60]}…") if len(name) > 255 else repr(name) if not name.isprintable() else name


def _glob_hint(folder: str) -> str:
    return f"name the files in it with a glob, for example '{folder}/*.txt' or '{folder}/**/*.txt'"


def _close_names(path: Path) -> list[str]:
    """Up to three files beside `path` with similar names, best first."""
    try:
        with os.scandir(path.parent) as entries:
            # A folder of millions of files shall not hold up an error message.
            files = [entry.name for entry in islice(entries, 10_000) if entry.is_file()]
    except OSError:
        return []
    names = {name.casefold(): name for name in files}
    close = difflib.get_close_matches(path.name.casefold(), names, n=3)
    return [str(path.with_name(names[name])) for name in close]
