"""What the arc has done and found out."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bytemill.analysis.summary import token_to_dict, training_to_dict

if TYPE_CHECKING:
    from bytemill.tokenizer.training_report import TrainingReport


@dataclass(frozen=True)
class Part:
    """The text of training or of validation, and its shards."""

    text_file: str
    shard_folder: str
    n_documents: int
    n_bytes: int
    n_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """With the tokens that end documents."""
        return self.n_bytes / self.n_tokens


@dataclass(frozen=True)
class Comparison:
    """One tokenizer on the validation text."""

    name: str
    n_vocab: int
    n_tokens: int
    bytes_per_token: float
    unknown_share: float
    """Share of its tokens that stand for something outside its vocabulary, which it cannot write again."""


@dataclass(frozen=True)
class SweepPoint:
    """The tokenizer of the first merges: bytes per token by size of the vocabulary."""

    n_vocab: int
    training: float
    validation: float


@dataclass(frozen=True)
class Timing:
    """How long a step took."""

    step: str
    seconds: float


@dataclass(frozen=True)
class Score:
    """How well the validation text is predicted, and by what."""

    name: str
    loss: float
    """Nats a token."""
    perplexity: float
    bits_per_byte: float


@dataclass(frozen=True)
class Sample:
    """What the model goes on with."""

    prompt: str
    text: str


@dataclass(frozen=True)
class ModelResult:
    """A small language model, its training and what it learnt."""

    folder: str
    """Of its run."""
    n_parameters: int
    n_steps: int
    n_tokens: int
    """Tokens it was trained on, repeated ones counted again."""
    device: str
    curve: list[tuple[int, float]]
    """(step, mean training loss since the one before)"""
    validation_curve: list[tuple[int, float]]
    scores: list[Score]
    """On the validation text: uniform, unigram, the model."""
    samples: list[Sample]


@dataclass(frozen=True)
class QuickstartResult:
    """What the arc has done and found out."""

    folder: str
    tokenizer_file: str
    report_file: str
    corpus: str
    """What the text is."""
    training: Part
    validation: Part
    n_vocab: int
    fingerprint: str
    training_report: TrainingReport
    comparison: list[Comparison]
    """On the validation documents without the tokens between them; the tokenizer itself comes last."""
    sweep: list[SweepPoint]
    vocabulary_token_sizes: dict[int, int]
    """Bytes -> how many ordinary tokens of the vocabulary have that many."""
    text_token_sizes: dict[int, int]
    """Bytes -> how many tokens of the validation text have that many."""
    vocabulary_use: float
    """Share of the vocabulary that the training text uses."""
    longest_tokens: list[tuple[int, bytes]]
    """(id, bytes), the longest first."""
    longest_words: list[tuple[int, bytes]]
    """The same of the tokens that are letters and at most a space before them."""
    first_merges: list[tuple[bytes, bytes]]
    first_merge_counts: list[int]
    """How often the pair of each stood in the training text when it was merged."""
    model: ModelResult | None
    """None where none was asked for, or torch is missing."""
    model_note: str | None
    """Why there is no model."""
    timings: list[Timing]

    @property
    def seconds(self) -> float:
        """Wall-clock seconds in all, without writing the report."""
        return sum(timing.seconds for timing in self.timings)

    @property
    def commands(self) -> list[tuple[str, str]]:
        """What to do next: (what it does, the command)."""
        tokenizer, shards = shlex.quote(self.tokenizer_file), shlex.quote(self.training.shard_folder)
        model = [] if self.model is None else self._model_commands(shlex.quote(self.model.folder))
        return [
            *model,
            ("see how a text splits", f"bytemill tokenizer inspect {tokenizer} \"It's naïve, isn't it?\""),
            ("and why it splits so", f'bytemill tokenizer inspect {tokenizer} "unbelievable" --explain'),
            ("look into the vocabulary", f"bytemill tokenizer show {tokenizer}"),
            ("check the shards", f"bytemill data info {shards} --verify"),
            ("train on text of your own", "bytemill tokenizer train FILE... --vocab-size 32000"),
        ]

    @staticmethod
    def _model_commands(folder: str) -> list[tuple[str, str]]:
        return [
            (
                "let the model write",
                f'bytemill lm generate {folder} "The function returns" --temperature 0.8',
            ),
            (
                "and see how sure it was",
                f'bytemill lm generate {folder} "The" --max-tokens 8 --show-probabilities',
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The result for JSON; tokens as text and as bytes in hexadecimal."""
        return {
            **asdict(self),
            "training_report": training_to_dict(self.training_report),
            "longest_tokens": _tokens(self.longest_tokens),
            "longest_words": _tokens(self.longest_words),
            "first_merges": [
                [token_to_dict(left), token_to_dict(right)] for left, right in self.first_merges
            ],
            "seconds": self.seconds,
        }


def _tokens(tokens: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
    return [{"id": token_id, **token_to_dict(token)} for token_id, token in tokens]
