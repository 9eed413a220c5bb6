"""Continuous batching: rows that other texts take over give what each text gives alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill.lm.generation.decoding import continuations, generate, sample_continuations
from bytemill.lm.generation.rows import RowDecoder
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.model import KVCache, ModelConfig, TransformerLM
from tests.lm.conftest import sizes
from tests.lm.mixers.conftest import SHAPES as MIXERS

CONTEXT = 16
SHAPES: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"attention": {"sliding_window": 5, "num_kv_heads": 2}},
    "window of one": {"attention": {"sliding_window": 1}},
    "windows of some layers": {"mixer": ["window:4", "full:nope"]},
    "learned positions": {"position": "learned", "norm": "layer", "feed_forward": "gelu"},
    "experts": {"feed_forward": "moe", "moe": {"experts": 3}},
    **MIXERS,
}


def model_of(name: str) -> TransformerLM:
    shape = {**sizes(50, CONTEXT, 24, 2, 4, 24), **SHAPES[name]}
    model = TransformerLM(ModelConfig(**shape), seed=3, dtype=torch.float64)
    with torch.no_grad():
        model.lm_head.weight.mul_(4)  # so that likely ids are likely
    return model.eval()


prompts = st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=CONTEXT + 12), min_size=1, max_size=5)


@pytest.mark.parametrize("name", SHAPES)
@given(
    prompts=prompts,
    n_rows=st.integers(1, 8),
    max_tokens=st.integers(1, 12),
    stop_every=st.integers(2, 50),
    temperature=st.sampled_from([0, 0.8]),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=5)
def test_a_text_does_not_depend_on_the_others_their_number_and_order(
    name: str,
    prompts: list[list[int]],
    n_rows: int,
    max_tokens: int,
    stop_every: int,
    temperature: float,
    order: Any,
) -> None:
    model = model_of(name)
    options: dict[str, Any] = {
        "parameters": SamplingParameters(temperature=temperature, repetition_penalty=1.2),
        "stop_ids": set(range(0, 50, stop_every)),
        "excluded_ids": {7},
    }
    alone = [
        sample_continuations(model, [prompt], max_tokens, seeds=[seed], **options)[0]
        for seed, prompt in enumerate(prompts)
    ]
    if temperature == 0:  # and the reference reads all ids again for every token
        assert alone == [
            generate(
                model,
                prompt,
                max_tokens,
                temperature=0,
                repetition_penalty=1.2,
                stop_ids=options["stop_ids"],
                excluded_ids={7},
                use_cache=False,
            )[0]
            for prompt in prompts
        ]
    numbers = list(range(len(prompts)))
    order.shuffle(numbers)
    together = dict(
        continuations(
            model, [prompts[n] for n in numbers], max_tokens, seeds=numbers, n_rows=n_rows, **options
        )
    )
    assert [together[numbers.index(n)] for n in range(len(prompts))] == alone


def test_rows_are_taken_over_as_soon_as_they_are_free() -> None:
    model = model_of("full")
    calls: list[int] = []
    forward = model.forward

    def counted(ids: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        calls.append(ids.shape[0] if ids.shape[1] == 1 else 0)
        return forward(ids, *arguments, **options)

    model.forward = counted  # type: ignore[method-assign]
    # Prompts 0 … 5 generate 1, 8, 1, 1, 1 and 1 tokens: in batches of two, the second would wait for the first.
    n_new = [0] * 6

    def is_last(token: Any) -> bool:
        n_new[token.sample] += 1
        return n_new[token.sample] == (8 if token.sample == 1 else 1)

    found = list(
        continuations(model, [[n + 1, 2] for n in range(6)], 20, seeds=range(6), n_rows=2, is_last=is_last)
    )
    assert [index for index, _ in found] == [0, 2, 3, 4, 5, 1]
    assert sum(n > 0 for n in calls) == 7  # single tokens, all beside the long one
    assert n_new == [1, 8, 1, 1, 1, 1]


def test_equal_prompts_are_read_once() -> None:
    model = model_of("full")
    decoder = RowDecoder(model)
    shapes: list[tuple[int, ...]] = []
    forward = model.forward

    def recorded(ids: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        shapes.append(tuple(ids.shape))
        return forward(ids, *arguments, **options)

    model.forward = recorded  # type: ignore[method-assign]
    logits = decoder.logits_after({0: [1, 2, 3], 1: [1, 2, 3], 2: [4, 5, 6]})
    assert shapes == [(2, 3)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


def test_more_texts_than_rows_are_refused() -> None:
    decoder = RowDecoder(model_of("full"))
    decoder.logits_after({0: [1, 2]})
    with pytest.raises(ValueError, match="2 texts for 1 rows"):
        decoder.logits_after({0: [1, 2, 3], 1: [1]})


@pytest.mark.parametrize("name", SHAPES)
@torch.inference_mode()
def test_a_cache_is_aligned_and_takes_rows_from_another(name: str) -> None:
    model = model_of(name)
    ids = torch.randint(50, (3, 9), generator=torch.Generator().manual_seed(2))
    cache, other = (
        KVCache(model.config, 2, dtype=torch.float64),
        KVCache(model.config, 1, dtype=torch.float64),
    )
    model(ids[:2], cache)
    model(ids[2:, :4], other)
    cache.align(12)
    cache.put([1], other)
    cache.align(9)
    assert cache.n_padding is not None
    assert cache.n_padding.tolist() == [0, 5]
    ours = model(torch.tensor([[11], [12]]), cache)[:, 0]
    torch.testing.assert_close(ours[0], model(torch.cat((ids[0], torch.tensor([11]))))[-1])
    torch.testing.assert_close(ours[1], model(torch.cat((ids[2, :4], torch.tensor([12]))))[-1])
