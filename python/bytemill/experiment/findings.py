"""What the results of a study say: means over seeds, paired differences, learning curves, cheap figures."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.comparison.bootstrap import interval, sampled_sums
from bytemill.experiment.job import document_bits
from bytemill.experiment.results import read_study_folder
from bytemill.experiment.statistics import Difference, Mean, holm, mean, paired_difference, spearman
from bytemill.experiment.stored_study import local_study
from bytemill.experiment.verdict import verdict
from bytemill.lm.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

OVERALL = "all domains"
"""The mean over the domains, each of which counts the same."""
AXES = ("bytes", "tokens", "flops", "seconds")


@dataclass(frozen=True)
class Pair:
    """Two tokenizers with the same model: bits per byte of the first − those of the second."""

    model: str
    first: str
    second: str
    difference: Difference
    corrected_p: float | None
    """For all pairs of the model (Holm 1979)."""
    documents: tuple[float, float] | None
    """95 % interval over documents drawn with replacement."""
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {**asdict(self), "detectable": self.difference.detectable}


@dataclass(frozen=True)
class Prediction:
    """How well a figure that needs no model predicts the order of the models."""

    figure: str
    rho: float
    """Spearman's rank correlation with bits per byte; positive if a lower figure means a better model."""
    p: float


class Findings:
    """The results of a study folder, also of an unfinished one.

    Args:
        path: The folder, or the URL of one in an object store.

    Raises:
        RunConfigError: It is not the folder of a study.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = local_study(path)
        self.grid, results, self.failures = read_study_folder(self.path)
        self.results = [result for result in results if not result["is_trial"]]
        self.trials = [result for result in results if result["is_trial"]]
        self.domains: list[str] = [*self.grid["domains"], *[OVERALL] * (len(self.grid["domains"]) > 1)]
        self.tokenizers: list[str] = list(self.grid["tokenizers"])
        self.models: list[str] = list(self.grid["models"])

    @property
    def missing(self) -> list[str]:
        """Names of the cells that have no result and have not failed."""
        done = {result["cell"] for result in (*self.results, *self.trials)} | set(self.failures)
        return [name for name in self.grid["cells"] if name not in done]

    def values(self, model: str, tokenizer: str, domain: str) -> dict[int, float]:
        """Return the bits per byte of an arm by seed."""
        return {
            result["seed"]: _of_domain(result["bits_per_byte"], domain)
            for result in self.results
            if (result["model"], result["tokenizer"]) == (model, tokenizer)
        }

    def means(self, domain: str) -> dict[tuple[str, str], Mean]:
        """Return the mean over seeds of each arm that has a result, by model and tokenizer."""
        return {
            (model, tokenizer): mean(list(values.values()))
            for model in self.models
            for tokenizer in self.tokenizers
            if (values := self.values(model, tokenizer, domain))
        }

    @cached_property
    def pairs(self) -> list[Pair]:
        """All pairs of tokenizers with the same model, by the seeds that both have."""
        found: list[Pair] = []
        for model in self.models:
            own = [
                pair
                for first, second in combinations(self.tokenizers, 2)
                if (pair := self._pair(model, first, second)) is not None
            ]
            tested = [pair for pair in own if pair.difference.p is not None]
            ps = dict(zip(map(id, tested), holm([pair.difference.p or 0.0 for pair in tested]), strict=True))
            for pair in own:
                corrected = ps.get(id(pair))
                sentence = verdict(
                    pair.first,
                    pair.second,
                    pair.difference,
                    corrected,
                    budget=self.grid["budget"]["equal"],
                    model=model if len(self.models) > 1 else "",
                )
                found.append(replace(pair, corrected_p=corrected, sentence=sentence))
        return found

    def _pair(self, model: str, first: str, second: str) -> Pair | None:
        domain = self.domains[-1]
        a, b = (self.values(model, name, domain) for name in (first, second))
        seeds = [seed for seed in a if seed in b]
        if not seeds:
            return None
        difference = paired_difference([a[seed] for seed in seeds], [b[seed] for seed in seeds])
        documents = self._over_documents(model, first, second, seeds)
        return Pair(model, first, second, difference, None, documents, "")

    def _over_documents(
        self, model: str, first: str, second: str, seeds: list[int]
    ) -> tuple[float, float] | None:
        samples: list[NDArray[np.float64]] = []
        for domain in self.grid["domains"]:
            bits: list[NDArray[np.float64]] = []
            n_bytes: NDArray[np.int64] = np.zeros(0, np.int64)
            for name in (first, second):
                scored = [
                    document_bits(self.path / "cells" / f"{name}.{model}.seed{seed}", domain)
                    for seed in seeds
                ]
                bits.append(np.mean([own for own, _ in scored], axis=0))
                n_bytes = scored[0][1]
            if len(n_bytes) < 2:
                return None
            sums = sampled_sums(np.stack([bits[0] - bits[1], n_bytes], axis=1))
            samples.append(sums[:, 0] / sums[:, 1])
        return interval(np.mean(samples, axis=0))

    def curve(self, model: str, tokenizer: str, axis: str) -> list[tuple[float, float]]:
        """Return the learning curve of an arm: the mean over seeds of bits per byte of the run's validation.

        Args:
            model: Name of the shape.
            tokenizer: Name of the tokenizer.
            axis: bytes, tokens, flops or seconds that training took so far.
        """
        points: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for result in self.results:
            if (result["model"], result["tokenizer"]) == (model, tokenizer):
                metrics = self.path / "cells" / result["cell"] / "run" / "metrics.jsonl"
                for step, point in _points(metrics, result, axis):
                    points[step].append(point)
        n_seeds = max(map(len, points.values()), default=0)
        return [
            (sum(x for x, _ in own) / len(own), sum(y for _, y in own) / len(own))
            for _, own in sorted(points.items())
            if len(own) == n_seeds
        ]

    def by_class(self, model: str) -> dict[str, dict[str, float]]:
        """Return class of token -> tokenizer -> bits per byte, the mean over seeds."""
        values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result in self.results:
            if result["model"] == model:
                for name, row in result["classes"].items():
                    if row["bits_per_byte"] is not None:
                        values[name][result["tokenizer"]].append(row["bits_per_byte"])
        return {
            name: {tokenizer: sum(each) / len(each) for tokenizer, each in own.items()}
            for name, own in values.items()
        }

    def predictions(self, model: str) -> list[Prediction]:
        """Return how well each cheap figure orders the tokenizers as their models do, the best first.

        Needs results of at least three tokenizers.
        """
        figures = self._figures()
        means = self.means(self.domains[-1])
        names = [name for name in self.tokenizers if (model, name) in means]
        found: list[Prediction] = []
        for figure, values in figures.items():
            if any(values.get(name) is None for name in names):
                continue
            rank = spearman([values[name] for name in names], [means[model, name].value for name in names])
            if rank is not None:
                found.append(Prediction(figure, *rank))
        return sorted(found, key=lambda prediction: -abs(prediction.rho))

    @property
    def rates_at_the_edge(self) -> list[str]:
        """Arms whose best learning rate is the smallest or the largest that was tried: another may be better."""
        found: list[str] = []
        for model in self.models:
            for tokenizer in self.tokenizers:
                own = {
                    trial["learning_rate"]: trial["bits_per_byte"]["tuning"]
                    for trial in self.trials
                    if (trial["model"], trial["tokenizer"]) == (model, tokenizer)
                }
                if len(own) > 1 and min(own, key=lambda rate: own[rate]) in (min(own), max(own)):
                    found.append(f"{tokenizer} with {model}")
        return found

    def _figures(self) -> dict[str, dict[str, float]]:
        """Return figure -> tokenizer -> mean over the domains, as `runner` has stored them."""
        try:
            return json.loads((self.path / "figures.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "study": self.grid,
            "missing": self.missing,
            "failures": self.failures,
            "bits_per_byte": {
                domain: [
                    {"model": model, "tokenizer": tokenizer, **asdict(own)}
                    for (model, tokenizer), own in self.means(domain).items()
                ]
                for domain in self.domains
            },
            "pairs": [pair.to_dict() for pair in self.pairs],
            "classes": {model: self.by_class(model) for model in self.models},
            "predictions": {
                model: [asdict(prediction) for prediction in self.predictions(model)] for model in self.models
            },
            "curves": {
                f"{tokenizer}/{model}": {axis: self.curve(model, tokenizer, axis) for axis in AXES}
                for model in self.models
                for tokenizer in self.tokenizers
            },
            "trials": self.trials,
            "rates_at_the_edge": self.rates_at_the_edge,
            "results": self.results,
        }


def _of_domain(values: dict[str, float], domain: str) -> float:
    return sum(values.values()) / len(values) if domain == OVERALL else values[domain]


def _points(metrics: Path, result: dict[str, Any], axis: str) -> list[tuple[int, tuple[float, float]]]:
    if not metrics.exists():
        return []
    seconds: dict[int, float] = {}
    n_tokens, total = 0, 0.0
    for record in read_metrics(metrics, "step"):
        if rate := record["tokens_per_second"]:
            total += (record["n_tokens"] - n_tokens) / rate
        n_tokens = record["n_tokens"]
        seconds[record["step"]] = total
    points: list[tuple[int, tuple[float, float]]] = []
    for record in read_metrics(metrics, "validation"):
        step = record["step"]
        share = step / result["n_steps"]
        before = [time for at, time in seconds.items() if at <= step]
        x = (
            max(before, default=0.0)
            if axis == "seconds"
            else result[{"flops": "flops"}.get(axis, f"n_{axis}")] * share
        )
        if record["bits_per_byte"] is not None:
            points.append((step, (x, record["bits_per_byte"])))
    return points
