"""Surprisal, stages of sampling, and traces, against torch and the model's own functions."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.lm.conftest import Corpus, sizes

from bytemill import Tokenizer
from bytemill.errors import RunConfigError
from bytemill.lm.evaluate import evaluate_text, score_text_file
from bytemill.lm.generation.decoding import SamplingParameters, next_log_probabilities, next_tokens
from bytemill.lm.inspection import sampling_stages, surprisal, trace
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.model import ModelConfig, TransformerLM

SHAPE: dict[str, Any] = sizes(300, 16, 16, 3, 4, 32)  # fmt: skip
KINDS: list[dict[str, Any]] = [
    {},
    {"attention": {"num_kv_heads": 2, "qk_norm": True}},
    {"norm_position": "post", "position": "learned", "norm": "layer"},
    {"tied_embeddings": True, "logit_soft_cap": 5.0, "attention": {"sliding_window": 4}},
    {"position": "sinusoidal", "feed_forward": "gelu", "bias": True},
]


def model_of(**changes: Any) -> TransformerLM:
    return TransformerLM(ModelConfig(**{**SHAPE, **changes}), seed=1).eval()


@pytest.mark.parametrize("text", ["The cat saw the dog. " * 6, "犬", "T", "naïve bird. " * 3])
def test_surprisal_is_the_loss_of_each_token(corpus: Corpus, text: str):
    model, tokenizer = model_of(), corpus.tokenizer
    found = surprisal(model, tokenizer, text)
    assert found.ids == tokenizer.encode_ordinary(text)
    assert found.n_bytes == len(text.encode())
    row = [tokenizer.eot_token, *found.ids]
    # Each token from the window from which generation predicts it.
    for i, token_id in enumerate(found.ids):
        (token,) = next_tokens(model, row[: i + 1], 1)
        expected = -torch.log_softmax(token.logits.double(), -1)[token_id] / math.log(2)
        assert found.bits[i] == pytest.approx(float(expected), rel=1e-4)
        assert found.window_starts[i] == token.window_start - 1
    assert found.start_id == tokenizer.eot_token
    assert found.bits_per_byte == pytest.approx(found.bits.sum() / len(text.encode()))


def test_surprisal_adds_up_to_the_evaluation(corpus: Corpus):
    model, tokenizer = model_of(), corpus.tokenizer
    text = "The cat saw the dog. The bird ate the child. " * 4
    while (len(tokenizer.encode_ordinary(text)) - 16) % 9:
        text = text[:-1]  # the last window of the evaluation is then one of these, too
    ids = torch.tensor([tokenizer.eot_token, *tokenizer.encode_ordinary(text)]).numpy()
    score = evaluate_text(model, ids, token_byte_counts(tokenizer), stride=9)
    assert surprisal(model, tokenizer, text).bits_per_byte == pytest.approx(score.bits_per_byte, rel=1e-4)


def test_the_space_that_a_tokenizer_puts_before_a_text_is_no_byte_of_it(
    corpus: Corpus, tmp_path: Path
) -> None:
    spec = replace(corpus.tokenizer.to_spec(), normalizer=(("Prepend", " "),))
    model, tokenizer = model_of(), Tokenizer.from_spec(spec)
    texts = ["The cat saw the dog.", "The bird ate."]
    assert tokenizer.decode(tokenizer.encode(texts[0])) == f" {texts[0]}"
    found = surprisal(model, tokenizer, texts[0])
    assert (found.n_bytes, found.bits_per_byte) == (20, pytest.approx(found.bits.sum() / 20))
    for text, name in zip(texts, "ab", strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    assert score_text_file(model, tokenizer, str(tmp_path / "a.txt")).n_bytes == 20
    assert score_text_file(model, tokenizer, str(tmp_path / "*.txt")).n_bytes == 33
    without_start = Tokenizer.from_spec(replace(spec, special_tokens={}))
    first = without_start.decode(without_start.encode(texts[0])[:1])
    assert surprisal(model, without_start, texts[0]).n_bytes == 20 - len(first.lstrip())


def test_without_a_start_token_the_first_token_has_no_cost(corpus: Corpus):
    import bytemill

    tokenizer = bytemill.train_from_iterator([corpus.text], 290, [])
    found = surprisal(model_of(), tokenizer, "The cat")
    assert math.isnan(found.bits[0])
    assert not any(math.isnan(bits) for bits in found.bits[1:])
    assert found.n_bytes == len(b"The cat") - len(tokenizer.decode_bytes(found.ids[:1]))
    assert surprisal(model_of(), tokenizer, "T").bits_per_byte is None


def test_surprisal_of_no_text_is_an_error(corpus: Corpus):
    with pytest.raises(RunConfigError, match="empty"):
        surprisal(model_of(), corpus.tokenizer, "")


def test_surprisal_and_traces_can_be_ended(corpus: Corpus):
    class EndedError(Exception):
        pass

    def check() -> None:
        raise EndedError

    with pytest.raises(EndedError):
        surprisal(model_of(), corpus.tokenizer, "The cat", check=check)
    with pytest.raises(EndedError):
        trace(model_of(), [1, 2], check=check)


@given(
    values=st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=12),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    top_k=st.integers(0, 5),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    penalty=st.sampled_from([1.0, 1.5]),
)
def test_the_last_stage_is_what_is_sampled_from(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float, penalty: float
):
    logits, history = torch.tensor(values), [0, 1, 0]
    parameters = SamplingParameters(penalty, 0, temperature, top_k, top_p, min_p)
    stages = sampling_stages(logits, parameters, history)
    assert [stage.name for stage in stages] == [
        "model", "repetition_penalty", "no_repeat_ngram", "temperature", "top_k", "top_p", "min_p",
    ]  # fmt: skip
    assert stages[0].probabilities == pytest.approx(torch.softmax(logits.double(), 0).tolist(), abs=1e-6)
    expected = next_log_probabilities(logits, parameters, history).exp()
    assert stages[-1].probabilities == pytest.approx(expected.tolist(), abs=1e-6)
    for before, after in pairwise(stages):
        assert after.n_kept <= before.n_kept
        assert after.probabilities.sum() == pytest.approx(1, abs=1e-5)
        if not after.is_active:
            assert after.probabilities == pytest.approx(before.probabilities, abs=1e-7)
        kept = after.probabilities[after.probabilities > 0]
        assert after.entropy_bits == pytest.approx(
            -(kept * torch.tensor(kept).log2().numpy()).sum(), abs=1e-5
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_holds_what_the_model_computes(kind: dict[str, Any]):
    model = model_of(**kind).use_kernels("auto")
    ids = [5, 9, 5, 200, 17, 3, 3, 80, 41]
    found = trace(model, ids, n_best=3)
    n = len(ids)
    window = kind.get("attention", {}).get("sliding_window")
    assert len(found.attention) == 3
    for layer, weights in zip(model.layers, found.attention, strict=True):
        assert weights.shape == (4, n, n)
        assert torch.allclose(weights.sum(-1), torch.ones(4, n), atol=1e-5)
        assert torch.equal(weights.triu(1), torch.zeros_like(weights))
        if window:
            assert torch.equal(weights.tril(-window), torch.zeros_like(weights))
        assert layer.attn.kernels is model.kernels  # type: ignore[union-attr]
    with torch.inference_mode():
        logits = model(torch.tensor([ids]))[0]
        best = torch.softmax(logits.float(), -1).topk(3)
    assert torch.equal(found.lens_ids[-1], best.indices)
    assert torch.allclose(found.lens_probabilities[-1], best.values, atol=1e-5)
    assert found.residual_norms.shape == (4, n)
    embedded = model._embed(torch.tensor([ids]), torch.arange(n))[0]  # type: ignore[attr-defined]
    assert torch.allclose(found.residual_norms[0], embedded.norm(dim=-1), atol=1e-5)


def test_attention_is_that_of_each_query_head():
    model = model_of(attention={"num_kv_heads": 2})
    ids = [5, 9, 5, 200, 17]
    found = trace(model, ids)
    attn: Any = model.layers[0].attn
    with torch.inference_mode():
        x = model.layers[0].ln1(model._embed(torch.tensor([ids]), torch.arange(5)))  # type: ignore[attr-defined,operator]
        q = attn.rope(attn.q_proj(x).view(1, 5, 4, 4).transpose(1, 2))
        k = attn.rope(attn.k_proj(x).view(1, 5, 2, 4).transpose(1, 2)).repeat_interleave(2, 1)
        scores = (q @ k.mT / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    assert torch.allclose(found.attention[0], torch.softmax(scores, -1)[0], atol=1e-5)


def test_a_trace_leaves_the_model_as_it_is():
    model = model_of().use_kernels("auto")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trace(model, [1, 2, 3])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("n", [0, 17])
def test_sequences_that_do_not_fit_are_an_error(n: int):
    with pytest.raises(RunConfigError, match=f"{n} tokens cannot be traced"):
        trace(model_of(), [1] * n)
