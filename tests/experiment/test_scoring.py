"""Scores: every byte once, none for free, with a context that is measured in bytes."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import bytemill
from bytemill.experiment.documents import StoredText, store_text
from bytemill.experiment.scoring import common_context, score_documents, windows
from bytemill.experiment.statistics import unigram_bits
from bytemill.formats.byte_level import bytes_to_text
from bytemill.lm import ModelConfig, TransformerLM

if TYPE_CHECKING:
    from pathlib import Path

END = "<|endoftext|>"
TEXTS = ["The cat saw the naïve bird. 犬 " * 2, "x", "dogs and cats " * 5]


@pytest.fixture
def tokenizer() -> bytemill.Tokenizer:
    return bytemill.train_from_iterator(TEXTS, 280, [END])


def model_of(context_length: int) -> TransformerLM:
    return TransformerLM(
        ModelConfig(
            vocab_size=310, context_length=context_length, d_model=16, num_layers=1, num_heads=2, d_ff=32
        ),
        seed=1,
    )


def stored(tmp_path: Path, texts: list[str]) -> StoredText:
    (tmp_path / "a.txt").write_text(END.join(texts))
    return store_text([str(tmp_path / "a.txt")], tmp_path / "t", documents=END)


@pytest.mark.parametrize(
    ("context_bytes", "context_length"), [(8, 24), (4, 24), (100, 10), (1, 2), (1000, 200)]
)
def test_scores_are_the_losses_of_all_tokens_after_their_context(
    tmp_path: Path, tokenizer: bytemill.Tokenizer, context_bytes: int, context_length: int
):
    model, unigram = model_of(context_length), unigram_bits(np.arange(tokenizer.n_vocab))
    scores = score_documents(model, tokenizer, stored(tmp_path, TEXTS), context_bytes, unigram, batch_size=3)
    assert scores.n_bytes.tolist() == [len(own.encode()) for own in TEXTS]
    seen: list[tuple[int, int]] = []  # bytes of context, and bytes of the token
    whole = True
    for number, document in enumerate(TEXTS):
        ids = [tokenizer.eot_token, *tokenizer.encode_ordinary(document)]
        ends = np.cumsum([0, *(len(tokenizer.decode_bytes([own])) for own in ids[1:])])
        starts = np.array([0, *ends[:-1]])
        expected, scored = 0.0, 1
        for window in windows(starts, context_bytes, context_length):
            assert window.first == scored
            scored = window.stop
            with torch.inference_mode():
                chances = model(torch.tensor(ids[window.begin : window.stop - 1])).double().log_softmax(-1)
            for at in range(window.first, window.stop):
                expected -= float(chances[at - window.begin - 1, ids[at]])
                seen.append((int(starts[at] - starts[window.begin]), int(ends[at] - starts[at])))
                is_enough = seen[-1][0] >= context_bytes or at - window.begin >= context_length // 2
                assert window.begin == 0 or is_enough
            whole &= window.begin == 0
        assert scored == len(ids)
        assert scores.bits[number] == pytest.approx(expected / math.log(2), rel=1e-5)
        assert scores.unigram_bits[number] == pytest.approx(unigram[ids[1:]].sum())
    assert (scores.context.least is None) == whole
    assert scores.context.mean == pytest.approx(sum(a * b for a, b in seen) / sum(b for _, b in seen))
    assert scores.n_tokens == len(seen)
    assert scores.bits_per_byte == pytest.approx(scores.bits.sum() / sum(len(own.encode()) for own in TEXTS))


def test_every_tokenizer_has_the_common_context(tmp_path: Path, tokenizer: bytemill.Tokenizer):
    text = stored(tmp_path, [TEXTS[0] * 3, "x"])
    plain = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], [END])
    longer = common_context([text], [tokenizer], 16)
    assert longer > 8
    assert common_context([text], [tokenizer, plain], 16) == 8  # half of its context
    for context_bytes, own in ((longer, tokenizer), (8, tokenizer), (8, plain)):
        unigram = np.ones(own.n_vocab)
        context = score_documents(model_of(16), own, text, context_bytes, unigram).context
        assert context.least is not None
        assert context_bytes <= context.least <= context_bytes + 16
    # More than the context of a model holds is cut, and said.
    context = score_documents(model_of(16), plain, text, longer, np.ones(plain.n_vocab)).context
    assert context.least == 8


def test_tokenizers_with_a_normalizer_are_scored(tmp_path: Path):
    spec = {
        "version": "1.0", "normalizer": {"type": "Lowercase"}, "decoder": {"type": "ByteLevel"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "added_tokens": [{
            "id": 256, "content": END, "special": True, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
        }],
        "model": {"type": "BPE", "vocab": {bytes_to_text(bytes([i])): i for i in range(256)}, "merges": []},
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    own = bytemill.Tokenizer.load(tmp_path / "tokenizer.json")
    scores = score_documents(model_of(16), own, stored(tmp_path, ["The CAT " * 9]), 6, np.ones(own.n_vocab))
    assert scores.n_tokens == 72
    assert scores.unigram_bits.tolist() == [72]


def test_the_unigram_distribution_sums_to_one_and_is_that_of_witten_and_bell():
    counts = np.array([5, 0, 3, 0, 0, 2])
    chances = 2.0 ** -unigram_bits(counts)
    assert chances.sum() == pytest.approx(1)
    assert chances[[1, 3, 4]].sum() == pytest.approx(3 / 13 * 3 / 6)
    assert chances[0] == pytest.approx((5 + 0.5) / 13)
