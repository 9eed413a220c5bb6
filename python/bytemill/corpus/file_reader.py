"""A file of a corpus, whatever its format."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from bytemill.corpus.formats import format_of_head, format_of_name
from bytemill.corpus.streams import HEAD_BYTES, OpenFile, open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bytemill.corpus.chunks import Piece
    from bytemill.corpus.options import CorpusOptions, Format
    from bytemill.corpus.sources import Source


class FileReader:
    """Reads a source of bytes: a file, what a URL names, or standard input."""

    runs_own_code = False

    def __init__(self, source: Source, options: CorpusOptions) -> None:
        self._source = source
        self._options = options
        self.name = source.name
        self._format: Format | None = (
            format_of_name(source.name) if options.format == "auto" else options.format
        )
        self.n_bytes = source.n_bytes
        self.comes_again = source.remote is not None or (
            source.path is not None and source.n_bytes is not None
        )

    @property
    def format(self) -> Format | None:
        """The format: by option, by name, or by the first bytes; None for a pipe that has not been opened."""
        if self._format is None and self.comes_again:
            with open_stream(self._source, 0, threading.Event()) as stream:
                self._format = format_of_head(stream.block(HEAD_BYTES)[0])
        return self._format

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return self._options.documents == "file" and self.format == "text"

    def describe(self) -> Any:
        """See `Reader`. Name, size, and what changes when the file does."""
        version: int | str | None = None
        if self._source.remote is not None:
            version = self._source.remote.version
        elif self._source.path is not None:
            with contextlib.suppress(OSError):
                version = self._source.path.stat().st_mtime_ns
        return [self.name, self.n_bytes, version]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Piece]:
        """See `Reader`."""
        with contextlib.ExitStack() as stack:
            file = OpenFile(self._source, stop)
            kind = self.format
            if kind is None:
                stream = stack.enter_context(open_stream(self._source, 0, stop))
                kind = self._format = format_of_head(stream.block(HEAD_BYTES)[0])
                file = OpenFile(self._source, stop, stream)
            yield from _read_function(kind)(file, self._options, state)


def _read_function(kind: Format) -> Callable[[OpenFile, CorpusOptions, dict[str, Any]], Generator[Piece]]:
    """What reads a format. Brings in only what it needs."""
    match kind:
        case "text":
            from bytemill.corpus.blocks import read_text as read
        case "jsonl":
            from bytemill.corpus.blocks import read_json_lines as read
        case "parquet":
            from bytemill.corpus.columns import read_parquet as read
        case "arrow":
            from bytemill.corpus.columns import read_arrow as read
        case "warc":
            from bytemill.corpus.warc import read_warc as read
    return read
