"""Shards as a corpus for another tokenizer: the exact text of their documents."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from bytemill.corpus.documents import CorpusCounts, CorpusRange, DocumentBatch, Position
from bytemill.data.request import stamp_of
from bytemill.errors import CorpusError, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from numpy.typing import NDArray

    from bytemill.data.token_source import TokenSource


BATCH_TOKENS = 1 << 20
"""Ids decoded at once: about 4 MB of text."""

OnError = Literal["fail", "skip", "replace"]
_SKIP_HINT = '--on-error skip (on_error="skip") leaves such documents out'


class ShardCorpus:
    """A `DocumentSource` of the documents of shards, for `encode_corpus`.

    Tokens around documents (separators, and the token at their start) are not text and are left out. Other special
    tokens become text. Those that the target tokenizer also has are recognised again when it encodes the text. Plain
    text that looks like one of these cannot be told apart from it, so its document is broken.

    Args:
        tokens: The shards.
        tokenizer: The tokenizer that encoded them.
        target_special: Special tokens of the target tokenizer.
        on_error: A broken document (not UTF-8, or with text that looks like a special token) is an error ("fail") or
            left out ("skip"). "replace" reads malformed bytes as U+FFFD.
        batch_tokens: Ids decoded at once.
        progress: Called with the ids searched for special tokens so far, and all ids.

    Raises:
        ShardError: If the shards were encoded with another tokenizer, or contain unknown ids.
    """

    def __init__(
        self,
        tokens: TokenSource,
        tokenizer: DecodingTokenizer,
        target_special: Mapping[str, int],
        *,
        on_error: OnError = "fail",
        batch_tokens: int = BATCH_TOKENS,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if tokens.manifest and tokens.manifest.fingerprint != tokenizer.fingerprint:
            raise ShardError(
                f"the shards in {tokens.name} were encoded with tokenizer {tokens.manifest.fingerprint}, not "
                f"{tokenizer.fingerprint}",
                hint="name the tokenizer that encoded them (--from)",
            )
        if on_error not in ("fail", "skip", "replace"):
            raise CorpusError(f"on_error is {on_error!r}", hint='choose "fail", "skip" or "replace"')
        self._tokens = tokens
        self._fingerprint = tokenizer.fingerprint
        self._on_error: OnError = on_error
        self._batch_tokens = batch_tokens
        self.around = _around(tokens, tokenizer)
        self._leading, self._trailing = _ids_around(tokens, tokenizer)
        inside = self._count_special(tokenizer, progress)
        again = {text: tokenizer.special_tokens[text] for text in inside if text in target_special}
        self.allowed_special = tuple(sorted(again))
        """Special tokens inside documents that the target recognises again."""
        self.special_as_text = {text: n for text, n in inside.items() if text not in again}
        """Special tokens inside documents that the target lacks, with their number. They become plain text."""
        self._text = TokenText(tokenizer, again)

    @property
    def total_bytes(self) -> int:
        """Bytes of the ids as stored."""
        return self._tokens.n_bytes

    @property
    def source_names(self) -> list[str]:
        """Folder or file of the shards."""
        return [self._tokens.name]

    @property
    def input_files(self) -> list[str]:
        """The files of the shards."""
        return [str(file) for file in self._tokens.files]

    @property
    def input_folders(self) -> list[str]:
        """The folder of the shards, and its URL."""
        return self._tokens.folders

    @property
    def description(self) -> dict[str, Any]:
        """See `DocumentSource`."""
        manifest = self._tokens.manifest
        if manifest is not None:
            files: list[Any] = [[shard.file, shard.sha256] for shard in manifest.shards]
        else:
            stamps = [(file, stamp_of(file)) for file in self._tokens.files]
            files = [[file.name, stamp and stamp.to_dict()] for file, stamp in stamps]
        return {
            "shards": files,
            "tokenizer": self._fingerprint,
            "separator": [self._tokens.separator, self._tokens.separator_in_front],
            "special": list(self.allowed_special),
            "on_error": self._on_error,
        }

    @property
    def can_resume(self) -> bool:
        """True: a second read yields the same documents."""
        return True

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """See `DocumentSource`.

        Raises:
            CorpusError: If a document is broken.
            ShardError: If an id is unknown.
        """
        at = start or Position()
        if at.source > 0:
            return
        state = _State(
            int(at.state.get("token", 0)),
            at.state.get("document"),
            bytes.fromhex(at.state.get("carry", "")),
            at.counts,
            self._tokens.n_tokens,
        )
        yield from self._read(state)

    def divide(self, part_bytes: int) -> list[CorpusRange]:
        """Divide the documents into parts of about `part_bytes` bytes of ids, in order.

        Raises:
            ShardError: The ends of documents are unknown.
        """
        if not self._tokens.knows_documents:
            raise ShardError(
                f"the ends of documents in {self._tokens.name} are unknown, so they cannot be divided",
                hint="name the separator (--separator), or leave out --executor",
            )
        n_tokens, item_bytes = self._tokens.n_tokens, np.dtype(self._tokens.dtype).itemsize
        starts = [0]
        while starts[-1] < n_tokens:
            starts.append(self._end_from(starts[-1] + max(1, part_bytes // item_bytes)))
        return [
            CorpusRange(
                first=0,
                start=start,
                last=0,
                stop=None if stop == n_tokens else stop,
                n_bytes=(stop - start) * item_bytes,
            )
            for start, stop in pairwise(starts)
        ]

    def read_range(self, corpus_range: CorpusRange) -> Generator[DocumentBatch]:
        """Read a part that `divide` has made; raises as `read`."""
        stop = self._tokens.n_tokens if corpus_range.stop is None else corpus_range.stop
        return self._read(_State(corpus_range.start, None, b"", CorpusCounts(), stop))

    def _end_from(self, token: int) -> int:
        """Return the first end of a document at `token` or behind it."""
        n_tokens = self._tokens.n_tokens
        for start in range(token - 1, n_tokens, self._batch_tokens):
            block = self._tokens.read(start, min(start + self._batch_tokens, n_tokens))
            ends = block.ends[block.ends > 0]
            if len(ends):
                return start + int(ends[0])
        return n_tokens

    def _read(self, state: _State) -> Generator[DocumentBatch]:
        while state.token < state.stop:
            if (batch := self._next(state)) is not None:
                yield batch

    def _next(self, state: _State) -> DocumentBatch | None:
        """Return the next batch, or None if all its documents are left out, and advance `state`."""
        chunk = self._chunk(state.token, state.document, state.stop)
        if state.document is None and chunk.is_open:
            state.document = state.token
            # A long document spans several batches, so it is checked before the first one.
            if self._on_error == "skip" and not self._skip_broken(state):
                return self._batch(b"", np.empty(0, np.int64), state)
        if state.document is None:
            data, ends = self._documents(chunk, state)
        else:
            data = self._part(chunk, state)
            ends = np.array([len(data)])
        state.token += chunk.n_tokens
        if not chunk.is_open:
            state.document = None
        return self._batch(data, ends, state)

    def _batch(self, data: bytes, ends: NDArray[np.int64], state: _State) -> DocumentBatch | None:
        """Make a batch that ends at `state`. Only the last one may be empty; it carries the final counts."""
        n_tokens, is_open = self._tokens.n_tokens, state.document is not None
        n_done = 0 if is_open else len(ends)
        counts = state.counts
        state.counts = replace(
            counts, n_documents=counts.n_documents + n_done, n_bytes=counts.n_bytes + len(data)
        )
        if not len(ends) and state.token < state.stop:
            return None
        n_read = state.token * self._tokens.n_bytes // n_tokens
        return DocumentBatch(data, ends, is_open, 0, n_read, state.position(n_tokens))

    def _chunk(self, token: int, document: int | None, stop: int) -> _Chunk:
        """Return the complete documents of a block, or part of a longer one, without tokens around documents."""
        block = self._tokens.read(token, min(token + self._batch_tokens, stop))
        ends = block.ends if document is None else block.ends[:1]
        if not len(ends) and token + len(block.tokens) == stop:
            ends = np.array([len(block.tokens)])  # the last document
        n_tokens = int(ends[-1]) if len(ends) else len(block.tokens)
        ids = block.tokens[:n_tokens]
        is_text = np.ones(n_tokens, dtype=bool)
        stops = ends if len(ends) else np.array([n_tokens])
        if document is None:
            starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
            first = starts[np.isin(ids[starts], self._leading)]
            is_text[first] = False
            # A document may begin with both a separator and another special token.
            stops_of_first = stops[np.searchsorted(stops, first, side="right")]
            both = first[first + 1 < stops_of_first]
            both = both[(ids[both] != ids[both + 1]) & np.isin(ids[both + 1], self._leading)]
            is_text[both + 1] = False
        if len(ends):
            last = ends - 1
            is_text[last[np.isin(ids[last], self._trailing)]] = False
        n_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(is_text)))
        return _Chunk(n_tokens, ids[is_text], n_before[ends], is_open=not len(ends))

    def _documents(self, chunk: _Chunk, state: _State) -> tuple[bytes, NDArray[np.int64]]:
        """Return the text of complete documents, and the end of each."""
        data = self._text.decode(chunk.ids)
        ends = self._text.byte_ends(chunk.ids, chunk.ends)
        alike = [
            int(np.searchsorted(ends, start, side="right"))
            for start, stop in self._text.look_alikes(chunk.ids, data)
            # A look-alike across the end of a document is in none.
            if stop <= ends[np.searchsorted(ends, start, side="right")]
        ]
        if not alike and _is_utf8(data, ends):
            return data, ends
        texts: list[bytes] = []
        for number, (start, stop) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
            text = data[start:stop]
            try:
                if number in alike:
                    raise _look_alike(self._tokens.name, state.number(len(texts)))
                texts.append(self._valid_utf8(text, state, state.number(len(texts))))
            except CorpusError:
                if self._on_error != "skip":
                    raise
                state.counts = replace(state.counts, n_broken=state.counts.n_broken + 1)
        return b"".join(texts), np.cumsum([len(text) for text in texts], dtype=np.int64)

    def _valid_utf8(self, text: bytes, state: _State, number: int) -> bytes:
        try:
            text.decode()
        except UnicodeDecodeError as error:
            if self._on_error != "replace":
                raise _not_utf8(self._tokens.name, number, error) from error
            return _replaced(text.decode("utf-8", "replace"), text, state)
        return text

    def _part(self, chunk: _Chunk, state: _State) -> bytes:
        """Return the text of a part of a long document; an incomplete character is carried to the next part."""
        data = self._text.decode(chunk.ids)
        number = state.number(0)
        first = max(state.document or 0, state.token - self._text.n_context)
        before = self._text.decode(self._tokens.read(first, state.token).tokens)
        if next(self._text.look_alikes(chunk.ids, data, before), None) is not None:
            raise _look_alike(self._tokens.name, number)
        data = state.carry + data
        decoder = codecs.getincrementaldecoder("utf-8")(
            "replace" if self._on_error == "replace" else "strict"
        )
        try:
            text = decoder.decode(data, final=not chunk.is_open)
        except UnicodeDecodeError as error:
            raise _not_utf8(self._tokens.name, number, error) from error
        state.carry = decoder.getstate()[0]
        return _replaced(text, data, state)

    def _skip_broken(self, state: _State) -> bool:
        """Check the long document at `state`; if it is broken, advance `state` past it and return False."""
        trial = replace(state)
        is_valid, is_open = True, True
        while is_open:
            document = trial.document if trial.token > state.token else None
            chunk = self._chunk(trial.token, document, state.stop)
            if is_valid:
                try:
                    self._part(chunk, trial)
                except CorpusError:
                    is_valid = False
            trial.token += chunk.n_tokens
            is_open = chunk.is_open and trial.token < state.stop
        if not is_valid:
            state.token, state.document, state.carry = trial.token, None, b""
            state.counts = replace(state.counts, n_broken=state.counts.n_broken + 1)
        return is_valid

    def _count_special(
        self, tokenizer: DecodingTokenizer, progress: Callable[[int, int], None] | None
    ) -> dict[str, int]:
        """Count the special tokens inside documents."""
        special = np.array(sorted(tokenizer.special_tokens.values()), dtype=np.int64)
        names = {token: text for text, token in tokenizer.special_tokens.items()}
        counts: dict[str, int] = {}
        token, document = 0, None
        while token < self._tokens.n_tokens and len(special):
            chunk = self._chunk(token, document, self._tokens.n_tokens)
            # Special tokens usually have the highest ids.
            candidates = chunk.ids[chunk.ids >= special[0]]
            found, n_found = np.unique(candidates[np.isin(candidates, special)], return_counts=True)
            for token_id, n in zip(found.tolist(), n_found.tolist(), strict=True):
                counts[names[token_id]] = counts.get(names[token_id], 0) + n
            document = token if chunk.is_open else None
            token += chunk.n_tokens
            if progress:
                progress(token, self._tokens.n_tokens)
        return counts


@dataclass(frozen=True)
class Around:
    """Layout of the source, and the tokens around its documents."""

    layout: str
    shard_tokens: int | None
    """None for files of other programs."""
    has_index: bool
    """True if there is a document index."""
    separator: str | None
    """Special token between documents."""
    prepended: str | None
    """Special token at the start of every document."""


@dataclass
class _State:
    """Position of the reader."""

    token: int
    document: int | None
    """First token of an open document; None between documents."""
    carry: bytes
    """Bytes of an incomplete character."""
    counts: CorpusCounts
    stop: int
    """Where reading ends, between documents."""

    def number(self, n_before: int) -> int:
        """Return the number of a document, from 1, with `n_before` valid documents before it in its batch."""
        return self.counts.n_documents + self.counts.n_broken + n_before + 1

    def position(self, n_tokens: int) -> Position:
        if self.token == n_tokens:
            return Position(1, {}, self.counts)
        values: dict[str, Any] = {"token": self.token}
        if self.document is not None:
            values |= {"document": self.document, "carry": self.carry.hex()}
        return Position(0, values, self.counts)


@dataclass(frozen=True)
class _Chunk:
    """Ids of complete documents, or of part of one."""

    n_tokens: int
    """Tokens in the shards."""
    ids: NDArray[Any]
    """Ids of text among them."""
    ends: NDArray[np.int64]
    """Ends of documents in `ids`."""
    is_open: bool
    """True if the only document continues."""


def _around(tokens: TokenSource, tokenizer: DecodingTokenizer) -> Around:
    settings = tokens.manifest.settings if tokens.manifest else None
    names = {token: text for text, token in tokenizer.special_tokens.items()}
    separator = None if tokens.separator is None else names.get(tokens.separator)
    if settings and settings.document_separator is None and separator == settings.prepended:
        separator = None  # the token at the start separates documents
    return Around(
        tokens.layout.name,
        settings.shard_tokens if settings else None,
        tokens.manifest is not None and tokens.manifest.documents is not None,
        separator,
        settings.prepended if settings else None,
    )


def _ids_around(
    tokens: TokenSource, tokenizer: DecodingTokenizer
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids at the start and at the end of documents that are not text."""
    separator = [] if tokens.separator is None else [tokens.separator]
    prepended = tokens.manifest.settings.prepended if tokens.manifest else None
    first = tokenizer.special_tokens.get(prepended or "")
    begin = [] if first is None else [first]
    leading = begin + separator if tokens.separator_in_front else begin
    trailing = [] if tokens.separator_in_front else separator
    return np.array(leading, dtype=np.int64), np.array(trailing, dtype=np.int64)


def _is_utf8(data: bytes, ends: NDArray[np.int64]) -> bool:
    """Check that every document is UTF-8: their concatenation is, and none begins inside a character."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    inner = ends[ends < len(data)]
    return not np.any(np.frombuffer(data, np.uint8)[inner] & 0xC0 == 0x80)


def _replaced(text: str, data: bytes, state: _State) -> bytes:
    """Return `text` as UTF-8 and count the U+FFFD that are not in `data`."""
    encoded = text.encode()
    n_replaced = encoded.count(b"\xef\xbf\xbd") - data.count(b"\xef\xbf\xbd")
    if n_replaced:
        state.counts = replace(state.counts, n_replaced=state.counts.n_replaced + n_replaced)
    return encoded


def _not_utf8(name: str, number: int, error: UnicodeDecodeError) -> CorpusError:
    return CorpusError(
        f"{name}: document {number:,} is not UTF-8 (byte {error.start:,}: {error.reason})",
        hint=f"{_SKIP_HINT}; --on-error replace reads malformed bytes as U+FFFD",
    )


def _look_alike(name: str, number: int) -> CorpusError:
    return CorpusError(
        f"{name}: document {number:,} contains text that looks like a special token used in the shards",
        hint=_SKIP_HINT,
    )


class DecodingTokenizer(Protocol):
    """A tokenizer that can decode shards."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...
    @property
    def vocab(self) -> dict[int, bytes]: ...
    def decode_bytes(self, ids: Any) -> bytes: ...


class TokenText:
    """Decodes arrays of ids.

    Args:
        tokenizer: The tokenizer that encoded them.
        special: Special tokens to find in plain text, with their ids.
    """

    def __init__(self, tokenizer: DecodingTokenizer, special: Mapping[str, int]) -> None:
        vocab = tokenizer.vocab
        self._lengths = np.zeros(max(vocab) + 1, dtype=np.int64)
        """Bytes of each token, by id."""
        self._lengths[list(vocab)] = [len(token) for token in vocab.values()]
        self._decode_bytes = tokenizer.decode_bytes
        self._special = [(text.encode(), token) for text, token in special.items()]
        self.n_context = max((len(text) for text, _ in self._special), default=1) - 1
        """Ids before an array that can be part of a look-alike in it."""

    def decode(self, ids: NDArray[Any]) -> bytes:
        """Return the bytes of ids. Raises `ShardError` for an unknown id."""
        try:
            return self._decode_bytes(ids)
        except (KeyError, OverflowError) as error:
            known = np.flatnonzero(self._lengths)
            unknown = ids[~np.isin(ids, known)]
            bad = int(unknown[0]) if len(unknown) else -1
            raise ShardError(
                f"the shards contain the id {bad:,}, which the tokenizer does not have",
                hint="they are damaged, or were encoded with another tokenizer",
            ) from error

    def byte_ends(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert ends of documents from ids to bytes."""
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._lengths[ids])))
        return sums[ends]

    def look_alikes(self, ids: NDArray[Any], data: bytes, before: bytes = b"") -> Iterator[tuple[int, int]]:
        """Yield (start, end) of plain text that looks like a special token, in bytes.

        Args:
            ids: The ids.
            data: Their bytes.
            before: Text before them. A look-alike that begins in it has a negative start.
        """
        starts: NDArray[np.int64] | None = None
        text = before + data if before else data
        for needle, token in self._special:
            found = text.find(needle)
            if found < 0:
                continue
            if starts is None:
                lengths = self._lengths[ids]
                starts = np.cumsum(lengths) - lengths
            real = set(starts[ids == token].tolist())
            while found >= 0:
                start = found - len(before)
                if start + len(needle) > 0 and start not in real:
                    yield start, start + len(needle)
                found = text.find(needle, found + 1)
