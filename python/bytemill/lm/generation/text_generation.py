"""Generate text from a prompt, with the probability of each token."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.errors import RunConfigError
from bytemill.lm.generation.generate import NextToken, next_tokens
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.generation.text_stream import TextStream
from bytemill.lm.model import softmax

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class GenerationOptions:
    """Options of text generation."""

    max_tokens: int = 256
    """Maximum number of tokens per sample."""
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    stop: tuple[str, ...] = ()
    """A sample ends before the first occurrence of one of these strings."""
    stop_at_special: bool = True
    """End a sample at the first special token."""
    n_samples: int = 1
    seed: int | None = None
    """The same seed gives the same text."""
    use_cache: bool = True


@dataclass(frozen=True)
class TokenProbability:
    """Probability of a token at one position."""

    id: int
    bytes: bytes
    probability: float
    """Probability according to the model."""
    sampled: float
    """Probability that it was sampled with, after temperature and cut-offs; 0 if it was cut off."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; `bytes` are hexadecimal."""
        text = self.bytes.decode(errors="replace")
        return {**vars(self), "bytes": self.bytes.hex(), "text": text}


@dataclass(frozen=True)
class NewText:
    """A new token, and the text that it completes."""

    sample: int
    token: NextToken | None
    """None for the remaining text at the end of a sample."""
    text: str


def start_id(tokenizer: Tokenizer, bos_id: int | None) -> int | None:
    """Return the id that the first token of a text follows: `bos_id`, else that of `<|endoftext|>`, if there is one."""
    return tokenizer.special_tokens.get("<|endoftext|>") if bos_id is None else bos_id


def prompt_ids(tokenizer: Tokenizer, prompt: str, bos_id: int | None = None) -> list[int]:
    """Encode a prompt, after the token that began every training document, if there was one.

    An empty prompt without such a token becomes `<|endoftext|>`, after which a new document starts.

    Args:
        tokenizer: The tokenizer.
        prompt: The prompt; special tokens in it are recognized.
        bos_id: Id of the token that began every training document.

    Raises:
        RunConfigError: The prompt is empty, and there is no token to start a document with.
    """
    ids = tokenizer.encode(prompt)
    start = start_id(tokenizer, bos_id) if bos_id is not None or not ids else None
    if start is not None and ids[:1] != [start]:
        ids.insert(0, start)
    if not ids:
        raise RunConfigError(
            "the prompt is empty, and the tokenizer has no <|endoftext|> to start a document with",
            hint="give a prompt, for samples during training with `bytemill lm train --run.sample-prompt TEXT`",
        )
    return ids


def ids_without_token(tokenizer: Tokenizer, n_ids: int) -> list[int]:
    """Return the ids of a model that belong to no token: gaps in the vocabulary, and padding at its end.

    Args:
        tokenizer: The tokenizer.
        n_ids: Number of ids of the model.
    """
    if len(tokenizer) == tokenizer.n_vocab:  # no gaps
        return list(range(tokenizer.n_vocab, n_ids))
    return sorted(set(range(n_ids)) - tokenizer.vocab.keys())


def generate_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    options: GenerationOptions | None = None,
    *,
    bos_id: int | None = None,
) -> Iterator[NewText]:
    """Continue `prompt` token by token, in whole characters; samples are interleaved.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        prompt: See `prompt_ids`, also for `bos_id`.
        options: Length, sampling and stops.
        bos_id: Id of the token that began every training document.

    Raises:
        RunConfigError: The prompt is empty, or has ids that the model lacks.
    """
    options = options or GenerationOptions()
    streams = [TextStream(tokenizer, options.stop) for _ in range(options.n_samples)]
    texts: dict[int, str] = {}

    def is_last(token: NextToken) -> bool:
        texts[token.sample] = streams[token.sample].feed(token.id)
        return streams[token.sample].stopped

    for token in next_tokens(
        model,
        prompt_ids(tokenizer, prompt, bos_id),
        options.max_tokens,
        options.sampling,
        stop_ids=frozenset(tokenizer.special_tokens.values()) if options.stop_at_special else (),
        n_samples=options.n_samples,
        seed=options.seed,
        use_cache=options.use_cache,
        excluded_ids=ids_without_token(tokenizer, model.config.vocab_size),
        is_last=is_last,
    ):
        yield NewText(token.sample, token, texts[token.sample])
    for sample, stream in enumerate(streams):
        if remaining := stream.finish():
            yield NewText(sample, None, remaining)


def token_probabilities(
    token: NextToken, tokenizer: Tokenizer, n_alternatives: int = 0
) -> tuple[TokenProbability, list[TokenProbability]]:
    """Return the probability of a token, and those of the `n_alternatives` most likely tokens at its position."""
    probabilities, sampled = softmax(token.logits, 0), token.log_probabilities.exp()

    def of(token_id: int) -> TokenProbability:
        token_bytes = tokenizer.decode_single_token_bytes(token_id)
        return TokenProbability(
            token_id, token_bytes, float(probabilities[token_id]), float(sampled[token_id])
        )

    n_tokens = int((token.logits > -math.inf).sum())
    best = probabilities.topk(min(n_alternatives, n_tokens)).indices
    return of(token.id), [of(int(token_id)) for token_id in best]
