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
from typing import TYPE_CHECKING, Literal

from bytemill.datasets import DECLARATION
from bytemill.errors import BytemillError, CorpusError, TokenizerFileError
from bytemill.formats.files import SIDECAR_FILES, vocab_and_merges_paths
from bytemill.studio.files import Recent, Stamps, open_regular, problem_of, require_regular, shown_name
from bytemill.tokenizer import open_tokenizer
from bytemill.tokenizer.pretrained import PUBLISHED, is_cached, is_name
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH = 5
MAX_FOLDERS = 5_000
MAX_OPENED, MAX_TRUNCATED = 16, 6
"""Tokenizers that are kept."""
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


class NotThereError(BytemillError, LookupError):
    """What a request names was removed, renamed, or never there."""

    status = 404


@dataclass(frozen=True)
class Entry:
    """Something that the studio may open."""

    kind: Kind
    id: str
    name: str
    path: Path
    root: Path
    """Folder that links may not lead out of; for files that are not checked, the root of the file system."""
    origin: Origin = "found"

    @property
    def files(self) -> list[Path]:
        """The files that a tokenizer, a study or a text is opened from; some may be missing."""
        if self.kind == "texts":
            return [self.path]
        if self.kind == "studies":
            return [self.path / name for name in _STUDY_FILES]
        folder = self.path if self.path.is_dir() else self.path.parent
        sidecars = [folder / name for name in SIDECAR_FILES]
        return [*dict.fromkeys([self.path, *vocab_and_merges_paths(self.path), *sidecars])]


@dataclass(frozen=True)
class OpenedTokenizer:
    """A tokenizer, and the stamp of the files that it was opened from."""

    tokenizer: Tokenizer
    stamp: str
    renumbered: dict[int, int] = field(default_factory=dict[int, int])
    """Ids of special tokens that truncation changed, with their first ids."""


class Shelf(dict[Kind, dict[str, Entry]]):
    """Everything that was found, by kind and id. Folders of imported models are models; those of runs are runs."""

    def __init__(self) -> None:
        super().__init__({kind: {} for kind in _NOUNS})
        self.skipped: dict[str, str] = {}
        """Why a file or folder is left out, by its name."""

    def add(self, entry: Entry) -> None:
        """Add an entry, unless its id is there."""
        self[entry.kind].setdefault(entry.id, entry)

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
        for entries in self.values():
            found.update(repr([(each.id, each.name, each.origin) for each in entries.values()]).encode())
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
        self._opened: Recent[str, OpenedTokenizer] = Recent(MAX_OPENED)
        self._truncated: Recent[tuple[str, str, int], Tokenizer] = Recent(MAX_TRUNCATED)
        self.stamps = Stamps()

    def shelf(self) -> Shelf:
        """Return what there is now; the folder is searched at most every two seconds."""
        with self._lock:
            start = time.monotonic()
            if self._shelf is None or start >= self._next_search:
                self._shelf = self._search()
                for entries in self._shelf.values():
                    self._names |= {entry.id: entry.name for entry in entries.values()}
                end = time.monotonic()
                self._next_search = end + max(_SECONDS, 20 * (end - start))
            return self._shelf

    def entry(self, kind: Kind, entry_id: str) -> Entry:
        """Return an entry that is there now.

        Raises:
            NotThereError: There is no such id, or the file or folder was just removed.
        """
        found = self.shelf()[kind].get(entry_id)
        if found is None or not (found.origin == "published" or found.path.exists()):
            name = self._names.get(entry_id, f"this {_NOUNS[kind]}")
            raise NotThereError(f"{name} is not there any more", hint=f"choose another {_NOUNS[kind]}")
        return found

    def open_tokenizer(self, tokenizer_id: str, vocab_size: int | None = None) -> OpenedTokenizer:
        """Open a tokenizer, or return it if it is open and its files have not changed.

        Args:
            tokenizer_id: Its id.
            vocab_size: Truncate it to this many tokens.

        Raises:
            NotThereError: There is no such tokenizer.
            BytemillError: It cannot be opened or truncated.
        """
        entry = self.entry("tokenizers", tokenizer_id)
        opened = self._opened.get(tokenizer_id)
        if opened is None or opened.stamp != self.stamps.of(entry.files):
            opened = OpenedTokenizer(
                *self.stamps.read(entry.name, entry.files, lambda: _read_tokenizer(entry))
            )
            self._opened.put(tokenizer_id, opened)
        whole = opened.tokenizer
        if vocab_size is None or vocab_size >= len(whole):
            return opened
        key = tokenizer_id, opened.stamp, vocab_size
        own = self._truncated.get(key) or whole.truncate(vocab_size)
        self._truncated.put(key, own)
        renumbered = {i: whole.special_tokens[token] for token, i in own.special_tokens.items()}
        return OpenedTokenizer(own, opened.stamp, renumbered)

    def argument_of(self, entry: Entry) -> str:
        """Return how the command line names an entry: relative to the root, if it is below."""
        if entry.origin == "published":
            return entry.name
        if entry.origin == "bundled" or self.root is None or not entry.path.is_relative_to(self.root):
            return shown_name(entry.path)
        return str(entry.path.relative_to(self.root)) or "."

    def _search(self) -> Shelf:
        shelf = Shelf()
        for name in self._named:
            _add_named(shelf, name)
        for name, path in _bundled_tokenizers():
            shelf.add(Entry("tokenizers", name, name, path, Path(path.anchor), "bundled"))
        for name in _cached_tokenizers():
            shelf.add(Entry("tokenizers", name, name, Path(name), Path(name), "published"))
        if self.root is not None:
            for folder, files in _folders(self.root, self.root, shelf):
                _add_folder(shelf, folder, files, self.root)
        for path in _declaration():
            language = path.stem.removeprefix("udhr_")
            name = f"Declaration of Human Rights, {language}"
            shelf.add(Entry("texts", f"declaration-{language}", name, path, Path(path.anchor), "bundled"))
        return shelf


@lru_cache(maxsize=1)
def _bundled_tokenizers() -> list[tuple[str, Path]]:
    folder = Path(str(resources.files("bytemill.studio") / "bundled"))
    return [(path.stem, path) for path in sorted(folder.glob("*.json"))]


@lru_cache(maxsize=1)
def _cached_tokenizers() -> list[str]:
    """Return the published tokenizers that are in a cache of this machine; nothing is downloaded."""
    return [name for name in PUBLISHED if is_cached(name)]


@lru_cache(maxsize=1)
def _declaration() -> list[Path]:
    """Return the files of the declaration, English first."""
    return sorted(DECLARATION.glob("udhr_*.txt"), key=lambda path: (path.stem != "udhr_eng", path))


def _read_tokenizer(entry: Entry) -> Tokenizer:
    if entry.origin == "published":
        return Tokenizer.from_pretrained(entry.name, local_files_only=True)
    require_regular(entry.files, entry.root, TokenizerFileError)
    return open_tokenizer(entry.path)


def read_text(entry: Entry) -> str:
    """Return the content of a text; malformed UTF-8 is replaced.

    Raises:
        CorpusError: The file cannot be read, or is larger than 5 MB.
    """
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


def _add_named(shelf: Shelf, name: str) -> None:
    path = Path(name)
    if is_name(name):
        shelf.add(
            Entry("tokenizers", name if name in PUBLISHED else _id_of(path), name, path, path, "published")
        )
        return
    path = Path(os.path.realpath(path))
    if path.is_dir():
        for folder, files in _folders(path, path.parent, shelf, depth=1):
            _add_folder(shelf, folder, files, path.parent, origin="named")
    elif shelf.accepts(path, path.parent):
        kind, shown = ("texts", path.name) if path.suffix == ".txt" else ("tokenizers", path.stem)
        shelf.add(Entry(kind, _id_of(path), shown, path, path.parent, "named"))


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

    def add(kind: Kind, *parts: Path) -> None:  # also in place of one that was named
        if all(shelf.accepts(part, root) for part in parts):
            shelf[kind][_id_of(folder)] = Entry(kind, _id_of(folder), name, folder, root, origin)

    if "metrics.jsonl" in own and "config.toml" in own:
        add("runs", folder / "config.toml", folder / "metrics.jsonl", *_checkpoint_links(folder))
        origin = "run" if origin == "found" else origin
    elif "model.json" in own and "model.safetensors" in own:
        add("models", folder / "model.json", folder / "model.safetensors")
    elif "study.json" in own and "study.toml" in own:
        add("studies", folder / "study.json", folder / "study.toml")
    for file in files:
        path = folder / file
        is_text = path.suffix in _TEXT_ENDINGS and "config.toml" not in own
        if file.startswith(".") or not (is_text or path.suffix in _TOKENIZER_ENDINGS):
            continue
        if not shelf.accepts(path, root):
            continue
        if not is_text and _is_tokenizer(path):
            own_name = name if file == "tokenizer.json" and folder != root else str(path.relative_to(root))
            shelf.add(Entry("tokenizers", _id_of(path), own_name.removesuffix(".json"), path, root, origin))
        elif is_text and _size(path) <= MAX_TEXT_BYTES:
            shelf.add(Entry("texts", _id_of(path), str(path.relative_to(root)), path, root, "found"))


def _checkpoint_links(run: Path) -> list[Path]:
    """Return the links among the folder of checkpoints of a run and what is in it."""
    folder = run / "checkpoints"
    if folder.is_symlink():
        return [folder]
    try:
        return [path for path in folder.iterdir() if path.is_symlink()]
    except OSError:  # there are none
        return []


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
