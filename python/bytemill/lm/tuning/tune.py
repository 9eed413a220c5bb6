"""Run the trainer with the task that `tuning.method` names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.training.launch import main, train_on_devices
from bytemill.lm.training.trainer import train
from bytemill.lm.tuning.conversations import Dpo, SequenceMeans
from bytemill.lm.tuning.grpo import Grpo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bytemill.lm.training.config import Resolved
    from bytemill.lm.training.metrics_log import OnRecord
    from bytemill.lm.training.run import Task
    from bytemill.lm.training.run_folder import RunFolder

TASKS: Mapping[str, Callable[[], Task]] = {"dpo": Dpo, "grpo": Grpo}
"""What makes the task of a `tuning.method`; the others learn from the ids of shards and their masks."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sft": {"data.packing": "documents", "training.document_mask": True, "optimizer.learning_rate": 1e-4},
    "dpo": {"optimizer.learning_rate": 1e-5},
    "grpo": {
        "optimizer.learning_rate": 1e-4,
        "optimizer.weight_decay": 0.0,
        "optimizer.spike_loss": 0.0,
        "schedule.name": "constant",
        "schedule.warmup_steps": 0,
        "run.log_every": 1,
        "run.validate_every": 0,
        "training.steps": 100,
        "training.batch_size": 64,
    },
}
"""Settings of each method that differ from those of pretraining."""


def tune(
    resolved: Resolved, n_processes: int = 1, *, overwrite: bool = False, on_record: OnRecord | None = None
) -> RunFolder:
    """Tune the model that `training.init_from` names, or resume; see `trainer.train`.

    Args:
        resolved: Settings of the run.
        n_processes: Processes on this machine.
        overwrite: Delete the checkpoints in the folder and start over.
        on_record: Called with every record.

    Raises:
        RunConfigError: There is no model to tune, or a setting does not fit the method; and what `train` raises.
    """
    config = resolved.config
    if config.tuning.method != "none" and not config.training.init_from:
        raise RunConfigError(
            "training.init_from is not set", hint="name the model to tune: --training.init-from RUN"
        )
    make_task = TASKS.get(config.tuning.method)
    if config.tuning.method == "sft" and config.tuning.loss_mean == "sequence":
        make_task = SequenceMeans
    if make_task is None:
        return train_on_devices(resolved, n_processes, overwrite=overwrite, on_record=on_record)
    training = config.training
    if training.precision == "float16":
        raise RunConfigError(
            f"{config.tuning.method} does not scale its loss, as float16 needs",
            hint="choose bfloat16 or float32",
        )
    if training.batch_ramp_steps or (config.tuning.method == "grpo" and training.accumulation > 1):
        name = "batch_ramp_steps" if training.batch_ramp_steps else "accumulation"
        raise RunConfigError(
            f"training.{name} has no meaning for {config.tuning.method}",
            hint="leave it out; --tuning.prompts-per-step sets the answers of a step"
            if config.tuning.method == "grpo"
            else "leave it out",
        )
    if n_processes > 1:
        return train_on_devices(
            resolved, n_processes, overwrite=overwrite, on_record=on_record, program=__name__
        )
    return train(resolved, overwrite=overwrite, on_record=on_record, task=make_task())


if __name__ == "__main__":
    sys.exit(main(tune))
