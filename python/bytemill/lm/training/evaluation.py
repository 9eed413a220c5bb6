"""Validation and samples during training."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from bytemill.lm.batches import spread_starts
from bytemill.lm.evaluate.text import TextScore, evaluate_windows
from bytemill.lm.generation.generate import generate
from bytemill.lm.generation.text_generation import prompt_ids
from bytemill.lm.permutation import key_of
from bytemill.lm.training.distributed import divide_batch, whole_model
from bytemill.lm.training.run import is_due, is_validation_due

if TYPE_CHECKING:
    from bytemill.lm.training.log_records import Recorder
    from bytemill.lm.training.run import Run


def evaluate_if_due(run: Run, record: Recorder) -> None:
    """Record the validation loss and a sample, if they are due at this step and not recorded yet.

    Both use the average of the weights if there is one.
    """
    must_validate = run.step and is_validation_due(run) and not record.has("validation", run.step)
    must_sample = run.step and is_due(run, run.config.run.sample_every) and not record.has("sample", run.step)
    if not (must_validate or must_sample):
        return
    with run.average.in_model() if run.average else nullcontext():
        if must_validate:
            record("validation", run.step, **_validate(run))
        if must_sample:
            record("sample", run.step, **_sample(run))


def _validate(run: Run) -> dict[str, Any]:
    """Score the model on the validation windows, which the processes share."""
    if run.validation is None:
        return {}
    starts = spread_starts(
        len(run.validation), run.config.model.context_length, run.config.run.validation_windows
    )
    own = evaluate_windows(
        whole_model(run),
        run.validation,
        starts[run.processes.rank :: run.processes.count],
        run.byte_counts,
        batch_size=divide_batch(run.config.training, run.processes.count)[1],
        dtype=run.dtype,
        documents=run.documents,
    )
    run.model.train()
    n_tokens, nats, text_nats, n_bytes = run.processes.sum(astuple(own))
    return TextScore(int(n_tokens), nats, text_nats, int(n_bytes)).to_dict()


def _sample(run: Run) -> dict[str, Any]:
    """Generate a sample from a generator of its own, so that training does not depend on samples."""
    model = whole_model(run)
    if not run.processes.is_first:
        return {}
    prompt = run.config.run.sample_prompt
    ids = prompt_ids(run.tokenizer, prompt)
    seed = key_of(run.config.training.seed, run.step) >> 1
    new = generate(model, ids, run.config.run.sample_tokens, temperature=0.8, top_p=0.95, seed=seed)[0]
    run.model.train()
    known = [token for token in new if token < run.tokenizer.n_vocab]
    return {"prompt": prompt, "text": run.tokenizer.decode(known)}
