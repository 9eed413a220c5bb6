"""Continue many prompts: whole texts, in the rows of one batch, as they end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bytemill.lm.batches import key_of
from bytemill.lm.generation.decoding import continuations
from bytemill.lm.generation.text_generation import TextStream, ids_without_token

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bytemill.lm.generation.decoding import NextToken
    from bytemill.lm.generation.text_generation import GenerationOptions
    from bytemill.lm.model import TransformerLM
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Continuation:
    """A sample of a prompt that has ended."""

    prompt: int
    """Number of the prompt."""
    sample: int
    """Number of the sample of that prompt, from 0."""
    ids: list[int]
    text: str
    is_ended: bool
    """It ended by itself, at a stop string or a special token, and not at the maximum number of tokens."""


def continue_prompts(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompts: Mapping[int, Sequence[int]],
    options: GenerationOptions,
    *,
    n_rows: int,
) -> Iterator[Continuation]:
    """Continue prompts, and yield their samples as they end.

    A sample is determined by the seed and the numbers of its prompt and of itself, whatever the other prompts are.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        prompts: Ids by the number of a prompt.
        options: Length, sampling and stops. There are no logits and no draft, and there is always a cache.
        n_rows: Number of samples that are generated together.

    Raises:
        RunConfigError: A prompt is empty, or has ids that the model lacks.
        NotFiniteError: The weights or the logits are not finite.
    """
    rows = [(number, sample) for number in prompts for sample in range(options.n_samples)]
    base = int(torch.randint(2**62, ())) if options.seed is None else options.seed
    stop_ids = frozenset(tokenizer.special_tokens.values() if options.stop_at_special else ())
    streams: dict[int, TextStream] = {}
    texts: dict[int, str] = {}

    def is_last(token: NextToken) -> bool:
        row = token.sample
        if row not in streams:
            streams[row], texts[row] = TextStream(tokenizer, options.stop), ""
        texts[row] += streams[row].feed(token.id)
        return streams[row].stopped

    for row, ids in continuations(
        model,
        [prompts[number] for number, _ in rows],
        options.max_tokens,
        seeds=[key_of(base, number, sample) >> 1 for number, sample in rows],
        n_rows=n_rows,
        parameters=options.sampling,
        stop_ids=stop_ids,
        excluded_ids=ids_without_token(tokenizer, model.config.vocab_size),
        precision=options.precision,
        is_last=is_last,
    ):
        stream = streams.pop(row)
        is_ended = stream.stopped or ids[-1] in stop_ids
        yield Continuation(*rows[row], ids, texts.pop(row) + stream.finish(), is_ended)


def in_order(found: Iterator[Continuation], n_prompts: int, n_samples: int) -> Iterator[Continuation]:
    """Yield continuations by the numbers of prompt and sample, 0, 1, 2, …, each once those before it have ended."""
    waiting: dict[tuple[int, int], Continuation] = {}
    keys = ((prompt, sample) for prompt in range(n_prompts) for sample in range(n_samples))
    for key in keys:
        while key not in waiting:
            new = next(found)
            waiting[new.prompt, new.sample] = new
        yield waiting.pop(key)
