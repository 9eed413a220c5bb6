"""Tokenizers that the core does not run: the library that the file was made for runs them.

Unigram, WordPiece and word-level models, and components that the core does not support exactly, are encoded and
decoded by Hugging Face `tokenizers` (a tokenizer.json) or by `sentencepiece` (a `.model`). A `LibraryEncoder` has the
methods of the core's `Encoder`, so that everything that encodes works with it; what needs merges raises TokenizerError.
`LibraryDocumentEncoder` does the same for the core's `DocumentEncoder`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from bytemill._core import DocumentEncoder, document_side
from bytemill.errors import SpecialTokenError, TokenizerError, UnknownTokenError
from bytemill.formats.byte_level import text_to_bytes
from bytemill.formats.spec import TokenFlags
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bytemill._core import Encoder
    from bytemill.formats.spec import LibraryModel

    Allowed = Literal["all", "none", "none_raise"] | Collection[str]
    TokenArray = NDArray[np.uint16] | NDArray[np.uint32]
    TokenIds = Sequence[int] | NDArray[Any]

_META = "\N{LOWER ONE EIGHTH BLOCK}"
_MANY_IDS = 1 << 21
_CHUNK_CHARACTERS = 1 << 20
"""Text per call of a library, which does not see signals."""


def open_model(model: LibraryModel) -> LibraryEncoder:
    """Open a model with its library.

    Raises:
        MissingExtraError: The library is not installed.
        TokenizerError: The library does not open it.
    """
    return (TokenizersEncoder if model.library == "tokenizers" else SentencePieceEncoder)(model)


class LibraryEncoder(ABC):
    """The interface of the core's `Encoder` for a tokenizer that a library runs. Thread-safe."""

    pattern = None
    normalizer: tuple[tuple[str, ...], ...] = ()
    ranked = False
    ignore_merges = False
    fallback = None
    shape = None

    special_tokens: dict[str, int]
    """Tokens that are searched in the text: special ones, and further ones that were added to the vocabulary."""
    flags: dict[str, TokenFlags]
    """Flags of those that do not have the default flags."""
    n_vocab: int

    def __init__(self, model: LibraryModel) -> None:
        self.model = model

    # What a library does

    @abstractmethod
    def _ids(self, texts: list[str], allowed: frozenset[str]) -> list[Sequence[int]]:
        """Return the ids of each text; `allowed` are the special tokens to recognize."""

    @abstractmethod
    def _spans(self, text: str, allowed: frozenset[str]) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, and the characters that each covers."""

    @abstractmethod
    def _text(self, ids: list[int]) -> str:
        """Return the text of known ids as the library decodes it."""

    @abstractmethod
    def _token(self, token_id: int) -> bytes:
        """Return what a known id adds to a text."""

    @abstractmethod
    def _known_ids(self) -> Iterable[int]:
        """Return the ids that a token has, in order."""

    @abstractmethod
    def piece(self, token_id: int) -> str | None:
        """Return a token as its file writes it, or None if no token has the id."""

    @abstractmethod
    def id_of_piece(self, piece: str) -> int | None:
        """Return the id of a token as its file writes it."""

    # Encode

    @property
    def dtype(self) -> Literal["uint16", "uint32"]:
        """Type of arrays of ids."""
        return "uint16" if self.n_vocab <= 1 << 16 else "uint32"

    @cached_property
    def _special(self) -> frozenset[str]:
        """The tokens that are recognized only if they are allowed."""
        return frozenset(t for t in self.special_tokens if t not in self.flags or self.flags[t].special)

    def _allowed(self, allowed: Allowed, texts: Iterable[str]) -> frozenset[str]:
        if allowed == "all":
            return self._special
        if allowed == "none":
            return frozenset()
        if allowed == "none_raise":
            for text in texts:
                self._refuse_special(text)
            return frozenset()
        if isinstance(allowed, str):
            raise ValueError(  # noqa: TRY004  # as the core does
                "allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens, "
                f"not {allowed!r}"
            )
        if unknown := sorted(set(allowed) - set(self.special_tokens)):
            raise SpecialTokenError(f"{unknown[0]!r} is not a special token")
        return self._special & frozenset(allowed)

    def _refuse_special(self, text: str) -> None:
        ids, spans = self._spans(text, self._special)
        names = {token_id: token for token, token_id in self.special_tokens.items() if token in self._special}
        for token_id, (start, end) in zip(ids, spans, strict=True):
            token = names.get(token_id)
            # The token for unknown words is special too.
            if token is not None and token in text[start:end]:
                n_before = len(text[: text.index(token, start)].encode())
                raise SpecialTokenError(
                    f"the text contains the disallowed special token {token!r} at byte {n_before}",
                    hint=f"pass allowed_special={{{token!r}}} to recognize it, or 'none' to treat it as text",
                )

    def _encoded(self, texts: Iterable[str], allowed: Allowed) -> list[Sequence[int]]:
        cleaned = [_without_surrogates(text, index) for index, text in enumerate(texts)]
        recognized = self._allowed(allowed, cleaned)
        ids: list[Sequence[int]] = []
        for group in _groups(cleaned):
            ids += self._ids(group, recognized)
        return ids

    def encode(self, text: str, allowed_special: Allowed, num_threads: int | None) -> list[int]:  # noqa: ARG002
        """See `Encoder.encode`. The library decides on threads."""
        return list(self._encoded([text], allowed_special)[0])

    def encode_batch(
        self,
        texts: Iterable[str],
        allowed_special: Allowed,
        num_threads: int | None,  # noqa: ARG002
    ) -> list[list[int]]:
        """See `Encoder.encode_batch`."""
        return [list(ids) for ids in self._encoded(texts, allowed_special)]

    def encode_to_numpy(
        self,
        text: str,
        allowed_special: Allowed,
        num_threads: int | None,  # noqa: ARG002
    ) -> TokenArray:
        """See `Encoder.encode_to_numpy`."""
        return self._array(self._encoded([text], allowed_special)[0])

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str],
        allowed_special: Allowed,
        num_threads: int | None,  # noqa: ARG002
    ) -> tuple[TokenArray, NDArray[np.int64]]:
        """See `Encoder.encode_batch_to_numpy`."""
        batch = self._encoded(texts, allowed_special)
        offsets = np.zeros(len(batch) + 1, np.int64)
        np.cumsum([len(ids) for ids in batch], out=offsets[1:])
        return self._joined(batch), offsets

    def encode_files(
        self,
        paths: Iterable[str | os.PathLike[str]],
        allowed_special: Allowed,
        num_threads: int | None,
    ) -> list[TokenArray]:
        """See `Encoder.encode_files`. Each file is in memory as a whole."""
        files = [Path(path) for path in paths]
        for file in files:
            if not file.is_file():
                with file.open("rb"):  # raises OSError for a missing file or a folder
                    raise OSError(f"{file} is not a regular file")
        return [
            self.encode_to_numpy(file.read_bytes().decode(), allowed_special, num_threads) for file in files
        ]

    def encode_with_spans(
        self,
        text: str,
        allowed_special: Allowed,
        num_threads: int | None,  # noqa: ARG002
    ) -> tuple[TokenArray, NDArray[np.int64]]:
        """Return the ids, and an (n, 2) array of the library's offsets in the UTF-8 of the text."""
        text = _without_surrogates(text, 0)
        ids, spans = self._spans(text, self._allowed(allowed_special, [text]))
        starts = np.fromiter(accumulate((len(c.encode()) for c in text), initial=0), np.int64, len(text) + 1)
        # The library may count a token beyond the end of a normalized text.
        return self._array(ids), starts[np.array(spans, np.int64).reshape(-1, 2).clip(max=len(text))]

    def count(self, text: str, allowed_special: Allowed) -> int:
        """Return the number of ids."""
        return len(self._encoded([text], allowed_special)[0])

    def encode_iterable(self, chunks: Iterable[str], allowed_special: Allowed) -> Iterator[int]:
        """Yield the ids of the joined chunks, which are in memory as a whole: any of them may change all ids."""
        stream = self.stream(allowed_special, "strict", None)
        for index, chunk in enumerate(chunks):
            if not isinstance(chunk, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"item {index} is not a str but {type(chunk).__name__}")
            yield from stream.feed(chunk).tolist()
        yield from stream.finish().tolist()

    def stream(
        self,
        allowed_special: Allowed,
        errors: Literal["strict", "replace"],
        num_threads: int | None,  # noqa: ARG002
    ) -> LibraryStream:
        """Return an encoder for a document that arrives in chunks. It keeps them until the end."""
        return LibraryStream(self, allowed_special, errors)

    def encode_bytes(self, data: bytes) -> list[int]:
        """Return the ids of bytes without special tokens; U+FFFD replaces what is not UTF-8."""
        return self.encode(data.decode(errors="replace"), "none", None)

    def safe_cut(self, window: str, allowed_special: Allowed) -> int | None:  # noqa: ARG002
        """Return None: where a text can be cut without changing its ids is not known."""
        return None

    def _array(self, ids: Sequence[int]) -> TokenArray:
        return np.array(ids, self.dtype)

    def _joined(self, batch: list[Sequence[int]]) -> TokenArray:
        return np.concatenate([np.zeros(0, self.dtype), *(self._array(ids) for ids in batch)])

    # Decode

    @cached_property
    def _tokens(self) -> dict[int, bytes]:
        return {i: self._token(i) for i in self._known_ids()}

    def _known(self, ids: TokenIds) -> list[int]:
        listed = [int(i) for i in ids]
        for token_id in listed:
            if token_id not in self._tokens:
                raise UnknownTokenError(token_id)
        return listed

    def decode(self, ids: TokenIds, errors: str) -> str:  # noqa: ARG002
        """Return the text of `ids` as the library decodes it."""
        return self._text(self._known(ids))

    def decode_batch(self, batch: Iterable[TokenIds], errors: str) -> list[str]:
        """Return the text of each sequence of ids."""
        return [self.decode(ids, errors) for ids in batch]

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """Return the joined tokens. Unlike `decode`, with the space that decoding removes from the start of a text."""
        return b"".join(self._tokens[i] for i in self._known(ids))

    @cached_property
    def decode_strip(self) -> Literal["none", "one"]:
        """Whether decoding removes a space from the first token (see `CharacterModel.decode_strip`)."""
        some = (i for i, token in self._tokens.items() if len(token) > 2 and token.startswith(b" "))
        first = next(some, None)
        return "none" if first is None or self._text([first]).startswith(" ") else "one"

    # Vocabulary

    def vocab(self) -> dict[int, bytes]:
        """Return all tokens by id."""
        return dict(self._tokens)

    def sorted_tokens(self) -> list[bytes]:
        """Return the tokens in byte order."""
        special = set(self.special_tokens.values())
        return sorted({token for i, token in self._tokens.items() if i not in special})

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token. Raises UnknownTokenError."""
        if token_id not in self._tokens:
            raise UnknownTokenError(token_id)
        return self._tokens[token_id]

    def bytes_to_id(self, token: bytes) -> int | None:
        """Return the id of the first token with these bytes."""
        return self._ids_by_bytes.get(token)

    @cached_property
    def _ids_by_bytes(self) -> dict[bytes, int]:
        return {token: i for i, token in reversed(self._tokens.items())}

    def merges(self) -> list[tuple[bytes, bytes]]:
        """Return no merges."""
        return []

    def merge_of(self, token_id: int) -> None:
        """Return None: tokens are not made by merges."""
        self.token_bytes(token_id)

    def segments(self, *_: object) -> Any:
        """Raise TokenizerError."""
        raise self.needs_core("explaining a text by its merges")

    def parts(self, *_: object) -> Any:
        """Raise TokenizerError."""
        raise self.needs_core("explaining a text by its merges")

    merge_steps = parts

    def with_special_tokens(self, tokens: Mapping[str, int]) -> LibraryEncoder:
        """Return an encoder with further special tokens. Raises TokenizerError if they cannot have these ids."""
        raise self.needs_core(f"adding the special token {next(iter(tokens))!r}")

    def needs_core(self, what: str) -> TokenizerError:
        """Return the error for something that only the core can do."""
        return TokenizerError(
            f"{what} needs a tokenizer that bytemill's core runs; {self.model.library} runs this one: "
            f"{self.model.reason}"
        )

    def canonical_form(self) -> bytes:
        """Return a form of everything that affects ids."""
        return f"{self.model.library}\n".encode() + self._canonical()

    @abstractmethod
    def _canonical(self) -> bytes:
        """Return the parts of the file that affect ids."""


class TokenizersEncoder(LibraryEncoder):
    """A tokenizer.json that Hugging Face `tokenizers` runs."""

    def __init__(self, model: LibraryModel) -> None:
        super().__init__(model)
        self._class: Any = import_library("tokenizers", "this tokenizer").Tokenizer
        self._document: dict[str, Any] = json.loads(model.content)
        self._whole = self._opened(model.content)
        self._by_allowed: dict[frozenset[str], Any] = {}
        added: dict[int, Any] = self._whole.get_added_tokens_decoder()
        self.special_tokens = {token.content: token_id for token_id, token in sorted(added.items())}
        flags = {
            token.content: TokenFlags(
                token.single_word, token.lstrip, token.rstrip, token.normalized, token.special
            )
            for token in added.values()
        }
        self.flags = {token: each for token, each in flags.items() if each != TokenFlags()}
        pieces: dict[str, int] = self._whole.get_vocab(with_added_tokens=True)
        self.n_vocab = max(pieces.values(), default=-1) + 1
        self._pieces = {token_id: piece for piece, token_id in pieces.items()}
        # As in the core: a file may name any id, and arrays over ids must not take gigabytes.
        if self.n_vocab > max(_MANY_IDS, 16 * len(pieces)):
            raise TokenizerError(
                f"the id {self.n_vocab - 1} is out of all proportion to {len(pieces)} tokens"
            )
        self._context = next(
            (i for i, piece in sorted(self._pieces.items()) if i not in added and piece.isalpha()), None
        )
        self._is_byte_level = '"ByteLevel"' in json.dumps(self._document.get("decoder"))

    def _opened(self, content: bytes) -> Any:
        with _library_errors("tokenizers does not open the file"):
            opened = self._class.from_buffer(content)
            # Ids and offsets are those of the whole text. A caller cuts, pads and frames them.
            opened.no_truncation()
            opened.no_padding()
            opened.post_processor = None
            if getattr(opened.model, "dropout", None) is not None:
                opened.model.dropout = None
        return opened

    def _for(self, allowed: frozenset[str]) -> Any:
        if allowed == self._special:
            return self._whole
        if (found := self._by_allowed.get(allowed)) is None:
            # Special tokens are treated as text, and those that are allowed are ordinary added tokens.
            added: list[dict[str, Any]] = self._document.get("added_tokens") or []
            tokens = [
                {**token, "special": bool(token.get("special")) and token.get("content") not in allowed}
                for token in added
            ]
            found = self._opened(json.dumps({**self._document, "added_tokens": tokens}).encode())
            found.encode_special_tokens = True
            self._by_allowed[allowed] = found
        return found

    def _ids(self, texts: list[str], allowed: frozenset[str]) -> list[Sequence[int]]:
        tokenizer = self._for(allowed)
        with _library_errors("tokenizers cannot encode a text"):
            if len(texts) == 1:  # without waking threads
                return [tokenizer.encode(texts[0], add_special_tokens=False).ids]
            return [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _spans(self, text: str, allowed: frozenset[str]) -> tuple[list[int], list[tuple[int, int]]]:
        with _library_errors("tokenizers cannot encode a text"):
            encoding = self._for(allowed).encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def _text(self, ids: list[int]) -> str:
        with _library_errors("tokenizers cannot decode ids"):
            return self._whole.decode(ids, skip_special_tokens=False)

    def _token(self, token_id: int) -> bytes:
        piece = self._pieces[token_id]
        if self.special_tokens.get(piece) == token_id:
            return piece.encode()
        if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece) and self._is_byte_fallback:
            return bytes([int(piece[3:5], 16)])
        if self._is_byte_level:
            try:
                return text_to_bytes(piece)
            except ValueError:
                return piece.encode()
        if self._context is None:
            return self._text([token_id]).encode()
        # Between two tokens, since the first one may lose a space before it and the last one that after it.
        n_one, n_two = (len(self._text([self._context] * n)) for n in (1, 2))
        text = self._text([self._context, token_id, self._context])
        return text[n_one : len(text) - (n_two - n_one)].encode()

    @cached_property
    def _is_byte_fallback(self) -> bool:
        return "ByteFallback" in json.dumps(self._document.get("decoder"))

    def _known_ids(self) -> Iterable[int]:
        return sorted(self._pieces)

    def piece(self, token_id: int) -> str | None:
        """See `LibraryEncoder.piece`."""
        return self._pieces.get(token_id)

    def id_of_piece(self, piece: str) -> int | None:
        """See `LibraryEncoder.id_of_piece`."""
        return self._whole.token_to_id(piece)

    def with_special_tokens(self, tokens: Mapping[str, int]) -> LibraryEncoder:
        """See `LibraryEncoder.with_special_tokens`."""
        entries = [
            {"id": i, "content": token, **asdict(TokenFlags())}
            for token, i in sorted(tokens.items(), key=lambda item: item[1])
        ]
        known: list[dict[str, Any]] = self._document.get("added_tokens") or []
        added = [*known, *entries]
        content = json.dumps({**json.loads(self.model.content), "added_tokens": added}).encode()
        encoder = TokenizersEncoder(replace(self.model, content=content))
        for token, token_id in tokens.items():
            if (found := encoder.special_tokens.get(token)) != token_id:
                raise TokenizerError(f"tokenizers gives {token!r} the id {found}, not {token_id}")
        return encoder

    def _canonical(self) -> bytes:
        kept = {
            key: self._document.get(key) for key in ("normalizer", "pre_tokenizer", "model", "added_tokens")
        }
        return json.dumps(kept, sort_keys=True).encode()


class SentencePieceEncoder(LibraryEncoder):
    """A `.model` that `sentencepiece` runs.

    Control symbols such as `<s>`, and that of unknown characters, are recognized in a text as bytemill's special
    tokens; the library itself does not recognize them.
    """

    def __init__(self, model: LibraryModel) -> None:
        super().__init__(model)
        library = import_library("sentencepiece", "this tokenizer")
        try:
            self._processor: Any = library.SentencePieceProcessor(model_proto=model.content)
        except Exception as error:  # the library has no class of its own
            raise TokenizerError(f"sentencepiece does not open the file: {error}") from error
        self.n_vocab = self._processor.vocab_size()
        self._all = [self._processor.id_to_piece(i) for i in range(self.n_vocab)]
        is_special = [
            self._processor.is_control(i) or self._processor.is_unknown(i) for i in range(self.n_vocab)
        ]
        self.special_tokens = {piece: i for i, piece in enumerate(self._all) if is_special[i]}
        self.flags = {}

    def _segments(self, text: str, allowed: frozenset[str]) -> Iterator[tuple[int, str, bool]]:
        """Yield the start, the text and whether it is a special token, for each part of a text."""
        at = 0
        if allowed:
            longest_first = sorted(allowed, key=len, reverse=True)
            for found in re.finditer("|".join(map(re.escape, longest_first)), text):
                if found.start() > at:
                    yield at, text[at : found.start()], False
                yield found.start(), found[0], True
                at = found.end()
        if at < len(text):
            yield at, text[at:], False

    def _ids(self, texts: list[str], allowed: frozenset[str]) -> list[Sequence[int]]:
        if not any(token in text for token in allowed for text in texts):
            # A list wakes threads.
            return [self._processor.encode(texts[0])] if len(texts) == 1 else self._processor.encode(texts)
        return [
            [
                token_id
                for _, part, is_special in self._segments(text, allowed)
                for token_id in ([self.special_tokens[part]] if is_special else self._processor.encode(part))
            ]
            for text in texts
        ]

    def _spans(self, text: str, allowed: frozenset[str]) -> tuple[list[int], list[tuple[int, int]]]:
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for start, part, is_special in self._segments(text, allowed):
            if is_special:
                ids.append(self.special_tokens[part])
                spans.append((start, start + len(part)))
                continue
            found = self._processor.encode(part, return_type="offset_mapping")
            ids += found["ids"]
            spans += [(start + begin, start + end) for begin, end in found["offsets"]]
        return ids, spans

    def _text(self, ids: list[int]) -> str:
        texts: list[str] = []
        ordinary: list[int] = []
        for token_id in [*ids, None]:
            if token_id is not None and self._all[token_id] not in self.special_tokens:
                ordinary.append(token_id)
                continue
            texts.append(self._processor.decode(ordinary) if ordinary else "")
            texts.append("" if token_id is None else self._all[token_id])
            ordinary = []
        return "".join(texts)

    def _token(self, token_id: int) -> bytes:
        piece = self._all[token_id]
        if self._processor.is_byte(token_id):
            return bytes([int(piece[3:5], 16)])
        return (piece if piece in self.special_tokens else piece.replace(_META, " ")).encode()

    def _known_ids(self) -> Iterable[int]:
        return range(self.n_vocab)

    def piece(self, token_id: int) -> str | None:
        """See `LibraryEncoder.piece`."""
        return self._all[token_id] if 0 <= token_id < self.n_vocab else None

    def id_of_piece(self, piece: str) -> int | None:
        """See `LibraryEncoder.id_of_piece`."""
        found = self._processor.piece_to_id(piece)
        return found if self._all[found] == piece else None

    def _canonical(self) -> bytes:
        return self.model.content


class LibraryStream:
    """The interface of the core's `StreamEncoder`. Ids come at the end of the document."""

    def __init__(
        self, encoder: LibraryEncoder, allowed_special: Allowed, errors: Literal["strict", "replace"]
    ) -> None:
        self._encoder = encoder
        self._allowed = allowed_special
        self._errors = errors
        self._chunks: list[bytes] = []
        self.n_bytes = 0
        self.n_replaced = 0

    def feed(self, data: str | bytes | bytearray | memoryview) -> TokenArray:
        """Take the next chunk and return no ids."""
        chunk = _without_surrogates(data, 0).encode() if isinstance(data, str) else bytes(data)
        self._chunks.append(chunk)
        self.n_bytes += len(chunk)
        return np.zeros(0, self._encoder.dtype)

    def finish(self) -> TokenArray:
        """Return the ids of the document. Raises UnicodeDecodeError."""
        data = b"".join(self._chunks)
        text = data.decode(errors=self._errors)
        if self._errors == "replace":
            self.n_replaced += text.count("\ufffd") - data.count("\ufffd".encode())
        self._chunks = []
        return self._encoder.encode_to_numpy(text, self._allowed, None)


AnyDocumentEncoder: TypeAlias = "DocumentEncoder | LibraryDocumentEncoder"


def document_encoder(  # noqa: PLR0917
    encoder: Encoder | LibraryEncoder,
    allowed_special: Allowed,
    num_threads: int | None,
    prefix: Sequence[int] = (),
    suffix: int | None = None,
    stripped: int | None = None,
    split: tuple[int, int] | None = None,
) -> AnyDocumentEncoder:
    """Return an encoder of packed documents. Arguments are those of `DocumentEncoder`."""
    if isinstance(encoder, LibraryEncoder):
        return LibraryDocumentEncoder(encoder, allowed_special, prefix, suffix, stripped, split)
    return DocumentEncoder(encoder, allowed_special, num_threads, list(prefix), suffix, stripped, split)


class LibraryDocumentEncoder:
    """The interface of the core's `DocumentEncoder`. An open document is in memory until its end."""

    def __init__(  # noqa: PLR0917
        self,
        encoder: LibraryEncoder,
        allowed_special: Allowed,
        prefix: Sequence[int] = (),
        suffix: int | None = None,
        stripped: int | None = None,
        split: tuple[int, int] | None = None,
    ) -> None:
        self._encoder = encoder
        self._allowed: Allowed = allowed_special
        encoder.encode("", allowed_special, None)  # raises SpecialTokenError for unknown ones
        self._prefix = list(prefix)
        self._suffix = suffix
        self._stripped = stripped
        self._split = split
        self._open = ""
        self._has_open = False

    def encode(
        self, batches: Sequence[tuple[bytes | memoryview, NDArray[np.int64], bool]]
    ) -> list[tuple[list[TokenArray], NDArray[np.uint64], list[int], int]]:
        """See `DocumentEncoder.encode`."""
        documents: list[tuple[int, str]] = []  # number of the batch, text
        n_bytes = [[0] * len(batches), [0] * len(batches)]
        for number, (data, ends, is_open) in enumerate(batches):
            start = 0
            for index, end in enumerate(ends.tolist()):
                self._open += bytes(data[start:end]).decode()
                start = end
                if is_open and index == len(ends) - 1:
                    self._has_open = True
                    break
                documents.append((number, self._open))
                self._open, self._has_open = "", False
        ids = self._encoder.encode_batch([text for _, text in documents], self._allowed, None)
        sides: list[tuple[list[list[int]], list[int]]] = [([], []), ([], [])]
        n_empty = [0, 0]
        for (number, text), own in zip(documents, ids, strict=True):
            side = self._side(text)
            n_bytes[side][number] += len(text.encode())
            framed = self._framed(own)
            if framed:
                sides[side][0].append(framed)
                sides[side][1].append(len(framed))
            else:
                n_empty[side] += 1
        return [
            (
                [np.array([i for own in framed for i in own], self._encoder.dtype)] if framed else [],
                np.cumsum(np.array(lengths, np.uint64), dtype=np.uint64),
                n_bytes[side],
                n_empty[side],
            )
            for side, (framed, lengths) in enumerate(sides)
        ]

    def _side(self, text: str) -> int:
        if self._split is None:
            return 0
        return document_side(text, *self._split)

    def _framed(self, ids: list[int]) -> list[int]:
        """Add what each document starts and ends with, unless it is there; a document without ids stays empty."""
        if not ids:
            return []
        if self._stripped is not None and ids[-1] == self._stripped:
            ids = ids[:-1]
        present = next(
            n for n in range(len(self._prefix) + 1) if ids[: len(self._prefix) - n] == self._prefix[n:]
        )
        ids = self._prefix[:present] + ids
        if self._suffix is not None and ids[-1:] != [self._suffix]:
            ids = [*ids, self._suffix]
        return ids

    def carry(self) -> tuple[str, int, int | None, list[int], int | None] | None:
        """Return the state of an open document: its text."""
        return (self._open, 0, None, [], None) if self._has_open else None

    def resume(self, carry: tuple[str, int, int | None, list[int], int | None] | None) -> None:
        """Continue from the `carry` of another encoder with the same options."""
        self._open, self._has_open = (carry[0], True) if carry else ("", False)


@contextmanager
def _library_errors(what: str) -> Generator[None]:
    """Turn what a library raises, panics of Rust among it, into TokenizerError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(f"{what}: {error}", hint="the file may be damaged: download it again") from error


def _without_surrogates(text: str, index: int) -> str:
    """Return the text with U+FFFD for lone surrogates and joined pairs, as the core reads it."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"item {index} is not a str but {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _groups(texts: list[str]) -> Iterator[list[str]]:
    """Yield the texts in groups of about `_CHUNK_CHARACTERS` characters."""
    group: list[str] = []
    n_characters = 0
    for text in texts:
        group.append(text)
        n_characters += len(text)
        if n_characters >= _CHUNK_CHARACTERS:
            yield group
            group, n_characters = [], 0
    if group:
        yield group
