"""The vocabularies that the cases encode with, and the encoders that they compare, each behind the same few calls.

A vocabulary is a rank file and a pattern: a published one where it is at hand, or one that bytemill trains. An encoder
is made from a vocabulary, so that all have the same one. What a tool does not offer is None; what it cannot do with
this vocabulary raises UnavailableError with the reason.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.harness import UnavailableError, option, require

from benchmarks import harness


@dataclass(frozen=True)
class Vocabulary:
    """A rank file and the pattern its vocabulary was made with: gpt2, cl100k or o200k."""

    path: Path
    pattern: str

    @classmethod
    def of(cls, request: dict[str, Any]) -> "Vocabulary":
        """The vocabulary of a request to a worker."""
        return cls(Path(request["vocab"]), request["pattern"])

    def request(self) -> dict[str, Any]:
        """What a worker is told of it."""
        return {"vocab": str(self.path), "pattern": self.pattern}

    def ranks(self) -> dict[bytes, int]:
        """Token -> rank. The line of an empty token, if any, is no token."""
        fields = (line.split() for line in self.path.read_bytes().splitlines())
        return {base64.b64decode(pair[0]): int(pair[1]) for pair in fields if len(pair) == 2}


PUBLISHED = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}
"""Name of a vocabulary and its pattern -> its rank file in the shared data, without the ending."""
PATTERN_OF_FILE = {"gpt2": "gpt2", **{file: name for name, file in PUBLISHED.items()}}


def expression_of(pattern: str) -> str:
    """The regular expression of a named pattern as tiktoken writes it.

    tiktoken's own functions give it together with ranks fetched from the network; here the ranks are in a file.
    """
    module = require("tiktoken_ext.openai_public")
    fetch, module.load_tiktoken_bpe = module.load_tiktoken_bpe, lambda *_, **__: {}
    try:
        return module.ENCODING_CONSTRUCTORS[PUBLISHED[pattern]]()["pat_str"]
    finally:
        module.load_tiktoken_bpe = fetch


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


def visible_characters() -> dict[int, str]:
    """Byte -> the character that stands for it in GPT-2's files."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in set(itself))
    return {byte: chr(byte) for byte in itself} | {byte: chr(0x100 + k) for k, byte in enumerate(others)}


def tokenizer_json(vocabulary: Vocabulary) -> Path:
    """The vocabulary as a Hugging Face tokenizer.json, kept beside the benchmark texts."""
    expression = _EXPRESSION_FOR_ONIGURUMA.get(vocabulary.pattern) or expression_of(vocabulary.pattern)
    digest = hashlib.sha256(vocabulary.path.read_bytes() + expression.encode()).hexdigest()[:16]
    path = harness.cache_folder() / f"tokenizer-{digest}.json"
    if path.is_file():
        return path
    characters = visible_characters()

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
        raise SystemExit(
            "error: there is no text to train a vocabulary on: run `python -m benchmarks corpus` first"
        )
    text = texts[0]
    path = harness.cache_folder() / f"trained-{n_vocab}-{pattern}-{text.stem}.tiktoken"
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


VOCAB = option("--vocab", help="rank file, or gpt2, cl100k, o200k, trained-N (cl100k)")
PATTERN = option("--pattern", choices=sorted(PUBLISHED), help="pattern of a rank file")


@dataclass(frozen=True)
class Encoder:
    """One tool with the vocabulary loaded; texts hold no special tokens."""

    package: str
    """What its version is known by."""
    to_array: Callable[[str], Any] | None = None
    to_list: Callable[[str], Sequence[int]] | None = None
    batch: Callable[[list[str]], Sequence[Any]] | None = None
    """Documents to a row of ids each, lists or slices of arrays as the tool gives them."""
    batch_array: Callable[[list[str]], tuple[Any, Any]] | None = None
    """Documents to an array of all ids, and one of where those of each begin, with the end of all behind them."""
    files: Callable[[list[Path]], Sequence[Any]] | None = None
    """Files to an array of ids each."""
    decode: Callable[[Any], Any] | None = None
    """A list of ids to text or bytes."""
    decode_array: Callable[[Any], Any] | None = None
    """An array of ids, uint32, to text or bytes."""

    @property
    def version(self) -> str:
        """The version of the tool."""
        return version_of(self.package)


def encoder_of(tool: str, vocabulary: Vocabulary, threads: int) -> Encoder:
    """A tool with a vocabulary for a number of threads."""
    encoder = ENCODERS[tool](vocabulary, threads)
    # The others have no threads for a single text.
    return encoder if threads == 1 or tool == "bytemill" else replace(encoder, to_array=None, to_list=None)


OWN_FOLDERS = {"huggingface-1": ("tokenizers", "1.0.0rc3")}
"""Tool -> a package, and its version, which is another than the environment has: it gets a folder of its own."""


def _own_folder(tool: str) -> Path:
    return harness.cache_folder() / "peers" / "-".join(OWN_FOLDERS[tool])


def fetch_own(tools: Sequence[str]) -> None:
    """Install what the tools need in folders of their own; `uv run` and `make bench` say where uv is."""
    uv = os.environ.get("UV") or shutil.which("uv")
    for tool in OWN_FOLDERS.keys() & set(tools):
        package, version = OWN_FOLDERS[tool]
        if uv is not None and not (_own_folder(tool) / package).is_dir():
            # The constraints of the project are for the version that the tests use.
            command = [
                uv,
                "pip",
                "install",
                "--quiet",
                "--no-config",
                "--no-deps",
                "--python",
                sys.executable,
            ]
            command += ["--target", str(_own_folder(tool)), f"{package}=={version}"]
            subprocess.run(command, check=False)


def require_own(tool: str) -> Any:
    """Import the package of a tool from its own folder, in a process that has no other version of it."""
    package, version = OWN_FOLDERS[tool]
    sys.path.insert(0, str(_own_folder(tool)))
    if version_of(package) != version:
        raise UnavailableError(f"{package} {version} could not be fetched by uv")
    return require(package)


def version_of(package: str) -> str:
    """The version of an installed package."""
    from importlib import metadata

    return metadata.version(package)


def arrays_of(ids_and_offsets: tuple[Any, Any]) -> list[Any]:
    """The rows of an array of all ids and the places where each row ends."""
    ids, offsets = ids_and_offsets
    return [ids[start:end] for start, end in pairwise(offsets.tolist())]


def _array_of_bytes(ids: bytes) -> Any:
    import numpy as np

    return np.frombuffer(ids, dtype="<u4")


def _built_in_name(vocabulary: Vocabulary, *others: str) -> str:
    name = vocabulary.path.name.removesuffix(".tiktoken")
    if name not in {"cl100k_base", "o200k_base", *others}:
        raise UnavailableError("has only its built-in vocabularies")
    return name


def _bytemill(vocabulary: Vocabulary, threads: int) -> Encoder:
    tokenizer = require("bytemill").Tokenizer.load(
        vocabulary.path, pattern=vocabulary.pattern, special_tokens={}
    )
    return Encoder(
        "bytemill",
        to_array=partial(tokenizer.encode_to_numpy, num_threads=threads),
        to_list=partial(tokenizer.encode_ordinary, num_threads=threads),
        batch=partial(tokenizer.encode_ordinary_batch, num_threads=threads),
        batch_array=partial(tokenizer.encode_batch_to_numpy, num_threads=threads, allowed_special="none"),
        files=partial(tokenizer.encode_files, num_threads=threads, allowed_special="none"),
        decode=tokenizer.decode_bytes,
        decode_array=tokenizer.decode_bytes,
    )


def _tiktoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    encoding = require("tiktoken").Encoding(
        "benchmark",
        pat_str=expression_of(vocabulary.pattern),
        mergeable_ranks=vocabulary.ranks(),
        special_tokens={},
    )
    return Encoder(
        "tiktoken",
        to_array=encoding.encode_to_numpy,
        to_list=encoding.encode_ordinary,
        batch=partial(encoding.encode_ordinary_batch, num_threads=threads),
        decode=encoding.decode_bytes,
        decode_array=encoding.decode_bytes,
    )


def _huggingface(vocabulary: Vocabulary, _threads: int) -> Encoder:
    tokenizer = require("tokenizers").Tokenizer.from_file(str(tokenizer_json(vocabulary)))
    return Encoder(
        "tokenizers",
        to_list=(lambda text: tokenizer.encode(text, add_special_tokens=False).ids),
        batch=(lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]),
        decode=tokenizer.decode,
        decode_array=tokenizer.decode,
    )


def _huggingface_1(vocabulary: Vocabulary, _threads: int) -> Encoder:
    tokenizer = require_own("huggingface-1").Tokenizer.from_file(str(tokenizer_json(vocabulary)))
    return Encoder(
        "tokenizers",
        to_array=(lambda text: tokenizer.encode(text, add_special_tokens=False).ids_array),
        to_list=(lambda text: tokenizer.encode(text, add_special_tokens=False).ids),
        batch=(lambda texts: [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]),
        decode=tokenizer.decode,
        decode_array=tokenizer.decode,
    )


def _gigatoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    gigatoken = require("gigatoken")
    scheme = {"gpt2": "gpt2", "cl100k": "gpt4", "o200k": "o200k"}[vocabulary.pattern]
    tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.path, scheme, {})
    parallel = threads > 1

    def batch_array(texts: list[str]) -> tuple[Any, Any]:
        # What an awkward array of rows is made of.
        layout = tokenizer.encode_batch(texts, parallel=parallel).layout
        return layout.content.data, layout.offsets.data

    def files(paths: list[Path]) -> list[Any]:
        import numpy as np

        ids = tokenizer.encode_files(gigatoken.TextFileSource(paths), parallel=parallel)
        return [np.asarray(ids[index]) for index in range(len(ids))]

    return Encoder(
        "gigatoken",
        to_array=tokenizer.encode,
        # Its lists for batches are slower for one text, whatever its size.
        to_list=(lambda text: tokenizer.encode(text).tolist()),
        batch=partial(tokenizer.encode_batch_list, parallel=parallel),
        batch_array=batch_array,
        files=files,
        decode=tokenizer.decode,
        decode_array=tokenizer.decode,
    )


def _toktok(vocabulary: Vocabulary, threads: int) -> Encoder:
    encoding = require("toktok")._encoding(_built_in_name(vocabulary))
    return Encoder(
        "toktok-rs",
        to_array=encoding.encode_to_numpy,
        to_list=encoding.encode_ordinary,
        # Its batches give no lists: all ids are in one array, beside the places where those of each text end.
        batch=(lambda texts: arrays_of(encoding.encode_batch_to_numpy(texts, threads))),
        batch_array=(lambda texts: encoding.encode_batch_to_numpy(texts, threads)),
        decode=encoding.decode_bytes,
        decode_array=encoding.decode_bytes,
    )


def _bpe_openai(vocabulary: Vocabulary, threads: int) -> Encoder:
    encoding = require("bpe_openai").get_encoding(_built_in_name(vocabulary))
    return Encoder(
        "bpe-openai",
        to_list=encoding.encode_ordinary,
        batch=partial(encoding.encode_ordinary_batch, num_threads=threads),
        decode=encoding.decode_bytes,
    )


ENCODERS: dict[str, Callable[[Vocabulary, int], Encoder]] = {
    "bytemill": _bytemill,
    "gigatoken": _gigatoken,
    "toktok": _toktok,
    "tiktoken": _tiktoken,
    "huggingface": _huggingface,
    "huggingface-1": _huggingface_1,
    "bpe-openai": _bpe_openai,
}
"""Name -> what makes the encoder for a number of threads."""

SLOW_ENCODERS = frozenset({"huggingface", "tiktoken", "bpe-openai"})
"""Encoders below 30 MB/s, which get only the first part of a text."""
SLOW_ENCODER_BYTES = 4_000_000
