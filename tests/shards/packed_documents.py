"""A tokenizer whose ids can be written down by hand, and documents that come in batches of any size."""

import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bytemill import Tokenizer
from bytemill.corpus import CorpusCounts, DocumentBatch, Position

END = "<|endoftext|>"
END_ID = 256


def tokenizer_of_bytes(dtype: Literal["uint16", "uint32"] = "uint16", start: str | None = None) -> Tokenizer:
    """Bytes as ids 0 to 255, and END; `start` is one more special token."""
    special = {END: END_ID if dtype == "uint16" else 70_000}
    if start is not None:
        special[start] = 257
    return Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], special_tokens=special)


TOKENIZER = tokenizer_of_bytes()


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of all files in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@dataclass
class Documents:
    """Documents of one source in batches of some characters; a longer one goes on from batch to batch."""

    texts: list[str]
    batch_chars: int = 1000
    can_resume: bool = True
    name: str = "documents"
    seconds_between: float = 0.0

    @property
    def total_bytes(self) -> int:
        return sum(len(text.encode()) for text in self.texts)

    @property
    def source_names(self) -> list[str]:
        return [self.name]

    @property
    def description(self) -> dict[str, Any]:
        return {"name": self.name, "n_texts": len(self.texts)}

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        at = start or Position()
        first = at.state.get("batch", 0)
        for number, (pieces, is_open) in enumerate(self._batches()):
            if number < first:
                continue
            data = [piece.encode() for piece in pieces]
            n_bytes = at.counts.n_bytes + sum(map(len, data))
            counts = CorpusCounts(at.counts.n_documents + len(pieces) - is_open, n_bytes)
            at = Position(0, {"batch": number + 1}, counts)
            time.sleep(self.seconds_between)
            ends = np.cumsum([len(piece) for piece in data], dtype=np.int64)
            yield DocumentBatch(b"".join(data), ends, is_open, 0, n_bytes, at)

    def _batches(self) -> Generator[tuple[list[str], bool]]:
        pieces: list[str] = []
        room = self.batch_chars
        for text in self.texts:
            rest = text
            while len(rest) > room:
                yield [*pieces, rest[:room]], True
                rest, pieces, room = rest[room:], [], self.batch_chars
            pieces.append(rest)
            room -= len(rest)
            if not room:
                yield pieces, False
                pieces, room = [], self.batch_chars
        if pieces:
            yield pieces, False


def documents(seconds_between: float = 0.0) -> Documents:
    """Some hundred documents, short ones and long ones, in many scripts; some are empty and some are there twice."""
    chance = random.Random(7)
    words = ["the ", "größer ", "日本語", "<|endoftext|>", "🎉 ", "slow\n", "0123456789 "]
    texts = ["".join(chance.choices(words, k=int(10 ** chance.uniform(0, 2.8)))) for _ in range(120)]
    texts += ["", *texts[:20], "", "x" * 20_000]
    chance.shuffle(texts)
    return Documents(texts, 700, seconds_between=seconds_between)
