"""The text of a study: documents stored once, in an order per seed, cut by bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill.corpus import Corpus
from bytemill.errors import CorpusError
from bytemill.lm.batches import key_of, permuted
from bytemill.system.atomic_files import AtomicFile, make_folder, write_json
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


END = "<|endoftext|>"
"""Special token that ends documents in a study."""


@dataclass(frozen=True)
class StoredText:
    """Documents in two files: their bytes, and the offsets at which they end."""

    folder: Path

    @property
    def ends(self) -> NDArray[np.int64]:
        """Offset at which each document ends."""
        return np.load(self.folder / "ends.npy")

    @property
    def n_bytes(self) -> int:
        """Size of all documents."""
        return (self.folder / "text.bin").stat().st_size

    @property
    def sha256(self) -> str:
        """Hash of the documents."""
        return str(self._about()["sha256"])

    def _about(self) -> dict[str, Any]:
        return read_json_object(self.folder / "about.json", CorpusError, "run the study again")

    def holds(self, source: str) -> bool:
        """Return True if the folder holds the whole text of `source`; what is damaged does not count."""
        try:
            ends = self.ends
            is_whole = ends.ndim == 1 and ends.dtype == np.int64 and int(ends[-1]) == self.n_bytes
            is_whole = is_whole and bool((np.diff(ends, prepend=0) > 0).all())
            return is_whole and self._about()["source"] == source
        except (OSError, ValueError, EOFError, KeyError, IndexError):
            return False

    def documents(self, order: Sequence[int] | NDArray[np.int64] | None = None) -> Iterator[bytes]:
        """Yield documents in an order, by default their own."""
        ends = self.ends
        data = np.memmap(self.folder / "text.bin", np.uint8, "r")
        for number in range(len(ends)) if order is None else order:
            start = int(ends[number - 1]) if number else 0
            yield data[start : int(ends[number])].tobytes()

    def in_order(self, seed: int, n_bytes: int) -> Iterator[str]:
        """Yield `n_bytes` of text: all documents in an order that depends on the seed, then in another one, and so on.

        The last document is cut, between characters.
        """
        left, n_documents, epoch = n_bytes, len(self.ends), 0
        while left > 0:
            for document in self.documents(document_order(n_documents, seed, epoch)):
                if text := cut(document, left):
                    yield text.decode()
                left -= len(document)
                if left <= 0:
                    return
            epoch += 1


def document_order(n_documents: int, seed: int, epoch: int = 0) -> NDArray[np.int64]:
    """Return the order of the documents, which is the same for every tokenizer.

    >>> document_order(5, 0).tolist(), document_order(5, 1).tolist()
    ([2, 1, 0, 4, 3], [0, 3, 1, 2, 4])
    """
    return permuted(np.arange(n_documents), n_documents, key_of(seed, epoch))


def cut(text: bytes, n_bytes: int) -> bytes:
    """Return the first `n_bytes` of a text, or a few less, so that no character is cut.

    >>> cut("aé".encode(), 2)
    b'a'
    """
    end = min(n_bytes, len(text))
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]


def store_text(
    inputs: Sequence[str], folder: Path, *, documents: str = "file", max_bytes: int | None = None
) -> StoredText:
    """Store the documents of a corpus; nothing is read if they are stored already and the files have not changed.

    Args:
        inputs: Names of files, folders or globs.
        folder: Where to store.
        documents: What a document is, see `Corpus`; a special token is left out.
        max_bytes: Stop after this many bytes, and cut the last document.

    Raises:
        CorpusError: The corpus cannot be read, holds no text, or does not have the token that should end documents.
    """
    stored, corpus = StoredText(folder), Corpus(list(inputs), documents=documents)
    source = json.dumps([corpus.description, documents, max_bytes], default=str)
    about = folder / "about.json"
    if stored.holds(source):
        return stored
    about.unlink(missing_ok=True)
    make_folder(folder)
    separator = documents.encode() if documents not in ("file", "line") else b""
    digest, ends, n_bytes, is_divided = hashlib.sha256(), [0], 0, False
    with AtomicFile(folder / "text.bin") as file:
        for whole in _documents(corpus):
            document = whole.removesuffix(separator) if separator else whole
            is_divided |= len(document) < len(whole)
            if max_bytes is not None:
                document = cut(document, max_bytes - n_bytes)
            if document:
                file.write(document)
                n_bytes += len(document)
                ends.append(n_bytes)
                digest.update(len(document).to_bytes(8, "little") + document)
            if max_bytes is not None and n_bytes >= max_bytes - 3:
                break
    if not n_bytes:
        raise CorpusError(f"there is no text in {', '.join(inputs)}", hint="name files that have text")
    if separator and documents != END and not is_divided:
        raise CorpusError(
            f"documents is {documents!r}, which does not occur in {', '.join(inputs)}",
            hint=f'documents are "file", "line" or the special token that ends them, such as {END}',
        )
    with AtomicFile(folder / "ends.npy") as file:
        np.save(cast("Any", file), np.array(ends[1:], np.int64))
    write_json(about, {"source": source, "sha256": digest.hexdigest()})
    return stored


def _documents(corpus: Corpus) -> Iterator[bytes]:
    """Yield whole documents; those of several batches are joined."""
    begun = b""
    for batch in corpus.read():
        data, ends = bytes(batch.data), batch.ends.tolist()
        for number, (start, end) in enumerate(pairwise([0, *ends]), 1):
            begun += data[start:end]
            if not batch.is_open or number < len(ends):
                yield begun
                begun = b""
    if begun:
        yield begun
