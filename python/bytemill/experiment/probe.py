"""Speed of training, measured over a few steps of each arm."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bytemill.corpus import Corpus
from bytemill.data import encode_corpus
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train
from bytemill.system.atomic_files import write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.experiment.prepare import StudyInputs

_N_STEPS = 20


def probe_rates(
    study_inputs: StudyInputs, report: Callable[[str], None], n_steps: int = _N_STEPS
) -> dict[tuple[str, str], float]:
    """Return the tokens per second of each arm, measured once and kept in the folder of the study.

    Args:
        study_inputs: The text and tokenizers of the study.
        report: Called with what is being measured.
        n_steps: Steps to train; the first half is not measured.
    """
    known = dict(study_inputs.rates or {})
    for (tokenizer, model), shape in study_inputs.shapes.items():
        if (tokenizer, model) in known:
            continue
        report(f"measuring the speed of {tokenizer} with {model}")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            n_bytes = int((n_steps * study_inputs.batch_size + 1) * shape.context_length * 8)
            texts = study_inputs.train_text.in_order(0, n_bytes)
            encode_corpus(study_inputs.tokenizers[tokenizer], Corpus.from_texts(texts), folder / "shards")
            settings = {
                "training.batch_size": 32,
                **{f"model.{key}": value for key, value in shape.to_dict().items()},
                **study_inputs.study.train_settings(),
                "data.tokenizer": str(study_inputs.tokenizer_path(tokenizer)),
                "data.train": str(folder / "shards"),
                "training.steps": n_steps,
                "schedule.warmup_steps": 0,
                "run.folder": str(folder / "run"),
                "run.log_every": max(1, n_steps // 4),
                "run.checkpoint_every": 0,
            }
            records = read_metrics(train(resolve([("the probe", settings)])).metrics, "step")
        rates = [record["tokens_per_second"] for record in records]
        known[tokenizer, model] = float(np.median(rates[len(rates) // 2 :]))
    write_json(study_inputs.rates_path, {f"{name}/{model}": rate for (name, model), rate in known.items()})
    return known
