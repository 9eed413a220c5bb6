"""Generation: sampling, equal ids with and without cache, whole characters, stop strings."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

import bytemill
from bytemill.errors import RunConfigError
from bytemill.lm.generation.decoding import (
    SamplingParameters,
    draw,
    generate,
    next_log_probabilities,
    next_tokens,
    sample_continuations,
)
from bytemill.lm.generation.sampling import draw_rows
from bytemill.lm.generation.text_generation import (
    GenerationOptions,
    StopStrings,
    TextStream,
    generate_text,
    healed,
    ids_without_token,
    token_probabilities,
)
from bytemill.lm.model import KVCache, ModelConfig, TransformerLM
from bytemill.lm.model_config import AttentionConfig
from tests.lm.conftest import sizes

BYTES = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
GREEDY = SamplingParameters(temperature=0)
logit_rows = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=12)


def kept(x: torch.Tensor) -> set[int]:
    return {int(i) for i in (x > -math.inf).nonzero()}


@example([0.5, -1e-45, 0.0], 1.0, 0, 0.5, 0.0)
@given(logit_rows, st.floats(0.1, 3), st.integers(0, 5), st.floats(0.05, 1), st.floats(0, 1))
def test_cut_offs_equal_their_definitions(
    row: list[float], temperature: float, top_k: int, top_p: float, min_p: float
):
    logits = torch.tensor(row)
    parameters = SamplingParameters(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    result = next_log_probabilities(logits, parameters)
    assert result.exp().sum().item() == pytest.approx(1, abs=1e-5)
    # Reference implementation: a sorted list, one candidate after the other.
    weights = [math.exp((x - max(row)) / temperature) for x in row]
    order = sorted(range(len(row)), key=lambda i: -row[i])[: top_k or None]
    total, reached, nucleus = sum(weights[i] for i in order), 0.0, list[int]()
    for i in order:
        if reached < top_p * total:
            nucleus.append(i)
        reached += weights[i]
    expected = [i for i in nucleus if weights[i] >= min_p * weights[nucleus[0]]]
    on_the_edge = any(abs(weights[i] / weights[order[0]] - min_p) < 1e-4 for i in order) or any(
        abs(sum(weights[i] for i in order[:n]) / total - top_p) < 1e-4 for n in range(len(order) + 1)
    )
    # Values that are equal in float32 after the division are a tie; either may be kept.
    is_tied = any(after - before < 1e-4 for before, after in pairwise(sorted(row)))
    if not on_the_edge and not is_tied:
        assert kept(result) == set(expected)
        for i in expected:
            share = weights[i] / sum(weights[j] for j in expected)
            assert result[i].exp().item() == pytest.approx(share, rel=1e-3, abs=1e-6)


@given(logit_rows)
def test_temperature_0_takes_the_most_likely_token(row: list[float]):
    result = next_log_probabilities(torch.tensor(row), SamplingParameters(temperature=0))
    assert kept(result) == {row.index(max(row))}
    assert draw(result) == row.index(max(row))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"temperature": 1e-30, "top_p": 0.9}, {0}),
        ({"temperature": 1e-50}, {0}),
        ({"temperature": 1e-50, "top_k": 2, "min_p": 1e-320}, {0}),
        ({"temperature": 1e300}, {0, 2, 3}),
        ({"top_p": 1e-50}, {0}),
        ({"repetition_penalty": 1e-300}, {0, 2, 3}),
        ({"repetition_penalty": 5e-324}, {0, 2, 3}),
        ({"repetition_penalty": 1e300}, {0, 2, 3}),
    ],
)
def test_extreme_values_and_minus_infinity_give_no_nan(changes: dict[str, float], expected: set[int]):
    logits = torch.tensor([1e4, -math.inf, 9999.0, -3.0])
    result = next_log_probabilities(logits, SamplingParameters(**changes), [0, 1, 3])  # pyright: ignore[reportArgumentType]
    assert kept(result) == expected
    assert draw(result) in expected
    assert result.exp().sum().item() == pytest.approx(1)


def test_repeated_tokens_are_less_likely_or_forbidden():
    logits = torch.tensor([2.0, 1.0, -1.0, 0.5])
    penalised = next_log_probabilities(logits, SamplingParameters(repetition_penalty=2.0), [0, 2])
    expected = torch.tensor([1.0, 1.0, -2.0, 0.5]).log_softmax(0)
    assert torch.allclose(penalised, expected)
    for n, history, expected_ids in (
        (1, [0, 2], {1, 3}),
        (3, [3, 0, 1, 3, 0], {0, 2, 3}),  # a third "0 1" after "3" would repeat "3 0 1"
        (2, [3, 0, 3, 1, 3], {2, 3}),
        (1, [0, 1, 2, 3], {0, 1, 2, 3}),
    ):
        own = next_log_probabilities(logits, SamplingParameters(no_repeat_ngram=n), history)
        assert kept(own) == expected_ids


@pytest.mark.parametrize("n", [1, 5, 256, 257, 1000])
def test_ids_are_drawn_as_often_as_is_likely_and_never_if_they_are_cut_off(n: int):
    random = np.random.default_rng(n)
    probabilities = random.random(n) * (random.random(n) > 0.5)
    probabilities[n // 2], probabilities[-1] = 1, n == 1
    probabilities /= probabilities.sum()
    logs = torch.from_numpy(probabilities).log().float()
    generator = torch.Generator().manual_seed(0)
    counts = np.bincount([draw(logs, generator) for _ in range(5000)], minlength=n)
    possible = probabilities > 0
    assert not counts[~possible].any()
    expected = probabilities[possible] / probabilities[possible].sum() * 5000
    assert expected.size == 1 or chisquare(counts[possible], expected).pvalue > 1e-3


@given(
    st.integers(0, 1000),
    st.sampled_from([1, 3, 255, 256, 257, 1000]),
    st.sampled_from([0.01, 0.7, 1.0, 50.0]),
)
def test_rows_are_drawn_at_once_as_each_alone(seed: int, n_ids: int, temperature: float):
    logits = 20 * torch.randn(5, n_ids, generator=torch.Generator().manual_seed(seed))
    logits[:, torch.rand(n_ids, generator=torch.Generator().manual_seed(seed)) < 0.3] = -torch.inf
    logits[:, seed % n_ids] = 0.0
    before = logits.clone()
    generators = [[torch.Generator().manual_seed(seed + row) for row in range(5)] for _ in range(2)]
    ids = draw_rows(logits, temperature, generators[0])
    alone = [next_log_probabilities(row, SamplingParameters(temperature=temperature)) for row in logits]
    assert ids == [draw(row, generator) for row, generator in zip(alone, generators[1], strict=True)]
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
    ],
)
def test_impossible_parameters_are_refused(name: str, value: Any):
    with pytest.raises(RunConfigError, match=f"{name} is"):
        SamplingParameters(**{name: value})


SHAPES: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"position": "learned", "norm": "layer", "feed_forward": "gelu"},
    "grouped": {"attention": {"num_kv_heads": 1, "sliding_window": 5}},
    "windows of some layers": {"mixer": ["window:3", "full:nope"]},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0, 0.9])
def test_the_cache_does_not_change_the_ids_even_beyond_the_context(shape: str, temperature: float):
    config = ModelConfig(**sizes(50, 12, 16, 2, 2, 32), **SHAPES[shape])
    model = TransformerLM(config, seed=1)
    with torch.no_grad():
        model.lm_head.weight.mul_(5)
    with_cache, without = (
        generate(model, [1, 2, 3], 40, temperature=temperature, seed=4, n_samples=2, use_cache=use_cache)
        for use_cache in (True, False)
    )
    assert with_cache == without
    assert [len(sample) for sample in with_cache] == [40, 40]


def test_with_a_sliding_window_the_cache_holds_the_window_alone():
    config = ModelConfig(**sizes(50, 64, 16, 2, 2, 32), attention=AttentionConfig(sliding_window=5))
    model, ids = TransformerLM(config, seed=1).eval(), torch.randint(50, (1, 40))
    cache = KVCache(config, 1)
    parts = [model(part, cache) for part in ids.split([13, 1, 2, 1, 23], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids))
    assert {layer.keys.shape[2] for layer in cache.layers} == {
        4
    }  # the fifth token of the window is the new one


def test_a_prompt_longer_than_the_context_is_read_from_its_end(model: TransformerLM):
    long = list(range(100))
    assert generate(model, long, 5, temperature=0) == generate(model, long, 5, temperature=0, use_cache=False)
    assert generate(model, long, 1, temperature=0) == generate(model, long[78:], 1, temperature=0)


def test_a_text_that_is_continued_is_the_one_that_is_generated_at_once(model: TransformerLM):
    whole = [1, 2, 3, *generate(model, [1, 2, 3], 80, temperature=0)[0]]
    for n in (24, 25, 30, 37, 38, 60):
        assert generate(model, whole[:n], 20, temperature=0) == [whole[n : n + 20]]


def test_greedy_is_the_argmax_of_the_model(model: TransformerLM):
    ids = [5, 6]
    for _ in range(10):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert generate(model, [5, 6], 10, temperature=0) == [ids[2:]]


def test_samples_depend_on_the_seed_and_not_on_each_other(model: TransformerLM):
    three = generate(model, [1], 20, seed=7, n_samples=3)
    assert generate(model, [1], 20, seed=7, n_samples=3) == three
    assert generate(model, [1], 20, seed=7)[0] == three[0]
    assert len({tuple(sample) for sample in three}) == 3
    assert generate(model, [1], 20, seed=8)[0] != three[0]
    before = torch.get_rng_state()
    generate(model, [1], 5, seed=7)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sample_ends_at_a_stop_and_the_others_continue(model: TransformerLM):
    free = generate(model, [1], 30, seed=2, n_samples=4)
    stop = free[0][3]
    stopped = generate(model, [1], 30, seed=2, n_samples=4, stop_ids={stop})
    for whole, part in zip(free, stopped, strict=True):
        end = whole.index(stop) + 1 if stop in whole else 30
        assert part == whole[:end]


def test_excluded_ids_are_not_sampled(model: TransformerLM):
    excluded = set(range(model.config.vocab_size)) - {2, 5, 8}
    drawn = list(next_tokens(model, [1], 60, seed=1, excluded_ids=excluded))
    assert {token.id for token in drawn} == {2, 5, 8}
    assert kept(drawn[0].logits) == {2, 5, 8}
    # Also if nothing else remains that does not repeat a sequence.
    assert {
        i for sample in generate(model, [1], 9, no_repeat_ngram=1, excluded_ids=excluded) for i in sample
    } == {2, 5, 8}


def test_ids_without_a_token_have_the_probability_0():
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], {"<|endoftext|>": 300})
    assert ids_without_token(tokenizer, 310) == [*range(256, 300), *range(301, 310)]
    assert ids_without_token(BYTES, 259) == [257, 258]
    config = ModelConfig(vocab_size=310, context_length=24, d_model=16, num_layers=1, num_heads=2, d_ff=32)
    model = TransformerLM(config, seed=3)
    for n_samples, use_cache in ((1, True), (1, False), (3, True)):  # the first with the core's decoder
        options = GenerationOptions(
            8, stop_at_special=False, n_samples=n_samples, seed=1, use_cache=use_cache
        )
        for new in generate_text(model, tokenizer, "Hello", options):
            if new.token is not None:
                own, best = token_probabilities(new.token, tokenizer, 310)
                assert own.id in tokenizer.vocab
                assert {each.id for each in best} == tokenizer.vocab.keys()
                assert sum(each.probability for each in best) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("use_cache", [True, False])
def test_products_in_bfloat16_are_close_to_those_in_float32(model: TransformerLM, use_cache: bool):
    narrow, wide = (
        list(next_tokens(model, [1, 2], 30, GREEDY, use_cache=use_cache, precision=precision))
        for precision in ("bfloat16", "float32")
    )
    assert len(narrow) == 30
    difference = (narrow[0].logits - wide[0].logits).abs().max()
    assert 0 < difference < 0.05 * wide[0].logits.abs().max()


def test_invalid_prompts_are_refused(model: TransformerLM):
    with pytest.raises(RunConfigError, match="empty"):
        generate(model, [], 5)
    with pytest.raises(RunConfigError, match="contains id 99999"):
        generate(model, [99_999], 5)


def test_tokens_have_probabilities_before_and_after_cut_offs(model: TransformerLM):
    (token,) = next_tokens(model, [1], 1, SamplingParameters(top_k=3, temperature=0.5), seed=1)
    with torch.inference_mode():
        expected = model(torch.tensor([[1]]))[0, -1]
    assert torch.allclose(token.logits, expected, atol=1e-5)
    assert len(kept(token.log_probabilities)) == 3
    assert token.id in kept(token.log_probabilities)


@given(st.lists(st.integers(0, 256), max_size=30))
def test_streamed_text_is_the_decoded_text(ids: list[int]):
    decoder = BYTES.stream_decoder()
    pieces = [decoder.feed(i) for i in ids]
    assert "".join(pieces) + decoder.finish() == BYTES.decode(ids)


@given(st.text(), st.integers(0, 3))
def test_streamed_text_never_splits_a_character(text: str, n_cut: int):
    data = text.encode("utf-8", "replace")
    decoder = BYTES.stream_decoder()
    shown = ""
    for byte in data[: len(data) - n_cut]:
        shown += decoder.feed(byte)
        assert text.encode("utf-8", "replace").decode().startswith(shown)


pieces = st.lists(st.text("ab<|", max_size=4), max_size=12)


@given(pieces, st.lists(st.text("ab<|", min_size=1, max_size=4), max_size=3))
def test_the_stop_string_that_ends_first_wins_however_the_text_is_split(parts: list[str], stops: list[str]):
    stop = StopStrings(stops)
    shown = "".join(stop.feed(part) for part in parts)
    if not stop.stopped:
        shown += stop.finish()
    text = "".join(parts)
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    assert stop.stopped == bool(ends)
    assert shown == (text[: min(ends)[1]] if ends else text)


def test_special_tokens_are_hidden_by_default():
    end = BYTES.eot_token
    plain, whole = TextStream(BYTES), TextStream(BYTES, show_special=True)
    assert [plain.feed(i) for i in (97, 0xC3, end, 98)] == ["a", "", "�", "b"]
    assert [whole.feed(i) for i in (97, end)] == ["a", "<|endoftext|>"]
    stopping = TextStream(BYTES, ["xy"])
    assert [stopping.feed(i) for i in b"axbxyz"] == ["a", "", "xb", "", "", ""]
    assert stopping.stopped
    assert stopping.finish() == ""


@pytest.mark.parametrize("kernels", ["scratch", "torch"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": AttentionConfig(sliding_window=4)},
        {"position": "learned"},
        {"mixer": ["window:4", "full:nope"]},
    ],
)
def test_prompts_of_unlike_length_are_continued_as_alone(kernels: Any, changes: dict[str, Any]):
    model = TransformerLM(ModelConfig(**{**sizes(23, 24, 32, 2, 4, 48), **changes}), seed=5).use_kernels(
        kernels
    )
    generator = np.random.default_rng(0)
    prompts = [
        generator.integers(0, model.config.vocab_size, length).tolist() for length in (1, 9, 3, 4, 9, 2, 6)
    ]
    for parameters, max_tokens in (
        (GREEDY, 12),
        (SamplingParameters(repetition_penalty=1.5, no_repeat_ngram=2), 12),
        (SamplingParameters(), 20),  # 9 + 20 exceed the context: one batch of each length
    ):
        stop_ids = set(range(0, model.config.vocab_size, 6))  # rows end at different times, and are left out
        options: dict[str, Any] = {"parameters": parameters, "stop_ids": stop_ids}
        together = sample_continuations(model, prompts, max_tokens, seeds=range(7), **options)
        alone = [
            sample_continuations(model, [prompt], max_tokens, seeds=[seed], **options)[0]
            for seed, prompt in enumerate(prompts)
        ]
        assert together == alone
        assert len({len(ids) for ids in together}) > 2


HEALING = bytemill.train_from_iterator(
    ["see https://a.b and http://c.d or http: on its own"] * 5, vocab_size=277
)


@pytest.fixture(scope="module")
def healing_model() -> TransformerLM:
    made = TransformerLM(ModelConfig(**sizes(HEALING.n_vocab, 24, 16, 1, 2, 32)), seed=3)
    with torch.no_grad():
        made.lm_head.weight.mul_(4)
    return made.eval()


@given(
    st.text(max_size=6)
    | st.lists(st.sampled_from(["see", " http", ":", "//", " é", "<|endoftext|>"]), max_size=5).map("".join)
)
def test_what_is_taken_back_from_a_prompt_is_the_beginning_of_the_first_tokens(prompt: str):
    ids = HEALING.encode(f"{prompt}http:")
    before, first, n_characters = healed(HEALING, ids)
    assert first is not None
    assert before == ids[:-1]
    last = HEALING.decode_bytes(ids[-1:])
    assert n_characters == len(last.decode())
    special = set(HEALING.special_tokens.values())
    expected = {i for i, token in HEALING.vocab.items() if token.startswith(last) and i not in special}
    assert set(first) == expected >= {ids[-1]}


def test_the_first_token_after_healing_has_the_distribution_of_those_that_fit(healing_model: TransformerLM):
    prompt = "see http:"
    before, first, _ = healed(HEALING, HEALING.encode(prompt))
    assert first is not None
    assert len(first) > 2
    n = 3000
    samples = generate_text(
        healing_model,
        HEALING,
        prompt,
        GenerationOptions(max_tokens=1, n_samples=n, seed=1, heal=True),
    )
    found = [new.token.id for new in samples if new.token is not None]
    assert len(found) == n
    with torch.inference_mode():
        logits = healing_model(torch.tensor([before]))[0, -1, first]
    expected = torch.softmax(logits.double(), 0)
    counts = torch.tensor([found.count(i) for i in first])
    assert counts.sum() == n
    assert chisquare(counts, (expected / expected.sum() * n).numpy()).pvalue > 1e-4


def test_healed_text_continues_the_prompt(healing_model: TransformerLM):
    for prompt in ("see http:", "see", "a", "é😀", "<|endoftext|>"):
        options = GenerationOptions(max_tokens=8, seed=3, heal=True)
        texts = list(generate_text(healing_model, HEALING, prompt, options))
        ids = [new.token.id for new in texts if new.token is not None]
        before, _, n_characters = healed(HEALING, HEALING.encode(prompt))
        whole = HEALING.decode(before + [i for i in ids if i != HEALING.special_tokens["<|endoftext|>"]])
        assert prompt + "".join(new.text for new in texts) == whole
        assert (n_characters > 0) == (len(before) < len(HEALING.encode(prompt)))


def test_healing_is_refused_where_the_text_of_a_token_is_not_known():
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words = bytemill.Tokenizer.from_huggingface(library)
    with pytest.raises(RunConfigError, match="healing needs"):
        healed(words, [0, 1])
