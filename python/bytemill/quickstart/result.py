"""Results of the quickstart."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bytemill.analysis.summary import token_to_dict, training_to_dict

if TYPE_CHECKING:
    from bytemill.tokenizer.training_report import TrainingReport


TRAINING_STEP = "training the tokenizer"


@dataclass(frozen=True)
class Part:
    """The training or the validation text, and its shards."""

    text_file: str
    shard_folder: str
    n_documents: int
    n_bytes: int
    n_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """Compression ratio, counting the tokens that end documents."""
        return self.n_bytes / self.n_tokens


@dataclass(frozen=True)
class Comparison:
    """One tokenizer, measured on the validation text."""

    name: str
    n_vocab: int
    n_tokens: int
    bytes_per_token: float
    unknown_share: float
    """Share of tokens that stand for text outside the vocabulary and cannot be decoded."""

    @property
    def is_lossy(self) -> bool:
        """Whether the tokenizer lost some of the text, so that its ratio is not comparable."""
        return self.unknown_share > 0


@dataclass(frozen=True)
class SweepPoint:
    """Bytes per token of the tokenizer made of the first merges."""

    n_vocab: int
    training: float
    validation: float


@dataclass(frozen=True)
class Timing:
    """Duration of a step."""

    step: str
    seconds: float


@dataclass(frozen=True)
class Score:
    """How well a model predicts the validation text."""

    name: str
    loss: float
    """Nats per token."""
    perplexity: float
    bits_per_byte: float


@dataclass(frozen=True)
class Sample:
    """A prompt and the text that the model generated from it."""

    prompt: str
    text: str


@dataclass(frozen=True)
class ModelResult:
    """The small language model: size, training and scores."""

    folder: str
    """Run folder."""
    n_parameters: int
    n_steps: int
    n_tokens: int
    """Tokens read in training; those read twice count twice."""
    device: str
    curve: list[tuple[int, float]]
    """(step, mean training loss since the previous record)."""
    validation_curve: list[tuple[int, float]]
    """(step, validation loss)."""
    scores: list[Score]
    """Scores of a uniform model, a unigram model and, last, the trained model."""
    samples: list[Sample]


@dataclass(frozen=True)
class QuickstartResult:
    """Files and measurements of one quickstart run."""

    folder: str
    tokenizer_file: str
    report_file: str
    corpus: str
    """Description or names of the text files."""
    training: Part
    validation: Part
    n_vocab: int
    fingerprint: str
    training_report: TrainingReport
    comparison: list[Comparison]
    """Measured on the validation documents without separators; the trained tokenizer is the last one."""
    sweep: list[SweepPoint]
    vocabulary_token_sizes: dict[int, int]
    """Number of ordinary tokens in the vocabulary by size in bytes."""
    text_token_sizes: dict[int, int]
    """Number of tokens in the validation text by size in bytes."""
    vocabulary_use: float
    """Share of the vocabulary that occurs in the training text."""
    longest_tokens: list[tuple[int, bytes]]
    """(id, bytes), longest first."""
    longest_words: list[tuple[int, bytes]]
    """The same for tokens of letters only, optionally after one space."""
    first_merges: list[tuple[bytes, bytes]]
    first_merge_counts: list[int]
    """Count of each pair in the training text when it was merged."""
    model: ModelResult | None
    """None if disabled, or if torch is not installed."""
    model_note: str | None
    """Reason why there is no model."""
    timings: list[Timing]

    @property
    def seconds(self) -> float:
        """Total wall-clock time, without writing the report."""
        return sum(timing.seconds for timing in self.timings)

    @property
    def tokenizer_seconds(self) -> float:
        """Wall-clock time of training and saving the tokenizer."""
        return next(timing.seconds for timing in self.timings if timing.step == TRAINING_STEP)

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Suggested next commands as (purpose, command)."""
        tokenizer, shards = shlex.quote(self.tokenizer_file), shlex.quote(self.training.shard_folder)
        model = [] if self.model is None else [f"bytemill lm generate {shlex.quote(self.model.folder)}"]
        return [
            *(
                ("generate text", f'{generate} "The function returns" --temperature 0.8')
                for generate in model
            ),
            *(
                ("show token probabilities", f'{generate} "The" --max-tokens 8 --show-probabilities')
                for generate in model
            ),
            ("show how a text splits", f"bytemill tokenizer inspect {tokenizer} \"It's naïve, isn't it?\""),
            (
                "explain the merges of a word",
                f'bytemill tokenizer inspect {tokenizer} "unbelievable" --explain',
            ),
            ("show the vocabulary", f"bytemill tokenizer show {tokenizer}"),
            ("verify the shards", f"bytemill data info {shards} --verify"),
            ("train on your own text", "bytemill tokenizer train FILE... --vocab-size 32000"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; tokens become text and hexadecimal bytes."""
        return {
            **asdict(self),
            "training_report": training_to_dict(self.training_report),
            "longest_tokens": _tokens(self.longest_tokens),
            "longest_words": _tokens(self.longest_words),
            "first_merges": [
                [token_to_dict(left), token_to_dict(right)] for left, right in self.first_merges
            ],
            "seconds": self.seconds,
            "tokenizer_seconds": self.tokenizer_seconds,
        }


def _tokens(tokens: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
    return [{"id": token_id, **token_to_dict(token)} for token_id, token in tokens]
