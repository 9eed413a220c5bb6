"""Scores: every byte once, none for free, the same pieces for every tokenizer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

import bytemill
from bytemill.errors import RunConfigError
from bytemill.experiment.documents import segments, store_text
from bytemill.experiment.scoring import score_documents, segment_length
from bytemill.lm import ModelConfig, TransformerLM

if TYPE_CHECKING:
    from pathlib import Path

END = "<|endoftext|>"
TEXTS = ["The cat saw the naïve bird. 犬 " * 3, "x", "dogs and cats " * 9]


@pytest.fixture
def tokenizer() -> bytemill.Tokenizer:
    return bytemill.train_from_iterator(TEXTS, 280, [END])


def test_scores_are_the_losses_of_all_tokens_of_the_pieces(tmp_path: Path, tokenizer: bytemill.Tokenizer):
    (tmp_path / "a.txt").write_text(END.join(TEXTS))
    text = store_text([str(tmp_path / "a.txt")], tmp_path / "t", documents=END)
    shape = ModelConfig(vocab_size=310, context_length=24, d_model=16, num_layers=1, num_heads=2, d_ff=32)
    model = TransformerLM(shape, seed=1)
    scores = score_documents(model, tokenizer, text, 24, batch_size=3)
    assert scores.n_bytes.tolist() == [len(own.encode()) for own in TEXTS]
    for document, bits in zip(TEXTS, scores.bits, strict=True):
        expected = 0.0
        for piece in segments(document.encode(), 24):
            ids = [tokenizer.eot_token, *tokenizer.encode_ordinary(piece)]
            with torch.inference_mode():
                chances = model(torch.tensor(ids[:-1])).double().log_softmax(-1)
            expected -= sum(float(chances[at, token]) for at, token in enumerate(ids[1:]))
        assert bits == pytest.approx(expected / math.log(2), rel=1e-5)
    assert scores.bits_per_byte == pytest.approx(scores.bits.sum() / sum(len(own.encode()) for own in TEXTS))


def test_pieces_are_the_longest_that_fit_every_tokenizer(tmp_path: Path, tokenizer: bytemill.Tokenizer):
    (tmp_path / "a.txt").write_text(TEXTS[0])
    text = store_text([str(tmp_path / "a.txt")], tmp_path / "t")
    plain = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], [END])
    longest = segment_length([text], {"own": tokenizer}, 16, None)
    assert longest > 16
    assert segment_length([text], {"own": tokenizer, "bytes": plain}, 16, None) == 16
    assert segment_length([text], {"own": tokenizer}, 16, 20) == 20
    with pytest.raises(RunConfigError, match="bytes divides a piece into 20 tokens, and the context is 16"):
        segment_length([text], {"own": tokenizer, "bytes": plain}, 16, 20)
