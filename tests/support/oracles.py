"""Other tokenizers of the same vocabulary: rank files as tables, and merges by Hugging Face's trainer."""

import base64
import json
from functools import lru_cache
from pathlib import Path

import tokenizers

from bytemill.formats.byte_level import text_to_bytes


@lru_cache
def read_ranks(path: Path) -> dict[bytes, int]:
    """A rank file as a table."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def huggingface_tokenizer(
    documents: list[str], vocab_size: int, special_tokens: list[str]
) -> tokenizers.Tokenizer:
    """The byte-level tokenizer that Hugging Face's trainer makes of the documents."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = tokenizers.decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=special_tokens,
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer=trainer)
    return tokenizer


def huggingface_merges(tokenizer: tokenizers.Tokenizer) -> list[tuple[bytes, bytes]]:
    """The merges of a byte-level tokenizer."""
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(text_to_bytes(left), text_to_bytes(right)) for left, right in merges]
