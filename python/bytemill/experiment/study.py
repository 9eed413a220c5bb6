"""The study file: what is compared, on which text, and what is held equal.

Its cells are the models to train: tokenizers × texts × shapes × seeds, in an order that keeps an interrupted study
balanced.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from bytemill.corpus import parse_bytes
from bytemill.errors import BytemillError, RunConfigError
from bytemill.lm.model_config import Count, ModelConfig
from bytemill.lm.presets import PRESETS
from bytemill.lm.settings import Settings, flattened, suggestion
from bytemill.lm.training.config import Names, setting_keys

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")
_OWN = ("model.", "data.", "run.", "training.steps", "training.seed", "optimizer.learning_rate")
"""Settings of `lm train` that a study decides itself."""


def _size(value: Any) -> Any:
    """Accept a size such as "20MB"."""
    return parse_bytes(value) if isinstance(value, str) else value


def _tuple(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


ByteSize = Annotated[int, Field(ge=1), BeforeValidator(_size)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_tuple)]
Rates = Annotated[tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(_tuple)]


class TextSettings(Settings):
    """The text of a study: names of files, folders or globs."""

    train: Names
    """Text that models are trained on unless the study has `texts`, and tokenizers that name no text of their own."""
    validation: dict[str, Names]
    """Text that models are scored on, by domain."""
    tuning: Names = ()
    """Text that learning rates are chosen on; needed to search for them."""
    documents: str = "file"
    """What a document is in text files: file, line, or a special token that ends documents."""
    max_bytes: ByteSize | None = None
    """Use at most this much of the training text."""
    validation_bytes: ByteSize = 1_000_000
    """Score at most this much of each domain."""
    context_bytes: Count | None = None
    """Bytes of context that every scored byte has at least, as far as the context of its model allows; by default the
    most that all models can have."""


class ArmText(Settings):
    """A text to train on, which is compared with others."""

    name: str
    """Its name."""
    train: Names
    """Names of files, folders or globs."""


class TokenizerSettings(Settings):
    """A tokenizer, or several that are trained on sizes, patterns and texts in all combinations."""

    load: str = ""
    """File or published name."""
    vocab_sizes: Counts = ()
    """Sizes to train, each including 256 bytes and the end of documents."""
    patterns: Names = ("gpt2",)
    """Splitting patterns to train with; "none" for none."""
    texts: dict[str, Names] = {}  # noqa: RUF012 - pydantic copies it
    """Text to train on, by name; by default the training text of the study."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.load) == bool(self.vocab_sizes):
            raise RunConfigError(
                "a tokenizer needs either load or vocab_sizes",
                hint='write load = "gpt2", or vocab_sizes = [8000]',
            )
        return self


class BudgetSettings(Settings):
    """How long each model is trained."""

    equal: Literal["bytes", "tokens", "flops", "time"] = "bytes"
    """What every model gets the same amount of; flops include the output layer."""
    amount: Annotated[float, Field(gt=0), BeforeValidator(lambda value: float(_size(value)))]
    """Bytes of text ("20MB"), tokens, FLOPs or seconds."""
    parameters: Literal["non-embedding", "all"] = "non-embedding"
    """Which parameters are as many in every model: with all, the feed-forward width of a model with a larger
    vocabulary is lowered."""
    pad_vocab: Literal["multiple", "alike"] = "multiple"
    """Round the number of ids up to a multiple of 64, or to the same number for all."""


class RateSettings(Settings):
    """The learning rate of every arm."""

    fixed: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of all models."""
    search: Rates = ()
    """Learning rates to try with each tokenizer and model; the best one on the tuning text is used."""
    seeds: Annotated[int, Field(ge=2)] = 2
    """Seeds of each trial: a rate that one seed prefers may be chance."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of the budget that each trial gets."""


class Study(Settings):
    """A study, as its file describes it.

    Raises:
        RunConfigError: A setting is unknown, missing, of the wrong type or out of range, or two contradict each other.
    """

    title: str = ""
    """What the study asks."""
    seeds: Counts | int = 3
    """Number of seeds. A seed decides the initial weights and the order of the documents."""
    text: TextSettings
    """The text."""
    texts: tuple[ArmText, ...] = ()
    """Texts to train models on instead of `text.train`, each with every tokenizer."""
    tokenizers: dict[str, TokenizerSettings]
    """The tokenizers, by name."""
    models: dict[str, dict[str, Any]]
    """Shapes by name: a preset, and settings of the model that differ from it."""
    budget: BudgetSettings
    """How long each model is trained."""
    learning_rate: RateSettings = RateSettings()
    """The learning rate."""
    train: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Other settings of `bytemill lm train`, such as optimizer.weight_decay."""
    n_checkpoints: Count = 10
    """Points of the learning curves."""
    hellaswag: str = ""
    """HellaSwag file to score every model on at the end."""
    prompts: Names = ()
    """Beginnings that every model continues at the end."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        named: dict[str, Iterable[str]] = {
            "tokenizers": self.tokenizers,
            "models": self.models,
            "text.validation": self.text.validation,
        }
        for kind, names in named.items():
            if not names and kind != "texts":
                raise RunConfigError(f"{kind} is empty", hint="name at least one")
        text_names = [own.name for own in self.texts]
        named["texts"] = text_names
        if twice := [name for name in text_names if text_names.count(name) > 1]:
            raise RunConfigError(f"texts: two are called {twice[0]!r}", hint="give each a name of its own")
        for name, own in self.tokenizers.items():
            named[f"tokenizers.{name}"] = [*own.texts, *(own.patterns if len(own.patterns) > 1 else ())]
        for kind, names in named.items():
            if wrong := [name for name in names if not _NAME.fullmatch(name)]:
                more = ", and one tokenizer for each expression" if "tokenizers." in kind else ""
                hint = f"use letters, digits, hyphens and underscores{more}"
                raise RunConfigError(f"{kind}: {wrong[0]!r} cannot be a name", hint=hint)
        if not self.seed_list or len(set(self.seed_list)) < len(self.seed_list):
            raise RunConfigError(
                f"seeds is {self.seeds!r}", hint="write a number of seeds, or a list of different ones"
            )
        if self.learning_rate.search and not self.text.tuning:
            raise RunConfigError(
                "learning_rate.search needs text of its own, so that it does not choose by the result",
                hint='add text.tuning = ["FILE"]',
            )
        return self

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        for name in self.models:
            self.shape(name, 256)
        for key in self.train_settings():
            if key not in setting_keys():
                raise RunConfigError(f"train: unknown setting {key}", hint=suggestion(key, setting_keys()))
            if key.startswith(_OWN):
                raise RunConfigError(f"train: a study sets {key} itself", hint="leave it out")
        return self

    def shape(self, name: str, vocab_size: int) -> ModelConfig:
        """Return the shape of a model for a number of ids.

        Raises:
            RunConfigError: The preset is unknown.
            ModelConfigError: A setting of the shape is wrong.
        """
        own = dict(self.models[name])
        preset = str(own.pop("preset", "tiny"))
        if preset not in PRESETS:
            raise RunConfigError(
                f"models.{name}: unknown preset {preset!r}", hint=suggestion(preset, PRESETS)
            )
        return PRESETS[preset].replace(**{**own, "vocab_size": vocab_size})

    def train_settings(self) -> dict[str, Any]:
        """Return `train` with flat keys, such as "optimizer.weight_decay"."""
        return flattened(self.train)

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    @property
    def text_names(self) -> list[str]:
        """Names of the texts that models are trained on; one empty name without `texts`."""
        return [own.name for own in self.texts] or [""]

    @property
    def trial_seeds(self) -> list[int]:
        """The seeds of each trial: the first ones of the study, and the numbers after them if it has fewer."""
        own = self.seed_list
        more = range(max(own) + 1, max(own) + 1 + self.learning_rate.seeds)
        return [*own, *more][: self.learning_rate.seeds]


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read a study file; paths in it are relative to its folder.

    Raises:
        RunConfigError: The file cannot be read or is wrong; the message names the file and the key.
    """
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise RunConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunConfigError(f"{path} is not a TOML file: {error}") from error
    try:
        return _study(document)
    except BytemillError as error:
        raise type(error)(f"{path}: {error}", hint=error.hint) from error


def _study(document: dict[str, Any]) -> Study:
    values = dict(document)
    if isinstance(text := values.get("text"), dict) and "segment_bytes" in text:
        raise RunConfigError(
            "text: segment_bytes is a setting of earlier versions, which scored pieces of the text",
            hint="leave it out, or write context_bytes = N",
        )
    if "texts" in values:
        texts: Any = values["texts"]
        if not isinstance(texts, list):
            raise RunConfigError(f"texts is {texts!r}", hint="write a table for each: [[texts]]")
        own_texts = enumerate(cast("list[Any]", texts), 1)
        values["texts"] = tuple(_section(ArmText, f"texts {number}", own) for number, own in own_texts)
    sections = {"text": TextSettings, "budget": BudgetSettings, "learning_rate": RateSettings}
    for name, kind in sections.items():
        if name in values:
            values[name] = _section(kind, name, values[name])
    if isinstance(values.get("tokenizers"), dict):
        named = cast("dict[str, Any]", values["tokenizers"]).items()
        values["tokenizers"] = {
            name: _section(TokenizerSettings, f"tokenizers.{name}", own) for name, own in named
        }
    return Study(**values)


def _section(kind: type[Settings], name: str, values: Any) -> Settings:
    if not isinstance(values, dict):
        raise RunConfigError(f"{name} is {values!r}", hint=f"write a table: [{name}]")
    try:
        return kind(**cast("dict[str, Any]", values))
    except BytemillError as error:
        raise type(error)(f"{name}: {error}", hint=error.hint) from error


@dataclass(frozen=True)
class TokenizerSource:
    """Where the tokenizer of an arm comes from."""

    name: str
    load: str = ""
    """File or published name; empty if it is trained."""
    vocab_size: int = 0
    pattern: str = ""
    inputs: tuple[str, ...] = ()
    """Text to train on; by default the training text of the study."""


@dataclass(frozen=True)
class Cell:
    """One model to train."""

    tokenizer: str
    model: str
    seed: int
    trial_rate: float | None = None
    """Learning rate of a trial; None for a final model."""
    text: str = ""
    """Name of the text that it is trained on; empty for `text.train`."""

    @property
    def name(self) -> str:
        """Name of its folder.

        >>> Cell("own-8k", "tiny", 0).name, Cell("own-8k", "tiny", 0, 1e-3).name
        ('own-8k.tiny.seed0', 'own-8k.tiny.seed0.rate0.001')
        """
        trial = "" if self.trial_rate is None else f".rate{self.trial_rate:g}"
        return f"{with_text(self.tokenizer, self.text)}.{self.model}.seed{self.seed}{trial}"


def with_text(tokenizer: str, text: str) -> str:
    """Return the name of a tokenizer with a text.

    >>> with_text("own-8k", "clean"), with_text("own-8k", "")
    ('own-8k+clean', 'own-8k')
    """
    return f"{tokenizer}+{text}" if text else tokenizer


def tokenizer_sources(study: Study) -> dict[str, TokenizerSource]:
    """Return the tokenizers by name; a grid adds what differs to the name, as in own-8000-gpt2-english."""
    sources: dict[str, TokenizerSource] = {}
    for name, own in study.tokenizers.items():
        if own.load:
            sources[name] = TokenizerSource(name, own.load)
            continue
        texts = own.texts or {"": ()}
        for size, pattern, text in product(own.vocab_sizes, own.patterns, texts):
            choices = ((str(size), own.vocab_sizes), (pattern, own.patterns), (text, texts))
            full = "-".join([name, *(part for part, others in choices if len(others) > 1)])
            sources[full] = TokenizerSource(full, "", size, pattern, tuple(texts[text]))
    return sources


def cells(study: Study) -> list[Cell]:
    """Return the final models: all tokenizers and shapes of a seed before the next seed."""
    return [
        Cell(tokenizer, model, seed, text=text)
        for seed in study.seed_list
        for model in study.models
        for tokenizer in tokenizer_sources(study)
        for text in study.text_names
    ]


def trials(study: Study) -> list[Cell]:
    """Return the trials of the learning-rate search: all arms with a rate and a seed before the next."""
    return [
        Cell(tokenizer, model, seed, rate, text)
        for seed in study.trial_seeds
        for rate in study.learning_rate.search
        for model in study.models
        for tokenizer in tokenizer_sources(study)
        for text in study.text_names
    ]
