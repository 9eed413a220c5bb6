"""The BPE trainers that `train.py` compares, each from a file to merges with GPT-2's pattern and the 256 bytes first."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import NotPossible, require

PIECE_CHARACTERS = 1 << 18
_SAFE_CUT = re.compile(r"(?<=\S\n)(?=\S)")
_EXPRESSION = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Trained:
    """What training gave: the tokens made by merges, in order, and the merges themselves where the tool tells them."""

    version: str
    tokens: list[bytes]
    merges: list[tuple[bytes, bytes]] | None


def pieces_of_file(path: Path) -> Iterator[str]:
    """The text of a file in pieces that no pre-token of GPT-2's pattern crosses, for the tools that take an iterator.

    A single line end between two characters that are no white space is a pre-token by itself, so a cut behind it
    leaves every pre-token whole. Cut anywhere else, runs of blanks would split otherwise and the merges would differ.
    """
    left = ""
    with path.open(encoding="utf-8", newline="") as file:
        while part := file.read(PIECE_CHARACTERS):
            left += part
            # Neither end of what is in hand tells on which side of it a cut would be safe.
            cuts = [match.end() for match in _SAFE_CUT.finditer(left, max(0, len(left) - PIECE_CHARACTERS))]
            if cuts:
                yield left[: cuts[-1]]
                left = left[cuts[-1] :]
    if left:
        yield left


def _bytemill(ties: str) -> Callable[[Path, int, int], Trained]:
    def train(path: Path, vocab_size: int, threads: int) -> Trained:
        bytemill = require("bytemill")
        tokenizer = bytemill.train(
            str(path), vocab_size=vocab_size, special_tokens=[], pattern="gpt2", ties=ties, num_threads=threads
        )
        merges: list[tuple[bytes, bytes]] = list(tokenizer.merges)
        return Trained(metadata.version("bytemill"), [left + right for left, right in merges], merges)

    return train


def _huggingface(path: Path, vocab_size: int, threads: int) -> Trained:
    del threads  # from the environment
    tokenizers = require("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(pieces_of_file(path), trainer)
    return _from_spelled(metadata.version("tokenizers"), _merges_in(tokenizer.to_str()))


def _merges_in(tokenizer_json: str) -> list[tuple[str, str]]:
    import json

    return [(left, right) for left, right in json.loads(tokenizer_json)["model"]["merges"]]


def _from_spelled(version: str, spelled: list[tuple[str, str]]) -> Trained:
    """Merges spelled in GPT-2's visible characters, as bytes."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(byte): byte for byte in itself}
    others = (byte for byte in range(256) if byte not in set(itself))
    byte_of |= {chr(0x100 + place): byte for place, byte in enumerate(others)}

    def spell(token: str) -> bytes:
        return bytes(byte_of[character] for character in token)

    merges = [(spell(left), spell(right)) for left, right in spelled]
    return Trained(version, [left + right for left, right in merges], merges)


def _rustbpe(path: Path, vocab_size: int, threads: int) -> Trained:
    del threads  # from the environment
    rustbpe = require("rustbpe")
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(pieces_of_file(path), vocab_size, pattern=_EXPRESSION)
    ranks: list[tuple[bytes, int]] = tokenizer.get_mergeable_ranks()
    tokens = [bytes(token) for token, rank in sorted(ranks, key=lambda item: item[1]) if rank >= 256]
    return Trained(metadata.version("rustbpe"), tokens, None)


def _gigatoken(path: Path, vocab_size: int, threads: int) -> Trained:
    del threads  # from the environment
    gigatoken = require("gigatoken")
    _vocab, merges = gigatoken.train_bpe(path, vocab_size, [])
    merges = [(bytes(left), bytes(right)) for left, right in merges]
    return Trained(metadata.version("gigatoken"), [left + right for left, right in merges], merges)


def _gigabpe(path: Path, vocab_size: int, threads: int) -> Trained:
    gigabpe = require("gigabpe")
    result: tuple[Any, list[tuple[str, str]]] = gigabpe.train_bpe(
        [str(path)], vocab_size, pretokenizer="bytelevel", threads=threads
    )
    if not result[1]:
        raise NotPossible("gave no merges")
    return _from_spelled(metadata.version("gigabpe"), result[1])


TRAINERS: dict[str, Callable[[Path, int, int], Trained]] = {
    "bytemill": _bytemill("bytes"),
    "bytemill, HF ties": _bytemill("huggingface"),
    "huggingface": _huggingface,
    "rustbpe": _rustbpe,
    "gigatoken": _gigatoken,
    "gigabpe": _gigabpe,
}
"""Name -> training on (file, size of the vocabulary, threads)."""
