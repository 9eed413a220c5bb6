"""The models of a study: tokenizers × shapes × seeds, in an order that keeps an interrupted study balanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.experiment.study import Study


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

    @property
    def name(self) -> str:
        """Name of its folder.

        >>> Cell("own-8k", "tiny", 0).name, Cell("own-8k", "tiny", 0, 1e-3).name
        ('own-8k.tiny.seed0', 'own-8k.tiny.seed0.rate0.001')
        """
        trial = "" if self.trial_rate is None else f".rate{self.trial_rate:g}"
        return f"{self.tokenizer}.{self.model}.seed{self.seed}{trial}"


def tokenizer_sources(study: Study) -> dict[str, TokenizerSource]:
    """Return the tokenizers by name; a grid adds what differs to the name, as in own-8000-gpt2-english."""
    sources: dict[str, TokenizerSource] = {}
    for name, own in study.tokenizers.items():
        if own.load:
            sources[name] = TokenizerSource(name, own.load)
            continue
        texts = own.texts or {"": ()}
        for size in own.vocab_sizes:
            for pattern in own.patterns:
                for text, inputs in texts.items():
                    parts = [name]
                    parts += [str(size)] * (len(own.vocab_sizes) > 1)
                    parts += [pattern] * (len(own.patterns) > 1)
                    parts += [text] * (len(texts) > 1)
                    full = "-".join(parts)
                    sources[full] = TokenizerSource(full, "", size, pattern, tuple(inputs))
    return sources


def cells(study: Study) -> list[Cell]:
    """Return the final models: all tokenizers and shapes of a seed before the next seed."""
    return [
        Cell(tokenizer, model, seed)
        for seed in study.seed_list
        for model in study.models
        for tokenizer in tokenizer_sources(study)
    ]


def trials(study: Study) -> list[Cell]:
    """Return the trials of the learning-rate search: all arms with a rate and a seed before the next."""
    return [
        Cell(tokenizer, model, seed, rate)
        for seed in study.trial_seeds
        for rate in study.learning_rate.search
        for model in study.models
        for tokenizer in tokenizer_sources(study)
    ]
