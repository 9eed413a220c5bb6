"""Tune a model by rewards of answers that it samples itself: GRPO and its relatives, as a task of the trainer.

A step samples a group of answers to each of its prompts, computes their rewards, and updates the weights once or
several times. All of it is a function of the weights, the seed and the number of the step, so that a run that was
killed repeats the step that it lost. Log-probabilities come from the model in training, not from sampling, which may
compute in another order.

Several processes divide the batches of sampling among them, whose rows do not depend on the number of processes, and
then every process has all answers. Of each update, a process computes its share of the prompts.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
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
from bytemill.lm.processes import whole_model
from bytemill.lm.tensors import split as cut
from bytemill.lm.training.exchange import exchanged, in_parallel, without_gradients
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
    from bytemill.lm.training.run import Accumulated, Record, Run
    from bytemill.lm.tuning.responses import ResponseBatch
    from bytemill.lm.tuning.rewards import Reward
    from bytemill.lm.tuning.rows import Row
    from bytemill.tokenizer.tokenizer import Tokenizer

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


@dataclass(frozen=True)
class _Rollout:
    """All answers of a step, ready for the updates."""

    batch: ResponseBatch
    advantages: Tensor
    old_log_probs: Tensor | None
    """Under the weights that have sampled, of the answers of this process; None if these are the newest ones."""
    n_per_update: int

    def of_update(self, rows: Tensor) -> slice:
        """Return the answers of the update that some of its answers belong to."""
        first = int(rows[0]) // self.n_per_update * self.n_per_update
        return slice(first, first + self.n_per_update)


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
        if options.prompts_per_step // options.updates % processes.count:
            raise RunConfigError(
                f"the {options.prompts_per_step // options.updates} prompts of an update cannot be divided evenly "
                f"among {processes.count} processes",
                hint="change --tuning.prompts-per-step or --devices",
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
        self._log_probs = in_parallel(run, partial(response_log_probs, run.model, with_entropy=True))
        special = set(run.tokenizer.special_tokens.values())
        self._stop_ids = special - ({run.bos_id} - {None})
        self._excluded = sorted(ids_without_token(run.tokenizer, run.config.model.vocab_size))
        if run.config.tuning.kl_weight:
            self._reference = initial_model(run)

    def accumulate(self, run: Run, record: Record) -> Accumulated:
        """Sample, and accumulate the gradients of the step's last update; the others are taken.

        Returns:
            The mean loss of the updates, the number of tokens of answers of this process, and no bytes: the loss is no
            cross-entropy.
        """
        options, number = run.config.tuning, run.step + 1
        started = time.perf_counter()
        prompts = cast("PromptBatches", run.batches).take_prompts(options.prompts_per_step)
        answers = self._sample(run, prompts)
        sampled = time.perf_counter()
        rewards = torch.tensor([answer.values["reward"] for answer in answers])
        advantages = group_advantages(rewards, options.group_size, self._how)
        run.model.train()
        sums = self._update(run, answers, advantages)
        n_tokens = sum(len(answer.ids) for answer in answers)
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
        n_own = sum(len(answers[index].ids) for own in self._own_answers(run) for index in own)
        return loss, n_own, torch.zeros((), dtype=torch.int64, device=run.device)

    def _sample(self, run: Run, prompts: Sequence[Prompt]) -> list[Answer]:
        """Sample a group of answers to each prompt, in the order of the prompts; each process has all of them."""
        options = run.config.tuning
        seed = run.config.training.seed
        wanted = [
            (prompt, key_of(seed, run.step, number, sample) >> 1)
            for number, prompt in enumerate(prompts)
            for sample in range(options.group_size)
        ]
        model = whole_model(run.model)
        found: dict[int, Answer] = {}
        # Prompts of similar length make a batch; its members depend on the step alone.
        order = sorted(range(len(wanted)), key=lambda index: len(wanted[index][0].ids))
        starts = range(0, len(order), options.sampling_batch)
        for first in starts[run.processes.rank :: run.processes.count]:
            batch = order[first : first + options.sampling_batch]
            rows = sample_continuations(
                model,
                [wanted[index][0].ids for index in batch],
                options.max_tokens,
                parameters=SamplingParameters(temperature=options.temperature),
                seeds=[wanted[index][1] for index in batch],
                stop_ids=self._stop_ids,
                excluded_ids=self._excluded,
            )
            for index, ids in zip(batch, rows, strict=True):
                found[index] = self._judged(run, wanted[index][0], ids)
        for others in run.processes.gather_everywhere(found):
            found |= others
        return [found[index] for index in range(len(wanted))]

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

    @staticmethod
    def _own_answers(run: Run) -> list[range]:
        """Return the indices of the answers of each update that this process computes."""
        options = run.config.tuning
        n_answers = options.prompts_per_step // options.updates * options.group_size
        n_own = n_answers // run.processes.count
        starts = (update * n_answers + run.processes.rank * n_own for update in range(options.updates))
        return [range(start, start + n_own) for start in starts]

    def _update(self, run: Run, answers: Sequence[Answer], advantages: Tensor) -> dict[str, float]:
        """Take all updates of the step but the last, whose gradients are accumulated.

        Returns:
            The sum over the updates of the `loss` of this process, and sums over the tokens of all processes:
            `entropy`, `clip_share` and, with a reference, `kl`.
        """
        options = run.config.tuning
        batch = batch_responses([answer.prompt.ids for answer in answers], [answer.ids for answer in answers])
        size = run.config.training.batch_size
        updates = [cut(torch.tensor(own), size) for own in self._own_answers(run)]
        old = self._old_log_probs(run, batch, updates) if options.updates > 1 else None
        rollout = _Rollout(batch, advantages, old, len(answers) // options.updates)
        sums = {"loss": 0.0, "entropy": 0.0, "clip_share": 0.0, **({"kl": 0.0} if self._reference else {})}
        for update, passes in enumerate(updates):
            if update:
                norm = clip_gradients(run.model.parameters(), run.config.optimizer.clip or math.inf)
                if math.isfinite(float(norm)):
                    run.optimizer.step()
                run.optimizer.zero_grad(set_to_none=True)
            for index, rows in enumerate(passes):
                # Processes wait for each other's gradients, so that all of them skip a backward pass or none.
                compared = rollout.of_update(rows) if run.processes.count > 1 else rows
                has_gradient = self._reference is not None or bool(advantages[compared].any())
                is_last = index == len(passes) - 1
                with exchanged(run, self._log_probs, now=is_last) if has_gradient else without_gradients(run):
                    loss = self._loss(run, rollout, rows, sums)
                    if has_gradient:
                        loss.backward()  # pyright: ignore[reportUnknownMemberType]
                sums["loss"] += float(loss.detach())
        others = [name for name in sums if name != "loss"]
        return sums | dict(zip(others, run.processes.sum([sums[name] for name in others]), strict=True))

    def _loss(self, run: Run, rollout: _Rollout, rows: Tensor, sums: dict[str, float]) -> Tensor:
        """Return the share of answers in the loss of their update, and add to the sums over their tokens.

        The mean over the processes of the sums of these shares is the loss.
        """
        options, how, of_update = run.config.tuning, self._how, rollout.of_update(rows)
        inputs, labels, mask = (part[rows].to(run.device) for part in rollout.batch)
        with autocast(run.device, run.dtype):
            found = self._log_probs(inputs, labels)
        losses, clipped = policy_gradient_losses(
            rollout.advantages[rows].to(run.device),
            found.log_probs,
            None if rollout.old_log_probs is None else rollout.old_log_probs[rows].to(run.device),
            mask,
            how,
        )
        if self._reference is not None:
            kl = self._divergence(run, inputs, labels, found.log_probs)
            losses = losses + options.kl_weight * kl
            sums["kl"] += float(masked_sum(kl.detach(), mask))
        sums["entropy"] += float(masked_sum(cast("Tensor", found.token_entropy), mask))
        sums["clip_share"] += float(masked_sum(clipped.float(), mask))
        share = {
            "sequence": len(rows) / rollout.n_per_update,
            "token": float(mask.sum()) / max(1, int(rollout.batch.response_mask[of_update].sum())),
            "constant": 1.0,
        }[how.aggregation]
        divisor = float(rollout.n_per_update * options.max_tokens)
        return run.processes.count * share * aggregate_losses(losses, mask, how.aggregation, divisor)

    def _old_log_probs(self, run: Run, batch: ResponseBatch, updates: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return log-probabilities under the weights that have sampled, (B, T), of the answers of this process."""
        found = torch.zeros(batch.labels.shape)
        with without_gradients(run), autocast(run.device, run.dtype):
            for rows in (rows for passes in updates for rows in passes):
                inputs, labels = batch.input_ids[rows].to(run.device), batch.labels[rows].to(run.device)
                found[rows] = self._log_probs(inputs, labels).log_probs.float().cpu()
        return found

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
