"""Train a small language model on the shards and compare it with untrained baselines. Requires torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from bytemill.lm.device import matmul_rate, pick_device
from bytemill.lm.evaluate import TextScore, evaluate_text
from bytemill.lm.generation.decoding import generate
from bytemill.lm.loading import load_trained
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.planning import flops_per_token
from bytemill.lm.presets import preset
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train
from bytemill.quickstart.result import ModelResult, Sample, Score
from bytemill.shards import TokenShards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from bytemill.lm.model_config import ModelConfig
    from bytemill.quickstart.folder import QuickstartFolder
    from bytemill.tokenizer.tokenizer import Tokenizer

_CONTEXT = 128
_BATCH = 16
_MIN_STEPS, _MAX_STEPS = 200, 600
_N_SAMPLES = 3
_PROMPT_WORDS = 5
_SAMPLE_TOKENS = 80


def train_model(
    folder: QuickstartFolder,
    tokenizer: Tokenizer,
    validation: Sequence[str],
    n_steps: int | None,
    on_record: Callable[[dict[str, Any]], None] | None,
) -> ModelResult:
    """Train and evaluate a model of a few million parameters.

    Args:
        folder: Folder with the shards. The run folder is created in it.
        tokenizer: The tokenizer of the shards.
        validation: Validation documents, whose first words serve as prompts.
        n_steps: Training steps. None takes about two minutes, within `_MIN_STEPS` and `_MAX_STEPS`.
        on_record: Called with each record of the training log.
    """
    train_ids, validation_ids = (TokenShards(folder.shards(name))[:] for name in ("train", "validation"))
    # A text shorter than the context would leave no window to train on.
    context = max(1, min(_CONTEXT, (len(train_ids) - 1) // 2, len(validation_ids) - 1))
    if n_steps is None:
        n_steps = _steps_in_two_minutes(preset("tiny", vocab_size=tokenizer.n_vocab, context_length=context))
    settings = {
        "model.preset": "tiny",
        "model.context_length": context,
        "data.tokenizer": str(folder.tokenizer),
        "data.train": str(folder.shards("train")),
        "data.validation": str(folder.shards("validation")),
        # Muon learns more in so few steps: validation loss 6.28 after 60 steps of 8 windows; AdamW at 3e-3: 6.69.
        "optimizer.name": "muon",
        "optimizer.learning_rate": 1e-2,
        "schedule.warmup_steps": max(1, n_steps // 20),
        "training.steps": n_steps,
        "training.batch_size": _BATCH,
        "run.folder": str(folder.model),
        "run.log_every": max(1, n_steps // 100),
        "run.validate_every": max(1, n_steps // 10),
        "run.validation_windows": 64,
        "run.checkpoint_every": 0,
        "run.keep_checkpoints": 1,
    }
    run = train(
        resolve([("quickstart", settings)], n_vocab=tokenizer.n_vocab), overwrite=True, on_record=on_record
    )
    device = str(pick_device())
    trained = load_trained(run.path, device)
    byte_counts = token_byte_counts(tokenizer)
    own = evaluate_text(trained.model, validation_ids, byte_counts, stride=max(1, context // 2))
    counts, n_vocab = byte_counts.counts.numpy(), tokenizer.n_vocab
    steps = read_metrics(run.metrics, "step")
    return ModelResult(
        folder=str(run.path),
        n_parameters=trained.model.n_parameters(),
        n_steps=n_steps,
        n_tokens=int(steps[-1]["n_tokens"]) if steps else 0,
        device=device,
        curve=[(record["step"], record["loss"]) for record in steps if record["loss"] is not None],
        validation_curve=[
            (record["step"], record["loss"]) for record in read_metrics(run.metrics, "validation")
        ],
        scores=[
            _score("Uniform", uniform_score(validation_ids[1:], counts, n_vocab)),
            _score("Unigram", unigram_score(validation_ids[1:], counts, train_ids, n_vocab)),
            _score("The model", own),
        ],
        samples=[
            _sample(trained.model, tokenizer, prompt, seed)
            for seed, prompt in enumerate(_prompts(validation))
        ],
    )


def _steps_in_two_minutes(config: ModelConfig) -> int:
    """Estimate from the current matrix multiplication rate, of which training such a model uses about a fifth."""
    rate = 0.2 * matmul_rate(pick_device(), torch.float32, seconds=1)
    n_flops = flops_per_token(config, config.context_length, backward=True) * _BATCH * config.context_length
    return min(_MAX_STEPS, max(_MIN_STEPS, round(120 * rate / n_flops)))


def uniform_score(targets: NDArray[Any], byte_counts: NDArray[np.int64], n_vocab: int) -> TextScore:
    """Score the model that predicts every token with the same probability."""
    return _baseline(targets, byte_counts, np.full(n_vocab, math.log(n_vocab)))


def unigram_score(
    targets: NDArray[Any], byte_counts: NDArray[np.int64], training: NDArray[Any], n_vocab: int
) -> TextScore:
    """Score the model that predicts tokens by their frequency in training, with add-one (Laplace) smoothing."""
    counts = np.bincount(training, minlength=n_vocab) + 1
    return _baseline(targets, byte_counts, -np.log(counts / counts.sum()))


def _baseline(targets: NDArray[Any], byte_counts: NDArray[np.int64], nats: NDArray[np.float64]) -> TextScore:
    losses, lengths = nats[targets], byte_counts[targets]
    return TextScore(
        n_tokens=len(targets),
        nats=float(losses.sum()),
        text_nats=float(losses[lengths > 0].sum()),
        n_bytes=int(lengths.sum()),
    )


def _score(name: str, score: TextScore) -> Score:
    return Score(name, score.loss, score.perplexity, score.bits_per_byte)


def _prompts(documents: Sequence[str]) -> list[str]:
    """Return the first words of evenly spaced documents that are long enough."""
    long = [text for text in documents if len(text.split()) > 2 * _PROMPT_WORDS] or list(documents)
    chosen = [long[number * len(long) // _N_SAMPLES] for number in range(min(_N_SAMPLES, len(long)))]
    return [" ".join(text.split()[:_PROMPT_WORDS]) for text in chosen]


def _sample(model: Any, tokenizer: Tokenizer, prompt: str, seed: int) -> Sample:
    ids = tokenizer.encode(prompt, allowed_special="none") or [tokenizer.eot_token]
    stop = frozenset(tokenizer.special_tokens.values())
    new = generate(model, ids, _SAMPLE_TOKENS, temperature=0.8, top_p=0.95, stop_ids=stop, seed=seed)[0]
    kept = [token for token in new if token not in stop]
    return Sample(prompt, tokenizer.decode(kept))
