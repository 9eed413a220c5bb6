"""What the studio may open: tokenizers, runs, studies and texts, each under an opaque id.

The browser names things by these ids alone. An id is a hash of a path that was found here, so links still work after a
restart, and an id that was not handed out leads nowhere.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2s
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from bytemill.errors import CorpusError, TokenizerFileError
from bytemill.formats.files import SIDECAR_FILES, vocab_and_merges_paths
from bytemill.studio.errors import NotThereError
from bytemill.studio.files import open_regular, problem_of, require_regular, shown_name
from bytemill.studio.stamps import Stamps
from bytemill.tokenizer import open_tokenizer
from bytemill.tokenizer.pretrained import PUBLISHED, is_name
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

MAX_DEPTH = 5
MAX_FOLDERS = 5_000
MAX_OPENED = 16
"""Tokenizers that are kept; the one that was opened first makes room."""
MAX_TEXT_BYTES = 5_000_000
_SECONDS = 2.0
"""A folder is searched again after this time, and a large one after 20 times as long as the search takes."""
_STUDY_FILES = ("results.jsonl", "study.json", "study.toml", "failures.json", "figures.json", "report.html")
_TOKENIZER_ENDINGS = frozenset({".json", ".tiktoken", ".gguf"})
_TEXT_ENDINGS = frozenset(
    {".txt", ".md", ".rst", ".tex", ".py", ".rs", ".c", ".h", ".go", ".java", ".js", ".ts"}
)
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "target", "checkpoints"})

Origin = Literal["named", "bundled", "published", "found", "run"]
Kind = Literal["tokenizers", "runs", "models", "studies", "texts"]
_NOUNS: dict[Kind, str] = {
    "tokenizers": "tokenizer",
    "runs": "run",
    "models": "model",
    "studies": "study",
    "texts": "text",
}


@dataclass(frozen=True)
class Entry:
    """Something that the studio may open."""

    id: str
    name: str
    path: Path
    root: Path
    """Folder that links may not lead out of; for files that are not checked, the root of the file system."""
    origin: Origin = "found"


@dataclass(frozen=True)
class OpenedTokenizer:
    """A tokenizer, and the stamp of the files that it was opened from."""

    tokenizer: Tokenizer
    stamp: str


@dataclass(frozen=True)
class OpenedText:
    """A text, and the stamp of its file."""

    name: str
    content: str
    stamp: str


@dataclass
class Shelf:
    """Everything that was found, by id."""

    tokenizers: dict[str, Entry] = field(default_factory=dict[str, Entry])
    runs: dict[str, Entry] = field(default_factory=dict[str, Entry])
    models: dict[str, Entry] = field(default_factory=dict[str, Entry])
    """Folders of imported models; those of runs are runs."""
    studies: dict[str, Entry] = field(default_factory=dict[str, Entry])
    texts: dict[str, Entry] = field(default_factory=dict[str, Entry])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Why a file or folder is left out, by its name."""

    def accepts(self, path: Path, root: Path) -> bool:
        """Return whether a file or folder is read, and note why if it is not."""
        problem = problem_of(path, root)
        if problem is not None:
            self.skipped[shown_name(path.relative_to(root))] = problem
        return problem is None

    @cached_property
    def digest(self) -> str:
        """A hash of all entries."""
        found = blake2s(digest_size=8)
        for kind in _NOUNS:
            found.update(
                repr([(each.id, each.name, each.origin) for each in getattr(self, kind).values()]).encode()
            )
        return found.hexdigest()


class Library:
    """Tokenizers, runs, studies and texts that were named at the start or are below a folder.

    Args:
        root: Folder that is searched, links to elsewhere excepted; None for none.
        named: Tokenizer files, names, run folders, study folders or text files.
    """

    def __init__(self, root: Path | None, named: Sequence[str] = ()) -> None:
        self.root = None if root is None else root.resolve()
        self._named = list(named)
        self._lock = threading.Lock()
        self._shelf: Shelf | None = None
        self._next_search = 0.0
        self._names: dict[str, str] = {}
        """Of all that was ever found, by id, for messages about what is gone."""
        self._opened: dict[str, OpenedTokenizer] = {}
        self.stamps = Stamps()

    def shelf(self) -> Shelf:
        """Return what there is now; the folder is searched at most every two seconds."""
        with self._lock:
            start = time.monotonic()
            if self._shelf is None or start >= self._next_search:
                self._shelf = self._search()
                for kind in _NOUNS:
                    self._names |= {entry.id: entry.name for entry in getattr(self._shelf, kind).values()}
                end = time.monotonic()
                self._next_search = end + max(_SECONDS, 20 * (end - start))
            return self._shelf

    def entry(self, kind: Kind, entry_id: str) -> Entry:
        """Return an entry that is there now.

        Raises:
            NotThereError: There is no such id, or the file or folder was just removed.
        """
        found: Entry | None = getattr(self.shelf(), kind).get(entry_id)
        if found is None or not (found.origin == "published" or found.path.exists()):
            name = self._names.get(entry_id, f"this {_NOUNS[kind]}")
            raise NotThereError(f"{name} is not there any more", hint=f"choose another {_NOUNS[kind]}")
        return found

    def stamp_of_opened(self, kind: Literal["tokenizers", "studies", "texts"], entry: Entry) -> str | None:
        """Return the stamp of an entry as it is now, or None if nobody has opened it."""
        return self.stamps.of_opened(_files_of(kind, entry))

    def tokenizer(self, tokenizer_id: str) -> Tokenizer:
        """Return a tokenizer, as `open_tokenizer` does."""
        return self.open_tokenizer(tokenizer_id).tokenizer

    def open_tokenizer(self, tokenizer_id: str) -> OpenedTokenizer:
        """Open a tokenizer, or return it if it is open and its files have not changed.

        Raises:
            NotThereError: There is no such tokenizer.
            BytemillError: The file cannot be opened.
        """
        entry = self.entry("tokenizers", tokenizer_id)
        files = _files_of("tokenizers", entry)
        known = self._opened.get(tokenizer_id)
        if known is not None and known.stamp == self.stamps.of(files):
            return known

        def read() -> Tokenizer:
            if entry.origin == "published":
                return Tokenizer.from_pretrained(entry.name, local_files_only=True)
            require_regular(files, entry.root, TokenizerFileError)
            return open_tokenizer(entry.path)

        opened = OpenedTokenizer(*self.stamps.read(entry.name, files, read))
        with self._lock:
            self._opened.pop(tokenizer_id, None)
            self._opened[tokenizer_id] = opened
            while len(self._opened) > MAX_OPENED:
                del self._opened[next(iter(self._opened))]
        return opened

    def read_study(self, entry: Entry, read: Callable[[], T]) -> tuple[T, str]:
        """Return what `read` makes of the files of a study, and their stamp."""
        return self.stamps.read(entry.name, _files_of("studies", entry), read)

    def argument_of(self, entry: Entry) -> str:
        """Return how the command line names an entry: relative to the root, if it is below."""
        if entry.origin == "published":
            return entry.name
        if entry.origin == "bundled" or self.root is None or not entry.path.is_relative_to(self.root):
            return shown_name(entry.path)
        return str(entry.path.relative_to(self.root)) or "."

    def text(self, text_id: str) -> OpenedText:
        """Read a text; malformed UTF-8 is replaced.

        Raises:
            NotThereError: There is no such text.
            CorpusError: The file cannot be read, or is larger than 5 MB.
        """
        entry = self.entry("texts", text_id)
        content, stamp = self.stamps.read(entry.name, _files_of("texts", entry), lambda: _content_of(entry))
        return OpenedText(entry.name, content, stamp)

    def _search(self) -> Shelf:
        shelf = Shelf()
        for name in self._named:
            self._add_named(shelf, name)
        for entry in _bundled():
            shelf.tokenizers.setdefault(entry.id, entry)
        for entry in _published():
            shelf.tokenizers.setdefault(entry.id, entry)
        if self.root is not None:
            for folder, files in _folders(self.root, self.root, shelf):
                _add_folder(shelf, folder, files, self.root)
        for entry in _declaration():
            shelf.texts[entry.id] = entry
        return shelf

    def _add_named(self, shelf: Shelf, name: str) -> None:
        path = Path(name)
        if is_name(name):
            entry_id = name if name in PUBLISHED else _id_of(path)
            shelf.tokenizers[entry_id] = Entry(entry_id, name, path, path, "published")
            return
        path = Path(os.path.realpath(path))
        if path.is_dir():
            for folder, files in _folders(path, path.parent, shelf, depth=1):
                _add_folder(shelf, folder, files, path.parent, origin="named")
            return
        if not shelf.accepts(path, path.parent):
            return
        if path.suffix == ".txt":
            shelf.texts[_id_of(path)] = Entry(_id_of(path), path.name, path, path.parent, "named")
        else:
            shelf.tokenizers[_id_of(path)] = Entry(_id_of(path), path.stem, path, path.parent, "named")


def _files_of(kind: Literal["tokenizers", "studies", "texts"], entry: Entry) -> list[Path]:
    """Return the files that an entry is opened from; some may be missing."""
    if kind == "texts":
        return [entry.path]
    if kind == "studies":
        return [entry.path / name for name in _STUDY_FILES]
    folder = entry.path if entry.path.is_dir() else entry.path.parent
    sidecars = [folder / name for name in SIDECAR_FILES]
    return [*dict.fromkeys([entry.path, *vocab_and_merges_paths(entry.path), *sidecars])]


def _content_of(entry: Entry) -> str:
    try:
        with open_regular(entry.path, entry.root) as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise CorpusError(f"{entry.name} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_TEXT_BYTES:
        raise CorpusError(f"{entry.name} has more than 5 MB", hint="cut it, and open the part")
    if entry.origin == "bundled":
        # The declaration's files begin with a note on their origin.
        data = data.partition(b"\n---\n")[2] or data
    return data.decode(errors="replace").replace("\r\n", "\n").strip("\n")


def _folders(top: Path, root: Path, shelf: Shelf, depth: int = MAX_DEPTH) -> Iterator[tuple[Path, list[str]]]:
    """Yield folders from `top` on and the names of their files, without hidden ones and links."""

    def on_error(error: OSError) -> None:
        shelf.skipped[shown_name(Path(error.filename).relative_to(root))] = error.strerror or str(error)

    for folder, names, files in islice(os.walk(top, onerror=on_error), MAX_FOLDERS):
        path = Path(folder)
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".") and name not in _SKIPPED and shelf.accepts(path / name, root)
        )
        if len(path.relative_to(top).parts) >= depth:
            names.clear()
        yield path, sorted(files)


def _add_folder(shelf: Shelf, folder: Path, files: list[str], root: Path, origin: Origin = "found") -> None:
    name = str(folder.relative_to(root)) if folder != root else folder.name
    own = set(files)

    def add(entries: dict[str, Entry], *parts: Path) -> None:
        if all(shelf.accepts(part, root) for part in parts):
            entries[_id_of(folder)] = Entry(_id_of(folder), name, folder, root, origin)

    if "metrics.jsonl" in own and "config.toml" in own:
        add(shelf.runs, folder / "config.toml", folder / "metrics.jsonl", *_checkpoint_links(folder))
        origin = "run" if origin == "found" else origin
    elif "model.json" in own and "model.safetensors" in own:
        add(shelf.models, folder / "model.json", folder / "model.safetensors")
    elif "study.json" in own and "study.toml" in own:
        add(shelf.studies, folder / "study.json", folder / "study.toml")
    for file in files:
        path = folder / file
        is_text = path.suffix in _TEXT_ENDINGS and "config.toml" not in own
        if file.startswith(".") or not (is_text or path.suffix in _TOKENIZER_ENDINGS):
            continue
        if not shelf.accepts(path, root):
            continue
        if not is_text and _is_tokenizer(path):
            own_name = name if file == "tokenizer.json" and folder != root else str(path.relative_to(root))
            entry = Entry(_id_of(path), own_name.removesuffix(".json"), path, root, origin)
            shelf.tokenizers.setdefault(entry.id, entry)
        elif is_text and _size(path) <= MAX_TEXT_BYTES:
            shelf.texts.setdefault(_id_of(path), Entry(_id_of(path), str(path.relative_to(root)), path, root))


def _checkpoint_links(run: Path) -> list[Path]:
    """Return the links among the folder of checkpoints of a run and what is in it."""
    folder = run / "checkpoints"
    if folder.is_symlink():
        return [folder]
    try:
        return [path for path in folder.iterdir() if path.is_symlink()]
    except OSError:  # there are none
        return []


@lru_cache(maxsize=1)
def _bundled() -> tuple[Entry, ...]:
    folder = Path(str(resources.files("bytemill.studio") / "bundled"))
    return tuple(
        Entry(path.stem, path.stem, path, Path(path.anchor), "bundled")
        for path in sorted(folder.glob("*.json"))
    )


@lru_cache(maxsize=1)
def _published() -> tuple[Entry, ...]:
    """Return the published tokenizers that are in a cache of this machine; nothing is downloaded."""
    from bytemill.tokenizer.pretrained import is_cached

    return tuple(
        Entry(name, name, Path(name), Path(name), "published") for name in PUBLISHED if is_cached(name)
    )


@lru_cache(maxsize=1)
def _declaration() -> tuple[Entry, ...]:
    from bytemill.datasets import DECLARATION

    names = sorted(DECLARATION.glob("udhr_*.txt"))
    first = DECLARATION / "udhr_eng.txt"
    ordered = [first, *(path for path in names if path != first)]
    return tuple(
        Entry(
            f"declaration-{path.stem[5:]}",
            f"Declaration of Human Rights, {path.stem[5:]}",
            path,
            Path(path.anchor),
            "bundled",
        )
        for path in ordered
    )


def _is_tokenizer(path: Path) -> bool:
    """Return whether a regular file looks like a tokenizer, by its name, or by the first lines of JSON."""
    if path.name == "tokenizer.json" or path.suffix != ".json":
        return True
    try:
        with path.open("rb") as file:
            return b'"added_tokens"' in file.read(4096)
    except OSError:
        return False


def _id_of(path: Path) -> str:
    return blake2s(os.fsencode(path), digest_size=8).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return MAX_TEXT_BYTES + 1
