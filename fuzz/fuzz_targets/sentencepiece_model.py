"""A SentencePiece model is read or refused by name; what is read encodes a text, or says what it lacks.

Run by `fuzz/run`, with libFuzzer by the package atheris.
"""

import sys

import atheris

with atheris.instrument_imports(include=["bytemill.formats.sentencepiece"]):
    from bytemill.formats import sentencepiece

from bytemill import Tokenizer
from bytemill.errors import BytemillError, TokenizerFileError
from bytemill.formats.spec import build_file

NAME = "t.model"
TEXT = "A text: 日本 😀 12\n"


def run(data: bytes) -> None:
    try:
        spec = sentencepiece.from_bytes(data, NAME)
        build_file(spec, NAME)
    except TokenizerFileError as error:
        if not str(error).startswith(f"{NAME}: "):
            raise
        return
    tokenizer = Tokenizer.from_spec(spec)
    try:
        ids = tokenizer.encode(TEXT)
    except BytemillError:  # a model without all bytes and without <unk>
        return
    if not all(0 <= token < tokenizer.n_vocab for token in ids):
        raise ValueError(f"ids outside the vocabulary: {ids}")
    tokenizer.decode(ids)


atheris.Setup(sys.argv, run)
atheris.Fuzz()
