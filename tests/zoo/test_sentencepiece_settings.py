"""SentencePiece models of every kind and setting give what the `sentencepiece` package gives."""

import io
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from bytemill import Tokenizer, TokenizerError, TokenizerFileError

from .odd_files import CORPUS
from .test_odd_files import PARTS

KINDS = ("bpe", "unigram", "char", "word")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "byte_fallback": {"byte_fallback": True},
    "symbols": {"user_defined_symbols": ["<sep>", "▁▁", "12", "é", "the"]},
    "symbols of spaces": {"user_defined_symbols": ["<sep>", "  ", "\n"], "byte_fallback": True},
    "control symbols": {"control_symbols": ["<c>", "[X]"]},
    "split_digits": {"split_digits": True},
    "no dummy prefix": {"add_dummy_prefix": False},
    "spaces kept": {"remove_extra_whitespaces": False},
    "spaces kept, no dummy prefix": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "treat_whitespace_as_suffix": {"treat_whitespace_as_suffix": True},
    "suffix, spaces kept": {"treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False},
    "identity": {"normalization_rule_name": "identity"},
    "identity, spaces kept": {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
    },
    "nfkc": {"normalization_rule_name": "nfkc"},
    "nfkc_cf": {"normalization_rule_name": "nfkc_cf"},
    "nmt_nfkc_cf": {"normalization_rule_name": "nmt_nfkc_cf"},
    "other ids": {"unk_id": 3, "bos_id": 1, "eos_id": 2, "pad_id": 0},
    "no bos": {"bos_id": -1, "eos_id": -1},
    "no split at spaces": {"split_by_whitespace": False},
    "pieces of spaces": {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "low coverage": {"character_coverage": 0.98},
    "names": {"unk_piece": "[UNK]", "bos_piece": "[BOS]", "eos_piece": "[EOS]"},
}


def trained(kind: str, **settings: Any) -> bytes:
    """A small model."""
    options = {"hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1, "input_sentence_size": 0}
    size = 420 if settings.get("byte_fallback") else 200
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=content,
        model_type=kind,
        vocab_size=size,
        **options,
        **settings,
    )
    return content.getvalue()


def texts(seed: int) -> list[str]:
    """Random texts of parts that matter to some setting."""
    rng = random.Random(seed)
    parts = [*PARTS, "<sep>", "▁▁", "<c>", "[X]", "[BOS]", "é", "▁the"]
    return ["", *parts, *CORPUS, *("".join(rng.choices(parts, k=rng.randint(1, 12))) for _ in range(60))]


def check(content: bytes, path: Path) -> Tokenizer:
    """Compare a model with the library, and the tokenizer.json that is written of it."""
    path.write_bytes(content)
    ours, library = Tokenizer.load(path), sentencepiece.SentencePieceProcessor(model_proto=content)
    again = None
    if ours.engine == "core":
        try:
            ours.save(path.with_suffix(".json"))
            again = Tokenizer.load(path.with_suffix(".json"))
        except TokenizerError:  # it says what a tokenizer.json cannot represent
            assert not path.with_suffix(".json").exists()
    for text in texts(len(content)):
        ids = library.encode(text)
        assert ours.encode(text, allowed_special="none") == ids
        if not any(library.is_unknown(token_id) for token_id in ids):
            assert ours.decode(ids) == library.decode(ids)
        if again is not None:
            assert again.encode(text) == ours.encode(text)
    return ours


QUICK = ("treat_whitespace_as_suffix", "nmt_nfkc_cf", "symbols", "no dummy prefix")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)
def test_models_agree_with_their_library(kind: str, name: str, tmp_path: Path) -> None:
    ours = check(trained(kind, **SETTINGS[name]), tmp_path / "t.model")
    assert ours.engine == "sentencepiece" or kind == "bpe"


def test_a_model_without_a_byte_is_refused_as_by_its_library(tmp_path: Path) -> None:
    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    model = messages.ModelProto.FromString(trained("bpe", byte_fallback=True))
    del model.pieces[next(i for i, piece in enumerate(model.pieces) if piece.type == piece.BYTE)]
    path = tmp_path / "t.model"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(RuntimeError, match="there are not 256 byte pieces"):
        sentencepiece.SentencePieceProcessor(model_file=str(path))
    with pytest.raises(TokenizerFileError, match="1 bytes have no piece"):
        Tokenizer.load(path)
