"""Settings of a training run, and where each value comes from (default < file < environment < option)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from bytemill.errors import BytemillError, RunConfigError
from bytemill.lm.model_config import Count, ModelConfig
from bytemill.lm.presets import PRESETS
from bytemill.lm.settings import Settings, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

NotNegative = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
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
    """Where tokens come from."""

    tokenizer: str = ""
    """Tokenizer file or published name; sets the vocabulary size and decodes samples."""
    train: Names = ()
    """Shard folders to train on; of a split folder, its train part."""
    validation: Names = ()
    """Shard folders for validation; by default the validation part of a split training folder, if there is one."""


class OptimizerConfig(Settings):
    """How weights change."""

    name: Literal["adamw", "muon", "sgd"] = "adamw"
    """With muon, matrices use Muon and all other weights use AdamW."""
    learning_rate: Rate = 1e-3
    """Peak learning rate, which the schedule scales."""
    muon_learning_rate: Rate = 0.02
    """Peak learning rate of the matrices under Muon."""
    weight_decay: Rate = 0.1
    """Weight decay of matrices; vectors have none."""
    beta1: Share = 0.9
    """Decay rate of the mean gradient."""
    beta2: Share = 0.95
    """Decay rate of the mean squared gradient."""
    eps: Rate = 1e-8
    """Added to the root of the mean squared gradient."""
    clip: Rate = 1.0
    """Maximum gradient norm; larger gradients are scaled down; 0 disables clipping."""


class ScheduleConfig(Settings):
    """How the learning rate changes, as shares of its peak."""

    name: Literal["cosine", "wsd", "constant"] = "cosine"
    """After the warm-up: cosine decay, stable then decay (wsd), or constant."""
    warmup_steps: NotNegative | None = None
    """Steps of linear warm-up; by default 100, but at most a tenth of the run."""
    min_share: Share = 0.1
    """Final learning rate, as a share of the peak."""
    decay_steps: NotNegative = 0
    """With cosine, the step at which the decay ends (0: the last); with wsd, its length (0: a fifth of the run)."""


class TrainingConfig(Settings):
    """How much is trained, and how it is computed."""

    steps: Count = 1000
    """Optimizer steps in total."""
    batch_size: Count = 32
    """Sequences in one forward pass."""
    accumulation: Count = 1
    """Batches accumulated into one step."""
    seed: NotNegative = 0
    """Seed of the initial weights, the data order and dropout."""
    device: str = "auto"
    """One of auto, cpu, cuda, cuda:N, mps."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights stay float32."""
    compile: bool = False
    """Compile the model with torch.compile; the first step then takes about a minute."""
    max_bad_steps: Count = 5
    """Stop after this many consecutive steps with a loss that is not finite."""


class RunConfig(Settings):
    """What is written, and how often (in steps; 0: never)."""

    folder: str = "run"
    """Run folder: settings, metrics, checkpoints."""
    log_every: NotNegative = 10
    """Steps between records of loss, learning rate and speed."""
    validate_every: NotNegative = 250
    """Steps between validations; each is preceded by a checkpoint."""
    validation_windows: Count = 128
    """Windows of validation data, spread over the text."""
    sample_every: NotNegative = 0
    """Steps between text samples."""
    sample_prompt: str = ""
    """Prompt of the samples; empty starts a new text."""
    sample_tokens: Count = 64
    """Tokens in a sample."""
    checkpoint_every: NotNegative = 250
    """Steps between checkpoints."""
    keep_checkpoints: Count = 2
    """Number of newest checkpoints to keep."""
    tensorboard: bool = False
    """Also write TensorBoard curves (needs the package tensorboard)."""
    wandb: str = ""
    """Also log to this Weights & Biases project (needs the package wandb)."""


class TrainConfig(Settings):
    """All settings of a run."""

    model: ModelConfig
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig = TrainingConfig()
    run: RunConfig = RunConfig()

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
                hint="lower schedule.warmup_steps or raise training.steps",
            )
        return self


DEFAULT_PRESET = "tiny"
SECTIONS: dict[str, type[Settings]] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "training": TrainingConfig,
    "run": RunConfig,
}
MAY_CHANGE = frozenset({"training.steps", "training.device", "training.compile", "training.max_bad_steps"})
"""Settings that may differ when a run resumes, in addition to all of `run`."""

Layer = tuple[str, "Mapping[str, Any]"]
"""Where values come from ("train.toml", "the command line"), and the values by key ("model.num_layers")."""


@dataclass(frozen=True)
class Resolved:
    """The settings of a run, and where each value comes from."""

    config: TrainConfig
    origins: dict[str, str]
    """Key -> "default", "preset tiny", a file name, an environment variable or an option."""


def setting_keys() -> list[str]:
    """Return the key of every setting, such as "training.steps"."""
    keys = [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields]
    return ["model.preset", *keys]


def resolve(
    layers: list[Layer], *, n_vocab: int | None = None, origins: Mapping[str, str] | None = None
) -> Resolved:
    """Merge layers of values; the last layer wins.

    A layer that names a preset replaces the whole model of the layers before it.

    Args:
        layers: values by key, from the weakest source to the strongest.
        n_vocab: number of ids of the tokenizer, which sets the vocabulary size.
        origins: for some keys a more precise origin than the name of their layer.

    Raises:
        RunConfigError: a setting is unknown, of the wrong type or out of range; the message names its origin.
        ModelConfigError: sizes of the model contradict each other.
    """
    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    came_from: dict[str, str] = {}
    preset_name = DEFAULT_PRESET
    for layer, entries in layers:
        if (name := entries.get("model.preset")) is not None:
            if name not in PRESETS:
                where = _where(layer, "model.preset", origins)
                raise RunConfigError(f"{where}: unknown preset {name!r}", hint=suggestion(str(name), PRESETS))
            preset_name = name
            values["model"] = {}
        for key, value in entries.items():
            if key == "model.preset":
                continue
            section, _, setting = key.partition(".")
            if section not in SECTIONS or setting not in SECTIONS[section].model_fields:
                where = _where(layer, key, origins)
                raise RunConfigError(f"{where}: unknown setting {key}", hint=suggestion(key, setting_keys()))
            values[section][setting] = value
            came_from[key] = _where(layer, key, origins)
    model = values["model"]
    if n_vocab is not None and "vocab_size" not in model:
        model["vocab_size"] = n_vocab
        came_from["model.vocab_size"] = "the tokenizer"
    model_values = {**PRESETS[preset_name].to_dict(), **model}
    parts: dict[str, Any] = {
        section: _validated(section, model_values if section == "model" else own, came_from)
        for section, own in values.items()
    }
    config = TrainConfig(**parts)
    if n_vocab is not None and config.model.vocab_size < n_vocab:
        raise RunConfigError(
            f"{came_from['model.vocab_size']}: model.vocab_size is {config.model.vocab_size:,}, but the tokenizer has "
            f"{n_vocab:,} ids",
            hint="leave it out, or set it no smaller than that",
        )
    for section, kind in SECTIONS.items():
        for name in kind.model_fields:
            if name not in values[section]:
                fallback = f"preset {preset_name}" if section == "model" else "default"
                came_from[f"{section}.{name}"] = fallback
    return Resolved(config, came_from)


def differences(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Describe settings that decide what a run computes and differ: "model.num_layers is 8 and was 4"."""
    before, after = old.to_dict(), new.to_dict()
    return [
        f"{section}.{name} is {after[section][name]!r} and was {value!r}"
        for section, values in before.items()
        if section != "run"
        for name, value in values.items()
        if after[section][name] != value and f"{section}.{name}" not in MAY_CHANGE
    ]


def config_from_dict(document: Mapping[str, Mapping[str, Any]]) -> TrainConfig:
    """Restore the settings from the result of `TrainConfig.to_dict`, also after a round trip through JSON."""
    flat = {f"{section}.{name}": value for section, own in document.items() for name, value in own.items()}
    return resolve([("the checkpoint", flat)]).config


def config_to_toml(resolved: Resolved) -> str:
    """Render the settings as a TOML file that gives the same settings again, with the origin of each value."""
    lines: list[str] = []
    for section, values in resolved.config.to_dict().items():
        lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        for name, value in values.items():
            if value is not None:  # TOML has no null; an absent key is the default None
                entry = f"{name} = {_toml(value)}"
                lines.append(f"{entry:<40}  # {resolved.origins.get(f'{section}.{name}', 'default')}")
    return "\n".join(lines) + "\n"


def _where(layer: str, key: str, origins: Mapping[str, str] | None) -> str:
    return (origins or {}).get(key, layer)


def _validated(section: str, values: Mapping[str, Any], came_from: Mapping[str, str]) -> Settings:
    """Build a section; name the origin of a refused value."""
    try:
        return SECTIONS[section](**values)
    except BytemillError as error:
        name = str(error).split(" ", 1)[0]
        origin = came_from.get(f"{section}.{name}")
        is_one_field = str(error).startswith(f"{name} is ")
        message = f"{origin}: {section}.{error}" if origin and is_one_field else str(error)
        raise type(error)(message, hint=error.hint) from error


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (bool, str)):
        # A TOML basic string is a JSON string, except that DEL must be escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
