"""The sweep file, `scaling.toml`: the text, the vocabularies, the sizes of models and the budgets of a sweep.

Models are positions on the depth dial of `lm.depth`: a depth, which may lie between two whole numbers, decides width,
number of blocks, heads and learning rate.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from bytemill.errors import BytemillError, ScalingError
from bytemill.experiment.study import BudgetSettings, Counts, Study, TextSettings, TokenizerSettings
from bytemill.lm.depth import WIDTH_PER_LAYER, depth_settings, depth_shape
from bytemill.lm.model_config import Count  # noqa: TC001 - pydantic evaluates the annotation
from bytemill.lm.settings import Settings, flattened, suggestion
from bytemill.lm.training.config import setting_keys

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from bytemill.lm.model_config import ModelConfig

FILE = "scaling.toml"
_WIDTH_STEP = 16
_HEAD_WIDTH = 64
_OWN = ("model.", "data.", "run.", "schedule.", "training.", "optimizer.learning_rate")
"""Settings of `lm train` that a sweep decides itself."""
_FREE = ("training.device", "training.precision", "training.kernels", "training.compile")


def _numbers(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    return tuple(
        float(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in items
    )


Amounts = Annotated[tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], BeforeValidator(_numbers)]
Flops = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    BeforeValidator(lambda value: float(value) if type(value) is int else value),
]


class TrainSettings(Settings):
    """How every model of a sweep is trained."""

    context_length: Count = 256
    """Tokens per sequence."""
    batch_size: Count = 16
    """Sequences per step."""
    warmup_steps: Count = 20
    """Steps of warm-up, the same for runs of every length."""
    decay_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the steps in which the learning rate falls to 0. Longer runs branch off before that part."""
    other: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Other settings of `bytemill lm train`, such as optimizer.weight_decay."""


class VocabularySettings(Settings):
    """The vocabularies of a sweep."""

    sizes: Counts
    """Sizes, each with 256 bytes and the end of documents. Sizes of models are compared with the first one."""
    pattern: str = "gpt2"
    """Splitting pattern of the tokenizers; "none" for none."""
    budgets: Amounts = ()
    """Budgets at which all vocabularies are compared, in FLOPs; by default none if there is one vocabulary, and the two
    smallest otherwise."""
    depths: Annotated[int, Field(ge=2)] = 3
    """Number of sizes of models with each further vocabulary."""


class RateSettings(Settings):
    """Learning rates, as multiples of the depth dial's."""

    factors: Amounts = (1.0,)
    """Factors to try with every depth, at its smallest number of tokens; the best is used for all its runs."""
    seeds: Annotated[int, Field(ge=2)] = 2
    """Seeds of each trial: a rate that one seed prefers may be chance."""


class Sweep(Settings):
    """A sweep, as its file describes it.

    Raises:
        ScalingError: A setting is unknown, missing, of the wrong type or out of range, or two contradict each other.
    """

    error_type = ScalingError

    title: str = ""
    """What the sweep asks."""
    text: TextSettings
    """The text, as in a study."""
    vocabularies: VocabularySettings
    """The vocabularies."""
    depths: Amounts
    """Positions on the depth dial that models may have."""
    width_per_layer: Count = WIDTH_PER_LAYER
    """Width of a model of depth 1."""
    depths_per_budget: Annotated[int, Field(ge=3)] = 5
    """Sizes of models at each budget, around the best one of the last fit."""
    budgets: Amounts
    """Budgets, in FLOPs with attention and output layer."""
    limit_flops: Flops
    """FLOPs that the ledger may spend in total; runs that share their beginning pay for it once."""
    seeds: Annotated[int, Field(ge=1)] = 2
    """Seeds of every run: initial weights and order of the documents."""
    learning_rate: RateSettings = RateSettings()
    """Learning rates."""
    train: TrainSettings = TrainSettings()
    """How models are trained."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        for kind, values, least in (
            ("depths", self.depths, 3),
            ("budgets", self.budgets, 1),
            ("vocabularies.sizes", self.vocabularies.sizes, 1),
            ("learning_rate.factors", self.learning_rate.factors, 1),
        ):
            if len(values) < least or len(set(values)) < len(values):
                raise ScalingError(
                    f"{kind} is {list(values)}",
                    hint=f"name at least {least} different ones: a law needs several"
                    if least > 1
                    else "name at least one, and each once",
                )
        widths = [
            (self.shape(depth, 512).d_model, self.shape(depth, 512).num_layers) for depth in self.depths
        ]
        if len(set(widths)) < len(widths):
            raise ScalingError(
                f"two of the depths {', '.join(f'{each:g}' for each in self.depths)} are the same model",
                hint="space them further apart",
            )
        if unknown := set(self.vocabularies.budgets) - set(self.budgets):
            raise ScalingError(
                f"vocabularies.budgets has {min(unknown):.3g}, which is not among budgets",
                hint=f"choose of {', '.join(f'{each:.3g}' for each in self.budgets)}",
            )
        return self

    @model_validator(mode="after")
    def _check_train(self) -> Self:
        for key in flattened(self.train.other):
            if key not in setting_keys():
                raise ScalingError(
                    f"train.other: unknown setting {key}", hint=suggestion(key, setting_keys())
                )
            if key.startswith(_OWN) and key not in _FREE:
                raise ScalingError(f"train.other: a sweep sets {key} itself", hint="leave it out")
        return self

    def shape(self, depth: float, vocab_size: int) -> ModelConfig:
        """Return the model of a depth."""
        return dial_shape(depth, self.width_per_layer).replace(
            vocab_size=-(-vocab_size // 64) * 64, context_length=self.train.context_length
        )

    def dial_rate(self, depth: float) -> float:
        """Return the depth dial's learning rate for a depth, with the first vocabulary."""
        return depth_settings(self.shape(depth, self.vocabularies.sizes[0]))["optimizer.learning_rate"]

    @property
    def compared_budgets(self) -> tuple[float, ...]:
        """Budgets at which all vocabularies are compared."""
        if self.vocabularies.budgets or len(self.vocabularies.sizes) == 1:
            return self.vocabularies.budgets
        return tuple(sorted(self.budgets)[:2])

    @property
    def step_tokens(self) -> int:
        """Tokens per step."""
        return self.train.context_length * self.train.batch_size

    def study(self) -> Study:
        """Return a study with the text and the tokenizers of the sweep, whose files the sweep uses."""
        sizes = self.vocabularies.sizes
        own = TokenizerSettings(vocab_sizes=sizes, patterns=(self.vocabularies.pattern,))
        return Study(
            text=self.text,
            tokenizers={"vocabulary": own},
            models={"tiny": {"context_length": self.train.context_length}},
            budget=BudgetSettings(amount=1.0),
        )

    def tokenizer_name(self, vocab_size: int) -> str:
        """Return the name of a tokenizer in `study`."""
        return "vocabulary" if len(self.vocabularies.sizes) == 1 else f"vocabulary-{vocab_size}"


def dial_shape(depth: float, width_per_layer: int = WIDTH_PER_LAYER) -> ModelConfig:
    """Return the model at a position of the depth dial, which may lie between two depths.

    The width is a multiple of 16 near `width_per_layer` · depth, the number of blocks the nearest to the depth.

    >>> shape = dial_shape(2.6)
    >>> shape.d_model, shape.num_layers, shape.num_heads
    (160, 3, 2)
    >>> dial_shape(4) == depth_shape(4)
    True
    """
    n_layers = max(1, int(depth + 0.5))
    width = max(_WIDTH_STEP, int(width_per_layer * depth / _WIDTH_STEP + 0.5) * _WIDTH_STEP)
    wanted = max(1.0, width / _HEAD_WIDTH)
    possible = [n for n in range(1, width // 8 + 1) if width % (8 * n) == 0]
    n_heads = min(possible, key=lambda n: (abs(n - wanted), n))
    return depth_shape(n_layers).replace(
        d_model=width, num_heads=n_heads, d_ff=max(64, round(8 * width / 3 / 64) * 64)
    )


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read a sweep file; paths in it are relative to its folder.

    Raises:
        ScalingError: The file cannot be read or is wrong; the message names the file and the key.
    """
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScalingError(
            f"cannot read {path}: {error.strerror or error}",
            hint="write a sweep file: see the guide on scaling laws",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScalingError(f"{path} is not a TOML file: {error}", hint="correct that line") from error
    try:
        return _sweep(document)
    except BytemillError as error:
        raise ScalingError(f"{path}: {error}", hint=error.hint) from error


def _sweep(document: dict[str, Any]) -> Sweep:
    values = dict(document)
    sections: Sequence[tuple[str, type[Settings]]] = (
        ("text", TextSettings),
        ("vocabularies", VocabularySettings),
        ("learning_rate", RateSettings),
        ("train", TrainSettings),
    )
    for name, kind in sections:
        if name in values:
            if not isinstance(values[name], dict):
                raise ScalingError(f"{name} is {values[name]!r}", hint=f"write a table: [{name}]")
            try:
                values[name] = kind(**cast("dict[str, Any]", values[name]))
            except BytemillError as error:
                raise ScalingError(f"{name}: {error}", hint=error.hint) from error
    return Sweep(**values)
