"""The encoders that `encode.py` compares, each behind the same three calls.

An encoder is made from a rank file and the name of its pattern, so that all have the same vocabulary. What a
tool does not offer is None; what it cannot do with this vocabulary raises UnavailableError with the reason.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import UnavailableError, require


@dataclass(frozen=True)
class Vocabulary:
    """A rank file and the pattern its vocabulary was made with: gpt2, cl100k or o200k."""

    path: Path
    pattern: str

    def ranks(self) -> dict[bytes, int]:
        """Token -> rank. The line of an empty token, if any, is no token."""
        fields = (line.split() for line in self.path.read_bytes().splitlines())
        return {base64.b64decode(pair[0]): int(pair[1]) for pair in fields if len(pair) == 2}


@dataclass(frozen=True)
class Encoder:
    """One tool with the vocabulary loaded; texts hold no special tokens."""

    version: str
    to_array: Callable[[str], Any] | None = None
    to_list: Callable[[str], Sequence[int]] | None = None
    batch: Callable[[list[str]], Sequence[Any]] | None = None


PATTERN_OF_FILE = {
    "gpt2": "gpt2",
    "r50k_base": "gpt2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
}
_BUILTIN_NAME = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}


def expression_of(pattern: str) -> str:
    """The regular expression of a named pattern as tiktoken writes it.

    tiktoken's own functions give it together with ranks fetched from the network; here the ranks are in a
    file.
    """
    module = require("tiktoken_ext.openai_public")
    module.load_tiktoken_bpe = lambda *_arguments, **_options: {}
    return module.ENCODING_CONSTRUCTORS[_BUILTIN_NAME[pattern]]()["pat_str"]


# Without possessive repeats: Oniguruma, behind Hugging Face's Split, reads "{1,3}+" and "$" otherwise.
_EXPRESSION_FOR_ONIGURUMA = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def _bytemill(vocabulary: Vocabulary, threads: int) -> Encoder:
    bytemill = require("bytemill")
    spec = require("bytemill.formats.tiktoken").read(vocabulary.path, vocabulary.pattern, {})
    tokenizer = bytemill.Tokenizer.from_spec(spec)
    return Encoder(
        version=bytemill.__version__,
        to_array=(lambda text: tokenizer.encode_to_numpy(text, num_threads=threads)),
        to_list=(lambda text: tokenizer.encode_ordinary(text, num_threads=threads)),
        batch=(lambda texts: tokenizer.encode_ordinary_batch(texts, num_threads=threads)),
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
    )


def merges_of_ranks(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merge behind each token of two bytes or more, by rank: the last step if the token stands alone."""
    merges: list[tuple[bytes, bytes]] = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            pair_ranks = [ranks.get(left + right, rank) for left, right in pairwise(parts)]
            best = min(pair_ranks)
            if best >= rank:
                break
            place = pair_ranks.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def _tokenizer_json(vocabulary: Vocabulary) -> Path:
    """The vocabulary as a Hugging Face tokenizer.json, kept beside the benchmark texts."""
    from corpus import cache_folder

    expression = _EXPRESSION_FOR_ONIGURUMA.get(vocabulary.pattern) or expression_of(vocabulary.pattern)
    digest = hashlib.sha256(vocabulary.path.read_bytes() + expression.encode()).hexdigest()[:16]
    path = cache_folder() / f"tokenizer-{digest}.json"
    if path.is_file():
        return path
    pre_tokenizers = require("tokenizers.pre_tokenizers")
    visible = sorted(pre_tokenizers.ByteLevel.alphabet(), key=ord)
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = {byte: chr(byte) for byte in itself}
    others = iter(character for character in visible if ord(character) >= 0x100)
    characters |= {byte: next(others) for byte in range(256) if byte not in characters}

    def spell(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    ranks = vocabulary.ranks()
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": expression},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "ignore_merges": True,
            "vocab": {spell(token): rank for token, rank in ranks.items()},
            "merges": [[spell(left), spell(right)] for left, right in merges_of_ranks(ranks)],
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    return path


def _huggingface(vocabulary: Vocabulary, threads: int) -> Encoder:
    tokenizers = require("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(_tokenizer_json(vocabulary)))
    return Encoder(
        version=metadata.version("tokenizers"),
        to_list=(lambda text: tokenizer.encode(text, add_special_tokens=False).ids) if threads == 1 else None,
        batch=(lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]),
    )


def _gigatoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    gigatoken = require("gigatoken")
    scheme = {"gpt2": "gpt2", "cl100k": "gpt4", "o200k": "o200k"}[vocabulary.pattern]
    tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.path, scheme, {})
    return Encoder(
        version=metadata.version("gigatoken"),
        to_array=tokenizer.encode if threads == 1 else None,
        to_list=(lambda text: tokenizer.encode_batch_list([text], parallel=False)[0])
        if threads == 1
        else None,
        batch=(lambda texts: tokenizer.encode_batch_list(texts, parallel=threads > 1)),
    )


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
        batch=(lambda texts: _arrays_of(encoding.encode_batch_to_numpy(texts, threads))),
    )


def _arrays_of(ids_and_offsets: tuple[Any, Any]) -> list[Any]:
    ids, offsets = ids_and_offsets
    places = offsets.tolist()
    return [ids[start:end] for start, end in pairwise(places)]


ENCODERS: dict[str, Callable[[Vocabulary, int], Encoder]] = {
    "bytemill": _bytemill,
    "tiktoken": _tiktoken,
    "huggingface": _huggingface,
    "gigatoken": _gigatoken,
    "toktok": _toktok,
}
"""Name -> what makes the encoder for a number of threads."""

SLOW_ENCODERS = frozenset({"huggingface"})
"""Encoders at 1-2 MB/s, which get only the first part of a text."""
SLOW_ENCODER_BYTES = 10_000_000
