"""Resolution of input names (files, folders, globs, lists, URLs, "-") to existing sources."""

from __future__ import annotations

import contextlib
import difflib
import errno
import glob
import hashlib
import os
import stat
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO, TextIO, TypeAlias, cast

from bytemill.corpus.formats import check_format, format_of_name, suffixes
from bytemill.corpus.remote import RemoteFile, is_url, remote_files
from bytemill.errors import CorpusError
from bytemill.system.file_stamp import FileStamp

CorpusInputs: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""Inputs as users pass them: the name of a file, a folder, a list, a URL, a glob, or "-"; or a list of these."""

_HASHED_BYTES = 1 << 20
_LONGEST_PATH = 4096
"""Length limit of paths on Linux (macOS: 1,024)."""
_TEXT_HINT = (
    "a str is the name of a file; pass texts to train_from_iterator([text]) or Corpus.from_texts([text])"
)


@dataclass(frozen=True)
class Source:
    """An input that is read from beginning to end."""

    name: str
    """The file name as passed; "<stdin>" for standard input."""
    n_bytes: int | None
    """Size in bytes; None if unknown before reading (standard input, a pipe)."""
    path: Path | None
    """The file; None for standard input and URLs."""
    remote: RemoteFile | None = field(default=None, repr=False)
    """The file that a URL names."""
    input: str = field(default="", repr=False)
    """The input name that led here: a glob, a folder, a list, or the file itself."""
    folder: str = field(default="", repr=False)
    """The folder, or its URL, if the input is one."""
    stop: int | None = field(default=None, repr=False)
    """Where reading ends, for a part of a file (`corpus.ranges`): a byte, or a row of a Parquet file."""
    stamp: FileStamp | None = field(default=None, repr=False, compare=False)
    """What a regular file was when its name was resolved."""

    @property
    def is_stdin(self) -> bool:
        """True for standard input."""
        return self.path is None and self.remote is None

    @property
    def is_pipe(self) -> bool:
        """True for standard input, a named pipe or a device: of unknown size and readable only once."""
        return self.n_bytes is None and self.remote is None

    def check_unchanged(self) -> None:
        """Raise `CorpusError` if the file was cut, written, replaced or removed since its name was resolved."""
        if self.remote is not None:
            change = self.remote.change(self.name)
        elif self.stamp is not None and self.path is not None:
            try:
                change = self.stamp.change(self.path)
            except OSError as error:
                raise unreadable(self.name, error) from error
        else:
            return
        if change is not None:
            raise changed(self.name, change)

    def sha256(self) -> str:
        """Read the bytes and return their sha256, in hexadecimal. Raises `CorpusError`."""
        digest = hashlib.sha256()
        try:
            with self.open() as file:
                while block := file.read(_HASHED_BYTES):
                    digest.update(block)
        except OSError as error:
            raise unreadable(self.name, error) from error
        return digest.hexdigest()

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the bytes as a stream. Raises `CorpusError`."""
        if self.remote is not None:
            return self.remote.open(self.name)
        if self.path is None:
            stdin = cast("TextIO | None", sys.stdin)  # None in daemons and under pythonw
            if stdin is None:
                raise CorpusError("standard input is closed", hint="pass a file name instead of '-'")
            return contextlib.nullcontext(stdin.buffer)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise unreadable(self.name, error) from error


def resolve_inputs(inputs: object, format: str = "auto") -> list[Source]:  # noqa: A002
    """Resolve input names to sources, in order, each checked to exist and to be readable.

    - A folder stands for the files in it and its subfolders that have a known format, sorted by name, without hidden
      ones.
    - A name that is not a file and contains `*`, `?` or `[` is a glob (`**` descends into folders); its files are
      sorted by name.
    - "@NAME", if there is no such file, stands for the names in the file NAME ("-": standard input), one per line.
    - A URL (`s3://…`, `memory://…`) may be a file, a folder or a glob.
    - "-" is standard input.

    A file named twice is read twice.

    Args:
        inputs: A name or a sequence of names.
        format: The format of files in folders; "auto" takes every known format.

    Raises:
        CorpusError: A name leads to no file or to an unreadable one, a glob matches nothing, or all files are empty.
        TypeError: `inputs` are not names.
    """
    is_name = isinstance(inputs, (str, os.PathLike))
    names = cast("object", [inputs] if is_name else inputs)
    if isinstance(names, (bytes, bytearray, memoryview)) or not isinstance(names, Sequence):
        raise TypeError(
            f"expected names of files, got {type(inputs).__name__}: "
            "pass texts to train_from_iterator or Corpus.from_texts, rows to Corpus.from_rows"
        )
    sources: list[Source] = []
    for item in cast("Sequence[object]", names):
        argument = _as_str(item)
        for name in _listed(argument):
            sources += [replace(source, input=argument) for source in _sources_of(name, format)]
    if sum(source.is_stdin for source in sources) + any(source.input == "@-" for source in sources) > 1:
        raise CorpusError(
            "'-' occurs twice, but standard input can be read only once", hint="save it to a file first"
        )
    if not sources:
        raise CorpusError(
            "there is no input", hint="name a file, a folder, a glob such as 'data/*.txt', or '-'"
        )
    if all(source.n_bytes == 0 for source in sources):
        raise empty_corpus([source.name for source in sources])
    return sources


def empty_corpus(names: Sequence[str]) -> CorpusError:
    """Make the error for sources that hold no bytes."""
    what = names[0] if len(names) == 1 else f"each of the {len(names)} inputs ({names[0]}, …)"
    return CorpusError(f"the corpus is empty: {what} holds 0 bytes", hint="use an input that contains text")


def unreadable(name: str, error: OSError) -> CorpusError:
    """Make the error for a source that exists and cannot be read."""
    return CorpusError(f"cannot read {name}: {error.strerror or error}", hint="check permissions and disk")


def changed(name: str, change: str) -> CorpusError:
    """Make the error for a source that is not what it was before."""
    return CorpusError(
        f"{name} changed while it was read: {change}",
        hint="run the command again, and leave inputs alone while they are read",
    )


def _as_str(name: object) -> str:
    text = os.fspath(cast("os.PathLike[str]", name)) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str):
        raise TypeError(f"expected the name of a file, got {name!r}")
    return text


def _listed(argument: str) -> list[str]:
    """Return the names in a list, or the name itself if it is not a list."""
    if not argument.startswith("@") or os.path.lexists(argument) or len(argument) < 2:
        return [argument]
    source = _sources_of(argument[1:], "auto")[0]
    try:
        with source.open() as stream:
            names = [line.strip() for line in stream.read().decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{argument}: the list of inputs is not UTF-8 at byte {error.start}",
            hint="save the list as UTF-8",
        ) from error
    except OSError as error:
        raise unreadable(source.name, error) from error
    if names := [name for name in names if name]:
        return names
    raise CorpusError(
        f"the list {argument[1:]} is empty", hint="write one input per line: files, folders, globs, URLs"
    )


def _sources_of(name: str, format: str) -> list[Source]:  # noqa: A002
    if name == "-":
        return [Source(name="<stdin>", n_bytes=None, path=None)]
    if "\0" in name:
        raise CorpusError(
            f"{_shown(name)} is not a file name: it contains a zero byte", hint="pass a file name"
        )
    if is_url(name) and not os.path.lexists(name):
        files, is_folder = remote_files(name)
        if is_folder:
            wanted = set(corpus_files(name, [file for file, _, _ in files], format))
            files = [file for file in files if file[0] in wanted]
        folder = name.rstrip("/") if is_folder else ""
        return [Source(file, n_bytes, None, remote, folder=folder) for file, n_bytes, remote in files]
    if not glob.has_magic(name) or os.path.lexists(name):
        if os.path.isdir(name):  # noqa: PTH112  (False for a name that is too long)
            return [replace(_file_source(file), folder=name) for file in files_in(name, format)]
        return [_file_source(name)]
    if len(name) > _LONGEST_PATH:
        # A text by mistake: searching for files would take minutes and exhaust memory.
        raise _missing(name)
    matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  (Path.glob drops a leading "./")
    files = [match for match in matches if not Path(match).is_dir()]
    if not files and matches:
        raise CorpusError(f"{name} matches only folders", hint=_glob_hint(matches[0].rstrip("/")))
    if not files:
        hint = _TEXT_HINT if _looks_like_text(name) else "check the pattern; '**' descends into folders"
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
    if not stat.S_ISREG(status.st_mode):
        return Source(name=name, n_bytes=None, path=Path(name))
    return Source(name=name, n_bytes=status.st_size, path=Path(name), stamp=FileStamp.of(status))


def _missing(name: str) -> CorpusError:
    if not name.strip():
        return CorpusError(f"the input name is empty: {name!r}", hint="name a file, a glob, or '-'")
    if _looks_like_text(name):
        return CorpusError(f"no such file: {_shown(name)}", hint=_TEXT_HINT)
    path = Path(name)
    if path.is_symlink():
        return CorpusError(
            f"{name} is a link to {path.readlink()}, which does not exist",
            hint="restore its target, or remove the link",
        )
    if not path.parent.is_dir():
        return CorpusError(
            f"no such file: {name}", hint=f"check the path: the folder {path.parent} does not exist"
        )
    close = _close_names(path)
    hint = f"did you mean {' or '.join(close)}?" if close else f"no file in {path.parent} has a similar name"
    return CorpusError(f"no such file: {name}", hint=hint)


def _looks_like_text(name: str) -> bool:
    return "\n" in name or len(name) > 255


def _shown(name: str) -> str:
    return repr(f"{name[:60]}…") if len(name) > 255 else repr(name) if not name.isprintable() else name


def _glob_hint(folder: str) -> str:
    return f"name the files inside with a glob, for example '{folder}/*.txt' or '{folder}/**/*.txt'"


def _close_names(path: Path) -> list[str]:
    """Return up to three files next to `path` with similar names, best first."""
    try:
        with os.scandir(path.parent) as entries:
            # A folder of millions of files must not delay an error message.
            files = [entry.name for entry in islice(entries, 10_000) if entry.is_file()]
    except OSError:
        return []
    names = {name.casefold(): name for name in files}
    close = difflib.get_close_matches(path.name.casefold(), names, n=3)
    return [str(path.with_name(names[name])) for name in close]


_NOT_DATA = frozenset({"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"})
"""Metadata files of Hugging Face datasets."""


def files_in(folder: str, format: str) -> list[str]:  # noqa: A002
    """Return the corpus files of a folder and its subfolders, sorted. Raises `CorpusError` if there are none."""
    found: list[str] = []

    def fail(error: OSError) -> None:
        raise CorpusError(
            f"cannot read {error.filename}: {error.strerror}", hint="check permissions"
        ) from error

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in files]  # noqa: PTH118  (keeps a leading "./")
    return corpus_files(folder, sorted(found), format)


def corpus_files(folder: str, files: Sequence[str], format: str) -> list[str]:  # noqa: A002
    """Select the files that have a known format, or the explicit one; "text" selects all files.

    Raises:
        CorpusError: No file is left, or the files have several formats.
    """
    check_format(format)
    base = len(folder)
    seen = [name for name in files if not any(part.startswith(".") for part in PurePath(name[base:]).parts)]
    if format == "text":
        chosen = seen
    else:
        known = [name for name in seen if PurePath(name).name not in _NOT_DATA]
        formats = {name: found for name in known if (found := format_of_name(name)) is not None}
        if format == "auto" and len(kinds := Counter(formats.values())) > 1:
            listing = ", ".join(f"{kind} ({n:,})" for kind, n in kinds.most_common())
            raise CorpusError(
                f"the folder {folder} holds files of several formats: {listing}",
                hint="choose one with --format (format=), or use a glob",
            )
        chosen = [name for name, found in formats.items() if format in ("auto", found)]
    if not chosen:
        wanted = ", ".join(suffixes(format))
        raise CorpusError(
            f"the folder {folder} contains no corpus file",
            hint=f"--format text reads every file as text; otherwise file names end with {wanted}, or one of these "
            "plus .gz, .zst, .xz or .bz2",
        )
    return chosen
