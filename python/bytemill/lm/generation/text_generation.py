"""Text from a prompt: tokens with the text that they make certain, and how likely they were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.attention import softmax
from bytemill.lm.generation.generate import NextToken, next_tokens
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.generation.text_stream import TextStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class GenerationOptions:
    """How much text, from what, up to where."""

    max_tokens: int = 256
    """The most tokens of a sample."""
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    stop: tuple[str, ...] = ()
    """A sample ends before the first of these strings."""
    stop_at_special: bool = True
    """A sample ends with the first special token."""
    n_samples: int = 1
    seed: int | None = None
    """The same seed gives the same text."""
    use_cache: bool = True


@dataclass(frozen=True)
class Chance:
    """How likely a token was."""

    id: int
    bytes: bytes
    probability: float
    """As the model gave it."""
    sampled: float
    """After temperature and cut-offs: 0 where it was cut off."""

    def to_dict(self) -> dict[str, Any]:
        """The chance for JSON; `bytes` in hexadecimal."""
        text = self.bytes.decode(errors="replace")
        return {**vars(self), "bytes": self.bytes.hex(), "text": text}


@dataclass(frozen=True)
class NewText:
    """A token, and the text that may be shown with it."""

    sample: int
    token: NextToken | None
    """None for what is left at the end of a sample."""
    text: str


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a prompt; of an empty one the id that ends texts, since a text begins after it.

    Raises `RunConfigError` where the prompt is empty and the tokenizer has no such id.
    """
    if prompt:
        return tokenizer.encode(prompt)
    try:
        return [tokenizer.eot_token]
    except KeyError as error:
        raise RunConfigError(
            "the tokenizer has no <|endoftext|>, after which a text could begin", hint="give a prompt"
        ) from error


def generate_text(
    model: TransformerLM, tokenizer: Tokenizer, prompt: str, options: GenerationOptions | None = None
) -> Iterator[NewText]:
    """What follows `prompt`, token by token, never half a character; the samples take turns.

    Raises `RunConfigError` for a prompt that cannot be.
    """
    options = options or GenerationOptions()
    streams = [TextStream(tokenizer, options.stop) for _ in range(options.n_samples)]
    shown: dict[int, str] = {}

    def ends(token: NextToken) -> bool:
        shown[token.sample] = streams[token.sample].feed(token.id)
        return streams[token.sample].stopped

    for token in next_tokens(
        model,
        prompt_ids(tokenizer, prompt),
        options.max_tokens,
        options.sampling,
        stop_ids=frozenset(tokenizer.special_tokens.values()) if options.stop_at_special else (),
        n_samples=options.n_samples,
        seed=options.seed,
        use_cache=options.use_cache,
        n_vocab=tokenizer.n_vocab,
        ends=ends,
    ):
        yield NewText(token.sample, token, shown[token.sample])
    for sample, stream in enumerate(streams):
        if rest := stream.finish():
            yield NewText(sample, None, rest)


def chances(token: NextToken, tokenizer: Tokenizer, n_alternatives: int = 0) -> tuple[Chance, list[Chance]]:
    """How likely a token was, and the likeliest of all, itself perhaps among them."""
    probabilities, sampled = softmax(token.logits, 0), token.log_probabilities.exp()

    def chance(token_id: int) -> Chance:
        spelled = tokenizer.decode_single_token_bytes(token_id)
        return Chance(token_id, spelled, float(probabilities[token_id]), float(sampled[token_id]))

    best = _likeliest(probabilities, n_alternatives)
    return chance(token.id), [chance(token_id) for token_id in best]


def _likeliest(probabilities: torch.Tensor, n: int) -> list[int]:
    return [int(i) for i in probabilities.topk(min(n, len(probabilities))).indices] if n else []
