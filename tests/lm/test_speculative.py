"""Speculative decoding changes neither greedy tokens nor the distribution of samples."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bytemill.errors import RunConfigError
from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.generation.decoding import generate, next_tokens
from bytemill.lm.generation.sampling import SamplingParameters, next_log_probabilities
from bytemill.lm.generation.speculative import Draft, Guess, ModelDraft, NgramDraft, Reader, Speculation
from tests.lm.conftest import sizes

CONTEXT = 24


def make_model(seed: int, d_model: int = 16, n_layers: int = 2, **options: Any) -> TransformerLM:
    config = ModelConfig(**sizes(40, CONTEXT, d_model, n_layers, 2, 32), **options)
    model = TransformerLM(config, seed=seed)
    with torch.no_grad():
        model.lm_head.weight.mul_(6)
    return model.eval()


LARGE, SMALL = make_model(3), make_model(5, 8, 1).use_kernels("auto")
DRAFTS: list[Callable[[], Draft]] = [
    NgramDraft,
    lambda: ModelDraft(SMALL),
    lambda: ModelDraft(LARGE),
]


@pytest.mark.parametrize("make", DRAFTS)
@given(
    prompt=st.lists(st.integers(0, 39), min_size=1, max_size=2 * CONTEXT),
    n_guesses=st.integers(1, 6),
    n_tokens=st.integers(1, 2 * CONTEXT),
    penalty=st.sampled_from([1.0, 1.3]),
)
def test_greedy_tokens_are_those_of_the_model(
    make: Callable[[], Draft], prompt: list[int], n_guesses: int, n_tokens: int, penalty: float
) -> None:
    options: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": penalty, "excluded_ids": [7, 8]}
    speculation = Speculation(make(), n_guesses)
    assert generate(LARGE, prompt, n_tokens, speculation=speculation, **options) == generate(
        LARGE, prompt, n_tokens, **options
    )
    assert speculation.n_kept <= speculation.n_guessed


def test_a_model_keeps_all_of_its_own_guesses() -> None:
    speculation = Speculation(ModelDraft(LARGE), 3)
    generate(LARGE, [1, 2], 20, temperature=0.0, speculation=speculation)
    assert speculation.n_kept == speculation.n_guessed > 0
    assert speculation.n_passes < 10


class BadDraft(Draft):
    """Guesses from a distribution that has nothing to do with the model's."""

    def guess(
        self,
        _ids: Sequence[int],
        n: int,
        _parameters: SamplingParameters,
        generator: torch.Generator,
        _excluded_ids: Sequence[int],
    ) -> list[Guess]:
        logits = torch.linspace(-1, 2, 40)
        log_probabilities = logits.log_softmax(0)
        drawn = torch.multinomial(log_probabilities.exp(), n, replacement=True, generator=generator)
        return [Guess(int(each), log_probabilities) for each in drawn]


@pytest.mark.parametrize("make", [*DRAFTS, BadDraft])
@pytest.mark.parametrize("parameters", [SamplingParameters(), SamplingParameters(temperature=0.7, top_k=6)])
def test_samples_have_the_distribution_of_the_model(
    make: Callable[[], Draft], parameters: SamplingParameters
) -> None:
    prompt, n_samples = [3, 1, 4, 1, 5, 3, 1], 1000
    speculation = Speculation(make(), 2)
    samples = Counter[tuple[int, ...]]()
    rows: list[list[int]] = [[] for _ in range(n_samples)]
    for token in next_tokens(
        LARGE, prompt, 2, parameters, n_samples=n_samples, seed=11, speculation=speculation
    ):
        rows[token.sample].append(token.id)
    samples.update(tuple(row) for row in rows)
    expected: dict[tuple[int, ...], float] = {}
    with torch.no_grad():
        first = next_log_probabilities(LARGE(torch.tensor(prompt))[-1], parameters, prompt).exp()
        for a in first.nonzero().flatten().tolist():
            second = next_log_probabilities(
                LARGE(torch.tensor([*prompt, a]))[-1], parameters, [*prompt, a]
            ).exp()
            for b in second.nonzero().flatten().tolist():
                expected[a, b] = float(first[a] * second[b]) * n_samples
    assert samples.keys() <= expected.keys()
    frequent = [pair for pair, count in expected.items() if count >= 5]
    observed = [samples[pair] for pair in frequent]
    wanted = [expected[pair] for pair in frequent]
    rest = n_samples - sum(wanted)
    result = stats.chisquare([*observed, n_samples - sum(observed)], [*wanted, rest])
    assert len(frequent) > 5
    assert result.pvalue > 1e-3


def test_logits_are_those_of_the_model() -> None:
    prompt = [5, 9, 9, 2]
    tokens = list(
        next_tokens(LARGE, prompt, 2 * CONTEXT, seed=4, speculation=Speculation(ModelDraft(SMALL), 3))
    )
    ids = list(prompt)
    for token in tokens:
        with torch.no_grad():
            logits = LARGE(torch.tensor(ids[token.window_start :]))[-1]
        torch.testing.assert_close(token.logits, logits, rtol=1e-4, atol=1e-4)
        ids.append(token.id)


def test_ngrams_guess_what_followed_before() -> None:
    def guess(ids: list[int], n: int, excluded: Sequence[int] = ()) -> list[int]:
        found = NgramDraft(3).guess(ids, n, SamplingParameters(), torch.Generator(), excluded)
        return [each.id for each in found]

    assert guess([1, 2, 3, 4, 9, 1, 2, 3], 2) == [4, 9]
    assert guess([1, 2, 5, 2, 6, 1, 2], 1) == [5]  # the longer match wins
    assert guess([1, 2, 3], 4) == []
    assert guess([1, 2, 3, 4, 9, 1, 2, 3], 3, [9]) == [4]


def test_what_cannot_be_speculated_is_an_error() -> None:
    with pytest.raises(RunConfigError, match="guesses 0 tokens"):
        generate(LARGE, [1], 4, speculation=Speculation(NgramDraft(), 0))
    other = TransformerLM(ModelConfig(**sizes(41, CONTEXT, 8, 1, 2, 16)), seed=1)
    with pytest.raises(RunConfigError, match="the draft model has 41 ids"):
        generate(LARGE, [1], 4, speculation=Speculation(ModelDraft(other)))
    window = make_model(1, attention={"sliding_window": 5})
    with pytest.raises(RunConfigError, match="attend to all tokens"):
        generate(window, [1], 4, speculation=Speculation(NgramDraft()))


@pytest.mark.slow
def test_a_thousand_greedy_prompts_are_identical() -> None:
    random = np.random.default_rng(0)
    for number in range(1000):
        prompt = random.integers(0, 40, random.integers(1, 20)).tolist()
        draft = (NgramDraft(), ModelDraft(SMALL))[number % 2]
        expected = generate(LARGE, prompt, 30, temperature=0.0)
        assert generate(LARGE, prompt, 30, temperature=0.0, speculation=Speculation(draft)) == expected


def test_a_reader_forgets_rejected_ids() -> None:
    reader, random = Reader(LARGE), np.random.default_rng(1)
    ids = [4, 8]
    for _ in range(40):
        guesses = random.integers(0, 40, random.integers(0, 4)).tolist()
        if len(ids) + len(guesses) > CONTEXT:
            break
        found = reader.logits_after([*ids, *guesses], len(guesses) + 1)
        with torch.no_grad():
            expected = LARGE(torch.tensor([*ids, *guesses]))[-len(guesses) - 1 :]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        ids += [*guesses[:1], int(random.integers(0, 40))]
