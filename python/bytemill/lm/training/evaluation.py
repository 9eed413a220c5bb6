"""Validation, HellaSwag and samples during training."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from bytemill.errors import NotFiniteError
from bytemill.lm.batches import key_of, spread_starts
from bytemill.lm.evaluate.hellaswag import evaluate_hellaswag
from bytemill.lm.evaluate.text import TextScore, evaluate_windows, mean_score
from bytemill.lm.evaluate.token_classes import LossByClass
from bytemill.lm.generation.decoding import generate
from bytemill.lm.generation.text_generation import ids_without_token, prompt_ids
from bytemill.lm.training.batch_reader import divide_batch
from bytemill.lm.training.data import UNNAMED
from bytemill.lm.training.distributed import whole_model
from bytemill.lm.training.run import is_due, is_validation_due

if TYPE_CHECKING:
    from bytemill.lm.training.log_records import Recorder
    from bytemill.lm.training.run import Run


def evaluate_if_due(run: Run, record: Recorder) -> None:
    """Record validation, HellaSwag and a sample, if they are due at this step and not recorded yet.

    All use the average of the weights if there is one.
    """
    due = {
        "validation": (_validate, is_validation_due(run)),
        "hellaswag": (_hellaswag, bool(run.hellaswag) and is_due(run, run.config.run.hellaswag_every)),
        "sample": (_sample, is_due(run, run.config.run.sample_every)),
    }
    missing = {
        kind: evaluate
        for kind, (evaluate, is_now) in due.items()
        if run.step and is_now and not record.has(kind, run.step)
    }
    if missing:
        with run.average.in_model() if run.average else nullcontext():
            for kind, evaluate in missing.items():
                record(kind, run.step, **evaluate(run))
        run.model.train()


def _validate(run: Run) -> dict[str, Any]:
    """Score the model on the validation windows, which the processes share.

    With several sets, loss and bits per byte are the means over the sets, and `sets` has the values of each.
    """
    model = whole_model(run)
    by_class = LossByClass(run.tokenizer, run.config.model.vocab_size, run.device)
    scores: dict[str, TextScore] = {}
    for name, tokens in run.validation.items():
        length, n_windows = run.config.model.context_length, run.config.run.validation_windows
        own = evaluate_windows(
            model,
            tokens,
            spread_starts(len(tokens), length, n_windows)[run.processes.rank :: run.processes.count],
            run.byte_counts,
            batch_size=divide_batch(run.config.training, run.processes.count)[1],
            dtype=run.dtype,
            documents=run.documents,
            by_class=by_class,
        )
        n_tokens, nats, text_nats, n_bytes = run.processes.sum(astuple(own))
        scores[name] = TextScore(int(n_tokens), nats, text_nats, int(n_bytes))
    by_class.sums = run.processes.sum(by_class.sums)
    result = mean_score(list(scores.values()))
    if set(scores) != {UNNAMED}:
        result["sets"] = {name: score.to_dict() for name, score in scores.items()}
    return {**result, "classes": by_class.to_dict(), "frequencies": by_class.by_frequency()}


def _hellaswag(run: Run) -> dict[str, Any]:
    """Compute the accuracy on HellaSwag, None if a logit is not finite; each process scores a part of the items."""
    items = run.hellaswag[run.processes.rank :: run.processes.count]
    model = whole_model(run)
    n_sequences = divide_batch(run.config.training, run.processes.count)[1]
    n_correct = [0.0, 0.0]
    if items:
        try:
            score = evaluate_hellaswag(
                model, run.tokenizer, items, bos_id=run.bos_id, batch_size=n_sequences, dtype=run.dtype
            )
            n_correct = [score.accuracy[name] * len(items) for name in ("sum", "characters")]
        except NotFiniteError:
            n_correct = [math.nan, math.nan]
    acc, acc_norm = (
        round(n) / len(run.hellaswag) if math.isfinite(n) else None for n in run.processes.sum(n_correct)
    )
    return {"n_items": len(run.hellaswag), "acc": acc, "acc_norm": acc_norm}


def _sample(run: Run) -> dict[str, Any]:
    """Generate a sample from a generator of its own, so that training does not depend on samples.

    A sample that fails is recorded with its error.
    """
    model = whole_model(run)
    if not run.processes.is_first:
        return {}
    prompt = run.config.run.sample_prompt
    try:
        new = generate(
            model,
            prompt_ids(run.tokenizer, prompt, run.bos_id),
            run.config.run.sample_tokens,
            temperature=0.8,
            top_p=0.95,
            excluded_ids=ids_without_token(run.tokenizer, run.config.model.vocab_size),
            seed=key_of(run.config.training.seed, run.step) >> 1,
        )[0]
        return {"prompt": prompt, "text": run.tokenizer.decode(new)}
    except Exception as error:  # whatever it is, training continues
        return {"prompt": prompt, "text": "", "error": f"{type(error).__name__}: {error}"}
