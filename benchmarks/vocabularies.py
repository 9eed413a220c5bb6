"""The vocabularies that the benchmark programs encode with, and the forms in which the tools want them.

A vocabulary is a rank file and a pattern: one of the published ones where it is at hand, or one that bytemill trains.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from unittest import mock

import corpus
import harness
from harness import require


@dataclass(frozen=True)
class Vocabulary:
    """A rank file and the pattern its vocabulary was made with: gpt2, cl100k or o200k."""

    path: Path
    pattern: str

    def ranks(self) -> dict[bytes, int]:
        """Token -> rank. The line of an empty token, if any, is no token."""
        fields = (line.split() for line in self.path.read_bytes().splitlines())
        return {base64.b64decode(pair[0]): int(pair[1]) for pair in fields if len(pair) == 2}


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
    with mock.patch.object(module, "load_tiktoken_bpe", return_value={}):
        return module.ENCODING_CONSTRUCTORS[_BUILTIN_NAME[pattern]]()["pat_str"]


# Without possessive repeats: Oniguruma, behind Hugging Face's Split, reads "{1,3}+" and "$" otherwise.
_EXPRESSION_FOR_ONIGURUMA = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


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


def tokenizer_json(vocabulary: Vocabulary) -> Path:
    """The vocabulary as a Hugging Face tokenizer.json, kept beside the benchmark texts."""
    expression = _EXPRESSION_FOR_ONIGURUMA.get(vocabulary.pattern) or expression_of(vocabulary.pattern)
    digest = hashlib.sha256(vocabulary.path.read_bytes() + expression.encode()).hexdigest()[:16]
    path = corpus.cache_folder() / f"tokenizer-{digest}.json"
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


PUBLISHED = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}
"""Name -> the rank file in the shared data, without its ending."""


def vocabulary_of(name: str | Path | None, pattern: str | None, texts: Sequence[Path] = ()) -> Vocabulary:
    """The vocabulary of a name (cl100k, trained-32000) or in a rank file; cl100k where none is given.

    Where cl100k is not at hand, 32,000 tokens are trained with its pattern on the first text.
    """
    data = harness.shared_data()
    if name is None:
        at_hand = data is not None and (data / "cl100k_base.tiktoken").is_file()
        return vocabulary_of("cl100k", None) if at_hand else trained_vocabulary(texts, 32_000, "cl100k")
    if str(name) in PUBLISHED:
        name = (data or Path("shared data")) / f"{PUBLISHED[str(name)]}.tiktoken"
    if str(name).startswith("trained-") and not Path(name).is_file():
        return trained_vocabulary(texts, int(str(name).removeprefix("trained-")), pattern or "gpt2")
    path = Path(name)
    if not path.is_file():
        raise SystemExit(
            f"error: there is no rank file {path}\nhint: set BYTEMILL_TEST_DATA to the folder that has it"
        )
    known = pattern or PATTERN_OF_FILE.get(path.name.removesuffix(".tiktoken"))
    if known is None:
        raise SystemExit(
            f"error: {path.name} does not say its pattern\nhint: add --pattern gpt2, cl100k or o200k"
        )
    return Vocabulary(path, known)


def trained_vocabulary(texts: Sequence[Path], n_vocab: int, pattern: str) -> Vocabulary:
    """`n_vocab` tokens trained by bytemill on the first 20 MB of the first text, as a rank file in the cache."""
    import bytemill

    if not texts:
        raise SystemExit("error: there is no text to train a vocabulary on: run benchmarks/corpus.py first")
    text = texts[0]
    path = corpus.cache_folder() / f"trained-{n_vocab}-{pattern}-{text.stem}.tiktoken"
    if not path.is_file():
        part = harness.read_text(text, 20_000_000)
        print(f"Training {n_vocab:,} tokens on the first {len(part):,} characters of {text.name}.")
        tokenizer = bytemill.train_from_iterator(
            [part], vocab_size=n_vocab, special_tokens=[], pattern=pattern
        )
        tokens = (tokenizer.decode_single_token_bytes(token_id) for token_id in range(tokenizer.n_vocab))
        lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="ascii")
    return Vocabulary(path, pattern)
