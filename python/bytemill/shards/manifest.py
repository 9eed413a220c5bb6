"""Manifest of a shard folder: its contents, text sources and tokenizer."""

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from bytemill.errors import ShardError
from bytemill.shards.layouts import LAYOUTS
from bytemill.system.atomic_files import write_json

FORMAT = "bytemill-shards"
VERSION = 2
MANIFEST_NAME = "manifest.json"
UNFINISHED_NAME = "UNFINISHED.txt"
"""Stands in a folder whose encoding is under way or was interrupted, instead of the manifest."""

DOCUMENTS_NAME = "documents.npy"
"""The document index."""

_STEM = re.compile(r"shard_\d{5,}")
_T = TypeVar("_T")


@dataclass(frozen=True)
class FileInfo:
    """A file that stands beside a shard, or beside all of them."""

    file: str
    """Name of the file in the folder."""
    n_bytes: int
    sha256: str
    """Of the whole file, in hexadecimal."""


@dataclass(frozen=True)
class ShardInfo:
    """One shard: token ids in a row, in the layout that the manifest names."""

    file: str
    """Name of the file in the folder."""
    n_tokens: int
    n_bytes: int
    """Size of the file, its header included."""
    sha256: str
    """Of the whole file, in hexadecimal."""
    companions: tuple[FileInfo, ...] = ()
    """Files that the layout asks for beside it, such as an index."""


@dataclass(frozen=True)
class SourceInfo:
    """One source of text, as it was named when it was encoded."""

    name: str
    n_bytes: int


@dataclass(frozen=True)
class ShardSettings:
    """The options that decide which tokens a corpus gives and how they are laid out."""

    shard_tokens: int
    """Tokens in every shard but the last; where the layout keeps documents whole, a shard ends with the document that
    reaches them."""
    allowed_special: str | tuple[str, ...]
    """"all", "none", "none_raise", or the sorted special tokens that were recognised in the text."""
    errors: Literal["strict", "replace", "skip"]
    """What was done about bytes that are not UTF-8."""
    document_separator: str | None
    """The special token that stands between documents."""
    append_separator: bool
    """True where every document has one, at its end or, where the layout wants it so, in front."""
    prepended: str | None = None
    """The special token that every document begins with."""
    document_index: bool = False
    """True where `documents.npy` tells where documents end."""
    validation_fraction: float = 0.0
    """Above 0 documents are divided by a hash of their text among the folders `train` and `validation`."""
    split_seed: int = 0
    """Of that hash."""


@dataclass(frozen=True)
class Manifest:
    """What a folder of token shards holds."""

    bytemill_version: str
    fingerprint: str
    """Fingerprint of the tokenizer."""
    n_vocab: int
    """Highest id of the tokenizer + 1."""
    dtype: Literal["uint16", "uint32"]
    n_tokens: int
    n_bytes: int
    """Bytes of text that were encoded, in UTF-8."""
    n_documents: int
    """Documents that have tokens."""
    n_replaced: int
    """Malformed byte sequences that were read as U+FFFD, in the whole corpus."""
    shards: tuple[ShardInfo, ...]
    """In the order of the text."""
    sources: tuple[SourceInfo, ...]
    settings: ShardSettings
    layout: str = "npy"
    """Name of the layout (`bytemill.shards.layouts`)."""
    documents: FileInfo | None = None
    """The document index: a `.npy` array (uint64, shape (n_documents,)) of where each document ends, in tokens from the
    beginning of the first shard."""
    separator_id: int | None = None
    """Id of the special token that separates documents, where there is one."""
    n_empty_documents: int = 0
    """Documents without text, which have no tokens and no place in the index."""
    n_skipped_bytes: int = 0
    """Bytes of malformed sequences that were left out, in the whole corpus."""
    n_broken_documents: int = 0
    """Documents that were left out because they are broken, in the whole corpus."""
    part: Literal["train", "validation"] | None = None
    """Which part of a split corpus this is."""
    corpus: dict[str, Any] = field(default_factory=dict[str, Any])
    """What decided the documents, as the corpus describes itself."""


def shard_name(index: int, suffix: str = ".npy") -> str:
    """Name of the shard with this index, counted from 0.

    >>> shard_name(7)
    'shard_00007.npy'
    """
    return f"shard_{index:05d}{suffix}"


def is_shard_name(name: str) -> bool:
    """Return True if `name` is a shard file of a registered layout.

    >>> is_shard_name("shard_00007.bin"), is_shard_name("../shard_00007.bin")
    (True, False)
    """
    return _has_suffix(name, (layout.suffix for layout in LAYOUTS.values()))


def is_sidecar_name(name: str) -> bool:
    """Return True if `name` is the document index or a file that a registered layout writes beside a shard.

    >>> is_sidecar_name("shard_00007.idx"), is_sidecar_name("shard_00007.bin")
    (True, False)
    """
    suffixes = (suffix for layout in LAYOUTS.values() for suffix in layout.companion_suffixes)
    return name == DOCUMENTS_NAME or _has_suffix(name, suffixes)


def _has_suffix(name: str, suffixes: Iterable[str]) -> bool:
    return any(name.endswith(end) and _STEM.fullmatch(name.removesuffix(end)) for end in suffixes)


def shard_files(folder: Path) -> list[str]:
    """Names of the files in `folder` that are named like shards, sorted."""
    return sorted(path.name for path in folder.glob("shard_*") if is_shard_name(path.name))


def companion_files(folder: Path) -> list[str]:
    """Names of the files in `folder` that are named like what stands beside shards, sorted."""
    return sorted(path.name for path in folder.glob("*") if is_sidecar_name(path.name))


def parts_of(folder: Path) -> list[Path]:
    """`folder`, or the folders in it where it holds the parts of a split corpus."""
    parts = [folder / "train", folder / "validation"]
    is_split = not (folder / MANIFEST_NAME).exists() and all(
        (part / MANIFEST_NAME).exists() for part in parts
    )
    return parts if is_split else [folder]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest` into `folder`, atomically. Raises `OutputError`."""
    write_json(folder / MANIFEST_NAME, {"format": FORMAT, "version": VERSION, **asdict(manifest)})


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """The manifest of `folder`. The shards themselves are not looked at; `verify` does that.

    Raises `ShardError` where there is none, where it is damaged, contradicts itself or is of a later format
    version.
    """
    path = Path(folder) / MANIFEST_NAME
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _no_manifest(path.parent) from error
    except OSError as error:
        raise ShardError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # JSON that does not parse, bytes that are not UTF-8
        raise _damaged(path, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(path, "it is no JSON object")
    return _Fields(path, cast("dict[str, Any]", document)).manifest()


def shard_hashes(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the sha256 of every shard in `folder`, by file name, in the order of the text.

    Two folders with equal hashes hold the same tokens. Reads only the manifest, not the shards.

    Args:
        folder: Folder that contains `manifest.json`.

    Returns:
        Hexadecimal sha256 of each whole file, as the manifest records it.

    Raises:
        ShardError: If the manifest is missing or damaged.
    """
    return {shard.file: shard.sha256 for shard in read_manifest(folder).shards}


class _Fields:
    """Takes typed fields out of one JSON object of the manifest; errors name the field and the file."""

    def __init__(self, path: Path, document: dict[str, Any], within: str = "") -> None:
        self.path = path
        self.document = document
        self.within = within

    def take(self, name: str, kind: type[_T]) -> _T:
        if name not in self.document:
            raise _damaged(self.path, f"field '{self.within}{name}' is missing")
        value = self.document[name]
        # A bool is an int to isinstance, but true is no number of tokens.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _damaged(
                self.path, f"field '{self.within}{name}' is {value!r}, not of type {kind.__name__}"
            )
        return value

    def count(self, name: str) -> int:
        value = self.take(name, int)
        if value < 0:
            raise _damaged(self.path, f"field '{self.within}{name}' is {value}, below 0")
        return value

    def optional(self, name: str, kind: type[_T]) -> _T | None:
        """None for a field that an earlier version does not have, or that says null."""
        return self.take(name, kind) if self.document.get(name) is not None else None

    def count_or_0(self, name: str) -> int:
        return self.count(name) if name in self.document else 0

    def one_of(self, name: str, choices: tuple[_T, ...]) -> _T:
        value = self.take(name, object)
        if value not in choices:
            raise _damaged(self.path, f"field '{self.within}{name}' is {value!r}, none of {choices}")
        return cast("_T", value)

    def objects(self, name: str) -> "list[_Fields]":
        items = cast("list[object]", self.take(name, list))
        fields: list[_Fields] = []
        for index, item in enumerate(items):
            within = f"{self.within}{name}[{index}]"
            if not isinstance(item, dict):
                raise _damaged(self.path, f"'{within}' is no JSON object")
            fields.append(_Fields(self.path, cast("dict[str, Any]", item), f"{within}."))
        return fields

    def object(self, name: str) -> "_Fields":
        value = cast("dict[str, Any]", self.take(name, dict))
        return _Fields(self.path, value, f"{self.within}{name}.")

    def manifest(self) -> Manifest:
        self.one_of("format", (FORMAT,))
        version = self.take("version", int)
        if version > VERSION:
            raise ShardError(
                f"{self.path} has format version {version}; this bytemill reads up to {VERSION}",
                hint="update bytemill",
            )
        manifest = Manifest(
            bytemill_version=self.take("bytemill_version", str),
            fingerprint=self.take("fingerprint", str),
            n_vocab=self.count("n_vocab"),
            dtype=self.one_of("dtype", ("uint16", "uint32")),
            n_tokens=self.count("n_tokens"),
            n_bytes=self.count("n_bytes"),
            n_documents=self.count("n_documents"),
            n_replaced=self.count("n_replaced"),
            shards=tuple(shard.shard() for shard in self.objects("shards")),
            sources=tuple(
                SourceInfo(name=source.take("name", str), n_bytes=source.count("n_bytes"))
                for source in self.objects("sources")
            ),
            settings=self.object("settings").settings(),
            layout=self.optional("layout", str) or "npy",
            documents=self.object("documents").file() if self.optional("documents", dict) else None,
            separator_id=None if self.document.get("separator_id") is None else self.count("separator_id"),
            n_empty_documents=self.count_or_0("n_empty_documents"),
            n_skipped_bytes=self.count_or_0("n_skipped_bytes"),
            n_broken_documents=self.count_or_0("n_broken_documents"),
            part=self.one_of("part", ("train", "validation", None)) if "part" in self.document else None,
            corpus=cast("dict[str, Any]", self.optional("corpus", dict) or {}),
        )
        total = sum(shard.n_tokens for shard in manifest.shards)
        if total != manifest.n_tokens:
            raise _damaged(
                self.path, f"its shards sum up to {total} tokens, but n_tokens is {manifest.n_tokens}"
            )
        return manifest

    def shard(self) -> ShardInfo:
        companions = self.objects("companions") if "companions" in self.document else []
        return ShardInfo(
            file=self.name(is_shard_name, "no name of a shard"),
            n_tokens=self.count("n_tokens"),
            n_bytes=self.count("n_bytes"),
            sha256=self.take("sha256", str),
            companions=tuple(companion.file() for companion in companions),
        )

    def file(self) -> FileInfo:
        file = self.name(is_sidecar_name, "no name of a file beside shards")
        return FileInfo(file, self.count("n_bytes"), self.take("sha256", str))

    def name(self, is_valid: Callable[[str], bool], is_none: str) -> str:
        file = self.take("file", str)
        # Names with folders in them would lead a reader out of the folder.
        if not is_valid(file):
            raise _damaged(self.path, f"field '{self.within}file' is {file!r}, {is_none}")
        return file

    def settings(self) -> ShardSettings:
        allowed: object = self.take("allowed_special", object)
        if isinstance(allowed, list):
            allowed = tuple(str(token) for token in cast("list[object]", allowed))
        elif not isinstance(allowed, str):
            raise _damaged(self.path, f"field '{self.within}allowed_special' is {allowed!r}")
        separator = self.take("document_separator", object)
        return ShardSettings(
            shard_tokens=self.count("shard_tokens"),
            allowed_special=allowed,
            errors=self.one_of("errors", ("strict", "replace", "skip")),
            document_separator=None if separator is None else self.take("document_separator", str),
            append_separator=self.take("append_separator", bool),
            prepended=self.optional("prepended", str),
            document_index=self.optional("document_index", bool) or False,
            validation_fraction=self.optional("validation_fraction", float) or 0.0,
            split_seed=self.optional("split_seed", int) or 0,
        )


def _no_manifest(folder: Path) -> ShardError:
    if not folder.is_dir():
        return ShardError(f"there is no folder {folder}", hint="check the path")
    if (folder / UNFINISHED_NAME).exists():
        return ShardError(
            f"the shards in {folder} are unfinished: their encoding was interrupted or is still under way",
            hint="run the encoding again with the same folder",
        )
    return ShardError(f"{folder} holds no {MANIFEST_NAME}", hint="give a folder that shards were written to")


def _damaged(path: Path, what: str) -> ShardError:
    hint = "restore it from a copy, or encode the corpus again with overwrite=True (--overwrite)"
    return ShardError(f"{path} is damaged: {what}", hint=hint)
