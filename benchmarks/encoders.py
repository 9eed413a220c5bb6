"""The encoders that the benchmark programs compare, each behind the same few calls.

An encoder is made from a vocabulary, so that all have the same one. What a tool does not offer is None; what it cannot
do with this vocabulary raises UnavailableError with the reason. The tools that train and read vocabularies of one's own
are here, those with built-in vocabularies or of less reach in `more_encoders.py`.
"""

from collections.abc import Callable
from importlib import metadata
from typing import Any

from encoder import Encoder, arrays_of
from harness import UnavailableError, require
from more_encoders import MORE_ENCODERS
from vocabularies import PATTERN_OF_FILE, Vocabulary, expression_of, merges_of_ranks, tokenizer_json

__all__ = ["ENCODERS", "PATTERN_OF_FILE", "Encoder", "Vocabulary", "expression_of", "merges_of_ranks"]


def _bytemill(vocabulary: Vocabulary, threads: int) -> Encoder:
    bytemill = require("bytemill")
    tokenizer = bytemill.Tokenizer.load(vocabulary.path, pattern=vocabulary.pattern, special_tokens={})
    return Encoder(
        version=bytemill.__version__,
        to_array=(lambda text: tokenizer.encode_to_numpy(text, num_threads=threads)),
        to_list=(lambda text: tokenizer.encode_ordinary(text, num_threads=threads)),
        batch=(lambda texts: tokenizer.encode_ordinary_batch(texts, num_threads=threads)),
        batch_array=(
            lambda texts: tokenizer.encode_batch_to_numpy(texts, num_threads=threads, allowed_special="none")
        ),
        files=(lambda paths: tokenizer.encode_files(paths, num_threads=threads, allowed_special="none")),
        decode=tokenizer.decode_bytes,
        decode_array=tokenizer.decode_bytes,
    )


def _tiktoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    tiktoken = require("tiktoken")
    encoding = tiktoken.Encoding(
        "benchmark",
        pat_str=expression_of(vocabulary.pattern),
        mergeable_ranks=vocabulary.ranks(),
        special_tokens={},
    )
    return Encoder(
        version=metadata.version("tiktoken"),
        to_array=encoding.encode_to_numpy if threads == 1 else None,
        to_list=encoding.encode_ordinary if threads == 1 else None,
        batch=(lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)),
        decode=encoding.decode_bytes,
        decode_array=encoding.decode_bytes,
    )


def _huggingface(vocabulary: Vocabulary, threads: int) -> Encoder:
    tokenizers = require("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_json(vocabulary)))
    return Encoder(
        version=metadata.version("tokenizers"),
        to_list=(lambda text: tokenizer.encode(text, add_special_tokens=False).ids) if threads == 1 else None,
        batch=(lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]),
        decode=tokenizer.decode,
        decode_array=tokenizer.decode,
    )


def _gigatoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    gigatoken = require("gigatoken")
    scheme = {"gpt2": "gpt2", "cl100k": "gpt4", "o200k": "o200k"}[vocabulary.pattern]
    tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.path, scheme, {})
    return Encoder(
        version=metadata.version("gigatoken"),
        to_array=tokenizer.encode if threads == 1 else None,
        # Its lists for batches are slower for one text, whatever its size.
        to_list=(lambda text: tokenizer.encode(text).tolist()) if threads == 1 else None,
        batch=(lambda texts: tokenizer.encode_batch_list(texts, parallel=threads > 1)),
        batch_array=(lambda texts: _in_one_array(tokenizer.encode_batch(texts, parallel=threads > 1))),
        files=(
            lambda paths: _rows(tokenizer.encode_files(gigatoken.TextFileSource(paths), parallel=threads > 1))
        ),
        decode=tokenizer.decode,
        decode_array=tokenizer.decode,
    )


def _in_one_array(ids: Any) -> tuple[Any, Any]:
    """What an awkward array of rows is made of."""
    return ids.layout.content.data, ids.layout.offsets.data


def _rows(ids: Any) -> list[Any]:
    """The rows of an awkward array as arrays, without a copy."""
    import numpy as np

    return [np.asarray(ids[index]) for index in range(len(ids))]


def _toktok(vocabulary: Vocabulary, threads: int) -> Encoder:
    toktok = require("toktok")
    name = vocabulary.path.name.removesuffix(".tiktoken")
    if name not in {"cl100k_base", "o200k_base"}:
        raise UnavailableError("has only its built-in vocabularies")
    encoding = toktok._encoding(name)
    return Encoder(
        version=metadata.version("toktok-rs"),
        to_array=encoding.encode_to_numpy if threads == 1 else None,
        to_list=encoding.encode_ordinary if threads == 1 else None,
        # Its batches give no lists: all ids are in one array, beside the places where those of each text end.
        batch=(lambda texts: arrays_of(encoding.encode_batch_to_numpy(texts, threads))),
        batch_array=(lambda texts: encoding.encode_batch_to_numpy(texts, threads)),
        decode=encoding.decode_bytes,
        decode_array=encoding.decode_bytes,
    )


ENCODERS: dict[str, Callable[[Vocabulary, int], Encoder]] = {
    "bytemill": _bytemill,
    "gigatoken": _gigatoken,
    "toktok": _toktok,
    "tiktoken": _tiktoken,
    "huggingface": _huggingface,
    **MORE_ENCODERS,
}
"""Name -> what makes the encoder for a number of threads."""

SLOW_ENCODERS = frozenset(
    {"huggingface", "tiktoken", "riptoken", "bpe-openai", "rs-bpe", "kitoken", "wordchipper"}
)
"""Encoders below 30 MB/s, which get only the first part of a text."""
SLOW_ENCODER_BYTES = 4_000_000
