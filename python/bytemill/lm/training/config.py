"""The settings of a run: what they are, and how each came to its value (default < file < option)."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from bytemill.errors import RunConfigError
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.presets import PRESETS, preset


@dataclass(frozen=True)
class DataConfig:
    """Where tokens come from."""

    tokenizer: str = ""
    """The tokenizer's file or published name, for samples, bits per byte and the size of the vocabulary."""
    train: tuple[str, ...] = ()
    """Folders of shards to train on."""
    validation: tuple[str, ...] = ()
    """Folders of shards to validate with; none: no validation."""


@dataclass(frozen=True)
class OptimizerConfig:
    """How weights change."""

    name: Literal["adamw", "muon", "sgd"] = "adamw"
    """With muon the matrices are Muon's, and all else is AdamW's."""
    learning_rate: float = 1e-3
    """The highest one, which the schedule scales."""
    muon_learning_rate: float = 0.02
    """The same of the matrices where the optimizer is Muon."""
    weight_decay: float = 0.1
    """Of matrices; vectors have none."""
    beta1: float = 0.9
    """How slowly the mean of the gradients moves."""
    beta2: float = 0.95
    """How slowly the mean of their squares moves."""
    eps: float = 1e-8
    """Added to the root of that mean."""
    clip: float = 1.0
    """Gradients of a larger norm are scaled down to this one; 0: never."""


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate goes, as shares of the highest one."""

    name: Literal["cosine", "wsd", "constant"] = "cosine"
    """Up and along a cosine; up, stable and down (wsd); or always the highest."""
    warmup_steps: int = 100
    """Steps from 0 up to the highest rate."""
    min_share: float = 0.1
    """Where it ends, as a share of the highest rate."""
    decay_steps: int = 0
    """With cosine the step that ends it (0: the last), with wsd the length of the decay (0: a fifth of all)."""


@dataclass(frozen=True)
class TrainingConfig:
    """How much, and how it is computed."""

    steps: int = 1000
    """Changes of the weights in all."""
    batch_size: int = 32
    """Windows that go through the model at once."""
    accumulation: int = 1
    """Batches whose gradients make one step."""
    seed: int = 0
    """Of the first weights, the order of the data and dropout."""
    device: str = "auto"
    """One of auto, cpu, cuda, cuda:N, mps."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay float32."""
    compile: bool = False
    """Let torch.compile fuse what it can; the first step then takes about a minute."""
    max_bad_steps: int = 5
    """Steps in a row with a loss that is not finite before the run stops."""


@dataclass(frozen=True)
class RunConfig:
    """What is written, and how often (in steps; 0: never)."""

    folder: str = "run"
    """Where everything goes."""
    log_every: int = 10
    """A record of loss, learning rate, speed."""
    validate_every: int = 250
    """The validation loss; a checkpoint comes before it."""
    validation_windows: int = 128
    """Windows that are validated with, spread over the text."""
    sample_every: int = 0
    """A piece of text from the model."""
    sample_prompt: str = ""
    """What samples begin with; empty: the end of a text."""
    sample_tokens: int = 64
    """How long samples are."""
    checkpoint_every: int = 250
    """All that is needed to go on."""
    keep_checkpoints: int = 2
    """Of those the newest ones stay."""
    tensorboard: bool = False
    """Write curves for TensorBoard too (pip install tensorboard)."""
    wandb: str = ""
    """Send them to this project of Weights & Biases too (pip install wandb)."""


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run."""

    model: ModelConfig
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Section -> setting -> value, as `resolve` takes them."""
        return {**asdict(self), "model": self.model.to_dict()}


DEFAULT_PRESET = "tiny"
SECTIONS: dict[str, type[Any]] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "training": TrainingConfig,
    "run": RunConfig,
}
MAY_CHANGE = frozenset({"training.steps", "training.device", "training.compile", "training.max_bad_steps"})
"""Settings that may differ when a run goes on, beside all of `run`."""


@dataclass(frozen=True)
class Setting:
    """One setting as help and errors name it."""

    section: str
    name: str
    kind: Any
    """Its type, as annotated."""
    default: Any
    about: str

    @property
    def key(self) -> str:
        """As in `--model.num-layers` and in error messages, with underscores."""
        return f"{self.section}.{self.name}"


@functools.cache
def settings() -> dict[str, Setting]:
    """Every setting by its key."""
    presets = ", ".join(PRESETS)
    found = [Setting("model", "preset", str, DEFAULT_PRESET, f"What all other sizes start from: {presets}.")]
    for section, kind in SECTIONS.items():
        hints, abouts = get_type_hints(kind), _about(kind)
        base = PRESETS[DEFAULT_PRESET] if kind is ModelConfig else None
        for each in fields(kind):
            default = getattr(base, each.name) if base else each.default
            about = abouts.get(each.name, "")
            if each.name == "vocab_size":
                default, about = None, "Ids in the vocabulary; by default as many as the tokenizer has."
            found.append(Setting(section, each.name, hints[each.name], default, about))
    return {setting.key: setting for setting in found}


Layer = tuple[str, Mapping[str, Any]]
"""Where values come from ("train.toml", "--option"), and the values by key; a later layer wins."""


@dataclass(frozen=True)
class Resolved:
    """The settings of a run, and where each value comes from."""

    config: TrainConfig
    origins: dict[str, str]
    """Key -> "default", "preset tiny", the name of a file, or the option."""


def resolve(layers: list[Layer], *, n_vocab: int | None = None) -> Resolved:
    """Settings from layers of values, the last of which wins; `n_vocab` is the tokenizer's.

    Raises `RunConfigError` for a setting that is unknown, of the wrong type or not possible, naming where it stands.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, given in layers:
        for key, value in given.items():
            setting = _find(key, origin)
            values[setting.key] = _converted(value, setting.kind, f"{origin}: {setting.key}")
            origins[setting.key] = origin
    model = _model(values, origins, n_vocab)
    sections: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        if kind is ModelConfig:
            continue
        own = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(section + ".")}
        sections[section] = kind(**own)
    config = TrainConfig(model=model, **sections)
    for key in settings():
        origins.setdefault(key, "default")
    _check(config, origins)
    return Resolved(config, origins)


def flatten(document: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values of a file by key. Raises `RunConfigError` for what stands outside a section."""
    flat: dict[str, Any] = {}
    for section, values in document.items():
        if section not in SECTIONS:
            raise RunConfigError(
                f"{origin}: there is no section [{section}]", hint=f"sections are {', '.join(SECTIONS)}"
            )
        if not isinstance(values, Mapping):
            raise RunConfigError(f"{origin}: {section} is a section", hint=f"write it as [{section}]")
        flat |= {f"{section}.{name}": value for name, value in cast("Mapping[str, Any]", values).items()}
    return flat


def differences(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Settings that decide what a run computes and are not the same: "model.num_layers is 8 and was 4"."""
    before, after = old.to_dict(), new.to_dict()
    return [
        f"{section}.{name} is {after[section][name]!r} and was {value!r}"
        for section, values in before.items()
        if section != "run"
        for name, value in values.items()
        if after[section][name] != value and f"{section}.{name}" not in MAY_CHANGE
    ]


def config_from_dict(document: Mapping[str, Mapping[str, Any]]) -> TrainConfig:
    """The settings that `TrainConfig.to_dict` gave, also when they come from JSON."""
    flat = {key: value for key, value in flatten(document, "the checkpoint").items() if value is not None}
    return resolve([("the checkpoint", flat)]).config


def _model(values: dict[str, Any], origins: dict[str, str], n_vocab: int | None) -> ModelConfig:
    own = {key.partition(".")[2]: value for key, value in values.items() if key.startswith("model.")}
    name = own.pop("preset", DEFAULT_PRESET)
    if name not in PRESETS:
        raise RunConfigError(
            f"{origins['model.preset']}: there is no preset {name!r}",
            hint=f"presets are {', '.join(PRESETS)}",
        )
    if n_vocab is not None:
        if own.setdefault("vocab_size", n_vocab) < n_vocab:
            raise RunConfigError(
                f"model.vocab_size is {own['vocab_size']:,}, and the tokenizer has {n_vocab:,} ids",
                hint="leave it out, or make it no smaller",
            )
        origins.setdefault("model.vocab_size", "the tokenizer")
    for key in (each.name for each in fields(ModelConfig)):
        origins.setdefault(f"model.{key}", f"preset {name}")
    return preset(name, **own)


def _find(key: str, origin: str) -> Setting:
    """The setting of a key, also with hyphens, and with `n_` where ours is `num_`."""
    section, _, name = key.replace("-", "_").partition(".")
    known = settings()
    for spelled in (name, re.sub(r"^n_", "num_", name)):
        if f"{section}.{spelled}" in known:
            return known[f"{section}.{spelled}"]
    near = difflib.get_close_matches(f"{section}.{name}", known, n=1) or difflib.get_close_matches(
        name, [setting.name for setting in known.values()], n=1
    )
    hint = f"did you mean {near[0]}?" if near else "`bytemill lm train --help` lists all settings"
    raise RunConfigError(f"{origin}: there is no setting {section}.{name}", hint=hint)


def _converted(value: Any, kind: Any, where: str) -> Any:
    """`value` as the setting's type. Raises `RunConfigError` where it is none of it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _converted(value, next(one for one in arguments if one is not type(None)), where)
    if origin is Literal:
        if value not in arguments:
            raise RunConfigError(
                f"{where} is {value!r}", hint=f"take one of {', '.join(map(str, arguments))}"
            )
        return value
    if origin is tuple:
        listed: Any = [value] if isinstance(value, str) else value
        if not isinstance(listed, (list, tuple)) or not all(
            isinstance(item, str) for item in cast("list[Any]", listed)
        ):
            raise RunConfigError(f"{where} is {value!r}", hint='write a list of names: ["a", "b"]')
        return tuple(cast("list[str]", listed))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RunConfigError(f"{where} is {value!r}, which is no {kind.__name__}")
    return value


_AT_LEAST_ONE = (
    "training.steps",
    "training.batch_size",
    "training.accumulation",
    "training.max_bad_steps",
    "run.keep_checkpoints",
    "run.validation_windows",
    "run.sample_tokens",
)
_NOT_NEGATIVE = (
    "optimizer.learning_rate",
    "optimizer.muon_learning_rate",
    "optimizer.weight_decay",
    "optimizer.clip",
    "schedule.warmup_steps",
    "schedule.decay_steps",
    "run.log_every",
    "run.validate_every",
    "run.sample_every",
    "run.checkpoint_every",
    "training.seed",
)


def _check(config: TrainConfig, origins: Mapping[str, str]) -> None:
    document = config.to_dict()
    for keys, smallest in ((_AT_LEAST_ONE, 1), (_NOT_NEGATIVE, 0)):
        for key in keys:
            section, name = key.split(".")
            if not document[section][name] >= smallest:
                raise RunConfigError(
                    f"{origins[key]}: {key} is {document[section][name]}", hint=f"take {smallest} or more"
                )
    for key in ("optimizer.beta1", "optimizer.beta2", "schedule.min_share"):
        section, name = key.split(".")
        if not 0 <= document[section][name] <= 1:
            raise RunConfigError(
                f"{origins[key]}: {key} is {document[section][name]}", hint="take one from 0 to 1"
            )


def _about(kind: type[Any]) -> dict[str, str]:
    """Field -> what stands below it in the class, which is its help too."""
    found = re.findall(r'^    (\w+): .*\n    """(.*)"""$', inspect.getsource(kind), flags=re.MULTILINE)
    return dict(cast("list[tuple[str, str]]", found))
