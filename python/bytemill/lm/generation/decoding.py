"""Generate tokens with a model, one after another: the context window, and the loop of each kind of decoder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from bytemill.errors import RunConfigError
from bytemill.lm.batches import key_of
from bytemill.lm.device import shared_cores
from bytemill.lm.generation.graph_decoder import Fetched, GraphDecoder
from bytemill.lm.generation.rows import RowDecoder
from bytemill.lm.generation.sampling import SamplingParameters, draw, draw_rows, next_log_probabilities
from bytemill.lm.generation.speculative import Reader, Speculation, speculate
from bytemill.lm.generation.window import window_start
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from torch import Tensor

    from bytemill.lm.model import TransformerLM


Precision = Literal["auto", "float32", "bfloat16"]
"""Type of matrix products; "auto" is bfloat16 on NVIDIA GPUs that have it, elsewhere the type of the weights."""


@dataclass(slots=True)
class NextToken:
    """A new token of a sample."""

    sample: int
    """Index of the sample."""
    id: int
    window_start: int
    """Position of the first id that the model read; see `window_start`."""
    _distribution: Callable[[int], tuple[Tensor, Tensor]] = field(repr=False, compare=False)

    @property
    def logits(self) -> Tensor:
        """(vocab_size,), from the model; −∞ for excluded ids."""
        return self._distribution(self.sample)[0]

    @property
    def log_probabilities(self) -> Tensor:
        """(vocab_size,), after temperature and cut-offs; the token was sampled from these."""
        return self._distribution(self.sample)[1]


def generate(
    model: TransformerLM,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    stop_ids: Collection[int] = (),
    excluded_ids: Collection[int] = (),
    n_samples: int = 1,
    seed: int | None = None,
    use_cache: bool = True,
    precision: Precision = "auto",
    speculation: Speculation | None = None,
) -> list[list[int]]:
    """Continue `prompt`, and return the new ids of each sample.

    Args:
        model: Model; it is set to evaluation mode.
        prompt: Ids to continue, at least one.
        max_tokens: Maximum number of new tokens per sample.
        temperature: See `SamplingParameters`, also for `top_k`, `top_p`, `min_p`, `repetition_penalty` and
            `no_repeat_ngram`.
        stop_ids: A sample ends after one of these ids.
        excluded_ids: These ids are never sampled; `ids_without_token` returns those that no text has.
        n_samples: Number of samples. Sample i of a seed does not depend on it.
        seed: Seed of the sampling; by default random.
        use_cache: Cache keys and values; the ids are the same without.
        precision: See `Precision`.
        speculation: Have a draft guess tokens: the distribution of the samples is the same, the samples of a seed are
            not, but with temperature 0. It counts the guesses that were kept.

    Raises:
        RunConfigError: The prompt is empty or has ids that the model lacks, an argument is out of range, or the draft
            does not fit the model.
        NotFiniteError: The weights or the logits are not finite.
    """
    parameters = SamplingParameters(
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    samples: list[list[int]] = [[] for _ in range(n_samples)]
    for token in next_tokens(
        model,
        prompt,
        max_tokens,
        parameters,
        stop_ids=stop_ids,
        excluded_ids=excluded_ids,
        n_samples=n_samples,
        seed=seed,
        use_cache=use_cache,
        precision=precision,
        with_logits=False,
        speculation=speculation,
    ):
        samples[token.sample].append(token.id)
    return samples


def next_tokens(
    model: TransformerLM,
    prompt: Sequence[int],
    max_tokens: int,
    parameters: SamplingParameters | None = None,
    *,
    stop_ids: Collection[int] = (),
    excluded_ids: Collection[int] = (),
    n_samples: int = 1,
    seed: int | None = None,
    use_cache: bool = True,
    precision: Precision = "auto",
    with_logits: bool = True,
    is_last: Callable[[NextToken], bool] | None = None,
    speculation: Speculation | None = None,
    first_ids: Collection[int] | None = None,
) -> Iterator[NextToken]:
    """Yield tokens like `generate`, with samples interleaved; with a draft, one sample after the other.

    When the context is full, its older half is dropped; see `window_start`.

    Args:
        model: As in `generate`, like all parameters that are not listed here.
        parameters: How to sample.
        with_logits: Tokens need their logits and log-probabilities, which a GPU otherwise overwrites.
        is_last: Return True if the sample ends after the token.
        first_ids: The first token of each sample is one of these; by default, any.

    Raises:
        RunConfigError: As in `generate`.
    """
    _check(model, prompt, max_tokens, n_samples)
    parameters = parameters or SamplingParameters()
    # One generator per sample, on the CPU: samples do not depend on their number or on the device.
    base = int(torch.randint(2**62, ())) if seed is None else seed
    generators = [torch.Generator().manual_seed(key_of(base, sample) >> 1) for sample in range(n_samples)]
    request = _Request(
        model.eval(),
        [list(prompt) for _ in range(n_samples)],
        list(range(n_samples)),
        max_tokens,
        parameters,
        generators,
        sorted(excluded_ids),
        _dtype(model, precision),
        with_logits,
        n_samples,
        None if first_ids is None else sorted(set(range(model.config.vocab_size)) - set(first_ids)),
    )
    if speculation is not None:
        speculation.check(model)
        steps = _speculative_steps(request, speculation)
        yield from _until_ended(request, steps, stop_ids, is_last)
        return
    yield from _tokens(request, use_cache=use_cache, stop_ids=stop_ids, is_last=is_last)


def sample_continuations(
    model: TransformerLM,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    seeds: Sequence[int],
    **options: Any,
) -> list[list[int]]:
    """Continue prompts, each once.

    Args:
        model: As in `continuations`, like all parameters.
        prompts: Ids of each prompt.
        max_tokens: Maximum number of new tokens of each.
        seeds: Seed of each continuation.
        options: Further arguments of `continuations`.

    Returns:
        The new ids of each prompt, with the stop id at their end if there was one.

    Raises:
        RunConfigError: As in `generate`.
    """
    found = dict(continuations(model, prompts, max_tokens, seeds=seeds, **options))
    return [found[index] for index in range(len(prompts))]


def continuations(
    model: TransformerLM,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    seeds: Sequence[int],
    n_rows: int | None = None,
    parameters: SamplingParameters | None = None,
    stop_ids: Collection[int] = (),
    excluded_ids: Collection[int] = (),
    precision: Precision = "auto",
    is_last: Callable[[NextToken], bool] | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Continue prompts in the rows of a batch, and yield each continuation as it ends.

    The next prompt takes the row of a continuation that has ended. What a prompt is continued with does not depend on
    the others, but for the rounding of products of several rows. On GPUs, whose decoder has no padding, prompts of each
    length make batches of their own.

    Args:
        model: As in `generate`, like all parameters that are not listed here.
        prompts: Ids of each prompt.
        max_tokens: Maximum number of new tokens of each.
        seeds: Seed of each continuation.
        n_rows: Number of rows; by default that of the prompts.
        is_last: Return True if the continuation ends after the token; its `sample` is the index of the prompt.

    Yields:
        The index of a prompt, and its new ids, with the stop id at their end if there was one.

    Raises:
        RunConfigError: As in `generate`.
    """
    for prompt in prompts:
        _check(model, prompt, max_tokens, 1)
    parameters = parameters or SamplingParameters()
    n_rows = n_rows or max(1, len(prompts))
    batches = [list(range(len(prompts)))]
    if GraphDecoder.supports(model, parameters):
        ordered = sorted(batches[0], key=lambda i: len(prompts[i]))
        groups = [list(group) for _, group in groupby(ordered, key=lambda i: len(prompts[i]))]
        batches = [own[first : first + n_rows] for own in groups for first in range(0, len(own), n_rows)]
    for batch in batches:
        if not max_tokens:
            yield from ((index, []) for index in batch)
            continue
        request = _Request(
            model.eval(),
            [list(prompts[i]) for i in batch],
            list(range(len(batch))),
            max_tokens,
            parameters,
            [torch.Generator().manual_seed(seeds[i]) for i in batch],
            sorted(excluded_ids),
            _dtype(model, precision),
            with_logits=False,
            n_rows=n_rows,
        )
        found: list[list[int]] = [[] for _ in batch]

        def ends(token: NextToken, batch: list[int] = batch) -> bool:
            return is_last is not None and is_last(replace(token, sample=batch[token.sample]))

        for token in _tokens(request, stop_ids=stop_ids, is_last=None if is_last is None else ends):
            found[token.sample].append(token.id)
            if token.sample not in request.running:
                yield batch[token.sample], found[token.sample]


def _tokens(
    request: _Request,
    *,
    use_cache: bool = True,
    stop_ids: Collection[int] = (),
    is_last: Callable[[NextToken], bool] | None = None,
) -> Iterator[NextToken]:
    model = request.model
    is_fast = (
        use_cache and request.excluded_first is None and GraphDecoder.supports(model, request.parameters)
    )
    steps = _fast_steps(request) if is_fast else _plain_steps(request, use_cache=use_cache)
    yield from _until_ended(request, steps, stop_ids, is_last)


def _until_ended(
    request: _Request,
    steps: Iterator[Iterator[NextToken]],
    stop_ids: Collection[int],
    is_last: Callable[[NextToken], bool] | None,
) -> Iterator[NextToken]:
    """Yield the tokens of all steps, and note which samples have ended, until all have."""
    n_new = [0] * len(request.rows)
    with shared_cores(request.model.lm_head.weight.device):
        for tokens in steps:
            for token in tokens:
                n_new[token.sample] += 1
                is_stop = (is_last is not None and is_last(token)) or token.id in stop_ids
                if is_stop or n_new[token.sample] == request.max_tokens:
                    request.running.remove(token.sample)
                yield token
            if not request.running:
                return


@dataclass(frozen=True)
class _Request:
    """What to generate."""

    model: TransformerLM
    rows: list[list[int]]
    """Ids of each sample so far; a step appends an id."""
    running: list[int]
    """Samples that have not ended, also those that have not begun."""
    max_tokens: int
    parameters: SamplingParameters
    generators: list[torch.Generator]
    excluded_ids: list[int]
    dtype: torch.dtype | None
    """Type of matrix products; None: that of the weights."""
    with_logits: bool
    n_rows: int
    """Samples that are generated together."""
    excluded_first: list[int] | None = None
    """Ids that the first token of a sample is not."""


def _dtype(model: TransformerLM, precision: Precision) -> torch.dtype | None:
    weight = model.lm_head.weight
    if precision == "auto":
        has_bfloat16 = weight.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
        is_narrower = weight.dtype == torch.float32 and has_bfloat16 and model.kernels.decoding is not None
        return torch.bfloat16 if is_narrower else None
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]


def _fast_steps(request: _Request) -> Iterator[Iterator[NextToken]]:
    """Generate with `GraphDecoder`: but after a prompt, the next step begins before the tokens of one are yielded."""
    rows, context_length = request.rows, request.model.config.context_length
    decoder = GraphDecoder(
        request.model,
        min(context_length, len(rows[0]) + request.max_tokens),
        request.dtype or request.model.lm_head.weight.dtype,
        request.parameters,
        request.generators,
        excluded_ids=request.excluded_ids,
    )
    pending: Fetched | None = None
    start = -1
    for _ in range(request.max_tokens):
        own = window_start(len(rows[0]) + (pending is not None), context_length)
        if own != start:
            if pending is not None:
                yield _arrived(request, pending, start)
                pending = None
            start = own
            decoder.read([row[start:] for row in rows])
            yield _arrived(request, decoder.fetch(with_logits=request.with_logits), start)
            continue
        decoder.advance()
        fetched = decoder.fetch(with_logits=request.with_logits)
        if pending is not None:
            yield _arrived(request, pending, start)
        pending = fetched
    if pending is not None:
        yield _arrived(request, pending, start)


def _arrived(request: _Request, fetched: Fetched, start: int) -> Iterator[NextToken]:
    """Append the ids to all rows, and yield the tokens of those that are running."""
    ids, logits = fetched.ids(), fetched.logits
    if min(ids) < 0:
        raise not_finite(request.model)
    for row, chosen in zip(request.rows, ids, strict=True):
        row.append(chosen)

    @cache
    def distribution(sample: int) -> tuple[Tensor, Tensor]:
        if logits is None:
            raise RuntimeError("the logits were overwritten; generate with `with_logits=True`")
        own = logits[sample].cpu().clone()  # a clone of an inference tensor is not one
        own[request.excluded_ids] = -torch.inf
        return own, next_log_probabilities(own, request.parameters)

    for sample in list(request.running):
        yield NextToken(sample, ids[sample], start, distribution)


def _speculative_steps(request: _Request, speculation: Speculation) -> Iterator[Iterator[NextToken]]:
    """Generate one sample after the other; a step is a whole sample."""
    reader = Reader(request.model, request.dtype)
    for sample in list(request.running):
        yield _speculated(request, speculation, reader, sample)
        if sample in request.running:
            request.running.remove(sample)


def _speculated(
    request: _Request, speculation: Speculation, reader: Reader, sample: int
) -> Iterator[NextToken]:
    for chosen in speculate(
        reader,
        speculation,
        request.rows[sample],
        request.max_tokens,
        request.parameters,
        generator=request.generators[sample],
        excluded_ids=request.excluded_ids,
        context_length=request.model.config.context_length,
    ):
        both = (chosen.logits, chosen.log_probabilities)
        yield NextToken(sample, chosen.id, chosen.window_start, lambda _, both=both: both)
        if sample not in request.running:
            return


def _plain_steps(request: _Request, *, use_cache: bool) -> Iterator[Iterator[NextToken]]:
    """Generate with the model's own forward pass or the core, and sample in NumPy."""
    decoder = RowDecoder(request.model, request.dtype, use_cache=use_cache)
    # All samples begin together.
    first = request.excluded_first or []
    while request.running and request.max_tokens:
        samples = request.running[: request.n_rows]
        logits = decoder.logits_after({sample: request.rows[sample] for sample in samples})
        if not np.isfinite(logits.numpy()).all():
            raise not_finite(request.model)
        logits.numpy()[:, request.excluded_ids + first] = -np.inf
        first = []
        yield _sampled(request, samples, logits)


def _sampled(request: _Request, samples: list[int], logits: Tensor) -> Iterator[NextToken]:
    generators = [request.generators[sample] for sample in samples]
    if request.parameters.keeps_all and len(samples) > 1:
        ids = draw_rows(logits, request.parameters.temperature, generators)

        def distribution(index: int, _: int) -> tuple[Tensor, Tensor]:
            return logits[index], next_log_probabilities(logits[index], request.parameters)
    else:
        log_probabilities = [
            next_log_probabilities(own, request.parameters, request.rows[sample])
            for own, sample in zip(logits, samples, strict=True)
        ]
        ids = [draw(own, generator) for own, generator in zip(log_probabilities, generators, strict=True)]

        def distribution(index: int, _: int) -> tuple[Tensor, Tensor]:
            return logits[index], log_probabilities[index]

    for index, (sample, chosen) in enumerate(zip(samples, ids, strict=True)):
        row = request.rows[sample]
        start = window_start(len(row), request.model.config.context_length)
        row.append(chosen)
        yield NextToken(sample, chosen, start, partial(distribution, index))


def _check(model: TransformerLM, prompt: Sequence[int], max_tokens: int, n_samples: int) -> None:
    if max_tokens < 0 or n_samples < 1:
        raise RunConfigError(f"max_tokens is {max_tokens} and n_samples {n_samples}", hint="choose 1 or more")
    if not prompt:
        raise RunConfigError(
            "the prompt is empty", hint="give at least one id, such as that of <|endoftext|>"
        )
    if wrong := [i for i in prompt if not 0 <= i < model.config.vocab_size]:
        raise RunConfigError(
            f"the prompt contains id {wrong[0]}, but the model has ids up to {model.config.vocab_size - 1}",
            hint="use the tokenizer that the model was trained with",
        )
