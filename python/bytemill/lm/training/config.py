"""Settings of a training run, and the origin of each value (default < file < environment < option).

`config.toml` records the folder in which the run was started, as an absolute path and as seen from the run folder. A
relative path is looked up from the run folder first, which finds data that was moved together with the run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast, get_args, get_origin

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from bytemill.errors import BytemillError, RunConfigError
from bytemill.lm.depth import depth_settings, depth_shape
from bytemill.lm.model_config import (
    Count,
    KernelName,
    ModelConfig,
)
from bytemill.lm.optimizers import NotNegative, OptimizerConfig
from bytemill.lm.planning import (
    TOKENS_PER_PARAMETER,
    CheckpointingName,
)
from bytemill.lm.presets import PRESETS
from bytemill.lm.settings import Settings, flattened, nested, suggestion
from bytemill.lm.strategies import StrategyName  # noqa: TC001 - pydantic evaluates the annotation
from bytemill.storage import is_url, local_input, url_of
from bytemill.system.units import parse_count
from bytemill.tokenizer import pretrained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Share = Annotated[float, Field(ge=0, le=1)]


def _as_names(value: Any) -> Any:
    """Accept one name or a list of names."""
    return (
        (value,)
        if isinstance(value, str)
        else tuple(cast("list[Any]", value))
        if isinstance(value, list)
        else value
    )


Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]


class DataConfig(Settings):
    """Settings of the data."""

    tokenizer: str = ""
    """Tokenizer file or published name; sets the vocabulary size and decodes samples."""
    train: Names = ()
    """Shard folders to train on; a split folder stands for its train part."""
    validation: Names = ()
    """Shard folders for validation; by default the validation part of a split training folder. NAME=FOLDER is a set of
    its own, whose scores are recorded under its name."""
    packing: Literal["stream", "documents"] = "stream"
    """Windows are cut from the stream of all documents, or hold whole documents and padding, which has no loss."""
    order: Literal["shuffled", "sequential"] = "shuffled"
    """Order of the windows: shuffled by the seed, or as in the shards, each where the one before ended."""
    prefetch: bool | None = None
    """Read the next batches on a thread; by default on CUDA devices."""


class ScheduleConfig(Settings):
    """Settings of the learning-rate schedule."""

    name: Literal["cosine", "wsd", "constant"] = "cosine"
    """Learning rate after the warm-up: cosine decay, stable then decay (wsd), or constant."""
    warmup_steps: NotNegative | None = None
    """Steps of linear warm-up; by default 100, but at most a tenth of the run."""
    min_share: Share = 0.1
    """Final learning rate, as a share of the peak."""
    decay_steps: NotNegative = 0
    """Cosine: step at which the decay ends (0: the last). wsd: steps of decay (0: a fifth of the run)."""
    decay_shape: Literal["linear", "1-sqrt"] = "linear"
    """Decay of wsd: linear, or 1 − √u where u is the share of the decay that is done."""


class TrainingConfig(Settings):
    """Length of the run, and how it is computed."""

    steps: Count = 1000
    """Total number of optimizer steps."""
    batch_size: Count = 32
    """Sequences per forward pass."""
    accumulation: Count = 1
    """Batches whose gradients are accumulated into one step."""
    batch_ramp_steps: NotNegative = 0
    """Steps in which the sequences per step grow from batch_ramp_start to batch_size · accumulation. 0: no ramp."""
    batch_ramp_start: NotNegative = 0
    """Sequences of the first step of the ramp, which grow in multiples of it."""
    seed: NotNegative = 0
    """Seed of the initial weights, the data order and dropout."""
    init_from: str = ""
    """Start from the weights of this run, checkpoint or imported model, which also sets the sizes of the model."""
    keep_zeros: bool = False
    """Weights of matrices that are zero at the start stay zero, as those of a pruned model (init_from)."""
    device: str = "auto"
    """Device: auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["auto", "float32", "tf32", "bfloat16", "float16"] = "auto"
    """Precision of matrix products; weights stay float32. auto: bfloat16 on GPUs that support it. tf32: float32 with
    products of 10-bit mantissas, on CUDA devices. float16 scales the loss."""
    residual_precision: Literal["float32", "half"] = "float32"
    """Precision of the residual stream between the blocks. half: that of matrix products, with less memory traffic."""
    strategy: StrategyName = "ddp"
    """With several processes: ddp keeps the whole model in each; fsdp shards weights, gradients and optimizer state.
    naive, flat, bucketed, sharded_optimizer and fully_sharded are written from scratch. offload, also with one process,
    keeps the optimizer state in the host's memory."""
    bucket_mb: Annotated[float, Field(gt=0)] = 25.0
    """Size in MiB of the messages of bucketed, sharded_optimizer and offload."""
    kernels: KernelName = "auto"
    """Implementation: the fastest for the device (auto; on NVIDIA GPUs torch's with Triton's loss and generation),
    torch's, all of Triton's (CUDA devices), or the readable reference (scratch)."""
    document_mask: bool = False
    """Tokens attend to their own document alone; documents are divided by the separator of the shards."""
    reset_positions: bool = False
    """Positions restart in each document; needs document_mask."""
    activation_checkpointing: CheckpointingName = "none"
    """Save less for the backward pass, and compute it again: only the input of each block (full), or also the results
    of matrix products and of torch's attention (selective)."""
    compile: bool | None = None
    """Compile the blocks with torch.compile; by default on CUDA devices. The first step then takes up to a minute."""
    process_timeout: Count = 600
    """Seconds that the processes of a run wait for one that does not answer; then the run ends with its rank. The first
    process writes checkpoints and samples while the others wait."""
    max_bad_steps: Count = 5
    """Stop after this many consecutive steps whose loss or gradient is not finite."""


class RunConfig(Settings):
    """What the run writes, and how often (in steps; 0: never)."""

    folder: str = "run"
    """Folder for settings, metrics and checkpoints."""
    log_every: NotNegative = 10
    """Steps between records of loss, learning rate and speed."""
    validate_every: NotNegative = 250
    """Steps between validations; a checkpoint is saved before each."""
    validation_windows: Count = 128
    """Maximum number of validation windows of each set, spread evenly over the data."""
    hellaswag: str = ""
    """Evaluate on this file of HellaSwag items."""
    hellaswag_every: NotNegative = 1000
    """Steps between evaluations on HellaSwag."""
    hellaswag_items: NotNegative = 0
    """Number of HellaSwag items, the first ones of the file. 0: all."""
    sample_every: NotNegative = 0
    """Steps between text samples."""
    sample_prompt: str = ""
    """Prompt of the samples; by default each sample starts a new document."""
    sample_tokens: Count = 64
    """Tokens per sample."""
    checkpoint_every: NotNegative = 250
    """Steps between checkpoints."""
    keep_checkpoints: Count = 2
    """Number of newest checkpoints to keep."""
    keep_every: NotNegative = 0
    """Save at the multiples of this many steps too, and keep those checkpoints for ever."""
    async_checkpoints: Literal["auto", "always", "never"] = "auto"
    """Write checkpoints while training continues, from a copy in the host's memory. auto: always, except on the CPU."""
    tensorboard: bool = False
    """Also write TensorBoard curves (needs the package tensorboard)."""
    wandb: str = ""
    """Also log to this Weights & Biases project (needs the package wandb)."""
    trackio: str = ""
    """Also log to this trackio project (needs the package trackio)."""


class TuningConfig(Settings):
    """Settings of tuning a model that `training.init_from` names."""

    method: Literal["none", "sft", "dpo", "grpo", "distill"] = "none"
    """none: pretraining. sft: on the answers in conversations. dpo: on pairs of answers. grpo: on rewards of answers
    that the model itself samples. distill: on the probabilities that a teacher gives to the next token."""
    teacher: str = ""
    """distill: the teacher, a run or another model with the same tokenizer."""
    teacher_weight: Annotated[float, Field(gt=0, le=1)] = 1.0
    """distill: share of the teacher's probabilities in the loss; the rest is the cross-entropy of the text."""
    teacher_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """distill: divides the logits of teacher and student."""
    loss_mean: Literal["token", "sequence"] = "token"
    """sft: the loss is the mean over all targets of a pass, or over those of each conversation and then over these."""
    beta: Annotated[float, Field(gt=0)] = 0.1
    """dpo: strength of the tie to the initial weights."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """dpo: assumed share of pairs whose answers are the wrong way round."""
    prompts: Names = ()
    """grpo: files of JSON lines, one row per prompt."""
    template: str = "{prompt}"
    """grpo: text of a prompt from the fields of its row. Rows with `messages` use the tokenizer's chat template."""
    reward: str = "number"
    """grpo: name of a reward, or FILE.py:FUNCTION."""
    reward_errors: Literal["stop", "zero"] = "stop"
    """grpo: a reward that fails or is not finite ends the run with its row, or counts as 0 and is recorded."""
    algorithm: Literal["grpo", "dr-grpo", "rft", "maxrl", "gspo"] = "grpo"
    """grpo: published choice of the next four settings and of the clip range."""
    baseline: Literal["none", "mean", "leave-one-out"] | None = None
    """grpo: what is subtracted from a reward."""
    normalizer: Literal["none", "std", "mean"] | None = None
    """grpo: what the difference is divided by, within the group of a prompt."""
    ratio: Literal["none", "no-clip", "grpo", "gspo"] | None = None
    """grpo: correction for answers that older weights have sampled."""
    aggregation: Literal["sequence", "constant", "token"] | None = None
    """grpo: how the losses of tokens become one; the constant is the number of answers times max_tokens."""
    clip_low: Share | None = None
    """grpo: ratios below 1 − clip_low are clipped."""
    clip_high: Annotated[float, Field(ge=0)] | None = None
    """grpo: ratios above 1 + clip_high are clipped."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.0
    """grpo: weight of the divergence from the initial weights in the loss."""
    group_size: Count = 8
    """grpo: answers per prompt."""
    prompts_per_step: Count = 8
    """grpo: prompts per step."""
    updates: Count = 1
    """grpo: optimizer updates on the answers of a step, each on a part of the prompts."""
    max_tokens: Count = 64
    """grpo: maximum tokens of an answer."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """grpo: temperature of sampling."""
    sampling_batch: Count = 256
    """grpo: answers that are sampled in one batch. Several processes divide the batches of a step among them."""

    def keyed(self) -> dict[str, Any]:
        """Return every value by its key, such as "tuning.method"."""
        return {f"tuning.{name}": value for name, value in self.to_dict().items()}


class TrainConfig(Settings):
    """All settings of a run, by section."""

    model: ModelConfig
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig = TrainingConfig()
    run: RunConfig = RunConfig()
    tuning: TuningConfig = TuningConfig()

    def to_dict(self) -> dict[str, Any]:
        """Return the sections by name; that of tuning only in a run that tunes."""
        values = super().to_dict()
        if self.tuning.method == "none":
            del values["tuning"]
        return values

    @property
    def n_warmup_steps(self) -> int:
        """Steps of warm-up, with the default resolved."""
        steps = self.schedule.warmup_steps
        return min(100, self.training.steps // 10) if steps is None else steps

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.n_warmup_steps > self.training.steps:
            raise RunConfigError(
                f"schedule.warmup_steps is {self.n_warmup_steps:,}, longer than the run of "
                f"{self.training.steps:,} steps (training.steps)",
                hint=f"lower --schedule.warmup-steps to {self.training.steps} or less, or raise --training.steps to "
                f"{self.n_warmup_steps} or more",
            )
        return self

    @model_validator(mode="after")
    def _check_documents(self) -> Self:
        if self.training.reset_positions and not self.training.document_mask:
            raise RunConfigError(
                "training.reset_positions needs training.document_mask",
                hint="add --training.document-mask",
            )
        lacking = [layer.name for layer in self.model.layers if not layer.part.keeps_documents]
        if self.training.document_mask and lacking:
            raise RunConfigError(
                f"mixer {lacking[0]!r} cannot keep documents apart, as training.document_mask asks",
                hint="leave out --training.document-mask, or choose another mixer",
            )
        return self

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.data.order == "sequential" and self.data.packing != "stream":
            raise RunConfigError(
                f"data.order is sequential and data.packing is {self.data.packing}, which chooses an order of its own",
                hint="set data.packing to stream, or data.order to shuffled",
            )
        return self

    @model_validator(mode="after")
    def _check_ramp(self) -> Self:
        training, full = self.training, self.training.batch_size * self.training.accumulation
        start, n_steps = training.batch_ramp_start, training.batch_ramp_steps
        if bool(start) != bool(n_steps):
            raise RunConfigError(
                f"training.batch_ramp_start is {start} and training.batch_ramp_steps is {n_steps}",
                hint="set both, or neither",
            )
        if start and full % start:
            raise RunConfigError(
                f"training.batch_ramp_start is {start}, which does not divide the {full:,} sequences of a full step "
                "(training.batch_size · training.accumulation)",
                hint=f"choose a divisor of {full}",
            )
        return self


DEFAULT_PRESET = "tiny"
DERIVING: dict[str, tuple[Any, str]] = {
    "model.preset": (str, "Named shape that sets all sizes, also those of CONFIG"),
    "model.depth": (
        int,
        "Number of blocks from which all sizes follow, and by default the learning rate, the batch and the steps",
    ),
    "training.tokens_per_parameter": (
        float,
        f"With model.depth, training tokens per parameter [default: {TOKENS_PER_PARAMETER}]",
    ),
}
"""Settings that only say what others are, with their types and descriptions. A run does not record them."""
SECTIONS: dict[str, type[Settings]] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "training": TrainingConfig,
    "run": RunConfig,
    "tuning": TuningConfig,
}
MAY_CHANGE = frozenset(
    {
        "data.prefetch",
        "schedule.decay_steps",
        "schedule.warmup_steps",
        "data.tokenizer",
        "data.train",
        "data.validation",
        "training.init_from",
        "training.steps",
        "training.device",
        "training.strategy",
        "training.bucket_mb",
        "training.kernels",
        "training.activation_checkpointing",
        "training.compile",
        "training.process_timeout",
        "training.max_bad_steps",
        "tuning.prompts",
        "tuning.reward_errors",
        "tuning.teacher",
    }
)
"""Settings that may differ when a run resumes, in addition to all of `run`. The tokenizer and the data are compared by
content, not by path; initial weights count at the start only."""

Layer = tuple[str, "Mapping[str, Any]"]
"""An origin ("train.toml", "--model.num-layers"), and the values it sets by key ("model.num_layers")."""


@dataclass(frozen=True)
class Resolved:
    """The settings of a run, and the origin of each value."""

    config: TrainConfig
    origins: dict[str, str]
    """Key -> "default", "preset tiny", a file name, an environment variable or an option."""


_LIST_SETTINGS = "`bytemill lm train --help-all` lists all settings"


def setting_keys() -> list[str]:
    """Return the key of every setting, such as "training.steps"; those of `DERIVING` come first."""
    keys = [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.fields_by_name()]
    return [*DERIVING, *keys]


def resolve(layers: Sequence[Layer], *, n_vocab: int | None = None) -> Resolved:
    """Merge layers of values; the last layer wins.

    A layer that names a preset or a depth replaces the whole model of the layers before it.

    Args:
        layers: Origins and their values, from the weakest to the strongest.
        n_vocab: Number of ids of the tokenizer, the default of `model.vocab_size`.

    Raises:
        RunConfigError: A setting is unknown, of the wrong type or out of range; the message names its origin.
        ModelConfigError: Sizes of the model contradict each other.
    """
    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    origins: dict[str, str] = {}
    shape_name, shape = f"preset {DEFAULT_PRESET}", PRESETS[DEFAULT_PRESET]
    depth_is_set, ratio = False, None
    by_flag: list[str] = []
    for origin, entries in layers:
        if chosen := _chosen_shape(origin, entries):
            shape_name, shape = chosen
            depth_is_set = "model.depth" in entries
            by_flag += [origin] if origin.startswith("--") else []
            values["model"] = {}
        if (each := entries.get("training.tokens_per_parameter")) is not None:
            ratio = origin, _tokens_per_parameter(origin, each)
        for key, value in flattened(entries).items():
            section, _, setting = key.partition(".")
            if key in DERIVING:
                continue
            if section not in SECTIONS or setting not in SECTIONS[section].fields_by_name():
                if own := [known for known in setting_keys() if known.startswith(f"{key}.")]:
                    raise RunConfigError(
                        f"{origin}: {key} is {value!r}", hint=f"it is a table: set {', '.join(own)}"
                    )
                raise RunConfigError(
                    f"{origin}: unknown setting {key}", hint=suggestion(key, setting_keys(), _LIST_SETTINGS)
                )
            values[section][setting] = value
            origins[key] = origin
    if len(by_flag) > 1:
        raise RunConfigError(f"{' and '.join(by_flag)} choose two shapes", hint="leave one of them out")
    model = values["model"]
    if n_vocab is not None and "vocab_size" not in model:
        model["vocab_size"] = n_vocab
        origins["model.vocab_size"] = "the tokenizer"
    made = _validated("model", {**shape.to_flat(), **model}, origins)
    derived: set[str] = set()
    if depth_is_set:
        derived = _derive(values, cast("ModelConfig", made), ratio[1] if ratio else TOKENS_PER_PARAMETER)
    elif ratio:
        raise RunConfigError(
            f"{ratio[0]}: training.tokens_per_parameter needs model.depth", hint="add --model.depth D"
        )
    parts: dict[str, Any] = {
        section: made if section == "model" else _validated(section, own, origins)
        for section, own in values.items()
    }
    config = TrainConfig(**parts)
    if n_vocab is not None and config.model.vocab_size < n_vocab:
        raise RunConfigError(
            f"{origins['model.vocab_size']}: model.vocab_size is {config.model.vocab_size:,}, but the tokenizer has "
            f"{n_vocab:,} ids",
            hint=f"use the tokenizer of {config.training.init_from}"
            if config.training.init_from
            else f"leave model.vocab_size out, or set it to {n_vocab} or more",
        )
    for section, kind in SECTIONS.items():
        fallback = shape_name if section == "model" else "default"
        for name in kind.fields_by_name():
            if name not in values[section]:
                origins[f"{section}.{name}"] = fallback
    return Resolved(config, {**origins, **dict.fromkeys(derived, shape_name)})


def _chosen_shape(origin: str, entries: Mapping[str, Any]) -> tuple[str, ModelConfig] | None:
    """Return the name and the shape of the preset or the depth that a layer chooses, if it chooses one."""
    name, depth = entries.get("model.preset"), entries.get("model.depth")
    if name is not None and depth is not None:
        raise RunConfigError(
            f"{origin}: model.preset {name} and model.depth {depth} are two shapes", hint="set one of them"
        )
    if name is not None and str(name) not in PRESETS:
        raise RunConfigError(f"{origin}: unknown preset {str(name)!r}", hint=suggestion(str(name), PRESETS))
    if depth is not None and (type(depth) is not int or depth < 1):
        raise RunConfigError(
            f"{origin}: model.depth is {depth!r}", hint="choose a whole number of at least 1"
        )
    if name is not None:
        return f"preset {name}", PRESETS[str(name)]
    return None if depth is None else (f"depth {depth}", depth_shape(depth))


def _tokens_per_parameter(origin: str, value: Any) -> float:
    if type(value) not in {int, float} or not 0 < value < math.inf:
        raise RunConfigError(
            f"{origin}: training.tokens_per_parameter is {value!r}", hint="choose a number above 0"
        )
    return float(value)


def _derive(values: dict[str, dict[str, Any]], shape: ModelConfig, tokens_per_parameter: float) -> set[str]:
    """Add the settings that follow from a depth and that no layer has set; return their keys."""
    sizes = [values["training"].get(name) for name in ("batch_size", "accumulation")]
    if not all(size is None or (type(size) is int and size > 0) for size in sizes):
        return set()  # they are refused below, with their origin
    found = depth_settings(shape, tokens_per_parameter, batch_size=sizes[0], accumulation=sizes[1])
    derived: set[str] = set()
    for key, value in found.items():
        section, _, name = key.partition(".")
        if name not in values[section]:
            values[section][name] = value
            derived.add(key)
    return derived


def differences(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Describe each changed setting that affects the result of a run: "model.num_layers is 8 and was 4"."""
    before, after = ({**config.to_flat(), **config.tuning.keyed()} for config in (old, new))
    return [
        f"{key} is {after[key]!r} and was {value!r}"
        for key, value in before.items()
        if not key.startswith("run.") and after[key] != value and key not in MAY_CHANGE
    ]


def config_from_dict(document: Mapping[str, Mapping[str, Any]]) -> TrainConfig:
    """Return the settings of a dict made by `TrainConfig.to_dict`, also after a round trip through JSON."""
    return resolve([("the checkpoint", flattened(document))]).config


def config_to_toml(resolved: Resolved, paths: Mapping[str, str] | None = None) -> str:
    """Render the settings as a TOML file that resolves to the same settings; comments name the origins.

    Args:
        resolved: The settings.
        paths: Table of where relative paths start from (`recorded_paths`).
    """
    lines: list[str] = []
    tables: dict[str, dict[str, Any]] = {}
    for key, value in resolved.config.to_flat().items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, {})[name] = value
    for table, values in tables.items():
        lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
        for name, value in values.items():
            # TOML has no null; an absent key is the default None.
            entry = f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
            lines.append(f"{entry:<40}  # {resolved.origins.get(f'{table}.{name}', 'default')}")
    if paths:
        lines += [
            "",
            "[paths]  # where relative paths start from",
            *(f"{key} = {_toml(paths[key])}" for key in paths),
        ]
    return "\n".join(lines) + "\n"


def origins_in(toml: str) -> dict[str, str]:
    """Return the origins of values by key, as the comments of a result of `config_to_toml` name them."""
    found: dict[str, str] = {}
    section = ""
    for line in toml.split("\n"):
        entry, mark, origin = line.rpartition("  # ")
        if line.startswith("["):
            section = line.strip("[]")
        elif mark:
            name = entry.removeprefix("# ").partition(" ")[0]
            found[f"{section}.{name}"] = origin
    return found


def _validated(section: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """Build a section; an error names the origin of the refused value."""
    try:
        return SECTIONS[section](**nested(values))
    except BytemillError as error:
        message = str(error)
        name = message.split(" ", 1)[0]
        origin = origins.get(f"{section}.{name}")
        if origin and message.startswith(f"{name} is "):
            message = f"{origin}: {section}.{message}"
        raise type(error)(message, hint=error.hint) from error


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (bool, str)):
        # A TOML basic string is a JSON string, except that DEL must be escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


TABLE = "paths"
"""Name of the table in `config.toml`."""
_RELATIVE_TO, _FROM_RUN = "relative_to", "from_run"
_PATH_SETTINGS = frozenset(
    {
        *("data.tokenizer", "data.train", "data.validation"),
        *("training.init_from", "run.hellaswag", "tuning.prompts", "tuning.teacher"),
    }
)


def recorded_paths(run_folder: Path | None) -> dict[str, str]:
    """Return the current folder as `config.toml` records it.

    Args:
        run_folder: The run folder; None if it is in an object store.
    """
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return {}
    found = {_RELATIVE_TO: str(here)}
    if run_folder is not None and (from_run := _relative(here, run_folder)) is not None:
        found[_FROM_RUN] = from_run
    return found


def is_paths_table(table: object) -> bool:
    """Return True if a table of a settings file is the one that `recorded_paths` makes."""
    if not isinstance(table, dict):
        return False
    entries = cast("dict[str, object]", table)
    return entries.keys() <= {_RELATIVE_TO, _FROM_RUN} and all(
        isinstance(each, str) for each in entries.values()
    )


def with_found_paths(values: Mapping[str, Any], table: Mapping[str, str], file: Path) -> dict[str, Any]:
    """Replace relative paths that `config.toml` records by paths from the current folder.

    A path that is nowhere stays as it is. The copy in the run folder stands in for a tokenizer that is nowhere.

    Args:
        values: Values by key.
        table: What `recorded_paths` returned.
        file: The file.
    """
    places = [
        base / table[key] for base, key in ((file.parent, _FROM_RUN), (Path(), _RELATIVE_TO)) if key in table
    ]
    found = dict(values)
    for key in _PATH_SETTINGS & values.keys():
        value = values[key]
        if isinstance(value, list):
            found[key] = [_found(str(entry), places) for entry in cast("list[Any]", value)]
        else:
            found[key] = _found(str(value), places)
    tokenizer, copy = found.get("data.tokenizer"), file.with_name("tokenizer.json")
    if isinstance(tokenizer, str) and tokenizer and copy.exists() and not _is_there(tokenizer):
        found["data.tokenizer"] = str(copy)
    return found


def _found(value: str, places: list[Path]) -> str:
    """Return a path, or NAME=PATH, from the current folder."""
    name, equals, rest = value.partition("=")
    for prefix, path in (("", value), (name + equals, rest)):
        if not path or is_url(path) or Path(path).is_absolute():
            continue
        for place in places:
            # Folders on the way may be gone; but links count as the system follows them.
            for candidate in (Path(os.path.normpath(place / path)), place / path):
                if candidate.exists():
                    return prefix + (_relative(candidate, Path()) or str(candidate))
    return value


def _is_there(tokenizer: str) -> bool:
    return is_url(tokenizer) or pretrained.published_name(tokenizer) is not None or Path(tokenizer).exists()


def _relative(path: Path, start: Path) -> str | None:
    """Return a path as seen from a folder; None if it is on another drive."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return None


ENVIRONMENT_PREFIX = "BYTEMILL_"


def train_command(folder: Path) -> str:
    """Return a command that trains a new model, for hints; in another folder if `folder` exists."""
    data = "--data.tokenizer tokenizer.json --data.train shards"
    return f"bytemill lm train {data} --run.folder {'run' if folder.exists() else shlex.quote(str(folder))}"


def is_run_folder(path: str | os.PathLike[str]) -> bool:
    """Check whether a path or URL names a folder rather than a settings file."""
    url = url_of(path)
    return Path(path).is_dir() if url is None else not url.endswith(".toml")


def file_layer(path: str | os.PathLike[str]) -> Layer:
    """Read a settings file.

    Args:
        path: A TOML file with a table per section, or a run folder, of which `config.toml` is read.

    Returns:
        The path of the file, and its values by key. Relative paths are from the current folder, or in the settings of a
        run where they were found (see `with_found_paths`).

    Raises:
        RunConfigError: The file cannot be read, is not TOML, or has a key outside of a section.
    """
    url = url_of(path)
    if url is not None:
        url = f"{url}/config.toml" if is_run_folder(url) else url
        path = local_input(url)
    path = Path(path)
    file = path / "config.toml" if path.is_dir() else path
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        if path.is_dir():
            raise RunConfigError(
                f"{path} is not a run folder: it has no config.toml",
                hint=f"train a model: {train_command(path)}",
            ) from error
        raise RunConfigError(
            f"cannot read {file}: {error.strerror}", hint="name a TOML file or a run folder"
        ) from error
    except ValueError as error:  # invalid UTF-8 or invalid TOML
        raise RunConfigError(f"{file} is not a TOML file: {error}", hint="correct the file") from error
    paths: dict[str, str] = document.pop(TABLE) if is_paths_table(document.get(TABLE)) else {}
    values: dict[str, Any] = {}
    for section, table in document.items():
        if not isinstance(table, dict):
            keys = [key for key in setting_keys() if key.endswith(f".{section}")]
            known = f"write it in the section [{keys[0].split('.')[0]}]" if keys else "remove it"
            raise RunConfigError(f"{file}: {section} is outside of a section", hint=known)
        values |= flattened({section: table})
    return url or str(file), with_found_paths(values, paths, file) if paths else values


def environment_layers(environ: Mapping[str, str]) -> list[Layer]:
    """Return a layer for each environment variable that sets something: BYTEMILL_TRAINING_STEPS and so on."""
    layers: list[Layer] = []
    for key in setting_keys():
        variable = ENVIRONMENT_PREFIX + key.upper().replace(".", "_")
        if (text := environ.get(variable)) is not None:
            layers.append((variable, {key: parse_setting(key, text)}))
    return layers


def parse_setting(key: str, text: str) -> Any:
    """Parse a value from text; a list is split like a shell command, and a whole number may be a count such as 32k.

    Text of the wrong type is returned unchanged: `resolve` refuses it and names its origin.

    >>> parse_setting("training.steps", "500"), parse_setting("data.train", "a 'b c'")
    (500, ['a', 'b c'])
    """
    kind = setting_type(key)
    if get_origin(kind) is tuple:
        return shlex.split(text)
    if kind is int:
        with contextlib.suppress(ValueError):
            return parse_count(text)
    with contextlib.suppress(ValidationError):
        return TypeAdapter[Any](kind).validate_strings(text)
    return text


def setting_type(key: str) -> Any:
    """Return the type of a setting, without `| None` and constraints."""
    if key in DERIVING:
        return DERIVING[key][0]
    section, _, name = key.partition(".")
    annotation: Any = SECTIONS[section].fields_by_name()[name].annotation
    if type(None) in get_args(annotation):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
