"""What the results of a study say: means over seeds, paired differences, learning curves, cheap figures.

The sentences at the end say what a difference shows, and what it does not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.intervals import interval, sampled_sums
from bytemill.comparison.figures import FIGURES
from bytemill.errors import RunConfigError
from bytemill.experiment.results import (
    ScoredDocuments,
    StepRecord,
    StudyFolder,
    ValidationRecord,
    local_study,
    read_curve,
    read_failures,
    read_figures,
    read_grid,
    read_results,
    read_scores,
)
from bytemill.experiment.statistics import (
    LEARNED_SHARE,
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
from bytemill.experiment.study import with_text
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

OVERALL = "all domains"
"""The mean over the domains, each of which counts the same."""
AXES = ("bytes", "tokens", "flops", "seconds")
ALPHA = 0.05
_BUDGETS = {"bytes": "equal bytes", "tokens": "equal tokens", "flops": "equal FLOPs", "time": "equal time"}


@dataclass(frozen=True)
class Pair:
    """Two tokenizers, or two texts, with the same model: bits per byte of the first − those of the second."""

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
        self._variants = {
            self._name(tokenizer, text): (tokenizer, text)
            for tokenizer in self.grid["tokenizers"]
            for text in self.grid.get("texts") or [""]
        }
        self.tokenizers: list[str] = list(self._variants)
        """Names of what is compared: tokenizers, texts, or both."""
        self.models: list[str] = list(self.grid["models"])
        self._arms = list(product(self.models, self.tokenizers))

    def _name(self, tokenizer: str, text: str) -> str:
        return text if text and len(self.grid["tokenizers"]) == 1 else with_text(tokenizer, text)

    def name_of(self, result: Mapping[str, Any]) -> str:
        """Return the name, one of `tokenizers`, that a result belongs to."""
        return self._name(result["tokenizer"], result.get("text", ""))

    @property
    def compared(self) -> str:
        """What is compared, for headings."""
        if not self.grid.get("texts"):
            return "tokenizer"
        return "text" if len(self.grid["tokenizers"]) == 1 else "tokenizer and text"

    def n_ids(self, name: str) -> int:
        """Return the number of ids of one of `tokenizers`."""
        return self.grid["tokenizers"][self._variants[name][0]]["n_ids"]

    @property
    def missing(self) -> list[str]:
        """Names of the cells that have no result and have not failed."""
        done = {result["cell"] for result in (*self.results, *self.trials)} | set(self.failures)
        return [name for name in self.grid["cells"] if name not in done]

    def of_arm(self, model: str, tokenizer: str) -> list[dict[str, Any]]:
        """Return the results of the models of an arm."""
        return self._of_arm(self.results, (model, tokenizer))

    def _of_arm(self, results: Iterable[dict[str, Any]], arm: tuple[str, str]) -> list[dict[str, Any]]:
        return [result for result in results if (result["model"], self.name_of(result)) == arm]

    def values(self, model: str, tokenizer: str, domain: str) -> dict[int, float]:
        """Return the bits per byte of an arm by seed."""
        return {
            result["seed"]: _of_domain(result["bits_per_byte"], domain, self.grid["domains"])
            for result in self.of_arm(model, tokenizer)
        }

    def means(self, domain: str) -> dict[tuple[str, str], Mean]:
        """Return the mean over seeds of each arm that has a result, by model and tokenizer."""
        values = {arm: self.values(*arm, domain) for arm in self._arms}
        return {arm: mean(list(own.values())) for arm, own in values.items() if own}

    @cached_property
    def learning(self) -> dict[tuple[str, str], Learning | None]:
        """How far each arm is below the unigram distribution, by model and tokenizer: that of its seed with least gain.

        None for results of earlier versions.
        """
        found: dict[tuple[str, str], Learning | None] = {}
        for arm in self._arms:
            own = [self._learned(result) for result in self._of_arm(self.results, arm)]
            known = [each for each in own if each is not None]
            if own:
                is_known = len(known) == len(own)
                found[arm] = min(known, key=lambda each: (each.is_clear, each.gain)) if is_known else None
        return found

    def context(self, model: str, tokenizer: str) -> tuple[int | None, float] | None:
        """Return the bytes of context that the models of an arm were scored with: the least, and the mean.

        The least is None if they saw all documents from their start; None for both in results of earlier versions.
        """
        results = self.of_arm(model, tokenizer)
        own = [context for result in results for context in result.get("context", {}).values()]
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
        """All pairs of tokenizers, or of texts, with the same model, by the seeds that both have.

        If both are compared, one of them is the same in a pair.

        A pair with a model that has not clearly left the unigram distribution is not tested, and has no verdict.
        """
        found: list[Pair] = []
        for model in self.models:
            pairs = [
                self._pair(model, *names)
                for names in combinations(self.tokenizers, 2)
                if self._differ(*names)
            ]
            own = [pair for pair in pairs if pair is not None]
            tested = [pair for pair in own if pair.difference.p is not None]
            ps = dict(zip(map(id, tested), holm([pair.difference.p or 0.0 for pair in tested]), strict=True))
            for pair in own:
                corrected = ps.get(id(pair))
                found.append(replace(pair, corrected_p=corrected, sentence=self._sentence(pair, corrected)))
        return found

    def _differ(self, first: str, second: str) -> bool:
        """Return True if two of `tokenizers` differ in one thing."""
        return sum(a != b for a, b in zip(self._variants[first], self._variants[second], strict=True)) == 1

    def _pair(self, model: str, first: str, second: str) -> Pair | None:
        a, b = (self.values(model, name, self.domains[-1]) for name in (first, second))
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
            scored = [
                [
                    self._scores(result["cell"], domain)
                    for result in self.of_arm(model, name)
                    if result["seed"] in seeds
                ]
                for name in (first, second)
            ]
            n_bytes = scored[0][0].n_bytes
            if any(not np.array_equal(own.n_bytes, n_bytes) for each in scored for own in each):
                raise RunConfigError(
                    f"{self.path}: the cells of {first} and {second} were scored on other documents of {domain}",
                    hint="run the study again: models that are finished are not trained again",
                )
            if len(n_bytes) < 2:
                return None
            a, b = (np.mean([own.bits for own in each], axis=0) for each in scored)
            sums = sampled_sums(np.stack([a - b, n_bytes], axis=1))
            samples.append(sums[:, 0] / sums[:, 1])
        return interval(np.mean(samples, axis=0))

    def _sentence(self, pair: Pair, corrected_p: float | None) -> str:
        where = f"at {_BUDGETS[self.grid['budget']['equal']]}"
        where += f" with {pair.model}" if len(self.models) > 1 else ""
        names = [name for name in (pair.first, pair.second) if not self.is_trained(pair.model, name)]
        if names:
            untrained = {name: self.learning.get((pair.model, name)) for name in names}
            return no_verdict(pair.first, pair.second, untrained, where)
        return verdict(pair.first, pair.second, pair.difference, corrected_p, where)

    def curve(self, model: str, tokenizer: str, axis: str) -> list[tuple[float, float]]:
        """Return the learning curve of an arm: the mean over seeds of bits per byte of the run's validation.

        Args:
            model: Name of the shape.
            tokenizer: Name of the tokenizer.
            axis: bytes, tokens, flops or seconds that training took so far.
        """
        points: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for result in self.of_arm(model, tokenizer):
            metrics = self._folder.cell(result["cell"]) / "run" / "metrics.jsonl"
            for step, point in _points(metrics, result, axis):
                points[step].append(point)
        n_seeds = max(map(len, points.values()), default=0)
        complete = [own for _, own in sorted(points.items()) if len(own) == n_seeds]
        return [(sum(x for x, _ in own) / n_seeds, sum(y for _, y in own) / n_seeds) for own in complete]

    def by_class(self, model: str) -> dict[str, dict[str, float]]:
        """Return class of token -> tokenizer -> bits per byte, the mean over seeds."""
        values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result in self.results:
            if result["model"] == model:
                for name, row in result["classes"].items():
                    if row["bits_per_byte"] is not None:
                        values[name][self.name_of(result)].append(row["bits_per_byte"])
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
        for model, tokenizer in self._arms:
            begins = f"{with_text(*self._variants[tokenizer])}.{model}.seed"
            if any(name.startswith(begins) and ".rate" in name for name in self.missing):
                continue
            choice = choose_rate(tuning_bits(self._of_arm(self.trials, (model, tokenizer))))
            if choice is not None:
                found[model, tokenizer] = choice
        return found

    @property
    def rate_sentences(self) -> list[str]:
        """What the choice of each learning rate is worth."""
        sentences: list[str] = []
        for (model, tokenizer), choice in self.rate_choices.items():
            trials = self._of_arm(self.trials, (model, tokenizer))
            learned = [self._learned(own) for own in trials if own["learning_rate"] == choice.rate]
            is_trained = all(own is None or own.is_clear for own in learned)
            sentences.append(rate_sentence(tokenizer, model, choice, is_trained=is_trained))
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""

        def rows(of_arm: Mapping[tuple[str, str], Any]) -> Iterator[tuple[dict[str, str], Any]]:
            return (({"model": model, "tokenizer": name}, own) for (model, name), own in of_arm.items())

        return {
            "study": self.grid,
            "missing": self.missing,
            "failures": self.failures,
            "bits_per_byte": {
                domain: [arm | asdict(own) for arm, own in rows(self.means(domain))]
                for domain in self.domains
            },
            "pairs": [pair.to_dict() for pair in self.pairs],
            "classes": {model: self.by_class(model) for model in self.models},
            "predictions": {model: list(map(asdict, self.predictions(model))) for model in self.models},
            "curves": {
                f"{tokenizer}/{model}": {axis: self.curve(model, tokenizer, axis) for axis in AXES}
                for model, tokenizer in self._arms
            },
            "learning": [
                {
                    **arm,
                    "is_trained": self.is_trained(**arm),
                    **({} if own is None else asdict(own)),
                    "context_bytes": self.context(**arm),
                }
                for arm, own in rows(self.learning)
            ],
            "trials": self.trials,
            "learning_rates": [
                {
                    **arm,
                    **asdict(choice),
                    "rivals": choice.rivals,
                    "neighbours": [
                        {"learning_rate": rate, **asdict(own)} for rate, own in choice.neighbours.items()
                    ],
                }
                for arm, choice in rows(self.rate_choices)
            ],
            "results": self.results,
        }


def tuning_bits(trials: Iterable[dict[str, Any]]) -> dict[float, dict[int, float]]:
    """Return the bits per byte of trials on the tuning text, by learning rate and seed."""
    bits: dict[float, dict[int, float]] = defaultdict(dict)
    for trial in trials:
        bits[trial["learning_rate"]][trial["seed"]] = trial["bits_per_byte"]["tuning"]
    return bits


def _of_domain(values: dict[str, float], domain: str, domains: list[str]) -> float:
    return sum(values[name] for name in domains) / len(domains) if domain == OVERALL else values[domain]


def _points(metrics: Path, result: dict[str, Any], axis: str) -> list[tuple[int, tuple[float, float]]]:
    seconds = {0: 0.0}
    n_tokens, total = 0, 0.0
    for record in read_curve(metrics, "step", StepRecord):
        if record.tokens_per_second:
            total += (record.n_tokens - n_tokens) / record.tokens_per_second
        n_tokens = record.n_tokens
        seconds[record.step] = total
    points: list[tuple[int, tuple[float, float]]] = []
    for record in read_curve(metrics, "validation", ValidationRecord):
        step = record.step
        if axis == "seconds":
            x = max(time for at, time in seconds.items() if at <= step)
        else:
            share = step / result["n_steps"]
            x = result["flops" if axis == "flops" else f"n_{axis}"] * share
        if record.bits_per_byte is not None:
            points.append((step, (x, record.bits_per_byte)))
    return points


# Sentences.


def verdict(first: str, second: str, difference: Difference, corrected_p: float | None, where: str) -> str:
    """Return the sentence about two tokenizers, or two texts.

    Args:
        first: Name of a tokenizer.
        second: Name of another one.
        difference: Bits per byte of the first − those of the second.
        corrected_p: Its p-value, corrected for the number of pairs; None for one seed.
        where: What was equal, and the model if the study has several.

    >>> from bytemill.experiment.statistics import paired_difference
    >>> difference = paired_difference([1.00, 1.01, 1.02], [1.02, 1.03, 1.041])
    >>> verdict("own", "gpt2", difference, 0.01, "at equal bytes")
    'own beats gpt2 by 0.0203 ± 0.0014 bits per byte at equal bytes.'
    """
    size = f"{abs(difference.value):.4f}"
    better, worse = (first, second) if difference.value < 0 else (second, first)
    if difference.half_width is None or corrected_p is None:
        return (
            f"With one seed nothing is shown: {better} is {size} bits per byte below {worse} {where}, which may be "
            "chance."
        )
    spread = f"± {difference.half_width:.4f}"
    if corrected_p < ALPHA:
        return f"{better} beats {worse} by {size} {spread} bits per byte {where}."
    detectable = difference.detectable or 0.0
    power = f" {difference.n} seeds show differences of {detectable:.4f} in four of five studies."
    return (
        f"No difference between {first} and {second} is shown {where} ({better} is {size} {spread} bits per byte "
        f"lower).{power}"
    )


def no_verdict(first: str, second: str, untrained: Mapping[str, Learning | None], where: str) -> str:
    """Return the sentence about two tokenizers if the models of one have not clearly left the unigram distribution.

    Args:
        first: Name of a tokenizer.
        second: Name of another one.
        untrained: What is known of the models, by the name of their tokenizer; None if nothing is.
        where: What was equal, and the model if the study has several.

    >>> from bytemill.experiment.statistics import Learning
    >>> no_verdict("own", "gpt2", {"gpt2": Learning(15.3, 10.7, -0.43, None)}, "at equal bytes")
    'No verdict on own and gpt2 at equal bytes: gpt2 has 15.30 bits per token, 43.0% above the 10.70 of the unigram \
distribution of its training tokens. Models must be clearly below it, by at least 10%: train longer.'
    """
    reasons: list[str] = []
    for name, own in untrained.items():
        if own is None:
            reasons.append(f"{name} was scored by an earlier version; run the study again to score it anew")
            continue
        side = "below" if own.gain >= 0 else "above"
        reasons.append(
            f"{name} has {own.loss:.2f} bits per token, {abs(own.gain):.1%} {side} the {own.unigram:.2f} of the "
            "unigram distribution of its training tokens"
        )
    rule = f" Models must be clearly below it, by at least {LEARNED_SHARE:.0%}: train longer."
    is_measured = any(own is not None for own in untrained.values())
    return f"No verdict on {first} and {second} {where}: {'; '.join(reasons)}.{rule if is_measured else ''}"


def rate_sentence(tokenizer: str, model: str, choice: RateChoice, *, is_trained: bool = True) -> str:
    """Return the sentence about the learning rate of an arm.

    Args:
        tokenizer: Name of the tokenizer.
        model: Name of the model.
        choice: The rate and its neighbours.
        is_trained: Whether the models of the trials have clearly left the unigram distribution.

    >>> from bytemill.experiment.statistics import choose_rate
    >>> choice = choose_rate({0.1: {0: 1.0, 1: 1.1}, 0.2: {0: 1.0, 1: 1.2}})
    >>> rate_sentence("own", "tiny", choice)
    'own with tiny: 0.1 is best in 2 seeds; not told apart from 0.2 (+0.0500 ± 0.6353 bits per byte); it is at the \
edge of the rates that were tried, and another one may be better.'
    """
    parts = [f"{tokenizer} with {model}: {choice.rate:g} is best in {plural(choice.n, 'seed')}"]
    for what, rates in (
        ("better than", [rate for rate in choice.neighbours if rate not in choice.rivals]),
        ("not told apart from", choice.rivals),
    ):
        if rates:
            shown = [f"{rate:g} ({_spread(choice.neighbours[rate])} bits per byte)" for rate in rates]
            parts.append(f"{what} {' and '.join(shown)}")
    if choice.is_at_edge:
        parts.append("it is at the edge of the rates that were tried, and another one may be better")
    if not is_trained:
        parts.append(
            "the models of its trials have not clearly left the unigram distribution, so that it says little"
        )
    return "; ".join(parts) + "."


def _spread(difference: Difference) -> str:
    width = "" if difference.half_width is None else f" ± {difference.half_width:.4f}"
    return f"{difference.value:+.4f}{width}"
