"""The model card of an exported model, from its configuration and the metrics of its run."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from bytemill._core import __version__
from bytemill.errors import RunConfigError
from bytemill.lm.checkpoint import open_tensors
from bytemill.lm.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SETTINGS = (
    ("vocab_size", "tokens in the vocabulary"),
    ("hidden_size", "width"),
    ("n_embd", "width"),
    ("num_hidden_layers", "layers"),
    ("n_layer", "layers"),
    ("num_attention_heads", "attention heads"),
    ("n_head", "attention heads"),
    ("max_position_embeddings", "context length"),
    ("n_positions", "context length"),
)
"""Names in the configurations of transformers, and what they are."""


def model_card(folder: Path, weights: Sequence[Path], checkpoint: Path, repo: str) -> str:
    """Return the model card of a folder that `export_model` has written, in Markdown with metadata for the hub.

    Args:
        folder: The folder.
        weights: Its files of weights.
        checkpoint: What was exported; the metrics of its run are reported if they are there.
        repo: Name of the repository, for the example.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    n_parameters = sum(map(_n_parameters, weights))
    rows = [("architecture", ", ".join(config.get("architectures", []))), ("parameters", f"{n_parameters:,}")]
    rows += [(what, f"{config[name]:,}") for name, what in _SETTINGS if name in config]
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags:
- bytemill
---

# {repo.rpartition("/")[2]}

A language model trained with bytemill {__version__}.

| | |
|---|---|
{_table(rows)}
{_training(checkpoint)}## Use it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{repo}")
tok = AutoTokenizer.from_pretrained("{repo}")
```
"""


def _n_parameters(path: Path) -> int:
    with open_tensors(path) as file:
        return sum(math.prod(file.shape(name)) for name in file.names)


def _table(rows: list[tuple[str, str]]) -> str:
    return "".join(f"| {name} | {value} |\n" for name, value in rows)


def _training(checkpoint: Path) -> str:
    """Return what is known of the training; nothing without the metrics of a run."""
    try:
        records = read_metrics(checkpoint.parent.parent / "metrics.jsonl")
    except RunConfigError:
        return ""
    steps = [record for record in records if record.get("kind") == "step"]
    validations = [record for record in records if record.get("kind") == "validation"]
    rows: list[tuple[str, str]] = []
    if steps:
        rows.append(("steps", f"{steps[-1]['step']:,}"))
        if isinstance(n_tokens := steps[-1].get("n_tokens"), int):
            rows.append(("tokens", f"{n_tokens:,}"))
    if validations:
        last = validations[-1]
        for name, what in (
            ("loss", "validation loss"),
            ("bits_per_byte", "bits per byte of validation text"),
        ):
            if isinstance(value := last.get(name), float):
                rows.append((what, f"{value:.4f}"))
    return f"## Training\n\n| | |\n|---|---|\n{_table(rows)}\n" if rows else ""
