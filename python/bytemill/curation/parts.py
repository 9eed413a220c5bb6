"""Files of documents between steps and of the result: JSON lines, compressed with zstd.

Batches are written as frames of their own, so that the bytes depend on the documents alone.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bytemill.corpus.formats import library
from bytemill.curation.steps import Page
from bytemill.system.atomic_files import output_errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from bytemill.data.stage import Stage

SUFFIX = ".jsonl.zst"
_LEVEL = 3
_BATCH_CHARACTERS = 1 << 20
_BATCH_PAGES = 512
_OPTIONAL = ("offset", "url", "title")


def batched(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """Yield documents in batches of about 1 MiB, the same in every run."""
    batch: list[Page] = []
    n_characters = 0
    for page in pages:
        batch.append(page)
        n_characters += len(page.text) + (len(page.payload.data) if page.payload is not None else 0)
        if n_characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_PAGES:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


class PageWriter:
    """Writes documents to a file. A context manager, which closes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._compressor: Any = library("zstandard", str(path)).ZstdCompressor(level=_LEVEL)
        self.n_bytes = 0
        """Bytes of the file."""
        with output_errors(path):
            self._file = path.open("wb")

    def write(self, values: Iterable[Any]) -> None:
        """Write a batch of JSON values."""
        lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
        if lines:
            frame: bytes = self._compressor.compress(lines.encode())
            self.n_bytes += len(frame)
            with output_errors(self._path):
                self._file.write(frame)

    def close(self) -> None:
        """Close the file."""
        with output_errors(self._path):
            self._file.close()

    def __enter__(self) -> PageWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def to_record(page: Page) -> dict[str, Any]:
    """Return a document as a result holds it."""
    more = {name: value for name in _OPTIONAL if (value := getattr(page, name)) is not None}
    return {
        "text": page.text,
        "id": page.id,
        "source": page.source,
        **more,
        "n_bytes": page.n_bytes,
        "measurements": page.measurements,
    }


def of_record(record: dict[str, Any]) -> Page:
    """Return the document of `to_record`."""
    more = {name: record[name] for name in _OPTIONAL if name in record}
    return Page(
        record["text"],
        record["source"],
        record["id"],
        record["n_bytes"],
        measurements=record["measurements"],
        **more,
    )


def read_records(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Any]:
    """Yield the values of a file that `PageWriter` wrote."""
    with path.open("rb") as file:
        file.seek(start)
        raw = file if stop is None else io.BytesIO(file.read(stop - start))
        decompressor: Any = library("zstandard", str(path)).ZstdDecompressor()
        with decompressor.stream_reader(raw, read_across_frames=True) as stream:
            for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
                yield json.loads(line)


@contextmanager
def stored_file(stage: Stage, result: dict[str, Any], label: str) -> Generator[Path]:
    """Provide a data file of a task's result on this machine."""
    name, n_bytes = result["files"][label]
    with stage.range_as_file(name, 0, n_bytes) as (path, _, _):
        yield path


def stored_pages(stage: Stage, result: dict[str, Any]) -> Iterator[Page]:
    """Yield the documents that a task has left."""
    with stored_file(stage, result, "pages") as path:
        for record in read_records(path):
            yield of_record(record)
