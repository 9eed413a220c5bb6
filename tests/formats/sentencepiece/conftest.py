"""Small SentencePiece models, trained once with the `sentencepiece` package."""

import io
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import sentencepiece

from bytemill.datasets import DECLARATION

LANGUAGES = ("eng", "deu_1996", "jpn", "hin", "arb", "kor", "tha")

TrainModel = Callable[..., bytes]


@cache
def _trained(options: tuple[tuple[str, Any], ...]) -> bytes:
    lines: list[str] = []
    for language in LANGUAGES:
        lines += (DECLARATION / f"udhr_{language}.txt").read_text(encoding="utf-8").splitlines()[:60]
    lines += ["def f(x):", "    return x  +  1", "\tx = [1, 2, 3]  # 1234567"] * 20
    model = io.BytesIO()
    # The trainer writes other sequences than lists as Python does, with parentheses and quotes.
    arguments: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in options
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1, **arguments
    )
    return model.getvalue()


@pytest.fixture(scope="session")
def train_model() -> TrainModel:
    """Train a model with the given options of the trainer and return the content of its file."""
    defaults = {"model_type": "bpe", "vocab_size": 1200, "normalization_rule_name": "identity"}

    def train(**options: Any) -> bytes:
        return _trained(tuple(sorted((defaults | options).items(), key=lambda item: item[0])))

    return train
