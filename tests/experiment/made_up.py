"""The folder of a study whose results are made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a", "b", "c"]
DOMAINS = ["x", "y"]
N_SEEDS = 4
UNIGRAM = 4.0


def write_study(folder: Path, *, n_seeds: int = N_SEEDS, has_everything: bool = False) -> Path:
    """Write a study in which b is better than a, and c is like b.

    Args:
        folder: The folder.
        n_seeds: Seeds of each tokenizer.
        has_everything: With trials of learning rates, HellaSwag, samples and the message of a cell that failed.
    """
    random = np.random.default_rng(0)
    results: list[dict[str, Any]] = []
    n_bytes = random.integers(50, 100, 30)
    folder.mkdir(exist_ok=True)
    for seed in range(n_seeds):
        chance = random.normal(0, 0.05)  # shared by the tokenizers
        for name, level in zip(NAMES, (2.0, 1.9, 1.9), strict=True):
            cell = folder / "cells" / f"{name}.m.seed{seed}"
            (cell / "run").mkdir(parents=True)
            bits: dict[str, float] = {}
            for domain in DOMAINS:
                own = n_bytes * (level + chance + random.normal(0, 0.01) + random.normal(0, 0.02, 30))
                write_scores(cell, domain, own, n_bytes)
                bits[domain] = float(own.sum() / n_bytes.sum())
            records = [
                {"kind": "step", "step": step, "n_tokens": 10 * step, "tokens_per_second": 5.0, "loss": 1.0}
                for step in (1, 2)
            ] + [{"kind": "validation", "step": step, "bits_per_byte": 3.0 - step + seed} for step in (1, 2)]
            (cell / "run" / "metrics.jsonl").write_text("".join(json.dumps(own) + "\n" for own in records))
            more: dict[str, Any] = {}
            if has_everything:
                more["hellaswag"] = {"acc": 0.2, "acc_norm": 0.3, "n_items": 10, "n_unaligned": 1}
                more["samples"] = [{"prompt": "The", "text": " cat"}]
            results.append(
                {
                    **about(name, seed, 0.1),
                    "is_trial": False,
                    "bits_per_byte": bits,
                    **scored(DOMAINS),
                    "classes": {"digits": {"bits_per_byte": level}, "special": {"bits_per_byte": None}},
                    **more,
                }
            )
    failed: list[str] = []
    if has_everything:
        results = [*write_trials(folder, {"a": {0.1: [1.0, 1.1], 0.2: [1.2, 1.2]}}), *results]
        failed = ["d.m.seed0"]
        (folder / "failures.json").write_text(json.dumps({"d.m.seed0": "out of memory"}))
    grid = {
        "title": "<b>&",
        "budget": {"equal": "bytes", "amount": 60},
        "tokenizers": {name: {"n_ids": 300 + 100 * i, "fingerprint": name} for i, name in enumerate(NAMES)},
        "models": {"m": {}},
        "seeds": list(range(n_seeds)),
        "domains": DOMAINS,
        "parameters": {f"{name}/m": {"embedding": 1, "output layer": 2, "rest": 3} for name in NAMES},
        "context_bytes": 64,
        "cells": [result["cell"] for result in results] + failed,
        "text": {"train": "0" * 64},
    }
    (folder / "study.json").write_text(json.dumps(grid))
    (folder / "results.jsonl").write_text("".join(json.dumps(own) + "\n" for own in results))
    figures = {
        "bytes_per_token": {"a": 1.0, "b": 2.0, "c": 3.0},
        "tokens_per_word": {"a": 1, "b": 1, "c": None},
    }
    (folder / "figures.json").write_text(json.dumps(figures))
    return folder


def write_trials(folder: Path, bits: dict[str, dict[float, list[float]]]) -> list[dict[str, Any]]:
    """Write the scores of trials, given as tokenizer -> learning rate -> bits per byte of each seed.

    Returns:
        Their results.
    """
    results: list[dict[str, Any]] = []
    for name, by_rate in bits.items():
        for rate, values in by_rate.items():
            for seed, value in enumerate(values):
                own = {**about(name, seed, rate), "cell": f"{name}.m.seed{seed}.rate{rate:g}"}
                (folder / "cells" / own["cell"]).mkdir(parents=True)
                n_bytes = np.full(3, 10)
                write_scores(folder / "cells" / own["cell"], "tuning", n_bytes * value, n_bytes)
                score = {"bits_per_byte": {"tuning": value}, "classes": {}, **scored(["tuning"])}
                results.append({**own, "is_trial": True, **score})
    return results


def write_scores(cell: Path, domain: str, bits: Any, n_bytes: Any) -> None:
    """Write the losses of documents; those of the unigram distribution are `UNIGRAM` bits per byte."""
    bits.astype("<f8").tofile(cell / f"bits.{domain}.f64")
    n_bytes.astype("<i8").tofile(cell / f"bytes.{domain}.i64")
    (n_bytes * UNIGRAM).astype("<f8").tofile(cell / f"unigram.{domain}.f64")


def about(name: str, seed: int, rate: float) -> dict[str, Any]:
    """Return what a result says besides its scores."""
    return {
        "cell": f"{name}.m.seed{seed}",
        "tokenizer": name,
        "model": "m",
        "seed": seed,
        "learning_rate": rate,
        "n_steps": 2,
        "n_tokens": 20,
        "n_bytes": 60,
        "flops": 1e9,
    }


def scored(domains: list[str]) -> dict[str, Any]:
    """Return the numbers of scored tokens and the contexts."""
    return {
        "unigram_bits_per_byte": dict.fromkeys(domains, UNIGRAM),
        "n_scored_tokens": dict.fromkeys(domains, 500),
        "context": {domain: {"least": 64, "mean": 90.5} for domain in domains},
    }
