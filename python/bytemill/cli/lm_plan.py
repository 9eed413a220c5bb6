"""`bytemill lm plan`, `bytemill lm profile` and `bytemill lm batch-size`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.failures import interruptible
from bytemill.cli.lm_config import SettingOptions, resolve_options
from bytemill.errors import RunConfigError
from bytemill.lm.optimizers import OptimizerName
from bytemill.lm.planning import CheckpointingName, Precision
from bytemill.lm.presets import PRESETS
from bytemill.lm.settings import suggestion
from bytemill.lm.strategies import StrategyName

Settings = Annotated[SettingOptions, Parameter(name="*")]
HiddenSettings = Annotated[SettingOptions, Parameter(name="*", show=False)]
_UNSET = SettingOptions()


def plan(
    config: Annotated[
        str | None,
        Parameter(
            name="PRESET|CONFIG",
            help=f"A preset ({', '.join(PRESETS)}), a TOML file, a run folder or a model.",
        ),
    ] = None,
    /,
    *,
    settings: HiddenSettings = _UNSET,
    memory: Annotated[
        str | None, Parameter(help="Memory of the device, such as 80GB; also prints the largest batch.")
    ] = None,
    depth: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Number of blocks from which the sizes follow, and the run's learning rate, batch and tokens; as "
            "--model.depth in `bytemill lm train`.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1), help="Sequences per batch; by default 1, or the run's with --depth."
        ),
    ] = None,
    optimizer: Annotated[OptimizerName, Parameter(help="Optimizer whose state is counted.")] = "adamw",
    precision: Annotated[
        Precision,
        Parameter(help="Precision of matrix products; weights are float32."),
    ] = "float32",
    activation_checkpointing: Annotated[
        CheckpointingName,
        Parameter(help="What the backward pass computes again instead of reading it from memory."),
    ] = "none",
    strategy: Annotated[
        StrategyName, Parameter(help="How --devices share the work, as --training.strategy.")
    ] = "ddp",
    devices: Annotated[
        int,
        Parameter(
            validator=Number(gte=1), help="Number of devices, each with a batch; the memory is that of one."
        ),
    ] = 1,
    device: Annotated[
        str | None,
        Parameter(
            help="Device for the training time, such as a100, h100, h200, b200, l40s or rtx4090, or its FLOPs per "
            "second (312e12)."
        ),
    ] = None,
    utilization: Annotated[float, Parameter(help="Share of the device's FLOPs that training reaches.")] = 0.4,
    training_tokens: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            converter=options.count,
            help="Training tokens, such as 10B; by default 20 per parameter.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Plan a model: parameters, memory, FLOPs, the largest batch, days of training.

    No model is built. Options such as --model.num-layers 8 change its settings, as
    in `bytemill lm train`.
    """
    from bytemill.cli.lm_views import write_plan
    from bytemill.lm.planning import plan_for

    if config is None and depth is None:
        raise RunConfigError(
            "there is nothing to plan", hint="name a preset, a TOML file or a run folder, or add --depth D"
        )
    if config is not None and config not in PRESETS and not Path(config).exists():
        raise RunConfigError(f"{config} is neither a preset nor a file", hint=suggestion(config, PRESETS))
    layer = None if depth is None else ("--depth", {"model.depth": depth})
    resolved = resolve_options(config, settings, is_plan=True, defaults=layer).config
    run = resolved.training
    if depth is not None:
        batch_size = run.batch_size if batch_size is None else batch_size
        per_step = run.batch_size * run.accumulation * resolved.model.context_length
        training_tokens = training_tokens or run.steps * per_step
    planned = plan_for(
        resolved.model,
        memory=memory,
        batch_size=batch_size or 1,
        optimizer=optimizer,
        precision=precision,
        average=resolved.optimizer.ema_decay > 0,
        checkpointing=activation_checkpointing,
        strategy=strategy,
        n_processes=devices,
        device=device,
        utilization=utilization,
        training_tokens=training_tokens,
    )
    write_plan(planned, config or f"depth {depth}", resolved if depth is not None else None, as_json=as_json)


def profile(
    config: Annotated[
        Path | None, Parameter(name="CONFIG", help="TOML file with settings, or a run folder.")
    ] = None,
    /,
    *,
    settings: Settings = _UNSET,
    steps: Annotated[int, Parameter(validator=Number(gte=1), help="Measured steps.")] = 5,
    warmup: Annotated[
        int, Parameter(validator=Number(gte=1), help="Steps before them, which compile and allocate.")
    ] = 3,
    trace: Annotated[
        Path | None, Parameter(help="Write the events of the measured steps to this file, as a Chrome trace.")
    ] = None,
    devices: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of processes on this machine, one per GPU.")
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
) -> None:
    """Measure a training step: time, communication, memory and FLOPs by part.

    The steps are those of `bytemill lm train` with the same settings, on new
    weights. The folder of the run is not changed.
    """
    from bytemill.cli.lm_views import write_step_profile
    from bytemill.lm.device import use_threads
    from bytemill.lm.training.launch import profile_on_devices

    use_threads(threads)
    measured = profile_on_devices(
        resolve_options(config, settings), devices, n_steps=steps, n_warmup=warmup, trace=trace
    )
    if measured is not None:
        write_step_profile(measured, as_json=as_json)


def batch_size(
    run: Annotated[
        Path, Parameter(name="RUN", help="Folder of a run with validation data, or one of its checkpoints.")
    ],
    /,
    *,
    output_folder: Annotated[
        Path, Parameter(name=("--output", "-o"), help="Folder for the branches and the result.")
    ],
    batch_sizes: Annotated[
        tuple[int, ...],
        Parameter(
            consume_multiple=True,
            help="Sequences per step, at least four numbers; by default those of the run times 1/4, 1/2, 1, 2, 4, 8.",
        ),
    ] = (),
    branch_tokens: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            converter=options.count,
            help="Tokens of each branch; by default a tenth of those that the run has seen.",
        ),
    ] = None,
    repetitions: Annotated[
        int, Parameter(validator=Number(gte=1), help="Branches of each size, on different data.")
    ] = 3,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the critical batch size of a run at its last checkpoint, or at another.

    Branches of the run learn from the same number of tokens in steps of different
    size. Up to the critical size larger batches learn about as much. Ctrl-C stops;
    the same command resumes.
    """
    from bytemill.cli.lm_views import write_batch_sizes
    from bytemill.lm.batch_size import measure_batch_size
    from bytemill.lm.device import use_threads

    use_threads(threads)
    with (
        interruptible("run the same command again to resume"),
        output.progress_of_long_work("training branches", "branches", quiet=quiet) as progress,
    ):
        measured = measure_batch_size(
            run,
            output_folder,
            batch_sizes=batch_sizes,
            tokens=branch_tokens,
            repetitions=repetitions,
            on_branch=progress,
        )
    write_batch_sizes(measured, as_json=as_json)
