"""Count the units of a text group for several tokenizers, in one pass and in bounded memory.

After the pass, the boundaries of tokens in code are compared with those of the leaves of its syntax tree.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from itertools import accumulate
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bytemill._core import TextMarks, TokenBytes
from bytemill.analysis.intervals import MAX_UNITS
from bytemill.formats.library import document_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from bytemill._core import TokenBoundaries
    from bytemill.corpus import Corpus
    from bytemill.formats.library import AnyDocumentEncoder
    from bytemill.tokenizer.tokenizer import Tokenizer

    Columns = dict[str, NDArray[np.int64]]
    UnitCounts = tuple[Columns, TokenBoundaries]

    Progress = Callable[[str, int, int | None], None]
    """Called with what is done, the bytes done, and their number if it is known."""


PASSAGE_BYTES = 1 << 14
"""A longer document is cut into passages of about this size, each after a line if there is one."""
_SAMPLE_CHARACTERS = 400
_BLOCKS_AHEAD = 1


class TokenTable:
    """The tokens of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        tokens = [vocab.get(i, b"") for i in range(tokenizer.n_vocab)]
        special = set(tokenizer.special_tokens.values())
        self.numbers = {token: number for number, token in vocab.items() if number not in special}
        """Token -> id, without special tokens."""
        self.lengths = np.array([len(token) for token in tokens], np.int64)
        """By id, in bytes."""
        adds_space = tokenizer.decode_strip != "none"
        offsets = np.append(0, self.lengths.cumsum()).astype(np.uint32)
        self.bytes = TokenBytes(b"".join(tokens), offsets, adds_space)
        self.is_partial = np.array([not _is_utf8(token) for token in tokens])
        """By id: not valid UTF-8."""


def _is_utf8(token: bytes) -> bool:
    return token.decode(errors="ignore").encode() == token


class Units(NamedTuple):
    """A block of text. Its units are documents, and passages of longer documents."""

    data: bytes
    ends: NDArray[np.int64]
    """Offset at which each unit ends."""
    source: str
    """Name of the file or other source."""


def read_units(corpus: Corpus) -> Iterator[Units]:
    """Yield the text of a corpus in blocks, without empty documents."""
    names = corpus.source_names
    for batch in corpus.read():
        data = bytes(batch.data)
        if data:
            yield Units(data, passage_ends(data, batch.ends), names[batch.source])


def passage_ends(data: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ends of documents in `data` and of the passages of those that are long.

    >>> passage_ends(b"ab" * 20000, np.array([4, 40000])).tolist()
    [4, 16388, 40000]
    """
    result: list[int] = []
    start = 0
    for end in np.unique(ends).tolist():
        while end - start > 2 * PASSAGE_BYTES:
            wanted = start + PASSAGE_BYTES
            cut = data.rfind(b"\n", start, wanted) + 1 or wanted
            while data[cut] & 0xC0 == 0x80:  # inside a character
                cut += 1
            result.append(cut)
            start = cut
        if end > start:
            result.append(end)
        start = end
    return np.array(result, dtype=np.int64)


class UnitSums:
    """Sums of counts by unit, in bounded memory: beyond 2,000 units, unit i belongs to group i modulo 2,000.

    The bootstrap draws groups then. Units of a group are far from each other, so that groups resemble each other as
    little as single units do.
    """

    def __init__(self) -> None:
        self._sums: Columns = {}
        self._n_units = 0

    def add(self, columns: Columns) -> None:
        """Add the counts of the next units."""
        n = len(next(iter(columns.values())))
        groups = np.arange(self._n_units, self._n_units + n) % MAX_UNITS
        for name, values in columns.items():
            sums = self._sums.setdefault(name, np.zeros(MAX_UNITS, np.int64))
            np.add.at(sums, groups, values)
        self._n_units += n

    @property
    def columns(self) -> Columns:
        """The sums by group."""
        return {name: sums[: min(self._n_units, MAX_UNITS)] for name, sums in self._sums.items()}


class TokenCounter:
    """Encodes blocks with one tokenizer, and counts. Threads may call it; it works on one block at a time.

    Args:
        tokenizer: The tokenizer. Special tokens in the text are text to it.
        table: Its tokens.
        num_threads: Threads of the encoder; by default one per core.
    """

    def __init__(self, tokenizer: Tokenizer, table: TokenTable, num_threads: int | None) -> None:
        self.histogram = np.zeros(tokenizer.n_vocab, np.int64)
        self.sums = UnitSums()
        self.lengths = np.zeros(0, np.int64)
        self._table = table
        self._encoder = unit_encoder(tokenizer, num_threads)
        self._lock = Lock()

    def count(self, data: bytes, ends: NDArray[np.int64], marks: Future[TextMarks]) -> UnitCounts:
        """Return the counts of a block by unit, and the boundaries of its tokens."""
        with self._lock:
            ids, id_ends = encode_units(self._encoder, data, ends)
            return marks.result().count(ids, id_ends, self._table.bytes, self.histogram)

    def add(self, columns: Columns) -> None:
        """Add the counts of the next block; the order of the blocks is that of the text."""
        self.sums.add(columns)
        lengths = np.bincount(columns["n_tokens"], minlength=len(self.lengths))
        lengths[: len(self.lengths)] += self.lengths
        self.lengths = lengths


@dataclass
class GroupCounts:
    """Counts of a text group."""

    sha256: str = ""
    """Of the text."""
    n_bytes: int = 0
    n_units: int = 0
    beginning: str = ""
    """The first characters of the text."""
    kept: list[Units] = field(default_factory=list[Any])
    """The first blocks of text."""
    text: UnitSums = field(default_factory=UnitSums)
    """Counts of the text alone."""
    tokens: dict[str, TokenCounter] = field(default_factory=dict[str, Any])
    """Counts of each tokenizer."""

    def first_blocks(self, n_bytes: int) -> list[Units]:
        """Return the kept blocks that hold the first bytes of the text."""
        starts = accumulate((len(units.data) for units in self.kept), initial=0)
        return [units for units, start in zip(self.kept, starts, strict=False) if start < n_bytes]


def count_group(
    corpus: Corpus,
    tokenizers: Mapping[str, Tokenizer],
    tables: Mapping[str, TokenTable],
    *,
    kept_bytes: int = 0,
    each_block: Callable[[bytes, NDArray[np.int64], Mapping[str, UnitCounts]], None] | None = None,
    num_threads: int | None = None,
    progress: Progress | None = None,
    phase: str = "",
) -> GroupCounts:
    """Count a text group.

    Args:
        corpus: The text.
        tokenizers: The tokenizers by name. Special tokens in the text are text to them.
        tables: Their tokens.
        kept_bytes: Keep this much of the text.
        each_block: Called with every block: its text, the ends of its units, and its counts by tokenizer.
        num_threads: Number of threads; by default one per core.
        progress: Called with the bytes done. An exception that it raises ends the pass.
        phase: Name of the work, for `progress`.

    Raises:
        CorpusError: The text cannot be read.
    """
    digest = hashlib.sha256()
    n_threads = num_threads or os.cpu_count() or 1
    # Tokenizers share the threads; an encoder has several of its own only where there are more threads than tokenizers.
    n_own = max(1, n_threads // len(tokenizers))
    counts = GroupCounts(
        tokens={name: TokenCounter(each, tables[name], n_own) for name, each in tokenizers.items()}
    )
    pending: deque[tuple[Units, Future[TextMarks], dict[str, Future[UnitCounts]]]] = deque()
    n_bytes = 0

    def collect() -> None:
        nonlocal n_bytes
        (data, ends, _), marks, jobs = pending.popleft()
        counted = {name: job.result() for name, job in jobs.items()}
        for name, (columns, _) in counted.items():
            counts.tokens[name].add(columns)
        sizes = np.diff(ends, prepend=0)
        numbers = marks.result().numbers()
        counts.text.add({**numbers, "n_bytes": sizes, "n_documents": np.ones_like(sizes)})
        if each_block is not None:
            each_block(data, ends, counted)
        n_bytes += len(data)
        if progress:
            progress(phase, n_bytes, corpus.total_bytes)

    threads = ThreadPoolExecutor(n_threads, "measure")
    try:
        for units in read_units(corpus):
            data, ends, _ = units
            marks = threads.submit(TextMarks, data, ends)
            own = counts.tokens.items()
            jobs = {name: threads.submit(counter.count, data, ends, marks) for name, counter in own}
            pending.append((units, marks, jobs))
            digest.update(data)
            if not counts.n_bytes:
                text = data[: 4 * _SAMPLE_CHARACTERS].decode("utf-8", "ignore")
                counts.beginning = text[:_SAMPLE_CHARACTERS]
            if counts.n_bytes < kept_bytes:
                counts.kept.append(units)
            counts.n_bytes += len(data)
            counts.n_units += len(ends)
            if len(pending) > _BLOCKS_AHEAD:
                collect()
        while pending:
            collect()
    finally:
        threads.shutdown(cancel_futures=True)
    counts.sha256 = digest.hexdigest()
    return counts


def unit_encoder(tokenizer: Tokenizer, num_threads: int | None) -> AnyDocumentEncoder:
    """Return an encoder of units, for which special tokens are text."""
    return document_encoder(tokenizer.core, "none", num_threads)


def encode_units(
    encoder: AnyDocumentEncoder, data: bytes, ends: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the ids of units that are not empty, and the offset at which those of each end."""
    (chunks, id_ends, _, _), *_ = encoder.encode([(data, ends, False)])
    ids: Any = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return ids, id_ends.astype(np.int64)


LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".java": "java",
    ".go": "go",
}
"""Languages by the ending of the file."""
SYNTAX_BYTES = 2_000_000
"""Code of a group that is parsed, from its start."""
_WHITE_SPACE = frozenset(b" \t\r\n")


class SyntaxMarks:
    """The boundaries of syntax leaves in the code of a group.

    Args:
        counts: The group; its kept text is parsed.
        num_threads: Threads of the encoders; by default one per core.
    """

    def __init__(self, counts: GroupCounts, num_threads: int | None = None) -> None:
        self._num_threads = num_threads
        self.note: str | None = None
        """Why there are none."""
        self.blocks: list[tuple[bytes, NDArray[np.int64], list[list[tuple[int, int]]]]] = []
        """Text of units in a known language, their ends, and the boundaries of each as `leaf_boundaries` gives them."""
        n_bytes = 0
        for data, ends, source in counts.kept:
            language = LANGUAGES.get(PurePath(source.split("!")[-1]).suffix.lower())
            if language is None or n_bytes >= SYNTAX_BYTES:
                continue
            parser = _parser(language)
            if parser is None:
                self.note = "needs the extra code"
                return
            starts = [0, *ends.tolist()[:-1]]
            leaves = [leaf_boundaries(data[a:b], parser) for a, b in zip(starts, ends.tolist(), strict=True)]
            self.blocks.append((data, ends, leaves))
            n_bytes += len(data)
        if not self.blocks:
            self.note = "no code by the names of the files"

    def kept(self, tokenizer: Tokenizer, table: TokenTable) -> NDArray[np.int64] | None:
        """Count the boundaries that are boundaries of tokens, and all, by unit; None if the tokens are not the text."""
        encoder = unit_encoder(tokenizer, self._num_threads)
        rows: list[tuple[int, int]] = []
        for data, ends, boundaries in self.blocks:
            ids, _ = encode_units(encoder, data, ends)
            cuts = table.lengths[ids].cumsum()
            if not len(cuts) or cuts[-1] != len(data):
                return None
            is_cut = np.zeros(len(data) + 1, np.bool_)
            is_cut[cuts] = True
            for start, own in zip([0, *ends.tolist()[:-1]], boundaries, strict=True):
                rows.append((sum(bool(is_cut[start + a : start + b + 1].any()) for a, b in own), len(own)))
        return np.array(rows)


def leaf_boundaries(code: bytes, parser: Any) -> list[tuple[int, int]]:
    """Return the boundaries of the leaves of a syntax tree, without those at the ends of the code.

    A boundary is a range of offsets: white space between two leaves may belong to the token before or after it, or be
    one. A token boundary anywhere in the range respects it.

    Args:
        code: The code, which may be a part of a file: the parser skips what it does not understand.
        parser: A parser of tree-sitter.
    """
    found: dict[int, int] = {}
    for start, end in _leaves(parser.parse(code)):
        for offset in (start, end):
            first = last = offset
            while first > 0 and code[first - 1] in _WHITE_SPACE:
                first -= 1
            while last < len(code) and code[last] in _WHITE_SPACE:
                last += 1
            if first > 0 and last < len(code):
                found[first] = last
    return sorted(found.items())


def _leaves(tree: Any) -> list[tuple[int, int]]:
    cursor = tree.walk()
    leaves: list[tuple[int, int]] = []
    while True:
        if cursor.goto_first_child():
            continue
        node = cursor.node
        if node.end_byte > node.start_byte:
            leaves.append((node.start_byte, node.end_byte))
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return leaves


_parsers: dict[str, Any] = {}


def _parser(language: str) -> Any:
    """Return a parser; None if the extra `code` is not installed."""
    if language not in _parsers:
        try:
            tree_sitter: Any = import_module("tree_sitter")
            grammar: Any = import_module(f"tree_sitter_{language}")
        except ImportError:
            return None
        _parsers[language] = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    return _parsers[language]
