"""Compare the tokenizer with baselines, and with smaller vocabularies of its own merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.analysis.baselines import ByteTokenizer, CharacterTokenizer, TextTokenizer, WordTokenizer
from bytemill.analysis.metrics import measure
from bytemill.quickstart.result import Comparison, SweepPoint
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENIZER_NAME = "Byte-pair encoding"


def compare(tokenizer: Tokenizer, training: Sequence[str], validation_text: str) -> list[Comparison]:
    """Measure baselines trained on the same documents and, last, the tokenizer.

    Args:
        tokenizer: The trained tokenizer. The word-level baseline gets a vocabulary of the same size.
        training: Training documents.
        validation_text: Text to measure on.
    """
    characters = CharacterTokenizer.train(training)
    words = WordTokenizer.train(training, tokenizer.n_vocab, tokenizer.pattern)
    return [
        _compared("Bytes", ByteTokenizer(), validation_text, None),
        _compared("Characters", characters, validation_text, characters.unknown_id),
        _compared("Words", words, validation_text, words.unknown_id),
        _compared(TOKENIZER_NAME, tokenizer, validation_text, None),
    ]


def sweep(tokenizer: Tokenizer, training_text: str, validation_text: str) -> list[SweepPoint]:
    """Measure the tokenizers made of the first merges, with 512, 1,024, … and finally all tokens.

    Training is greedy, so the first merges of a large vocabulary are the merges of a small one.

    Args:
        tokenizer: The trained tokenizer.
        training_text: Text it was trained on.
        validation_text: Text it was not trained on.
    """
    n_special = len(tokenizer.special_tokens)
    smallest = 256 + n_special
    sizes = [smallest]
    size = 512
    while size < tokenizer.n_vocab:
        if size > smallest:
            sizes.append(size)
        size *= 2
    if tokenizer.n_vocab > smallest:
        sizes.append(tokenizer.n_vocab)
    n_training, n_validation = len(training_text.encode()), len(validation_text.encode())
    points: list[SweepPoint] = []
    for size in sizes:
        smaller = first_merges_only(tokenizer, size - smallest)
        points.append(
            SweepPoint(
                size,
                n_training / smaller.count(training_text, allowed_special="none"),
                n_validation / smaller.count(validation_text, allowed_special="none"),
            )
        )
    return points


def first_merges_only(tokenizer: Tokenizer, n_merges: int) -> Tokenizer:
    """Return the tokenizer that training would give if it stopped after `n_merges` merges.

    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
    >>> tok = Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")])
    >>> first_merges_only(tok, 1).encode("the")
    [256, 101]
    """
    merges = tokenizer.merges[:n_merges]
    tokens = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    return Tokenizer(
        dict(enumerate(tokens)), merges, list(tokenizer.special_tokens), pattern=tokenizer.pattern
    )


def _compared(name: str, tokenizer: TextTokenizer, text: str, unknown_id: int | None) -> Comparison:
    metrics = measure(tokenizer, text)
    n_unknown = 0 if unknown_id is None else tokenizer.encode(text).count(unknown_id)
    return Comparison(
        name=name,
        n_vocab=tokenizer.n_vocab,
        n_tokens=metrics.n_tokens,
        bytes_per_token=metrics.bytes_per_token,
        unknown_share=n_unknown / metrics.n_tokens,
    )
