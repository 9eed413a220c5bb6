"""Save the batch of a step whose loss or gradient was not finite."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from bytemill.lm.training.batch_ramp import sequences_at
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.training.run import Run


def save_bad_batch(run: Run) -> Path:
    """Write the sequences of the last step, of all processes, as an .npz file in the run folder.

    All processes must call this; the first one writes.

    The file holds `step`, `inputs` and `targets` of shape (n_sequences, context_length), `sequences` (their numbers in
    the order of the run) and `offsets` (of their first ids in the training data).

    Raises:
        OutputError: The file cannot be written.
    """
    path = run.folder.path / f"bad_batch_step_{run.step:08d}.npz"
    if run.processes.is_first:
        write_bytes(path, _last_step(run))
    run.processes.wait()  # for the file to exist
    return path


def _last_step(run: Run) -> bytes:
    n = sequences_at(run.step - 1, run.config.training)
    first = run.batches.position - n
    windows = run.batches.windows(first, n).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        step=np.array(run.step),
        inputs=windows[:, :-1],
        targets=windows[:, 1:],
        sequences=np.arange(first, first + n),
        offsets=np.array(run.batches.starts(first, n)),
    )
    return buffer.getvalue()
