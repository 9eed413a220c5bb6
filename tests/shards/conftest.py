"""A tokenizer of bytes that streams as the real one does, so that shards are tested apart from it."""

import codecs
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

END = "<|endoftext|>"
END_ID = 256


class ByteStream:
    """Gives the bytes as ids, and the end-of-text token as 256 wherever it is cut."""

    def __init__(self, errors: str, dtype: str) -> None:
        self.n_replaced = 0
        self._dtype = dtype
        self._errors = errors
        self._start_again()

    def feed(self, data: str | bytes, /) -> NDArray[Any]:
        data = data.encode() if isinstance(data, str) else data
        buffered = len(self._decoder.getstate()[0])
        self._text += self._decode(data, self._n_bytes - buffered, final=False)
        self._n_bytes += len(data)
        # What may be the beginning of the special token waits for the next piece.
        certain, found, rest = self._text.rpartition(END)
        cut = max(0, len(rest) - len(END) + 1)
        self._text = rest[cut:]
        return self._ids(certain + found + rest[:cut])

    def finish(self) -> NDArray[Any]:
        buffered = len(self._decoder.getstate()[0])
        text = self._text + self._decode(b"", self._n_bytes - buffered, final=True)
        self._start_again()
        return self._ids(text)

    def _start_again(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(self._errors)
        self._text = ""
        self._n_bytes = 0

    def _decode(self, data: bytes, offset: int, *, final: bool) -> str:
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            place = offset + error.start
            raise UnicodeDecodeError("utf-8", b"", place, place + 1, error.reason) from None
        self.n_replaced += text.count("\ufffd")
        return text

    def _ids(self, text: str) -> NDArray[Any]:
        parts = [np.frombuffer(part.encode(), np.uint8) for part in text.split(END)]
        for place in range(len(parts) - 1, 0, -1):
            parts.insert(place, np.array([END_ID]))
        return np.concatenate(parts).astype(self._dtype)


@dataclass
class ByteCore:
    """The part of the Rust encoder that shards are made with."""

    dtype: Literal["uint16", "uint32"] = "uint16"
    n_vocab: int = 257

    def stream(
        self,
        allowed_special: str | Collection[str],
        errors: Literal["strict", "replace"],
        num_threads: int | None,  # noqa: ARG002
    ) -> ByteStream:
        if isinstance(allowed_special, str) and allowed_special not in ("all", "none", "none_raise"):
            raise ValueError(f"allowed_special is {allowed_special!r}")
        return ByteStream(errors, self.dtype)


@dataclass
class ByteTokenizer:
    """Bytes as ids 0 to 255, and one special token."""

    core: ByteCore = field(default_factory=ByteCore)
    fingerprint: str = "bytes-1"
    special_tokens: dict[str, int] = field(default_factory=lambda: {END: END_ID})


@pytest.fixture
def byte_tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


@pytest.fixture
def make_tokenizer() -> Callable[..., ByteTokenizer]:
    """Makes byte tokenizers with another dtype or fingerprint."""

    def make(dtype: Literal["uint16", "uint32"] = "uint16", fingerprint: str = "bytes-1") -> ByteTokenizer:
        return ByteTokenizer(ByteCore(dtype), fingerprint)

    return make


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of two files: one of stories with separators between them, one without."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(f"Es war einmal{END}Zweite Größe{END}", "utf-8")
    (folder / "b.txt").write_text("日本語のテキスト, and more of it", "utf-8")
    return folder
