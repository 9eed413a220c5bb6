"""What the results of a study say: means over seeds, paired differences, learning curves, cheap figures."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.comparison.figures import FIGURES
from bytemill.comparison.intervals import interval, sampled_sums
from bytemill.errors import RunConfigError
from bytemill.experiment.results import (
    ScoredDocuments,
    StepRecord,
    StudyFolder,
    ValidationRecord,
    read_curve,
    read_failures,
    read_figures,
    read_grid,
    read_results,
    read_scores,
)
from bytemill.experiment.statistics import (
    Difference,
    Learning,
    Mean,
    RateChoice,
    choose_rate,
    holm,
    learning,
    mean,
    paired_difference,
    spearman,
)
from bytemill.experiment.stored_study import local_study
from bytemill.experiment.verdict import no_verdict, rate_sentence, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
    """For all tested pairs of the model (Holm 1979); None for one seed, and without a verdict."""
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
        RunConfigError: It is not the folder of a study, or one of its files is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = local_study(path)
        self._folder = StudyFolder(self.path)
        self.grid, self.failures = read_grid(self._folder), read_failures(self._folder)
        results = read_results(self._folder, self.grid["domains"])
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
            result["seed"]: _of_domain(result["bits_per_byte"], domain, self.grid["domains"])
            for result in _of_arm(self.results, model, tokenizer)
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
    def learning(self) -> dict[tuple[str, str], Learning | None]:
        """How far each arm is below the unigram distribution, by model and tokenizer: that of its seed with least gain.

        None for results of earlier versions.
        """
        found: dict[tuple[str, str], Learning | None] = {}
        for model in self.models:
            for tokenizer in self.tokenizers:
                own = [self._learned(result) for result in _of_arm(self.results, model, tokenizer)]
                known = [each for each in own if each is not None]
                if known and len(known) == len(own):
                    found[model, tokenizer] = min(known, key=lambda each: (each.is_clear, each.gain))
                elif own:
                    found[model, tokenizer] = None
        return found

    def context(self, model: str, tokenizer: str) -> tuple[int | None, float] | None:
        """Return the bytes of context that the models of an arm were scored with: the least, and the mean.

        The least is None if they saw all documents from their start; None for both in results of earlier versions.
        """
        own = [
            context
            for result in _of_arm(self.results, model, tokenizer)
            for context in result.get("context", {}).values()
        ]
        if not own:
            return None
        least = [context["least"] for context in own if context["least"] is not None]
        return min(least, default=None), sum(context["mean"] for context in own) / len(own)

    def is_trained(self, model: str, tokenizer: str) -> bool:
        """Return True if all models of an arm have clearly left the unigram distribution of their training tokens."""
        own = self.learning.get((model, tokenizer))
        return own is not None and own.is_clear

    def _learned(self, result: dict[str, Any]) -> Learning | None:
        if not result.get("unigram_bits_per_byte"):
            return None
        domains = ["tuning"] if result["is_trial"] else self.grid["domains"]
        scored = [self._scores(result["cell"], domain) for domain in domains]
        unigram = [own.unigram_bits for own in scored if own.unigram_bits is not None]
        n_tokens = sum(result["n_scored_tokens"][domain] for domain in domains)
        return learning(np.concatenate([own.bits for own in scored]), np.concatenate(unigram), n_tokens)

    @cached_property
    def _scores(self) -> Callable[[str, str], ScoredDocuments]:
        results = {result["cell"]: result for result in (*self.results, *self.trials)}

        @cache
        def scores(cell: str, domain: str) -> ScoredDocuments:
            return read_scores(self._folder.cell(cell), domain, results[cell])

        return scores

    @cached_property
    def pairs(self) -> list[Pair]:
        """All pairs of tokenizers with the same model, by the seeds that both have.

        A pair with a model that has not clearly left the unigram distribution is not tested, and has no verdict.
        """
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
                found.append(replace(pair, corrected_p=corrected, sentence=self._sentence(pair, corrected)))
        return found

    def _sentence(self, pair: Pair, corrected_p: float | None) -> str:
        model, budget = pair.model if len(self.models) > 1 else "", self.grid["budget"]["equal"]
        untrained = {
            name: self.learning.get((pair.model, name))
            for name in (pair.first, pair.second)
            if not self.is_trained(pair.model, name)
        }
        if untrained:
            return no_verdict(pair.first, pair.second, untrained, budget=budget, model=model)
        return verdict(pair.first, pair.second, pair.difference, corrected_p, budget=budget, model=model)

    def _pair(self, model: str, first: str, second: str) -> Pair | None:
        domain = self.domains[-1]
        a, b = (self.values(model, name, domain) for name in (first, second))
        seeds = [seed for seed in a if seed in b]
        if not seeds:
            return None
        difference = paired_difference([a[seed] for seed in seeds], [b[seed] for seed in seeds])
        if not (self.is_trained(model, first) and self.is_trained(model, second)):
            difference = replace(difference, p=None)
        documents = self._over_documents(model, first, second, seeds)
        return Pair(model, first, second, difference, None, documents, "")

    def _over_documents(
        self, model: str, first: str, second: str, seeds: list[int]
    ) -> tuple[float, float] | None:
        samples: list[NDArray[np.float64]] = []
        for domain in self.grid["domains"]:
            scored = {
                name: [
                    self._scores(result["cell"], domain)
                    for result in _of_arm(self.results, model, name)
                    if result["seed"] in seeds
                ]
                for name in (first, second)
            }
            n_bytes = scored[first][0].n_bytes
            if any(not np.array_equal(own.n_bytes, n_bytes) for each in scored.values() for own in each):
                raise RunConfigError(
                    f"{self.path}: the cells of {first} and {second} were scored on other documents of {domain}",
                    hint="run the study again: models that are finished are not trained again",
                )
            bits = [np.mean([own.bits for own in scored[name]], axis=0) for name in (first, second)]
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
        for result in _of_arm(self.results, model, tokenizer):
            metrics = self._folder.cell(result["cell"]) / "run" / "metrics.jsonl"
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

        Needs at least three tokenizers with trained models.
        """
        means = self.means(self.domains[-1])
        names = [name for name in self.tokenizers if (model, name) in means and self.is_trained(model, name)]
        found: list[Prediction] = []
        for figure, by_tokenizer in read_figures(self._folder).items():
            values = [value for name in names if (value := by_tokenizer.get(name)) is not None]
            if figure not in FIGURES or len(values) < len(names):
                continue
            rank = spearman(values, [means[model, name].value for name in names])
            if rank is not None:
                found.append(Prediction(figure, *rank))
        return sorted(found, key=lambda prediction: -abs(prediction.rho))

    @cached_property
    def rate_choices(self) -> dict[tuple[str, str], RateChoice]:
        """The learning rate of each arm whose trials have ended, by model and tokenizer."""
        found: dict[tuple[str, str], RateChoice] = {}
        for model in self.models:
            for tokenizer in self.tokenizers:
                begins = f"{tokenizer}.{model}.seed"
                if any(name.startswith(begins) and ".rate" in name for name in self.missing):
                    continue
                choice = choose_rate(tuning_bits(_of_arm(self.trials, model, tokenizer)))
                if choice is not None:
                    found[model, tokenizer] = choice
        return found

    @property
    def rate_sentences(self) -> list[str]:
        """What the choice of each learning rate is worth."""
        sentences: list[str] = []
        for (model, tokenizer), choice in self.rate_choices.items():
            learned = [
                self._learned(result)
                for result in _of_arm(self.trials, model, tokenizer)
                if result["learning_rate"] == choice.rate
            ]
            is_trained = all(own is None or own.is_clear for own in learned)
            sentences.append(rate_sentence(tokenizer, model, choice, is_trained=is_trained))
        return sentences

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
            "learning": [
                {
                    "model": model,
                    "tokenizer": tokenizer,
                    "is_trained": self.is_trained(model, tokenizer),
                    **({} if own is None else asdict(own)),
                    "context_bytes": self.context(model, tokenizer),
                }
                for (model, tokenizer), own in self.learning.items()
            ],
            "trials": self.trials,
            "learning_rates": [
                {
                    "model": model,
                    "tokenizer": tokenizer,
                    **asdict(choice),
                    "rivals": choice.rivals,
                    "neighbours": [
                        {"learning_rate": rate, **asdict(own)} for rate, own in choice.neighbours.items()
                    ],
                }
                for (model, tokenizer), choice in self.rate_choices.items()
            ],
            "results": self.results,
        }


def tuning_bits(trials: Iterable[dict[str, Any]]) -> dict[float, dict[int, float]]:
    """Return the bits per byte of trials on the tuning text, by learning rate and seed."""
    bits: dict[float, dict[int, float]] = defaultdict(dict)
    for trial in trials:
        bits[trial["learning_rate"]][trial["seed"]] = trial["bits_per_byte"]["tuning"]
    return bits


def _of_arm(results: Iterable[dict[str, Any]], model: str, tokenizer: str) -> list[dict[str, Any]]:
    return [result for result in results if (result["model"], result["tokenizer"]) == (model, tokenizer)]


def _of_domain(values: dict[str, float], domain: str, domains: list[str]) -> float:
    return sum(values[name] for name in domains) / len(domains) if domain == OVERALL else values[domain]


def _points(metrics: Path, result: dict[str, Any], axis: str) -> list[tuple[int, tuple[float, float]]]:
    seconds: dict[int, float] = {}
    n_tokens, total = 0, 0.0
    for record in read_curve(metrics, "step", StepRecord):
        if record.tokens_per_second:
            total += (record.n_tokens - n_tokens) / record.tokens_per_second
        n_tokens = record.n_tokens
        seconds[record.step] = total
    points: list[tuple[int, tuple[float, float]]] = []
    for record in read_curve(metrics, "validation", ValidationRecord):
        step = record.step
        share = step / result["n_steps"]
        before = [time for at, time in seconds.items() if at <= step]
        x = (
            max(before, default=0.0)
            if axis == "seconds"
            else result[{"flops": "flops"}.get(axis, f"n_{axis}")] * share
        )
        if record.bits_per_byte is not None:
            points.append((step, (x, record.bits_per_byte)))
    return points
