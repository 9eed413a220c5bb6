"""Tune a model by rewards of answers that it samples itself: GRPO and its relatives, as a task of the trainer.

A step samples a group of answers to each of its prompts, computes their rewards, and updates the weights once or
several times. All of it is a function of the weights, the seed and the number of the step, so that a run that was
killed repeats the step that it lost. Log-probabilities come from the model in training, not from sampling, which may
compute in another order.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.corpus import resolve_inputs
from bytemill.errors import CorpusError, RunConfigError
from bytemill.lm.batches import JoinedShards, ShardBatches, key_of
from bytemill.lm.device import autocast
from bytemill.lm.generation.decoding import sample_continuations
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.generation.text_generation import ids_without_token
from bytemill.lm.optim import clip_gradients
from bytemill.lm.tensors import split as cut
from bytemill.lm.training.preparation import initial_model
from bytemill.lm.tuning.policy_gradient import (
    PRESETS,
    PolicyGradient,
    aggregate_losses,
    group_advantages,
    policy_gradient_losses,
)
from bytemill.lm.tuning.responses import batch_responses, masked_sum, response_log_probs
from bytemill.lm.tuning.rewards import reward_function, reward_values
from bytemill.lm.tuning.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.config import TrainConfig, TuningConfig
    from bytemill.lm.training.run import Record, Run
    from bytemill.lm.tuning.rewards import Reward
    from bytemill.lm.tuning.rows import Row
    from bytemill.tokenizer.tokenizer import Tokenizer

_ROWS_SAMPLED = 256
"""Answers that are sampled in one batch."""
_SHOWN = 60
"""Characters of a prompt in messages."""


@dataclass(frozen=True)
class Prompt:
    """A prompt and the row that it was made from."""

    row: Row
    text: str
    ids: list[int]


class Prompts(JoinedShards):
    """Prompts in the place of shards; their number of ids stands for the size of the data."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self.parts = []
        self.prompts = prompts
        self._n_ids = sum(len(prompt.ids) for prompt in prompts)

    def __len__(self) -> int:
        return self._n_ids


class PromptBatches(ShardBatches):
    """Prompts in an order that depends only on the seed: every epoch has all once, in another order."""

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        self.tokens = Prompts(prompts)
        self.prompts = prompts
        self.context_length = 1  # a window is one prompt
        self.seed, self.rank, self.n_processes, self.position = seed, 0, 1, 0
        self.n_windows, self._n_shifts, self._sequential = len(prompts), 1, False

    def take_prompts(self, n: int) -> list[Prompt]:
        """Return the next prompts of the run."""
        found = [self.prompts[number] for number in self.starts(self.position, n)]
        self.position += n
        return found


@dataclass(frozen=True)
class Answer:
    """A sampled answer with its reward."""

    prompt: Prompt
    ids: list[int]
    text: str
    values: dict[str, float]
    """The reward, and further parts of it by name."""
    is_cut: bool
    """It reached the maximum number of tokens without an end."""


def algorithm_of(options: TuningConfig) -> PolicyGradient:
    """Return the published choices that `tuning.algorithm` names, with those that are set apart."""
    names = ("baseline", "normalizer", "ratio", "aggregation", "clip_low", "clip_high")
    own = {name: value for name in names if (value := getattr(options, name)) is not None}
    return replace(PRESETS[options.algorithm], **own)


class Grpo:
    """The task of a run whose `tuning.method` is grpo; see `training.run.Task`."""

    def __init__(self) -> None:
        self._files: list[str] = []
        self._reference: TransformerLM | None = None
        self._reward: Reward
        self._how: PolicyGradient
        self._stop_ids: set[int] = set()
        self._excluded: list[int] = []

    def open_batches(
        self, config: TrainConfig, tokenizer: Tokenizer, processes: Processes, bos_id: int | None
    ) -> PromptBatches:
        """Read the prompts, and check settings and rewards.

        Raises:
            RunConfigError: A setting is missing or wrong, or a prompt is too long.
            CorpusError: A row is wrong.
        """
        options = config.tuning
        if processes.count > 1:
            raise RunConfigError("grpo runs in one process", hint="leave --devices out")
        if not options.prompts:
            raise RunConfigError("tuning.prompts is not set", hint="add --tuning.prompts prompts.jsonl")
        self._files = [str(path) for path in options.prompts]
        self._how, self._reward = algorithm_of(options), reward_function(options.reward)
        if options.group_size == 1:
            group_advantages(torch.zeros(1), 1, self._how)
        if options.prompts_per_step % options.updates:
            raise RunConfigError(
                f"the {options.prompts_per_step} prompts of a step cannot be divided evenly among "
                f"{options.updates} updates",
                hint="change --tuning.prompts-per-step or --tuning.updates",
            )
        if options.updates > 1 and self._how.ratio == "none":
            raise RunConfigError(
                "tuning.updates is above 1, but ratio none takes all answers for those of the newest weights",
                hint="choose --tuning.ratio grpo, or --tuning.updates 1",
            )
        rows = [row for path in options.prompts for row in read_rows(path, ())]
        longest = config.model.context_length - options.max_tokens
        prompts = [prompt_of(row, options.template, tokenizer, bos_id) for row in rows]
        for prompt in prompts:
            if len(prompt.ids) > longest:
                raise RunConfigError(
                    f"the prompt {_short(prompt.text)!r} has {len(prompt.ids):,} tokens, which with answers of "
                    f"tuning.max_tokens {options.max_tokens:,} exceeds the context of "
                    f"{config.model.context_length:,} tokens",
                    hint="shorten the prompts, lower --tuning.max-tokens, or raise --model.context-length",
                )
        return PromptBatches(prompts, config.training.seed)

    def data_hashes(self) -> list[tuple[str, dict[str, str]]]:
        """Return the sha256 of each file of prompts."""
        return [
            (path, {source.name: source.sha256() for source in resolve_inputs([path])})
            for path in self._files
        ]

    def begin(self, run: Run) -> None:
        """Load the reference, if its divergence is in the loss."""
        special = set(run.tokenizer.special_tokens.values())
        self._stop_ids = special - ({run.bos_id} - {None})
        self._excluded = sorted(ids_without_token(run.tokenizer, run.config.model.vocab_size))
        if run.config.tuning.kl_weight:
            self._reference = initial_model(run)

    def accumulate(self, run: Run, record: Record) -> tuple[Tensor, int, Tensor]:
        """Sample, and accumulate the gradients of the step's last update; the others are taken.

        Returns:
            The mean loss of the updates, the number of tokens of answers, and no bytes: the loss is no cross-entropy.
        """
        options, number = run.config.tuning, run.step + 1
        started = time.perf_counter()
        prompts = cast("PromptBatches", run.batches).take_prompts(options.prompts_per_step)
        answers = self._sample(run, prompts)
        sampled = time.perf_counter()
        rewards = torch.tensor([answer.values["reward"] for answer in answers])
        advantages = group_advantages(rewards, options.group_size, self._how)
        run.model.train()
        sums, n_tokens = self._update(run, answers, advantages)
        groups = rewards.view(-1, options.group_size)
        values: dict[str, Any] = {
            **{name: _mean([answer.values[name] for answer in answers]) for name in answers[0].values},
            "reward_error": _standard_error(groups.mean(1)),
            "equal_groups": _mean([bool((group == group[0]).all()) for group in groups]),
            "no_signal": not bool(advantages.any()),
            "cut_share": _mean([answer.is_cut for answer in answers]),
            "answer_tokens": n_tokens / len(answers),
            **{name: total / max(1, n_tokens) for name, total in sums.items() if name != "loss"},
            "sampling_seconds": sampled - started,
            "training_seconds": time.perf_counter() - sampled,
        }
        every = run.config.run.sample_every
        if every and number % every == 0:
            values["group"] = _group(answers[: options.group_size], advantages)
        record("rollout", number, **values)
        loss = torch.tensor(sums["loss"] / options.updates, device=run.device)
        return loss, n_tokens, torch.zeros((), dtype=torch.int64, device=run.device)

    def _sample(self, run: Run, prompts: Sequence[Prompt]) -> list[Answer]:
        """Sample a group of answers to each prompt, in the order of the prompts."""
        options = run.config.tuning
        seed = run.config.training.seed
        wanted = [
            (prompt, key_of(seed, run.step, number, sample) >> 1)
            for number, prompt in enumerate(prompts)
            for sample in range(options.group_size)
        ]
        found: dict[int, list[int]] = {}
        # Prompts of similar length make a batch; its members depend on the step alone.
        order = sorted(range(len(wanted)), key=lambda index: len(wanted[index][0].ids))
        for first in range(0, len(order), _ROWS_SAMPLED):
            batch = order[first : first + _ROWS_SAMPLED]
            rows = sample_continuations(
                run.model,
                [wanted[index][0].ids for index in batch],
                options.max_tokens,
                parameters=SamplingParameters(temperature=options.temperature),
                seeds=[wanted[index][1] for index in batch],
                stop_ids=self._stop_ids,
                excluded_ids=self._excluded,
            )
            found.update(zip(batch, rows, strict=True))
        return [self._judged(run, wanted[index][0], found[index]) for index in range(len(wanted))]

    def _judged(self, run: Run, prompt: Prompt, ids: list[int]) -> Answer:
        is_ended = bool(ids) and ids[-1] in self._stop_ids
        text = run.tokenizer.decode(ids[:-1] if is_ended else ids)
        values: dict[str, float] = {}
        try:
            values = reward_values(self._reward, prompt.text, text, prompt.row)
            problem = (
                None
                if all(map(math.isfinite, values.values())) and "reward" in values
                else f"returned {values}"
            )
        except Exception as error:
            problem = f"failed with {type(error).__name__}: {error}"
        if problem is None:
            return Answer(prompt, ids, text, values, not is_ended)
        if run.config.tuning.reward_errors == "stop":
            raise RunConfigError(
                f"the reward {run.config.tuning.reward} {problem}, for the answer {_short(text)!r} to the row "
                f"{_short(str(prompt.row))}",
                hint="correct it, or count such answers as 0: --tuning.reward-errors zero",
            )
        return Answer(prompt, ids, text, {"reward": 0.0, "reward_failed": 1.0}, not is_ended)

    def _update(
        self, run: Run, answers: Sequence[Answer], advantages: Tensor
    ) -> tuple[dict[str, float], int]:
        """Take all updates of the step but the last, whose gradients are accumulated.

        Returns:
            Sums over the updates (`loss`) and over the tokens (`entropy`, `clip_share` and, with a reference, `kl`),
            and the number of tokens.
        """
        options, how = run.config.tuning, self._how
        batch = batch_responses([answer.prompt.ids for answer in answers], [answer.ids for answer in answers])
        n_answers = len(answers) // options.updates
        passes = [
            cut(torch.arange(first, first + n_answers), run.config.training.batch_size)
            for first in range(0, len(answers), n_answers)
        ]
        old = self._old_log_probs(run, batch, passes) if options.updates > 1 else None
        sums = {"loss": 0.0, "entropy": 0.0, "clip_share": 0.0, **({"kl": 0.0} if self._reference else {})}
        for update, parts in enumerate(passes):
            if update:
                norm = clip_gradients(run.model.parameters(), run.config.optimizer.clip or math.inf)
                if math.isfinite(float(norm)):
                    run.optimizer.step()
                run.optimizer.zero_grad(set_to_none=True)
            n_update_tokens = int(sum(batch.response_mask[rows].sum() for rows in parts))
            for rows in parts:
                inputs, labels, mask = (part[rows].to(run.device) for part in batch)
                with autocast(run.device, run.dtype):
                    found = response_log_probs(run.model, inputs, labels, with_entropy=True)
                losses, clipped = policy_gradient_losses(
                    advantages[rows].to(run.device),
                    found.log_probs,
                    None if old is None else old[rows].to(run.device),
                    mask,
                    how,
                )
                if self._reference is not None:
                    kl = self._divergence(run, inputs, labels, found.log_probs)
                    losses = losses + options.kl_weight * kl
                    sums["kl"] += float(masked_sum(kl.detach(), mask))
                share = {
                    "sequence": len(rows) / n_answers,
                    "token": float(mask.sum()) / max(1, n_update_tokens),
                    "constant": 1.0,
                }[how.aggregation]
                loss = share * aggregate_losses(
                    losses, mask, how.aggregation, float(n_answers * options.max_tokens)
                )
                if self._reference is not None or bool(advantages[rows].any()):
                    loss.backward()  # pyright: ignore[reportUnknownMemberType]
                sums["loss"] += float(loss.detach())
                sums["entropy"] += float(masked_sum(cast("Tensor", found.token_entropy), mask))
                sums["clip_share"] += float(masked_sum(clipped.float(), mask))
        return sums, int(batch.response_mask.sum())

    def _old_log_probs(self, run: Run, batch: Any, passes: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return log-probabilities under the weights that have sampled, (B, T)."""
        found: list[Tensor] = []
        with torch.no_grad(), autocast(run.device, run.dtype):
            for rows in (rows for parts in passes for rows in parts):
                inputs, labels = batch.input_ids[rows], batch.labels[rows]
                found.append(
                    response_log_probs(run.model, inputs.to(run.device), labels.to(run.device)).log_probs
                )
        return torch.cat(found)

    def _divergence(self, run: Run, inputs: Tensor, labels: Tensor, log_probs: Tensor) -> Tensor:
        """Return exp(d) − d − 1 of each token for d = log π_ref − log π, an unbiased estimate of the divergence.

        It is never negative, and has less variance than −d (Schulman 2020).
        """
        with torch.no_grad(), autocast(run.device, run.dtype):
            reference = response_log_probs(self._reference, inputs, labels).log_probs
        difference = reference - log_probs
        return difference.exp() - difference - 1


def prompt_of(row: Row, template: str, tokenizer: Tokenizer, bos_id: int | None) -> Prompt:
    """Return the prompt of a row: its `messages` in the tokenizer's chat template, or else `template`.

    Raises:
        CorpusError: The row lacks a field of the template, or the prompt is empty.
    """
    if "messages" in row:
        text = tokenizer.apply_chat_template(row["messages"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer.encode(text)
    else:
        try:
            text = template.format(**row)
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise CorpusError(
                f"the template {template!r} does not fit the row {_short(str(row))}: {error!r}",
                hint="name fields of the rows: --tuning.template 'Question: {question}\\nAnswer:'",
            ) from error
        ids = [*([] if bos_id is None else [bos_id]), *tokenizer.encode(text)]
    if not ids:
        raise CorpusError(f"the prompt of the row {_short(str(row))} is empty")
    return Prompt(row, text, ids)


def _group(answers: Sequence[Answer], advantages: Tensor) -> dict[str, Any]:
    """Return a group of answers for the metrics."""
    return {
        "prompt": answers[0].prompt.text,
        "answers": [
            {"text": answer.text, "ids": answer.ids, **answer.values, "advantage": float(advantage)}
            for answer, advantage in zip(answers, advantages, strict=False)
        ],
    }


def _standard_error(means: Tensor) -> float | None:
    """Return the standard error of the mean of the groups, whose answers are not independent."""
    return float(means.std() / math.sqrt(len(means))) if len(means) > 1 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
