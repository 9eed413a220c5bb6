"""Shards as a corpus for another tokenizer: the text of their documents, byte for byte."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bytemill.corpus.documents import CorpusCounts, DocumentBatch, Position
from bytemill.errors import CorpusError, ShardError
from bytemill.shards.token_text import DecodingTokenizer, TokenText

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import NDArray

    from bytemill.shards.token_source import TokenSource

BATCH_TOKENS = 1 << 20
"""Ids that are decoded at once: some 4 MB of text."""

OnError = Literal["fail", "skip", "replace"]
_SKIP_HINT = 'on_error="skip" (--on-error skip) leaves such documents out'


class ShardCorpus:
    """The documents of `tokens` as text, for `encode_corpus`: a `DocumentSource`.

    `tokenizer` is the one that made them. The tokens that stand around documents (separators, and what the manifest
    says is prepended) are left out: they are no text, and whoever encodes the documents puts his own. Other special
    tokens inside of documents become their text; those that `target_special` (the special tokens of the other
    tokenizer) has too are to be recognised again. Text that merely looks like one of these could not be told from it
    afterwards: such a document is broken.

    `on_error` says what becomes of broken documents, whose bytes are not UTF-8 or whose text looks like a special
    token: "fail" names the first one, "skip" leaves them out, "replace" reads malformed bytes as U+FFFD. `progress` is
    told how many ids of how many were searched for special tokens, which comes first.

    Raises `ShardError` where the shards were made with another tokenizer, or hold ids that it does not have.
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
                f"the shards in {tokens.name} were made with the tokenizer {tokens.manifest.fingerprint}, not with "
                f"{tokenizer.fingerprint}",
                hint="name the tokenizer that they were made with (--from)",
            )
        if on_error not in ("fail", "skip", "replace"):
            raise CorpusError(f"on_error is {on_error!r}", hint='give "fail", "skip" or "replace"')
        self._tokens = tokens
        self._fingerprint = tokenizer.fingerprint
        self._on_error: OnError = on_error
        self._batch_tokens = batch_tokens
        self.around = _around(tokens, tokenizer)
        self._leading, self._trailing = _ids_around(tokens, tokenizer)
        inside = self._count_special(tokenizer, progress)
        again = {text: tokenizer.special_tokens[text] for text in inside if text in target_special}
        self.allowed_special = tuple(sorted(again))
        """Special tokens inside of documents that are to be recognised again."""
        self.special_as_text = {text: n for text, n in inside.items() if text not in again}
        """Special tokens inside of documents that the other tokenizer lacks, and how often each comes as plain text."""
        self._text = TokenText(tokenizer, again)

    @property
    def total_bytes(self) -> int:
        """Bytes of the ids, as they are stored."""
        return self._tokens.n_bytes

    @property
    def source_names(self) -> list[str]:
        """Where the shards are."""
        return [self._tokens.name]

    @property
    def description(self) -> dict[str, Any]:
        """See `DocumentSource`."""
        manifest = self._tokens.manifest
        if manifest is not None:
            files: list[Any] = [[shard.file, shard.sha256] for shard in manifest.shards]
        else:
            files = [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in self._tokens.files]
        return {
            "shards": files,
            "tokenizer": self._fingerprint,
            "separator": [self._tokens.separator, self._tokens.separator_in_front],
            "special": list(self.allowed_special),
            "on_error": self._on_error,
        }

    @property
    def can_resume(self) -> bool:
        """True: files give the same documents again."""
        return True

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """See `DocumentSource`.

        Raises `CorpusError` for a broken document, `ShardError` for an id that no token has.
        """
        at = start or Position()
        if at.source > 0:
            return
        state = _State(
            int(at.state.get("token", 0)),
            at.state.get("document"),
            bytes.fromhex(at.state.get("carry", "")),
            at.counts,
        )
        while state.token < self._tokens.n_tokens:
            if (batch := self._next(state)) is not None:
                yield batch

    def _next(self, state: _State) -> DocumentBatch | None:
        """The next batch, None where all of its documents are left out; `state` goes behind it."""
        piece = self._piece(state.token, state.document)
        if state.document is None and piece.is_open:
            state.document = state.token
            # What is given cannot be taken back: a long document is looked through before.
            if self._on_error == "skip" and not self._skip_broken(state):
                return self._batch(b"", np.empty(0, np.int64), state)
        if state.document is None:
            data, ends = self._documents(piece, state)
        else:
            data = self._part(piece, state)
            ends = np.array([len(data)])
        state.token += piece.n_tokens
        if not piece.is_open:
            state.document = None
        return self._batch(data, ends, state)

    def _batch(self, data: bytes, ends: NDArray[np.int64], state: _State) -> DocumentBatch | None:
        """Text in front of `state`. One without documents only at the end, to tell of those that were left out."""
        n_tokens, is_open = self._tokens.n_tokens, state.document is not None
        n_done = 0 if is_open else len(ends)
        counts = state.counts
        state.counts = replace(
            counts, n_documents=counts.n_documents + n_done, n_bytes=counts.n_bytes + len(data)
        )
        if not len(ends) and state.token < n_tokens:
            return None
        n_read = state.token * self._tokens.n_bytes // n_tokens
        return DocumentBatch(data, ends, is_open, 0, n_read, state.position(n_tokens))

    def _piece(self, token: int, document: int | None) -> _Piece:
        """The documents that are whole within a block, or a part of one that is longer, without what stands around."""
        block = self._tokens.read(token, min(token + self._batch_tokens, self._tokens.n_tokens))
        ends = block.ends if document is None else block.ends[:1]
        if not len(ends) and token + len(block.tokens) == self._tokens.n_tokens:
            ends = np.array([len(block.tokens)])  # nothing says so, but here ends all
        n_tokens = int(ends[-1]) if len(ends) else len(block.tokens)
        ids = block.tokens[:n_tokens]
        is_text = np.ones(n_tokens, dtype=bool)
        stops = ends if len(ends) else np.array([n_tokens])
        if document is None:
            starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
            first = starts[np.isin(ids[starts], self._leading)]
            is_text[first] = False
            # A separator and a token that every document begins with may both be there.
            stops_of_first = stops[np.searchsorted(stops, first, side="right")]
            both = first[first + 1 < stops_of_first]
            both = both[(ids[both] != ids[both + 1]) & np.isin(ids[both + 1], self._leading)]
            is_text[both + 1] = False
        if len(ends):
            last = ends - 1
            is_text[last[np.isin(ids[last], self._trailing)]] = False
        n_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(is_text)))
        return _Piece(n_tokens, ids[is_text], n_before[ends], is_open=not len(ends))

    def _documents(self, piece: _Piece, state: _State) -> tuple[bytes, NDArray[np.int64]]:
        """The text of whole documents, and where each ends."""
        data = self._text.decode(piece.ids)
        ends = self._text.byte_ends(piece.ids, piece.ends)
        alike = [
            int(np.searchsorted(ends, start, side="right"))
            for start, stop in self._text.look_alikes(piece.ids, data)
            # What reads so across the end of a document is in none.
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
                texts.append(self._sound(text, state, state.number(len(texts))))
            except CorpusError:
                if self._on_error != "skip":
                    raise
                state.counts = replace(state.counts, n_broken=state.counts.n_broken + 1)
        return b"".join(texts), np.cumsum([len(text) for text in texts], dtype=np.int64)

    def _sound(self, text: bytes, state: _State, number: int) -> bytes:
        try:
            text.decode()
        except UnicodeDecodeError as error:
            if self._on_error != "replace":
                raise _not_utf8(self._tokens.name, number, error) from error
            return _replaced(text.decode("utf-8", "replace"), text, state)
        return text

    def _part(self, piece: _Piece, state: _State) -> bytes:
        """The text of a part of a long document, cut at a character; the rest of the last one is carried on."""
        data = self._text.decode(piece.ids)
        number = state.number(0)
        first = max(state.document or 0, state.token - self._text.n_context)
        before = self._text.decode(self._tokens.read(first, state.token).tokens)
        if next(self._text.look_alikes(piece.ids, data, before), None) is not None:
            raise _look_alike(self._tokens.name, number)
        data = state.carry + data
        decoder = codecs.getincrementaldecoder("utf-8")(
            "replace" if self._on_error == "replace" else "strict"
        )
        try:
            text = decoder.decode(data, final=not piece.is_open)
        except UnicodeDecodeError as error:
            raise _not_utf8(self._tokens.name, number, error) from error
        state.carry = decoder.getstate()[0]
        return _replaced(text, data, state)

    def _skip_broken(self, state: _State) -> bool:
        """True where the long document that begins at `state` is sound; otherwise `state` goes behind it."""
        trial = replace(state)
        is_sound, is_open = True, True
        while is_open:
            piece = self._piece(trial.token, trial.document if trial.token > state.token else None)
            if is_sound:
                try:
                    self._part(piece, trial)
                except CorpusError:
                    is_sound = False
            trial.token += piece.n_tokens
            is_open = piece.is_open and trial.token < self._tokens.n_tokens
        if not is_sound:
            state.token, state.document, state.carry = trial.token, None, b""
            state.counts = replace(state.counts, n_broken=state.counts.n_broken + 1)
        return is_sound

    def _count_special(
        self, tokenizer: DecodingTokenizer, progress: Callable[[int, int], None] | None
    ) -> dict[str, int]:
        """The special tokens inside of documents, and how often each is there."""
        special = np.array(sorted(tokenizer.special_tokens.values()), dtype=np.int64)
        names = {token: text for text, token in tokenizer.special_tokens.items()}
        counts: dict[str, int] = {}
        token, document = 0, None
        while token < self._tokens.n_tokens and len(special):
            piece = self._piece(token, document)
            # Special tokens mostly have the highest ids.
            candidates = piece.ids[piece.ids >= special[0]]
            found, n_found = np.unique(candidates[np.isin(candidates, special)], return_counts=True)
            for token_id, n in zip(found.tolist(), n_found.tolist(), strict=True):
                counts[names[token_id]] = counts.get(names[token_id], 0) + n
            document = token if piece.is_open else None
            token += piece.n_tokens
            if progress:
                progress(token, self._tokens.n_tokens)
        return counts


@dataclass(frozen=True)
class Around:
    """What the shards have around their documents."""

    layout: str
    shard_tokens: int | None
    """None in files of other programs."""
    has_index: bool
    """Whether there is a document index."""
    separator: str | None
    """The special token between documents."""
    prepended: str | None
    """The special token that every document begins with."""


@dataclass
class _State:
    """Where reading is."""

    token: int
    document: int | None
    """The first token of the document that goes on here, None between documents."""
    carry: bytes
    """Bytes of a character that goes on."""
    counts: CorpusCounts

    def number(self, n_before: int) -> int:
        """Of a document, counted from 1, with `n_before` sound ones in front of it in its batch."""
        return self.counts.n_documents + self.counts.n_broken + n_before + 1

    def position(self, n_tokens: int) -> Position:
        if self.token == n_tokens:
            return Position(1, {}, self.counts)
        values: dict[str, Any] = {"token": self.token}
        if self.document is not None:
            values |= {"document": self.document, "carry": self.carry.hex()}
        return Position(0, values, self.counts)


@dataclass(frozen=True)
class _Piece:
    """Ids of some documents, or of a part of one."""

    n_tokens: int
    """Tokens that it takes in the shards."""
    ids: NDArray[Any]
    """Those of them that are text."""
    ends: NDArray[np.int64]
    """Where documents end in `ids`."""
    is_open: bool
    """True where the only document goes on."""


def _around(tokens: TokenSource, tokenizer: DecodingTokenizer) -> Around:
    settings = tokens.manifest.settings if tokens.manifest else None
    names = {token: text for text, token in tokenizer.special_tokens.items()}
    separator = None if tokens.separator is None else names.get(tokens.separator)
    if settings and settings.document_separator is None and separator == settings.prepended:
        separator = None  # documents are told apart by what they begin with
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
    """The ids that documents may begin with, and end with, without their being text."""
    separator = [] if tokens.separator is None else [tokens.separator]
    prepended = tokens.manifest.settings.prepended if tokens.manifest else None
    first = tokenizer.special_tokens.get(prepended or "")
    begin = [] if first is None else [first]
    leading = begin + separator if tokens.separator_in_front else begin
    trailing = [] if tokens.separator_in_front else separator
    return np.array(leading, dtype=np.int64), np.array(trailing, dtype=np.int64)


def _is_utf8(data: bytes, ends: NDArray[np.int64]) -> bool:
    """True where every document is UTF-8 by itself: all together are, and none begins within a character."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    inner = ends[ends < len(data)]
    return not np.any(np.frombuffer(data, np.uint8)[inner] & 0xC0 == 0x80)


def _replaced(text: str, data: bytes, state: _State) -> bytes:
    """`text` as UTF-8, after its U+FFFD that `data` does not have were counted."""
    encoded = text.encode()
    n_replaced = encoded.count(b"\xef\xbf\xbd") - data.count(b"\xef\xbf\xbd")
    if n_replaced:
        state.counts = replace(state.counts, n_replaced=state.counts.n_replaced + n_replaced)
    return encoded


def _not_utf8(name: str, number: int, error: UnicodeDecodeError) -> CorpusError:
    return CorpusError(
        f"{name}: the bytes of document {number:,} are not UTF-8 (byte {error.start:,}: {error.reason})",
        hint=f'{_SKIP_HINT}, on_error="replace" reads them as U+FFFD',
    )


def _look_alike(name: str, number: int) -> CorpusError:
    return CorpusError(
        f"{name}: document {number:,} holds text that reads as a special token, which other documents use",
        hint=_SKIP_HINT,
    )
