"""Reader of a file in any format."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytemill.corpus.content import check_magic
from bytemill.corpus.formats import FORMATS, format_of_head, format_of_name
from bytemill.corpus.signatures import HEAD_BYTES
from bytemill.corpus.streams import OpenFile, open_stream
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator

    from bytemill.corpus.chunks import Chunk
    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.sources import Source


class FileReader:
    """Reads a source of bytes: a file, a URL, or standard input."""

    runs_user_code = False

    def __init__(self, source: Source, options: CorpusOptions) -> None:
        self._source = source
        self._options = options
        self.name = source.name
        self._format = format_of_name(source.name) if options.format == "auto" else options.format
        self.n_bytes = source.n_bytes
        self.is_rereadable = source.remote is not None or (
            source.path is not None and source.n_bytes is not None
        )

    @property
    def format(self) -> str | None:
        """The format: by option, name, or first bytes; None for a pipe that is not open yet."""
        if self._format is None and self.is_rereadable:
            self._format = format_of_head(self._head())
        return self._format

    def _head(self) -> bytes:
        with open_stream(replace(self._source, stop=None), 0, threading.Event()) as stream:
            return stream.block(HEAD_BYTES)[0]

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return self._options.documents == "file" and self.format == "text"

    def describe(self) -> Any:
        """See `Reader`. Name, size, and version (modification time, or what the file system has)."""
        version: int | str | None = None
        if self._source.remote is not None:
            version = self._source.remote.version
        elif self._source.path is not None:
            with contextlib.suppress(OSError):
                version = self._source.path.stat().st_mtime_ns
        return [self.name, self.n_bytes, version]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Chunk]:
        """See `Reader`."""
        with contextlib.ExitStack() as stack:
            file = OpenFile(self._source, stop)
            name = self.format
            if name is None:
                stream = stack.enter_context(open_stream(self._source, 0, stop))
                name = self._format = format_of_head(stream.block(HEAD_BYTES)[0])
                file = OpenFile(self._source, stop, stream)
            elif self.is_rereadable and not state and FORMATS[name].magic:
                check_magic(self.name, name, self._head())
            if self._source.remote is None:  # a store is asked once, at the end
                self._source.check_unchanged()
            try:
                for chunk in FORMATS[name].read_function()(file, self._options, state):
                    if chunk.error is not None:
                        self._source.check_unchanged()
                    yield chunk
            except CorpusError:
                self._source.check_unchanged()  # which explains the error
                raise
            self._source.check_unchanged()
