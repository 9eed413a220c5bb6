"""The data of a run: shard folders, validation sets, the division of a step into passes, and reading ahead."""

from __future__ import annotations

import glob
import shlex
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.data.layouts import layout_named
from bytemill.data.manifest import MANIFEST_NAME, UNFINISHED_NAME, is_shard_name, parts_of
from bytemill.errors import RunConfigError, ShardError
from bytemill.lm.batches import (
    DocumentMask,
    JoinedShards,
    MarkedDocuments,
    PackedBatches,
    ShardBatches,
    inputs_and_targets,
)
from bytemill.storage import exists, is_url, url_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    import torch
    from torch import Tensor

    from bytemill.lm.batches import Documents
    from bytemill.lm.processes import Processes
    from bytemill.lm.training.config import DataConfig, TrainConfig, TrainingConfig
    from bytemill.tokenizer.tokenizer import Tokenizer


_ID_FILES = (".bin", ".idx", ".npy")
"""Ends of the names of files with ids that other programs have written."""
UNNAMED = "validation"
"""Name of the validation set without a name."""


def data_folders(data: DataConfig) -> tuple[list[Path], dict[str, list[Path]]]:
    """Return the folders to train on, and those of each validation set.

    A folder split by `bytemill data encode --validation-fraction` stands for its train part. Its validation part is
    the default for validation.

    Raises:
        RunConfigError: Two validation sets have the same name, or a text is not encoded.
    """
    if texts := [name for name in data.train if _is_text(name)]:
        folder = "shards" if not Path("shards").exists() else f"{Path(texts[0]).stem}_shards"
        arguments = shlex.join([data.tokenizer, *texts, "-o", folder])
        raise RunConfigError(
            f"{texts[0]} is not a folder of shards",
            hint=f"encode it first: bytemill data encode {arguments}; then train with --data.train "
            f"{shlex.quote(folder)}",
        )
    parts = [parts_of(Path(folder)) for folder in data.train]
    sets: dict[str, list[Path]] = {}
    for entry in data.validation:
        name, is_named, folder = entry.partition("=")
        if not is_named or Path(entry).exists():
            name, folder = UNNAMED, entry
        elif name in sets or name == UNNAMED or not name:
            raise RunConfigError(
                f"data.validation has two sets named {name!r}"
                if name in sets
                else f"{name!r} cannot name a set",
                hint="choose another name: --data.validation NAME=FOLDER",
            )
        sets.setdefault(name, []).append(parts_of(Path(folder))[-1])
    if not data.validation and (split := [part[1] for part in parts if len(part) > 1]):
        sets[UNNAMED] = split
    return [part[0] for part in parts], sets


def _is_text(name: str) -> bool:
    """Return whether a name is that of a file or glob, or of a folder with files none of which is of shards."""
    path = Path(name)
    if url_of(name) is not None:
        return False
    if not path.is_dir():
        found = glob.iglob(name, recursive=True) if glob.has_magic(name) else iter(())  # noqa: PTH207 (may be absolute)
        return path.is_file() or next(found, None) is not None
    if (path / UNFINISHED_NAME).exists() or any(exists(part / MANIFEST_NAME) for part in parts_of(path)):
        return False
    files = [file.name for file in path.iterdir() if file.is_file()]
    return bool(files) and not any(is_shard_name(file) or file.endswith(_ID_FILES) for file in files)


def require_data(config: TrainConfig) -> None:
    """Check that the data of a run that is resumed is where the settings say.

    Raises:
        ShardError: A folder is missing; the hint is the command that names its new path.
    """
    settings = {"--data.train": config.data.train, "--data.validation": config.data.validation}
    for option, entries in settings.items():
        missing = [entry for entry in entries if not (_is_there(entry) or _is_there(entry.partition("=")[2]))]
        if missing:
            run = shlex.quote(config.run.folder)
            paths = " ".join(
                _with_new_path(entry) if entry in missing else shlex.quote(entry) for entry in entries
            )
            raise ShardError(
                f"there is no folder {missing[0]}, which the run was trained on",
                hint=f"name its new path: bytemill lm train {run} {option} {paths}",
            )


def _is_there(folder: str) -> bool:
    return bool(folder) and (is_url(folder) or Path(folder).exists())


def _with_new_path(entry: str) -> str:
    name, equals, _ = entry.partition("=")
    return f"{shlex.quote(name)}=NEW_PATH" if equals else "NEW_PATH"


def validation_set(
    folders: list[Path], train_folders: list[Path], tokenizer: Tokenizer, config: TrainConfig
) -> JoinedShards:
    """Open a validation set; raise RunConfigError if it is smaller than a window."""
    shards, length = JoinedShards(folders, tokenizer.fingerprint), config.model.context_length
    if len(shards) <= length:
        names = " ".join(shlex.quote(str(path)) for path in train_folders)
        raise RunConfigError(
            f"the validation shards in {', '.join(map(str, folders))} hold {len(shards):,} tokens, too few for a "
            f"window of {length:,} and its targets",
            hint=f"validate on more text, or train without validation: --data.train {names}"
            + (" and no --data.validation" if config.data.validation else ""),
        )
    return shards


def open_batches(
    folders: list[Path], config: TrainConfig, tokenizer: Tokenizer, processes: Processes
) -> ShardBatches:
    """Return the batches that `data.packing` asks for."""
    options: dict[str, Any] = {
        "seed": config.training.seed,
        "fingerprint": tokenizer.fingerprint,
        "rank": processes.rank,
        "n_processes": processes.count,
    }
    length, joined = config.model.context_length, JoinedShards(folders, tokenizer.fingerprint)
    if config.tuning.method == "sft" and not joined.has_masks:
        raise RunConfigError(
            f"the shards in {folders[0]} are of texts, not of conversations, so every token would be a target",
            hint="encode them: bytemill data encode TOKENIZER --conversations FILE.jsonl -o DIR",
        )
    if config.data.packing == "documents" and joined.has_masks:
        return PackedBatches(folders, length, None, **options)
    if config.training.document_mask and joined.has_masks:
        raise RunConfigError(
            "training.document_mask needs whole conversations in windows",
            hint="set data.packing to documents, or leave training.document_mask out",
        )
    if config.data.packing == "stream":
        return ShardBatches(folders, length, sequential=config.data.order == "sequential", **options)
    documents = document_mask(config, joined, tokenizer, "data.packing")
    return PackedBatches(folders, length, documents, **options)


def bos_id_of(tokens: JoinedShards, tokenizer: Tokenizer) -> int | None:
    """Return the id of the special token at the start of every document; None if folders differ or have none."""
    found = {part.manifest.settings.prepended for part in tokens.parts}
    return tokenizer.special_tokens.get(found.pop() or "") if len(found) == 1 else None


def separator_of(tokens: JoinedShards) -> int | None:
    """Return the id of the token between documents, from the first folder that has one."""
    separators = (part.manifest.separator_id for part in tokens.parts)
    return next((separator for separator in separators if separator is not None), None)


def document_mask(
    config: TrainConfig, tokens: JoinedShards | None, tokenizer: Tokenizer, setting: str
) -> DocumentMask:
    """Return how the separator of the shards, or else <|endoftext|>, divides documents, as `setting` needs it."""
    manifest = None if tokens is None else tokens.parts[0].manifest
    separator = None if manifest is None else manifest.separator_id
    if separator is None:
        separator = tokenizer.special_tokens.get("<|endoftext|>")
    if separator is None:
        raise RunConfigError(
            f"{setting} needs a separator between documents, and the shards have none",
            hint="encode it with a tokenizer that has <|endoftext|>, or add --documents TOKEN to: "
            "bytemill data encode TOKENIZER TEXT -o DIR",
        )
    return DocumentMask(
        separator,
        separator_first=manifest is not None and layout_named(manifest.layout).separator_in_front,
        reset_positions=config.training.reset_positions,
    )


def sequences_at(step: int, config: TrainingConfig) -> int:
    """Return the number of sequences of step `step` (from 0), over all batches and processes.

    Large batches help little while gradients still agree (McCandlish et al. 2018), so a ramp saves tokens early in a
    run. With the full number N = K n₀ and a ramp of R steps, step t has n₀ (1 + ⌊(K − 1) t / R⌋) sequences for t < R,
    and N afterwards.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> ramp = TrainingConfig(batch_size=8, accumulation=2, batch_ramp_start=4, batch_ramp_steps=6)
    >>> [sequences_at(step, ramp) for step in range(8)]
    [4, 4, 8, 8, 12, 12, 16, 16]
    """
    full, start, n_ramp = (
        config.batch_size * config.accumulation,
        config.batch_ramp_start,
        config.batch_ramp_steps,
    )
    if step >= n_ramp:
        return full
    return start * (1 + (full // start - 1) * step // n_ramp)


def n_sequences(n_steps: int, config: TrainingConfig) -> int:
    """Return the number of sequences of the first `n_steps` steps.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> n_sequences(8, TrainingConfig(batch_size=8, accumulation=2, batch_ramp_start=4, batch_ramp_steps=6))
    80
    """
    n_in_ramp = min(n_steps, config.batch_ramp_steps)
    in_ramp = sum(sequences_at(step, config) for step in range(n_in_ramp))
    return in_ramp + (n_steps - n_in_ramp) * config.batch_size * config.accumulation


def divide_batch(training: TrainingConfig, n_processes: int) -> tuple[int, int]:
    """Return the forward passes of each process in a step after the batch ramp, and the sequences per pass.

    All passes have the same size, at most `batch_size`.

    Args:
        training: Settings of the batch.
        n_processes: Number of processes; see `check_division`.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> divide_batch(TrainingConfig(batch_size=32, accumulation=3), 2)
    (2, 24)
    """
    n_own = training.batch_size * training.accumulation // n_processes
    n_passes = next(n for n in range(1, n_own + 1) if n_own % n == 0 and n_own // n <= training.batch_size)
    return n_passes, n_own // n_passes


def pass_sizes(training: TrainingConfig, n_processes: int, step: int) -> list[int]:
    """Return the sequences of each forward pass of a process in a step, the largest first.

    Steps of a batch ramp are divided into passes of few different sizes, each twice the one before: torch.compile
    makes code for every size.

    Args:
        training: Settings of the batch.
        n_processes: Number of processes.
        step: Number of the step, from 0.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> ramp = TrainingConfig(batch_size=32, batch_ramp_start=4, batch_ramp_steps=8)
    >>> [pass_sizes(ramp, 1, step) for step in (0, 4, 7, 8)]
    [[4], [16], [16, 8, 4], [32]]
    """
    n_passes, n_sequences = divide_batch(training, n_processes)
    rest = sequences_at(step, training) // n_processes
    if rest == n_passes * n_sequences:
        return [n_sequences] * n_passes
    passes: list[int] = []
    for size in _ramp_sizes(training, n_processes):
        passes += [size] * (rest // size)
        rest %= size
    return passes


def n_pass_sizes(training: TrainingConfig, n_processes: int) -> int:
    """Return the number of different sizes of forward passes in a run."""
    sizes = _ramp_sizes(training, n_processes) if training.batch_ramp_start else []
    return len({*sizes, divide_batch(training, n_processes)[1]})


def _ramp_sizes(training: TrainingConfig, n_processes: int) -> list[int]:
    """Return the sizes of passes of a ramp, the largest first; all are multiples of the last."""
    start = training.batch_ramp_start // n_processes
    sizes = [next(size for size in range(min(start, training.batch_size), 0, -1) if start % size == 0)]
    while 2 * sizes[0] <= training.batch_size:
        sizes.insert(0, 2 * sizes[0])
    return sizes


def check_division(training: TrainingConfig, n_processes: int) -> None:
    """Raise RunConfigError if the sequences of a step cannot be divided evenly among the processes."""
    if training.batch_ramp_start % n_processes:  # divides the sequences of every step; 0 without a ramp
        raise RunConfigError(
            f"training.batch_ramp_start is {training.batch_ramp_start:,}, which cannot be divided evenly among "
            f"{n_processes} processes",
            hint=f"start {_divisors(training.batch_ramp_start)}, or change --training.batch-ramp-start",
        )
    n_sequences = training.batch_size * training.accumulation
    if n_sequences % n_processes:
        raise RunConfigError(
            f"the {n_sequences:,} sequences of a step (training.batch_size {training.batch_size:,} × "
            f"training.accumulation {training.accumulation:,}) cannot be divided evenly among {n_processes} processes",
            hint=f"start {_divisors(n_sequences)}, or change --training.batch-size",
        )


def _divisors(n_sequences: int) -> str:
    """Describe the numbers of processes that divide `n_sequences`."""
    *smaller, largest = [str(n) for n in range(1, min(n_sequences, 64) + 1) if n_sequences % n == 0]
    return f"{', '.join(smaller)} or {largest} processes" if smaller else "1 process"


_N_AHEAD = 2


class BatchReader:
    """The batches of the steps to come.

    With prefetching, a thread reads the next two batches, and pins their memory for the copy to a CUDA device. The
    position of `batches` is always that of the batches taken, so that a resumed run continues with the next one.

    Args:
        batches: The order of the windows.
        training: Settings of the batch.
        n_processes: Number of processes.
        device: Device of the batches.
        prefetch: Read ahead.
        documents: Receives the windows of each batch, if they mark their documents.
    """

    def __init__(
        self,
        batches: ShardBatches,
        training: TrainingConfig,
        n_processes: int,
        device: torch.device,
        *,
        prefetch: bool,
        documents: Documents | None = None,
    ) -> None:
        self._batches = batches
        self._training = training
        self._n_processes = n_processes
        self._device = device
        self._thread = ThreadPoolExecutor(1, "batches") if prefetch else None
        self._sizes: Iterator[int] = iter(())
        self._next_position = 0
        self._documents = documents if isinstance(documents, MarkedDocuments) else None
        self._ahead: deque[tuple[int, int, Future[Tensor]]] = deque()
        """Position and size of each batch that is read or being read."""
        self._seconds = 0.0

    def take(self, n_sequences: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the next batch and its targets, int64 of shape (n_sequences, context_length) on the device.

        Args:
            n_sequences: Windows of this process in the pass.
            step: Number of the step, from 0.

        Raises:
            ShardError: A shard cannot be read.
        """
        started = time.perf_counter()
        position = self._batches.position
        windows = (
            self._batches.read(position, n_sequences)
            if self._thread is None
            else self._prefetched(self._thread, position, n_sequences, step)
        )
        self._batches.advance(n_sequences)
        self._seconds += time.perf_counter() - started
        if self._documents is not None:
            self._documents.windows = windows
        return inputs_and_targets(windows, self._device)

    def take_seconds(self) -> float:
        """Return the seconds that steps have waited for batches since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None:
        """Stop the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._ahead.clear()

    def _prefetched(self, thread: ThreadPoolExecutor, position: int, n_sequences: int, step: int) -> Tensor:
        if not self._ahead or self._ahead[0][:2] != (position, n_sequences):  # the first batch
            self._ahead.clear()
            self._sizes, self._next_position = self._sizes_from(step), position
        self._read_ahead(thread, 1)
        *_, batch = self._ahead.popleft()
        self._read_ahead(thread, _N_AHEAD)
        return batch.result()

    def _read_ahead(self, thread: ThreadPoolExecutor, n_batches: int) -> None:
        while len(self._ahead) < n_batches and (size := next(self._sizes, None)) is not None:
            self._ahead.append(
                (self._next_position, size, thread.submit(self._read, self._next_position, size))
            )
            self._next_position += self._n_processes * size

    def _sizes_from(self, step: int) -> Iterator[int]:
        """Yield the size of each batch from the first one of `step` on."""
        for number in range(step, self._training.steps):
            yield from pass_sizes(self._training, self._n_processes, number)

    def _read(self, position: int, n_sequences: int) -> Tensor:
        windows = self._batches.read(position, n_sequences)
        return windows.pin_memory() if self._device.type == "cuda" else windows
