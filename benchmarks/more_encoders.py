"""More of the encoders that `encode.py` compares: those with built-in vocabularies, or less known.

Tools of their kind that install nowhere without more ado, and so are missing: nanotok 0.1 and tokendagger 0.1, whose
source distributions do not build without CMake's and PCRE2's development files.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

from encoder import Encoder, arrays_of
from harness import UnavailableError, require
from vocabularies import Vocabulary, expression_of, tokenizer_json

_BUILT_IN = frozenset({"cl100k_base", "o200k_base"})


def _built_in_name(vocabulary: Vocabulary, names: frozenset[str] = _BUILT_IN) -> str:
    name = vocabulary.path.name.removesuffix(".tiktoken")
    if name not in names:
        raise UnavailableError("has only its built-in vocabularies")
    return name


def _array_of_bytes(ids: bytes) -> Any:
    import numpy as np

    return np.frombuffer(ids, dtype="<u4")


def _each(encode: Callable[[str], Any], texts: list[str]) -> Sequence[Any]:
    return [encode(text) for text in texts]


def _quicktok(vocabulary: Vocabulary, threads: int) -> Encoder:
    encoding = require("quicktok").get_encoding(_built_in_name(vocabulary))
    return Encoder(
        version=metadata.version("quicktok-v1"),
        to_array=(lambda text: encoding.encode_batch([text], 1)[0]) if threads == 1 else None,
        to_list=encoding.encode_ordinary if threads == 1 else None,
        batch=(lambda texts: arrays_of(encoding.encode_batch(texts, threads))),
        decode=encoding.decode_bytes,
    )


def _splintr(vocabulary: Vocabulary, threads: int) -> Encoder:
    splintr = require("splintr")
    patterns = {"gpt2": "GPT2_PATTERN", "cl100k": "CL100K_BASE_PATTERN", "o200k": "O200K_BASE_PATTERN"}
    tokenizer = splintr.Tokenizer(str(vocabulary.path), getattr(splintr, patterns[vocabulary.pattern]), {})
    return Encoder(
        version=metadata.version("splintr-rs"),
        to_array=(lambda text: _array_of_bytes(tokenizer.encode_flat(text))) if threads == 1 else None,
        to_list=tokenizer.encode_ordinary if threads == 1 else None,
        batch=tokenizer.encode_batch,
        decode=tokenizer.decode_bytes,
    )


def _snaptokens(vocabulary: Vocabulary, threads: int) -> Encoder:
    tokenizer = require("snaptokens").Tokenizer.from_file(str(tokenizer_json(vocabulary)))

    def batch(texts: list[str]) -> Sequence[Any]:
        import numpy as np

        ids, offsets = tokenizer.encode_batch_flat(texts)
        return arrays_of((_array_of_bytes(ids), np.frombuffer(offsets, dtype="<u8")))

    return Encoder(
        version=metadata.version("snaptokens"),
        to_array=(lambda text: batch([text])[0]) if threads == 1 else None,
        to_list=(lambda text: tokenizer.encode(text).ids) if threads == 1 else None,
        batch=batch,
        decode=tokenizer.decode,
    )


def _tokie(vocabulary: Vocabulary, threads: int) -> Encoder:
    tokenizer = require("tokie").Tokenizer.from_json(str(tokenizer_json(vocabulary)))

    def batch(texts: list[str]) -> Sequence[Any]:
        return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

    return Encoder(
        version=metadata.version("tokie"),
        to_list=(lambda text: tokenizer.encode(text, add_special_tokens=False).ids) if threads == 1 else None,
        batch=batch,
        decode=tokenizer.decode_bytes,
    )


def _wordchipper(vocabulary: Vocabulary, threads: int) -> Encoder:
    wordchipper = require("wordchipper")
    options = wordchipper.TokenizerOptions.default()
    options.set_parallel(threads > 1)
    options.set_accelerated_lexers(True)
    tokenizer = wordchipper.Tokenizer.from_pretrained(
        _built_in_name(vocabulary, _BUILT_IN | {"r50k_base"}), options
    )
    if tokenizer.vocab_size < 1000:
        raise UnavailableError("fetches its vocabularies from the network, which did not give them")
    return Encoder(
        version=metadata.version("wordchipper"),
        to_list=tokenizer.encode if threads == 1 else None,
        batch=tokenizer.encode_batch,
        decode=tokenizer.decode_bytes,
    )


def _rs_bpe(vocabulary: Vocabulary, threads: int) -> Encoder:
    openai = require("rs_bpe").openai
    tokenizer = getattr(openai, _built_in_name(vocabulary))()
    return Encoder(
        version=metadata.version("rs-bpe"),
        to_list=tokenizer.encode if threads == 1 else None,
        batch=partial(_each, tokenizer.encode) if threads == 1 else None,
    )


def _bpe_openai(vocabulary: Vocabulary, threads: int) -> Encoder:
    encoding = require("bpe_openai").get_encoding(_built_in_name(vocabulary))
    return Encoder(
        version=metadata.version("bpe-openai"),
        to_list=encoding.encode_ordinary if threads == 1 else None,
        batch=(lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)),
        decode=encoding.decode_bytes,
    )


def _riptoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    core = require("riptoken").CoreBPE(vocabulary.ranks(), {}, expression_of(vocabulary.pattern))
    return Encoder(
        version=metadata.version("riptoken"),
        to_list=core.encode_ordinary if threads == 1 else None,
        batch=core.encode_ordinary_batch,
        decode=core.decode_bytes,
    )


def _kitoken(vocabulary: Vocabulary, threads: int) -> Encoder:
    tokenizer = require("kitoken").Kitoken.from_tokenizers_file(str(tokenizer_json(vocabulary)))
    return Encoder(
        version=metadata.version("kitoken"),
        to_list=(lambda text: tokenizer.encode(text, False)) if threads == 1 else None,
        batch=(lambda texts: tokenizer.encode_all(texts, False)),
        decode=tokenizer.decode,
    )


MORE_ENCODERS: dict[str, Callable[[Vocabulary, int], Encoder]] = {
    "quicktok": _quicktok,
    "splintr": _splintr,
    "snaptokens": _snaptokens,
    "tokie": _tokie,
    "wordchipper": _wordchipper,
    "rs-bpe": _rs_bpe,
    "bpe-openai": _bpe_openai,
    "riptoken": _riptoken,
    "kitoken": _kitoken,
}
"""Name -> what makes the encoder for a number of threads."""
