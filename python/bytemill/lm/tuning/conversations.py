"""Tune a model on conversations by losses of whole conversations, as tasks of the trainer.

SFT with the mean over tokens needs no task: the masks of the shards say which ids are targets, and pretraining's loss
is the mean over these. Here are SFT with the mean over conversations, and DPO on pairs of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from bytemill.data.manifest import sets_of, shard_hashes
from bytemill.errors import CheckpointError, RunConfigError, ShardError
from bytemill.lm.batches import JoinedShards, ShardBatches
from bytemill.lm.device import autocast
from bytemill.lm.training.data import divide_batch
from bytemill.lm.training.exchange import exchanged, in_parallel
from bytemill.lm.training.preparation import initial_model
from bytemill.lm.tuning.losses import dpo_losses
from bytemill.lm.tuning.responses import masked_sum, response_log_probs
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from bytemill.lm.model import TransformerLM
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.config import TrainConfig
    from bytemill.lm.training.run import Accumulated, Record, Run
    from bytemill.tokenizer.tokenizer import Tokenizer

Batch: TypeAlias = "tuple[Tensor, Tensor, Tensor]"
"""Inputs, labels and the mask of targets of conversations, each (n, T)."""
REFERENCE = "reference.npz"
"""File in the run folder with the log-probabilities of all answers under the initial weights."""


class ConversationSet:
    """Conversations in shard folders, by number.

    Args:
        folders: Shard folders of conversations.
        fingerprint: Fingerprint of the tokenizer.
        context_length: Ids that the model reads.

    Raises:
        ShardError: The shards are not of conversations, or of another tokenizer.
        RunConfigError: A conversation is longer than the context.
    """

    def __init__(self, folders: Sequence[Path], fingerprint: str, context_length: int) -> None:
        self.shards = JoinedShards(folders, fingerprint)
        if not self.shards.has_masks:
            raise ShardError(
                f"the shards in {folders[0]} are not of conversations",
                hint="encode them: bytemill data encode TOKENIZER --conversations FILE.jsonl -o DIR",
            )
        ends = self.shards.conversation_ends()
        self._bounds = np.concatenate([[0], ends])
        longest = int(np.diff(self._bounds).max())
        if longest > context_length + 1:
            raise RunConfigError(
                f"a conversation in {folders[0]} has {longest:,} tokens, more than the context of {context_length:,}",
                hint=f"encode them again with --max-tokens {context_length + 1}, or raise --model.context-length",
            )

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def batch(self, numbers: Sequence[int]) -> Batch:
        """Return a batch of conversations, padded on the right."""
        bounds = [(int(self._bounds[number]), int(self._bounds[number + 1])) for number in numbers]
        width = max(2, *(end - start for start, end in bounds))
        ids, mask = np.zeros((len(bounds), width), np.int64), np.zeros((len(bounds), width), np.bool_)
        for row, (start, end) in enumerate(bounds):
            ids[row, : end - start] = self.shards[start:end]
            mask[row, : end - start] = self.shards.mask(start, end)
        whole = torch.tensor(ids)
        return whole[:, :-1], whole[:, 1:], torch.tensor(mask[:, 1:])


class ConversationBatches(ShardBatches):
    """Numbers of conversations, or of pairs of them, in an order that depends only on the seed."""

    def __init__(self, sets: Sequence[ConversationSet], seed: int) -> None:
        self.sets = sets
        self.tokens = sets[0].shards
        self.context_length = 1  # a window is one conversation
        self.seed, self.rank, self.n_processes, self.position = seed, 0, 1, 0
        self.n_windows, self._n_shifts, self._sequential = len(sets[0]), 1, False

    def take_numbers(self, n: int) -> list[int]:
        """Return the numbers of the next conversations of the run."""
        found = self.starts(self.position, n)
        self.position += n
        return found


class _ConversationTask:
    """What the tasks have in common; see `training.run.Task`."""

    batches: ConversationBatches

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def open_batches(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        processes: Processes,  # noqa: ARG002 - all have the same order of conversations
        bos_id: int | None,  # noqa: ARG002 - of prompts
    ) -> ConversationBatches:
        """Open the shards of conversations."""
        if not config.data.train:
            raise RunConfigError(
                "data.train is not set",
                hint="add --data.train DIR, made with: "
                "bytemill data encode TOKENIZER --conversations FILE.jsonl -o DIR",
            )
        folders = [Path(folder) for folder in config.data.train]
        length = config.model.context_length
        sets = [ConversationSet(own, tokenizer.fingerprint, length) for own in self._sides(folders)]
        self.batches = ConversationBatches(sets, config.training.seed)
        return self.batches

    def _sides(self, folders: list[Path]) -> list[list[Path]]:
        """Return the folders of each set."""
        self._folders = folders
        return [folders]

    def data_hashes(self) -> list[tuple[str, dict[str, str]]]:
        """Return the sha256 of each shard."""
        return [(str(folder), shard_hashes(folder)) for folder in self._folders]

    def _next(self, run: Run) -> tuple[list[list[int]], float]:
        """Take the conversations of a step.

        Returns:
            The conversations of each pass of this process, and the divisor of the sum of their losses: the mean over
            the processes of what results is the mean over all conversations.
        """
        n_passes, size = divide_batch(run.config.training, run.processes.count)
        n_own = n_passes * size
        first = run.processes.rank * n_own
        own = self.batches.take_numbers(n_own * run.processes.count)[first : first + n_own]
        return _in_passes(own, size), float(n_own)


class SequenceMeans(_ConversationTask):
    """SFT with the loss that is the mean over each conversation's targets, and then over conversations."""

    def begin(self, run: Run) -> None:
        """Prepare the function of the weights."""
        self._log_probs = in_parallel(run, partial(response_log_probs, run.model))

    def accumulate(self, run: Run, record: Record) -> Accumulated:  # noqa: ARG002
        """Accumulate the gradients of a step; see `trainer.accumulate_gradients`."""
        passes, divisor = self._next(run)
        total = torch.zeros((), device=run.device)
        n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
        n_tokens = 0
        for index, own in enumerate(passes):
            inputs, labels, mask = (part.to(run.device) for part in self.batches.sets[0].batch(own))
            with exchanged(run, self._log_probs, now=index == len(passes) - 1):
                with autocast(run.device, run.dtype):
                    log_probs = self._log_probs(inputs, labels).log_probs
                loss = -(masked_sum(log_probs, mask, 1) / mask.sum(1)).sum() / divisor
                loss.backward()  # pyright: ignore[reportUnknownMemberType]
            total += loss.detach()
            n_tokens += int(mask.sum())
            n_bytes += run.byte_counts.of(inputs[mask], labels[mask]).sum()
        return total, n_tokens, n_bytes


class Dpo(_ConversationTask):
    """DPO: pairs of conversations, of which one was preferred."""

    def __init__(self) -> None:
        super().__init__()
        self._reference: NDArray[np.float64] = np.zeros((2, 0))

    def _sides(self, folders: list[Path]) -> list[list[Path]]:
        pairs = [sets_of(folder) for folder in folders]
        for folder, sides in zip(folders, pairs, strict=True):
            if len(sides) != 2:
                raise ShardError(
                    f"{folder} does not hold pairs of conversations",
                    hint="encode rows with `chosen` and `rejected`: "
                    "bytemill data encode TOKENIZER --conversations FILE.jsonl -o DIR",
                )
        self._folders = [side for sides in pairs for side in sides]
        return [[sides[0] for sides in pairs], [sides[1] for sides in pairs]]

    def begin(self, run: Run) -> None:
        """Compute the log-probabilities of all answers under the initial weights, or read those of the run.

        Each process computes some of them, in the batches of one process.

        Raises:
            CheckpointError: They are damaged, or the initial weights are gone.
        """
        self._policy = in_parallel(run, partial(_pair_log_probs, run.model))
        path = run.folder.path / REFERENCE
        key = hashlib.sha256(json.dumps(self.data_hashes()).encode()).hexdigest()
        if run.step:
            self._reference = _read_reference(path, key)
            return
        model = initial_model(run)
        n = len(self.batches.sets[0])
        found = np.zeros((2, n))
        with torch.no_grad():
            passes = _in_passes(list(range(n)), run.config.training.batch_size)
            for numbers in passes[run.processes.rank :: run.processes.count]:
                with autocast(run.device, run.dtype):
                    sums = _pair_log_probs(model, *self._pairs(run, numbers))
                for side in range(2):
                    found[side, numbers] = sums[side].double().cpu().numpy()
        self._reference = found = np.array(run.processes.sum(found.reshape(-1).tolist())).reshape(2, n)
        if not run.processes.is_first:
            return
        file = io.BytesIO()
        np.savez(file, log_probs=found, key=np.array(key), sha256=np.array(_digest(found)))
        write_bytes(path, file.getvalue())

    def _pairs(self, run: Run, numbers: list[int]) -> list[Batch]:
        """Return the chosen conversations and the rejected ones, on the device."""
        batches = (side.batch(numbers) for side in self.batches.sets)
        return [
            (inputs.to(run.device), labels.to(run.device), mask.to(run.device))
            for inputs, labels, mask in batches
        ]

    def accumulate(self, run: Run, record: Record) -> Accumulated:
        """Accumulate the gradients of a step; see `trainer.accumulate_gradients`."""
        options, (passes, divisor) = run.config.tuning, self._next(run)
        total = torch.zeros((), device=run.device)
        chosen, rejected = 0.0, 0.0
        n_right = n_tokens = 0
        for index, own in enumerate(passes):
            pairs = self._pairs(run, own)
            reference = torch.tensor(self._reference[:, own], dtype=torch.float32, device=run.device)
            with exchanged(run, self._policy, now=index == len(passes) - 1):
                with autocast(run.device, run.dtype):
                    good, bad = self._policy(*pairs)
                result = dpo_losses(
                    good, bad, reference[0], reference[1],
                    beta=options.beta, label_smoothing=options.label_smoothing,
                )  # fmt: skip
                loss = result.losses.sum() / divisor
                loss.backward()  # pyright: ignore[reportUnknownMemberType]
            total += loss.detach()
            chosen += float(result.chosen_rewards.sum())
            rejected += float(result.rejected_rewards.sum())
            n_right += int((result.chosen_rewards > result.rejected_rewards).sum())
            n_tokens += sum(int(mask.sum()) for _, _, mask in pairs)
        chosen, rejected, n_right, n = run.processes.sum([chosen, rejected, n_right, divisor])
        record(
            "preference",
            run.step + 1,
            accuracy=n_right / n,
            accuracy_error=math.sqrt(n_right / n * (1 - n_right / n) / n),
            chosen_reward=chosen / n,
            rejected_reward=rejected / n,
            margin=(chosen - rejected) / n,
        )
        return total, n_tokens, torch.zeros((), dtype=torch.int64, device=run.device)


def _pair_log_probs(model: TransformerLM, *sides: Batch) -> list[Tensor]:
    """Return the log-probability of the targets of each conversation, (n,), for chosen and rejected ones."""
    return [
        masked_sum(response_log_probs(model, inputs, labels).log_probs, mask, 1)
        for inputs, labels, mask in sides
    ]


def _in_passes(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def _digest(values: NDArray[np.float64]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _read_reference(path: Path, key: str) -> NDArray[np.float64]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found: dict[str, Any] = {name: file[name] for name in ("log_probs", "key", "sha256")}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint="start again with --overwrite") from error
    if str(found["sha256"]) != _digest(found["log_probs"]):
        raise CheckpointError(f"{path} is damaged: its numbers do not have the sha256 in it")
    if str(found["key"]) != key:
        raise CheckpointError(f"{path} is of other pairs", hint="start again with --overwrite")
    return found["log_probs"]
