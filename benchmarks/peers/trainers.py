"""The trainers that the case `train` compares: from a file to merges, with GPT-2's pattern over all 256 bytes."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import UnavailableError, require
from benchmarks.peers.encoders import version_of, visible_characters

PIECE_CHARACTERS = 1 << 18
EXPRESSION = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Trained:
    """The tokens that merges made, in order, and the merges themselves where the tool tells them."""

    version: str
    tokens: list[bytes]
    merges: list[tuple[bytes, bytes]] | None
    peak_memory_bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by phase, where the tool tells them."""


def _after_last_safe_cut(text: str) -> int:
    """The last place behind a line end that stands alone between two characters of no white space, else 0."""
    end = len(text) - 1
    while (place := text.rfind("\n", 1, end)) > 0:
        if not text[place - 1].isspace() and not text[place + 1].isspace():
            return place + 1
        end = place
    return 0


def pieces_of(parts: Iterable[str]) -> Iterator[str]:
    """The text that `parts` join to, in pieces that no pre-token of GPT-2's pattern crosses.

    A single line end between two characters that are no white space is a pre-token by itself, so a cut behind
    it leaves every pre-token whole. Cut anywhere else, runs of blanks would split otherwise and the merges
    would differ.
    """
    left = ""
    for part in parts:
        left += part
        cut = _after_last_safe_cut(left)
        if cut:
            yield left[:cut]
            left = left[cut:]
    if left:
        yield left


def pieces_of_file(path: Path) -> Iterator[str]:
    """The text of a file as `pieces_of` cuts it, for the tools that take an iterator."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from pieces_of(iter(lambda: file.read(PIECE_CHARACTERS), ""))


def _bytemill(ties: str, max_memory: str | None = None) -> Callable[[Path, int, int], Trained]:
    def train(path: Path, vocab_size: int, threads: int) -> Trained:
        bytemill = require("bytemill")
        tokenizer = bytemill.train(
            str(path),
            vocab_size=vocab_size,
            special_tokens=[],
            pattern="gpt2",
            ties=ties,
            max_memory=max_memory,
            num_threads=threads,
        )
        merges: list[tuple[bytes, bytes]] = list(tokenizer.merges)
        tokens = [left + right for left, right in merges]
        report = tokenizer.training_report
        phases = {phase.name: phase.seconds for phase in report.phases}
        return Trained(bytemill.__version__, tokens, merges, report.peak_memory_bytes, phases)

    return train


def _huggingface(path: Path, vocab_size: int, _threads: int) -> Trained:
    tokenizers = require("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(pieces_of_file(path), trainer)
    return _from_spelled(version_of("tokenizers"), json.loads(tokenizer.to_str())["model"]["merges"])


def _from_spelled(version: str, spelled: Sequence[Sequence[str]]) -> Trained:
    """Merges spelled in GPT-2's visible characters, as bytes."""
    byte_of = {character: byte for byte, character in visible_characters().items()}

    def spell(token: str) -> bytes:
        return bytes(byte_of[character] for character in token)

    merges = [(spell(left), spell(right)) for left, right in spelled]
    return Trained(version, [left + right for left, right in merges], merges)


def _rustbpe(path: Path, vocab_size: int, _threads: int) -> Trained:
    rustbpe = require("rustbpe")
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(pieces_of_file(path), vocab_size, pattern=EXPRESSION)
    ranks: list[tuple[bytes, int]] = tokenizer.get_mergeable_ranks()
    tokens = [bytes(token) for token, rank in sorted(ranks, key=lambda item: item[1]) if rank >= 256]
    return Trained(version_of("rustbpe"), tokens, None)


def _gigatoken(path: Path, vocab_size: int, _threads: int) -> Trained:
    gigatoken = require("gigatoken")
    _vocab, merges = gigatoken.train_bpe(path, vocab_size, [])
    merges = [(bytes(left), bytes(right)) for left, right in merges]
    return Trained(version_of("gigatoken"), [left + right for left, right in merges], merges)


def _gigabpe(path: Path, vocab_size: int, threads: int) -> Trained:
    gigabpe = require("gigabpe")
    result: tuple[Any, list[tuple[str, str]]] = gigabpe.train_bpe(
        [str(path)], vocab_size, pretokenizer="bytelevel", threads=threads
    )
    if not result[1]:
        raise UnavailableError("gave no merges")
    return _from_spelled(version_of("gigabpe"), result[1])


TRAINERS: dict[str, Callable[[Path, int, int], Trained]] = {
    "bytemill": _bytemill("bytes"),
    "bytemill, HF ties": _bytemill("huggingface"),
    "bytemill-300MB": _bytemill("bytes", "300MB"),
    "huggingface": _huggingface,
    "rustbpe": _rustbpe,
    "gigatoken": _gigatoken,
    "gigabpe": _gigabpe,
}
"""Name -> training on (file, size of the vocabulary, threads)."""
