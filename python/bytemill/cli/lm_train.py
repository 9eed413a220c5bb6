"""`bytemill lm train` and `bytemill lm tune`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from bytemill.cli import lm_interchange, options, output
from bytemill.cli.failures import interruptible
from bytemill.cli.lm_config import SettingOptions, TuneOptions, resolve_options

if TYPE_CHECKING:
    from bytemill.lm.training.config import Resolved

Settings = Annotated[SettingOptions, Parameter(name="*")]
TuneSettings = Annotated[TuneOptions, Parameter(name="*")]
_UNSET = SettingOptions()
_UNSET_TUNING = TuneOptions()


def train(
    config: Annotated[
        Path | None, Parameter(name="CONFIG", help="TOML file with settings, or a run folder to resume.")
    ] = None,
    /,
    *,
    settings: Settings = _UNSET,
    print_config: Annotated[
        bool, Parameter(help="Print every setting with its origin as a TOML file, and exit.")
    ] = False,
    overwrite: Annotated[bool, Parameter(help="Start over if the folder already contains a run.")] = False,
    devices: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of processes on this machine, one per GPU.")
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a language model, or resume training.

    Options override environment variables, which override CONFIG, which overrides
    the defaults. Ctrl-C and SIGTERM save a checkpoint. The same command, or
    `bytemill lm train FOLDER`, resumes from the last checkpoint; on the CPU the
    result is identical to that of an uninterrupted run.
    """
    resolved = resolve_options(config, settings)
    if print_config:
        _print_config(resolved, as_json=as_json)
        return
    _run_training(resolved, devices, threads, overwrite=overwrite, as_json=as_json, quiet=quiet)


def _print_config(resolved: "Resolved", *, as_json: bool) -> None:
    from bytemill.lm.training.config import config_to_toml

    output.write_json(resolved.config.to_dict()) if as_json else output.write(config_to_toml(resolved))


def _run_training(
    resolved: "Resolved", devices: int, threads: int | None, *, overwrite: bool, as_json: bool, quiet: bool
) -> None:
    from bytemill.cli.lm_training import TrainingView, resume_hint, write_result
    from bytemill.lm.device import use_threads
    from bytemill.lm.processes import processes_from_environment
    from bytemill.lm.tuning.tune import tune

    use_threads(threads)
    if not processes_from_environment().is_first:
        quiet, as_json = True, False
    with interruptible(lambda: resume_hint(resolved.config.run.folder)), TrainingView(quiet=quiet) as view:
        run = tune(resolved, devices, overwrite=overwrite, on_record=view)
    if as_json or not quiet:
        write_result(run, resolved.config.training.steps, as_json=as_json)


def tune_model(
    method: Annotated[
        Literal["sft", "dpo", "grpo", "distill"],
        Parameter(
            name="METHOD",
            help="sft: on answers; dpo: on pairs of answers; grpo: on rewards of own answers; distill: a new model, "
            "on the probabilities of MODEL.",
        ),
    ],
    model: Annotated[str, Parameter(name="MODEL", help=lm_interchange.MODEL_HELP)],
    /,
    *,
    settings: TuneSettings = _UNSET_TUNING,
    config: Annotated[
        Path | None, Parameter(help="TOML file with settings, in the form of `lm train`.")
    ] = None,
    print_config: Annotated[
        bool, Parameter(help="Print every setting with its origin as a TOML file, and exit.")
    ] = False,
    overwrite: Annotated[bool, Parameter(help="Start over if the folder already contains a run.")] = False,
    devices: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of processes on this machine, one per GPU.")
    ] = 1,
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tune a model: on answers, on preferences, on rewards, or on another model.

    A tuning run is a run like any other: it has the settings of `lm train`, its
    folder, metrics, checkpoints and exact resume.
    """
    from bytemill.lm.tuning.tune import DEFAULTS

    own = {**DEFAULTS[method], "tuning.method": method}
    own |= lm_interchange.teacher_settings(model) if method == "distill" else {"training.init_from": model}
    resolved = resolve_options(config, settings, defaults=(f"lm tune {method}", own))
    if print_config:
        _print_config(resolved, as_json=as_json)
        return
    _run_training(resolved, devices, threads, overwrite=overwrite, as_json=as_json, quiet=quiet)
