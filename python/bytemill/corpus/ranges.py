"""Divide a corpus into parts that can be read independently and give the documents of the whole.

A file is divided where that is provably safe: JSON lines and text whose lines are documents after a line, text with a
separator after one, Parquet between row groups. A text file that is one document is divided where a cut changes neither
pre-tokens nor ids. Compressed files and other formats are read whole.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from bytemill.corpus.columns import failures
from bytemill.corpus.compression import compression_of
from bytemill.corpus.content import HEAD_BYTES
from bytemill.corpus.documents import CorpusRange
from bytemill.corpus.formats import library
from bytemill.corpus.readers import FileReader
from bytemill.corpus.sources import unreadable
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bytemill.corpus.corpus import Corpus
    from bytemill.corpus.sources import Source

    SafeCut: TypeAlias = Callable[[str], int | None]
    """Returns an offset in the UTF-8 of a window of a document at which the document can be cut, or None."""

    _FindCut: TypeAlias = Callable[[BinaryIO, int], int | None]
    """Returns the first cut of a file from an offset on, or None."""
    _CutAfter: TypeAlias = Callable[[int, int], "_Boundary | None"]
    """Called with the byte where a cut is wanted and the byte of the last cut, which the next one is behind."""

_WINDOW_BYTES = 1 << 16
"""Text around a wanted cut inside a document. Words are far shorter."""
_BEHIND_BYTES = 1 << 12
"""How much of it lies behind the wanted cut."""
_NEARLY_FULL = 0.95
"""A part of at least this share of its size ends with a file rather than a little inside the next."""


def divide(corpus: Corpus, part_bytes: int, safe_cut: SafeCut | None = None) -> list[CorpusRange]:
    """Divide a corpus of files into parts of about `part_bytes`, in order.

    The parts depend only on the corpus and the arguments. Small files share a part.

    Args:
        corpus: The corpus.
        part_bytes: Size of a part, in bytes of the files.
        safe_cut: Finds cuts inside of documents; None to make none.

    Raises:
        CorpusError: The corpus has sources that cannot be read twice, or a limit; or a file cannot be read.
    """
    sizes = [source.n_bytes for source in corpus.sources]
    if not sizes or None in sizes:
        raise CorpusError(
            f"{corpus.source_names[0]} can be read only once, so it cannot be divided",
            hint="save it to a file first",
        )
    if corpus.options.limit_bytes is not None:
        raise CorpusError(
            "a corpus with a limit of bytes cannot be divided",
            hint="name fewer files, or use --sample (sample=) to take a fraction of the documents",
        )
    return _Division(corpus, part_bytes, safe_cut).parts()


class _Division:
    def __init__(self, corpus: Corpus, part_bytes: int, safe_cut: SafeCut | None) -> None:
        self._corpus = corpus
        self._part_bytes = part_bytes
        self._safe_cut = safe_cut
        self._parts: list[CorpusRange] = []
        self._start = _Boundary(0)
        self._n_bytes = 0
        """Bytes of the part that is not finished."""

    def parts(self) -> list[CorpusRange]:
        sources = self._corpus.sources
        for number, source in enumerate(sources):
            size = (source.n_bytes or 0) * self._corpus.n_passes(number)
            at = 0
            if self._n_bytes + size > self._part_bytes:
                try:
                    at = self._divide_source(number, source, size)
                except OSError as error:
                    raise unreadable(source.name, error) from error
            self._n_bytes += size - at
            is_last = number + 1 == len(sources)
            if is_last or self._n_bytes >= _NEARLY_FULL * self._part_bytes:
                self._finish(number, _Boundary(number + 1))
        return self._parts

    def _divide_source(self, number: int, source: Source, size: int) -> int:
        """Finish parts inside a source; return the byte at which the last of them ends."""
        done = 0
        with self._cuts(number, source) as cut_after:
            if cut_after is None:
                # The file goes where it makes the sizes more equal.
                if self._n_bytes and self._n_bytes + size / 2 > self._part_bytes:
                    self._finish(number - 1, _Boundary(number))
                return 0
            while self._n_bytes + size - done > self._part_bytes:
                found = cut_after(done + self._part_bytes - self._n_bytes, done)
                if found is None or found.byte >= size:
                    break
                self._n_bytes += found.byte - done
                self._finish(number, found)
                done = found.byte
        return done

    def _finish(self, last: int, end: _Boundary) -> None:
        start = self._start
        stop = end.at if end.source == last else None
        self._parts.append(
            CorpusRange(
                first=start.source,
                start=start.at,
                by_rows=start.by_rows,
                starts_inside=start.is_inside,
                last=last,
                stop=stop,
                ends_inside=end.is_inside,
                n_bytes=self._n_bytes,
            )
        )
        self._start, self._n_bytes = end, 0

    @contextlib.contextmanager
    def _cuts(self, number: int, source: Source) -> Generator[_CutAfter | None]:
        """Open a source; provide a function that finds its cuts, or None if the source is read whole."""
        options = self._corpus.options
        with source.open() as file:
            # Documents that are sampled or weighted are drawn by their number in the file.
            if options.share < 1 or self._corpus.share(number) != 1 or not file.seekable():
                yield None
                return
            head = file.read(HEAD_BYTES)
            name = None if compression_of(head) is not None else FileReader(source, options).format
            separator = (options.separator or "").encode()
            if name == "parquet":
                yield _cuts_in_rows(number, source)
            elif name == "jsonl" or (name == "text" and options.documents == "line"):
                yield _cuts_in_text(number, source, file, _after(b"\n"))
            elif name != "text":
                yield None
            elif options.documents != "file":
                find = None if _overlaps_itself(separator) else _after(separator)
                yield None if find is None else _cuts_in_text(number, source, file, find)
            elif self._safe_cut is None or (options.on_error == "skip" and options.errors == "strict"):
                yield None  # such a file is left out as a whole if it is broken
            else:
                yield _cuts_in_text(number, source, file, _inside(self._safe_cut), is_inside=True)


@dataclass(frozen=True)
class _Boundary:
    """A boundary between two ranges."""

    source: int
    at: int = 0
    byte: int = 0
    """The same in bytes."""
    by_rows: bool = False
    is_inside: bool = False


def _cuts_in_text(
    number: int, source: Source, file: BinaryIO, find: _FindCut, *, is_inside: bool = False
) -> _CutAfter:
    """Cut a file of uncompressed text."""

    def cut_after(wanted: int, done: int) -> _Boundary | None:
        while wanted < (source.n_bytes or 0):
            found = find(file, wanted)
            if found is not None and found > done:
                return _Boundary(number, found, found, is_inside=is_inside)
            if not is_inside:
                return None
            wanted += _WINDOW_BYTES
        return None

    return cut_after


def _cuts_in_rows(number: int, source: Source) -> _CutAfter:
    """Cut a Parquet file between its row groups, as near to what is wanted as possible."""
    with source.open() as file, failures(source.name, library("pyarrow", source.name)):
        metadata = library("pyarrow.parquet", source.name).ParquetFile(file).metadata
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    total = max(1, sum(group.total_byte_size for group in groups))
    rows = n_bytes = 0
    cuts: list[_Boundary] = []
    for group in groups[:-1]:
        rows += group.num_rows
        n_bytes += group.total_byte_size
        cuts.append(_Boundary(number, rows, (source.n_bytes or 0) * n_bytes // total, by_rows=True))

    def cut_after(wanted: int, done: int) -> _Boundary | None:
        behind = [cut for cut in cuts if cut.byte > done]
        return min(behind, key=lambda cut: abs(cut.byte - wanted), default=None)

    return cut_after


def _after(end: bytes) -> _FindCut:
    """Return a function that finds the first cut from an offset on: behind `end`."""

    def find(file: BinaryIO, wanted: int) -> int | None:
        file.seek(wanted)
        kept = b""
        while block := file.read(_WINDOW_BYTES):
            block = kept + block
            found = block.find(end)
            if found >= 0:
                return file.tell() - len(block) + found + len(end)
            kept = block[len(block) - len(end) + 1 :] if len(end) > 1 else b""
        return None

    return find


def _inside(safe_cut: SafeCut) -> _FindCut:
    """Return a function that finds a cut inside a document near an offset."""

    def find(file: BinaryIO, wanted: int) -> int | None:
        # The last cut of the window is taken.
        start = max(0, wanted + _BEHIND_BYTES - _WINDOW_BYTES)
        file.seek(start)
        window = file.read(_WINDOW_BYTES)
        # Characters that are cut by the window's ends are left out.
        n_before = next((at for at in range(min(4, len(window))) if window[at] & 0xC0 != 0x80), 0)
        try:
            text = window[n_before:].decode()
        except UnicodeDecodeError as error:
            if error.end < len(window) - n_before or len(window) - n_before - error.start >= 4:
                return None  # malformed text is read from its beginning
            text = window[n_before : n_before + error.start].decode()
        found = safe_cut(text)
        return None if found is None else start + n_before + found

    return find


def _overlaps_itself(separator: bytes) -> bool:
    """Return whether two occurrences of a separator can overlap: then it is uncertain which of them is one."""
    return any(separator.startswith(separator[at:]) for at in range(1, len(separator)))
