"""Manifest of a shard folder: its contents, text sources and tokenizer."""

import json
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from bytemill.data.layouts import LAYOUTS
from bytemill.errors import ShardError
from bytemill.storage import StoreFolder, exists, url_of
from bytemill.system.atomic_files import write_json
from bytemill.system.records import Count, Flag, Record, Strict, Text, parse_record, read_json_object

FORMAT = "bytemill-shards"
VERSION = 3
MANIFEST_NAME = "manifest.json"
PARTS: tuple[Literal["train", "validation"], ...] = ("train", "validation")
"""Folders of the parts of a split corpus."""
PAIR: tuple[Literal["chosen", "rejected"], ...] = ("chosen", "rejected")
"""Folders of the two answers of pairs of conversations, and the keys of rows that have them."""
UNFINISHED_NAME = "UNFINISHED.txt"
"""Marks a folder whose encoding is running or was interrupted. Such a folder has no manifest."""

SHARD_TOKENS = Strict(ge=1, lt=1 << 63)
VALIDATION_FRACTION = Strict(ge=0, lt=1)
DROPOUT = Strict(ge=0, lt=1)
SEED = Strict(ge=0, lt=1 << 64)

MASK_SUFFIX = ".mask"
"""Suffix of the file beside a shard with a bit for each id, 1 for targets; the first id has the lowest bit."""

_TAG = r"(\.[0-9a-f]{12})?"
"""In an object store the names of files have the tag of the encoding that wrote them."""
_STEM = re.compile(r"shard_\d{5,}" + _TAG)
_DOCUMENTS = re.compile("documents" + _TAG + r"\.npy")
_DAMAGED_HINT = "restore it from a copy, or encode the corpus again with --overwrite (overwrite=True)"


def shard_name(index: int, suffix: str = ".npy", tag: str = "") -> str:
    """Return the file name of a shard.

    Args:
        index: Number of the shard, from 0.
        suffix: Suffix of the layout.
        tag: Twelve hexadecimal digits, for shards in an object store.

    >>> shard_name(7), shard_name(7, ".bin", "0123456789ab")
    ('shard_00007.npy', 'shard_00007.0123456789ab.bin')
    """
    return f"shard_{index:05d}{_tagged(tag)}{suffix}"


def new_tag() -> str:
    """Return a random tag for the names of files."""
    return os.urandom(6).hex()


def documents_name(tag: str = "") -> str:
    """Return the file name of the document index; see `shard_name`.

    >>> documents_name("0123456789ab")
    'documents.0123456789ab.npy'
    """
    return f"documents{_tagged(tag)}.npy"


def is_documents_name(name: str) -> bool:
    """Return True if `name` is that of a document index."""
    return _DOCUMENTS.fullmatch(name) is not None


def _tagged(tag: str) -> str:
    return f".{tag}" if tag else ""


def is_shard_name(name: str) -> bool:
    """Return True if `name` is a shard file of a registered layout.

    >>> is_shard_name("shard_00007.bin"), is_shard_name("../shard_00007.bin")
    (True, False)
    """
    return _has_suffix(name, (layout.suffix for layout in LAYOUTS.values()))


def is_sidecar_name(name: str) -> bool:
    """Return True if `name` is the document index, a mask or a sidecar file of a registered layout.

    >>> is_sidecar_name("shard_00007.idx"), is_sidecar_name("shard_00007.bin")
    (True, False)
    """
    suffixes = (suffix for layout in LAYOUTS.values() for suffix in layout.sidecar_suffixes)
    return is_documents_name(name) or _has_suffix(name, (MASK_SUFFIX, *suffixes))


def _has_suffix(name: str, suffixes: Iterable[str]) -> bool:
    return any(name.endswith(end) and _STEM.fullmatch(name.removesuffix(end)) for end in suffixes)


# A name with folders would lead a reader out of the shard folder.
def _check_shard_name(name: str) -> str:
    if not is_shard_name(name):
        raise ValueError("it must be the file name of a shard")
    return name


def _check_sidecar_name(name: str) -> str:
    if not is_sidecar_name(name):
        raise ValueError("it must be the file name of a document index or a sidecar file")
    return name


@dataclass(frozen=True, kw_only=True)
class FileInfo(Record):
    """A sidecar file of a shard, or the document index."""

    file: Annotated[str, Strict(check=_check_sidecar_name)]
    """File name in the folder."""
    n_bytes: Count
    sha256: Text
    """Of the whole file, in hexadecimal."""


@dataclass(frozen=True, kw_only=True)
class ShardInfo(Record):
    """A shard: a file of token ids in the layout of the manifest."""

    file: Annotated[str, Strict(check=_check_shard_name)]
    """File name in the folder."""
    n_tokens: Count
    n_bytes: Count
    """Size of the file, including its header."""
    sha256: Text
    """Of the whole file, in hexadecimal."""
    sidecars: tuple[FileInfo, ...] = ()
    """Sidecar files of the layout, such as an index, and the mask of conversations."""

    @property
    def mask(self) -> FileInfo | None:
        """The mask of conversations."""
        return next((info for info in self.sidecars if info.file.endswith(MASK_SUFFIX)), None)


@dataclass(frozen=True, kw_only=True)
class SourceStamp(Record):
    """What tells whether a file of this machine is still the one that was encoded; see `source_stamps`."""

    n_bytes: Count
    mtime_ns: int
    """Time of the last change, in nanoseconds since 1970."""
    sample: Text
    """Sha256 of its head, middle and tail."""


@dataclass(frozen=True, kw_only=True)
class SourceInfo(Record):
    """A source of text."""

    name: Text
    n_bytes: Count
    """Bytes of text."""
    stamp: SourceStamp | None = field(default=None, compare=False)
    """None if it is not a regular file of this machine."""


@dataclass(frozen=True, kw_only=True)
class ConversationSettings(Record):
    """Options of shards of conversations, whose documents are conversations with masks."""

    max_tokens: Annotated[int, SHARD_TOKENS] | None = None
    """Most ids of a conversation. Whole turns at its end are left out."""
    side: Literal["chosen", "rejected"] | None = None
    """Which of the two answers of each row."""
    template: Text = ""
    """SHA-256 of the chat template and the special tokens that it uses (`template_hash`)."""


@dataclass(frozen=True, kw_only=True)
class DropoutSettings(Record):
    """BPE-dropout: merges left out by chance, in other places in every epoch."""

    probability: Annotated[float, DROPOUT]
    """Probability with which a merge is left out whenever it could happen."""
    seed: Annotated[int, SEED] = 0
    epoch: Annotated[int, SEED] = 0
    """Number of the epoch, from 0."""


@dataclass(frozen=True, kw_only=True)
class ShardSettings(Record):
    """Options that determine the tokens of a corpus and their division into files."""

    shard_tokens: Annotated[int, SHARD_TOKENS]
    """Tokens of every shard but the last. In layouts of whole documents, the document that reaches it ends a shard."""
    allowed_special: Text | tuple[Text, ...]
    """"all", "none", "none_raise", or the sorted special tokens recognised in the text."""
    errors: Literal["strict", "replace", "skip"]
    """Handling of malformed UTF-8."""
    document_separator: Text | None
    """Special token between documents."""
    append_separator: Flag
    """True if every document has a separator, at its end or (in some layouts) at its start."""
    prepended: Text | None = None
    """Special token at the start of every document."""
    document_index: Flag = False
    """True if `documents.npy` holds the ends of documents."""
    validation_fraction: Annotated[float, VALIDATION_FRACTION] = 0.0
    """Fraction of the documents in the folder `validation`; the others are in `train`."""
    split_seed: Annotated[int, SEED] = 0
    """Seed of the hash that divides them."""
    shuffle_seed: Annotated[int, SEED] | None = None
    """Seed of the order of the documents; None for the order of the corpus."""
    conversations: ConversationSettings | None = None
    """Set if the documents are conversations."""
    dropout: DropoutSettings | None = None
    """Set if merges are left out by chance."""


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """Contents of a shard folder."""

    bytemill_version: Text
    fingerprint: Text
    """Fingerprint of the tokenizer."""
    n_vocab: Count
    """Highest id of the tokenizer + 1."""
    dtype: Literal["uint16", "uint32"]
    n_tokens: Count
    n_bytes: Count
    """Bytes of encoded text, in UTF-8."""
    n_documents: Count
    """Documents with tokens."""
    n_replaced: Count
    """Malformed byte sequences read as U+FFFD, in the whole corpus."""
    shards: tuple[ShardInfo, ...]
    """In the order of the text."""
    sources: tuple[SourceInfo, ...]
    settings: ShardSettings
    layout: Text
    """Name of the layout (`bytemill.data.layouts`)."""
    documents: FileInfo | None = None
    """The document index: ends of documents, in tokens from the start of the first shard (uint64, shape
    (n_documents,))."""
    separator_id: Count | None = None
    """Id of the special token between documents."""
    n_empty_documents: Count = 0
    """Documents without text. They have no tokens and no entry in the index."""
    n_skipped_bytes: Count = 0
    """Bytes of malformed sequences left out, in the whole corpus."""
    n_broken_documents: Count = 0
    """Broken documents left out, in the whole corpus."""
    n_byte_order_marks: Count = 0
    """UTF-8 byte-order marks dropped from the start of files, in the whole corpus."""
    part: Literal["train", "validation"] | None = None
    """Part of a split corpus."""
    corpus: dict[str, Any] = field(default_factory=dict[str, Any])
    """What determines the documents, as described by the corpus."""

    def __post_init__(self) -> None:
        total = sum(shard.n_tokens for shard in self.shards)
        if total != self.n_tokens:
            raise ValueError(f"its shards have {total:,} tokens in total, but n_tokens is {self.n_tokens:,}")
        for shard in self.shards if self.settings.conversations else ():
            if shard.mask is None or shard.mask.n_bytes != -(-shard.n_tokens // 8):
                raise ValueError(
                    f"{shard.file} has no mask with a bit for each of its {shard.n_tokens:,} tokens"
                )


@dataclass(frozen=True, kw_only=True)
class _Header(Record):
    format: Literal["bytemill-shards"]
    version: Count


def shard_files(folder: Path) -> list[str]:
    """Return the names of the shard files in a folder, sorted. Reads no manifest."""
    return sorted(path.name for path in folder.glob("shard_*") if is_shard_name(path.name))


def sidecar_files(folder: Path) -> list[str]:
    """Return the names of the document index and the sidecar files in a folder, sorted. Reads no manifest."""
    return sorted(path.name for path in folder.iterdir() if is_sidecar_name(path.name))


def parts_of(folder: Path) -> list[Path]:
    """Return the folders `train` and `validation` of a split corpus, or `folder` itself; also in an object store."""
    parts = [folder / name for name in PARTS]
    is_split = not exists(folder / MANIFEST_NAME) and all(exists(part / MANIFEST_NAME) for part in parts)
    return parts if is_split else [folder]


def sets_of(folder: Path) -> list[Path]:
    """Return the folders `chosen` and `rejected` of pairs of conversations, or `folder` itself."""
    sides = [folder / name for name in PAIR]
    is_pairs = not exists(folder / MANIFEST_NAME) and all(
        exists(part / MANIFEST_NAME) for side in sides for part in parts_of(side)
    )
    return sides if is_pairs else [folder]


def files_of(manifest: Manifest) -> list[ShardInfo | FileInfo]:
    """Return all files of a folder."""
    files = [info for shard in manifest.shards for info in (shard, *shard.sidecars)]
    return files if manifest.documents is None else [*files, manifest.documents]


def manifest_document(manifest: Manifest) -> dict[str, Any]:
    """Return the content of the file of a manifest, as JSON values."""
    return {"format": FORMAT, "version": VERSION, **manifest.to_dict()}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder atomically. Raises `OutputError`."""
    write_json(folder / MANIFEST_NAME, manifest_document(manifest))


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """Read the manifest of a folder. `verify` checks the shards themselves.

    Args:
        folder: Folder that contains `manifest.json`, also the URL of one in an object store.

    Raises:
        ShardError: If the manifest is missing, damaged or of another format version.
        StorageError: If the store cannot be read.
    """
    if (url := url_of(folder)) is not None:
        return _read_stored(url)
    path = Path(folder) / MANIFEST_NAME
    try:
        document = read_json_object(path, ShardError, _DAMAGED_HINT)
    except FileNotFoundError as error:
        raise _no_manifest(path.parent) from error
    return parse_manifest(document, path)


def _read_stored(url: str) -> Manifest:
    folder = StoreFolder(url)
    found = folder.get(MANIFEST_NAME)
    if found is None:
        names: dict[str, int] = folder.list() if folder.is_writable else {}
        if n_shards := sum(is_shard_name(name.rpartition("/")[2]) for name in names):
            raise ShardError(
                f"{url} contains {n_shards:,} shards but no {MANIFEST_NAME}: an encoding is running or did not end",
                hint="run the encoding again with the same URL",
            )
        raise ShardError(f"{url} contains no {MANIFEST_NAME}", hint="name a folder of shards")
    return decode_manifest(found.data, f"{url}/{MANIFEST_NAME}")


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in a file with this content; raises as `parse_manifest`."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ShardError(f"{name} is not JSON: {error}", hint=_DAMAGED_HINT) from error
    return parse_manifest(document, name)


def parse_manifest(document: Any, path: str | Path) -> Manifest:
    """Check the content of the file of a manifest.

    Args:
        document: The content.
        path: Name of the file, for messages.

    Raises:
        ShardError: If it is damaged or of another format version.
    """
    header = parse_record(_Header, document, path, ShardError, _DAMAGED_HINT)
    if header.version != VERSION:
        raise ShardError(
            f"{path} has format version {header.version}; this version of bytemill reads {VERSION}",
            hint="update bytemill" if header.version > VERSION else "encode the corpus again",
        )
    return parse_record(Manifest, document, path, ShardError, _DAMAGED_HINT)


def shard_hashes(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the sha256 of every shard in `folder`, by file name without a tag, in the order of the text.

    Two folders with equal hashes hold the same tokens. Reads only the manifest, not the shards.

    Args:
        folder: Folder that contains `manifest.json`.

    Returns:
        Hexadecimal sha256 of each whole file, as the manifest records it.

    Raises:
        ShardError: If the manifest is missing or damaged.
    """
    return {re.sub(_TAG + r"(?=\.)", "", shard.file): shard.sha256 for shard in read_manifest(folder).shards}


def _no_manifest(folder: Path) -> ShardError:
    if folder.is_file():
        return ShardError(
            f"{folder} is a file, not a folder of shards",
            hint=f"encode it first: bytemill data encode TOKENIZER {shlex.quote(str(folder))} -o DIR",
        )
    if not folder.is_dir():
        return ShardError(f"there is no folder {folder}", hint="check the path")
    if (folder / UNFINISHED_NAME).exists():
        return ShardError(
            f"the shards in {folder} are unfinished: the encoding was interrupted or is still running",
            hint="run the encoding again with the same folder",
        )
    return ShardError(f"{folder} contains no {MANIFEST_NAME}", hint="name a folder of shards")
