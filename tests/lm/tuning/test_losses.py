"""Losses and advantages of tuning, against formulas written out token by token, and against transformers' models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.lm.model import TransformerLM
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.tuning.losses import dpo_losses, pair_dpo_loss, sft_loss
from bytemill.lm.tuning.policy_gradient import (
    PRESETS,
    PolicyGradient,
    aggregate_losses,
    group_advantages,
    policy_gradient_losses,
    policy_gradient_step,
    rollout_rewards,
)
from bytemill.lm.tuning.responses import (
    ALPACA,
    PackedExamples,
    batch_responses,
    encode_responses,
    masked_mean,
    masked_sum,
    response_log_probs,
    token_entropy,
)
from bytemill.tokenizer.tokenizer import Tokenizer

SMALL = ModelConfig(vocab_size=260, context_length=64, d_model=16, num_layers=1, num_heads=2, d_ff=32)
RATIOS = ("none", "no-clip", "grpo", "gspo")


def bytes_tokenizer() -> Tokenizer:
    tok = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>", "<pad>"])
    tok.pad_token = "<pad>"
    return tok


def random_batch(seed: int, n: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities, older ones, and a mask in which every row has a token."""
    generator = torch.Generator().manual_seed(seed)
    new = -torch.rand(n, length, generator=generator) * 3
    old = new + 0.6 * torch.randn(n, length, generator=generator)
    mask = torch.rand(n, length, generator=generator) < 0.6
    mask[:, 0] = True
    return new, old, mask


def test_prompts_and_responses_become_ids_labels_and_a_mask() -> None:
    batch = encode_responses(["ab", "c"], ["xyz", "d"], bytes_tokenizer())
    assert batch.input_ids.tolist() == [[97, 98, 120, 121], [99, 100, 257, 257]]
    assert batch.labels.tolist() == [[98, 120, 121, 122], [100, 257, 257, 257]]
    assert batch.response_mask.tolist() == [[False, True, True, True], [True, False, False, False]]
    with pytest.raises(ValueError, match="no prompt"):
        batch_responses([], [])


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6))
def test_means_and_entropy_are_those_of_the_formulas(seed: int, n: int, length: int) -> None:
    values, _, mask = random_batch(seed, n, length)
    rows = [
        [float(v) for v, used in zip(row, own, strict=True) if used]
        for row, own in zip(values, mask, strict=True)
    ]
    everything = [value for row in rows for value in row]
    assert float(masked_mean(values, mask)) == pytest.approx(np.mean(everything), abs=1e-5)
    assert masked_mean(values, mask, 1).tolist() == pytest.approx([np.mean(row) for row in rows], abs=1e-5)
    assert masked_sum(values, mask, 1, divisor=7.0).tolist() == pytest.approx(
        [sum(row) / 7 for row in rows], abs=1e-5
    )
    assert float(sft_loss(values, mask, "sequence")) == pytest.approx(
        -np.mean([np.mean(row) for row in rows]), abs=1e-5
    )
    assert float(sft_loss(values, mask)) == pytest.approx(-np.mean(everything), abs=1e-5)
    p = torch.softmax(values.double() * 30, -1)
    expected = [-sum(q * math.log(q) for q in row if q > 0) for row in p.tolist()]
    assert token_entropy(values.double() * 30).tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("baseline", "normalizer", "expected"),
    [
        ("none", "none", [1.0, 0.0, 0.5, 2.0, 2.0, 2.0]),
        ("mean", "none", [0.5, -0.5, 0.0, 0.0, 0.0, 0.0]),
        ("leave-one-out", "none", [0.75, -0.75, 0.0, 0.0, 0.0, 0.0]),
        ("mean", "std", [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]),
        ("mean", "mean", [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]),
        ("none", "mean", [2.0, 0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_advantages(baseline: Any, normalizer: Any, expected: list[float]) -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 2.0, 2.0, 2.0])
    found = group_advantages(rewards, 3, PolicyGradient(baseline, normalizer))
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "maxrl", "gspo"])
def test_equal_rewards_have_no_advantage_at_all(name: str) -> None:
    rewards = torch.tensor([1.2] * 8 + [0.1] * 8)  # whose mean in float32 is not 1.2
    assert not group_advantages(rewards, 8, PRESETS[name]).any()


def test_groups_that_cannot_be_compared_are_errors() -> None:
    with pytest.raises(RunConfigError, match="nothing to be compared with"):
        group_advantages(torch.ones(4), 1)
    with pytest.raises(RunConfigError, match="groups of 3"):
        group_advantages(torch.ones(4), 3)
    assert group_advantages(torch.ones(2), 1, PRESETS["rft"]).tolist() == [1, 1]


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6), st.sampled_from(RATIOS))
def test_losses_of_tokens_are_those_of_the_formulas(seed: int, n: int, length: int, ratio: Any) -> None:
    new, old, mask = random_batch(seed, n, length)
    advantages = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    how = PolicyGradient(ratio=ratio, clip_low=0.1, clip_high=0.3)
    found, clipped = policy_gradient_losses(advantages, new, old, mask, how)
    for row in range(n):
        a, x, y = float(advantages[row]), new[row].tolist(), old[row].tolist()
        own = [t for t in range(length) if mask[row, t]]
        whole = math.exp(sum(x[t] - y[t] for t in own) / len(own))
        for t in own:
            w = whole if ratio == "gspo" else math.exp(x[t] - y[t])
            expected = {
                "none": -a * x[t],
                "no-clip": -a * w,
            }.get(ratio, -min(a * w, a * min(max(w, 0.9), 1.3)))
            assert float(found[row, t]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
            if ratio in {"grpo", "gspo"}:
                assert bool(clipped[row, t]) == ((a > 0 and w > 1.3) or (a < 0 and w < 0.9))


def test_only_tokens_of_responses_count() -> None:
    losses = torch.tensor([[1.0, 2.0, torch.inf], [3.0, torch.nan, torch.nan]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert float(aggregate_losses(losses, mask)) == pytest.approx((1.5 + 3) / 2)
    assert float(aggregate_losses(losses, mask, "token")) == pytest.approx(2)
    assert float(aggregate_losses(losses, mask, "constant", 12)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="divisor"):
        aggregate_losses(losses, mask, "constant")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_in_several_passes_is_the_step_of_the_whole_batch(preset: str) -> None:
    batch = encode_responses(
        ["Hello"] * 2 + ["This is"] * 2, [" w", "x", " a test", "another"], bytes_tokenizer()
    )
    rewards, means = rollout_rewards(
        lambda response, answer: {"reward": float(answer in response), "format": 1.0},
        [" w", "x", " a test", "another"],
        ["x", "x", "t", "t"],
    )
    assert rewards.tolist() == [0, 1, 1, 1]
    assert means == {"reward": 0.75, "format": 1.0}
    how = PRESETS[preset]
    advantages = group_advantages(torch.tensor([1.0, 0.0, 0.5, 0.2]), 2, how)

    def weights(n_passes: int) -> tuple[Any, list[torch.Tensor]]:
        model = TransformerLM(SMALL, seed=1)
        old = response_log_probs(model, batch.input_ids, batch.labels).log_probs.detach() - 0.05
        result = policy_gradient_step(
            model, torch.optim.SGD(model.parameters(), 0.5), batch, advantages, how,
            old_log_probs=old, n_passes=n_passes, max_gradient_norm=1.0, divisor=32.0,
        )  # fmt: skip
        assert all(parameter.grad is None for parameter in model.parameters())
        return result, [parameter.detach() for parameter in model.parameters()]

    (once, whole), (parts, divided) = weights(1), weights(4)
    assert float(once.loss) == pytest.approx(float(parts.loss), abs=1e-5)
    assert once.values == pytest.approx(parts.values, abs=1e-4)
    start = [parameter.detach() for parameter in TransformerLM(SMALL, seed=1).parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(whole, start, strict=True))
    for a, b in zip(whole, divided, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_step_without_a_signal_changes_nothing() -> None:
    model = TransformerLM(SMALL, seed=1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    batch = encode_responses(["a", "a"], ["b", "c"], bytes_tokenizer())
    result = policy_gradient_step(
        model, torch.optim.SGD(model.parameters(), 0.5), batch, group_advantages(torch.ones(2), 2)
    )
    assert result.values["used_share"] == 0
    assert float(result.loss) == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@example([-1.0, -2.0, -1.0, -2.0], 0.5, 0.1)  # the first step: the policy is the reference
@given(st.lists(st.floats(-8, 0), min_size=4, max_size=4), st.floats(0.01, 2), st.floats(0, 0.45))
def test_dpo_is_that_of_the_formula(sums: list[float], beta: float, smoothing: float) -> None:
    chosen, rejected, ref_chosen, ref_rejected = (
        torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in sums
    )
    margin = beta * ((sums[0] - sums[2]) - (sums[1] - sums[3]))
    expected = (1 - smoothing) * math.log1p(math.exp(-margin)) + smoothing * math.log1p(math.exp(margin))
    found = dpo_losses(chosen, rejected, ref_chosen, ref_rejected, beta=beta, label_smoothing=smoothing)
    assert float(found.losses.detach()) == pytest.approx(expected, rel=1e-6)
    assert float(found.chosen_rewards - found.rejected_rewards) == pytest.approx(margin, abs=1e-9)
    (slope,) = torch.autograd.grad(found.losses, chosen)
    assert float(slope) == pytest.approx(beta * (smoothing - 1 / (1 + math.exp(margin))), rel=1e-6, abs=1e-12)


def test_dpo_of_a_pair_of_texts() -> None:
    tok, model, reference = bytes_tokenizer(), TransformerLM(SMALL, seed=1), TransformerLM(SMALL, seed=2)
    tok = tok.with_special_tokens([*tok.special_tokens])

    class WithEnd:
        eos_token_id = 256

        def __call__(self, text: str, **options: Any) -> Any:
            return tok(text, **options)

    loss = pair_dpo_loss(
        model, reference, WithEnd(), "p", "yes", "no", beta=0.5, template="{prompt}:{response}"
    )
    margins = []
    for one in (model.requires_grad_(requires_grad=False), reference.requires_grad_(requires_grad=False)):
        sums = []
        for text in ("p:yes", "p:no"):
            ids = [*text.encode(), 256]
            log_probs = torch.log_softmax(one(torch.tensor([ids[:-1]])), -1)[0]
            sums.append(sum(float(log_probs[t, token]) for t, token in enumerate(ids[1:])))
        margins.append(sums[0] - sums[1])
    assert float(loss.detach()) == pytest.approx(
        math.log1p(math.exp(-0.5 * (margins[0] - margins[1]))), abs=1e-4
    )
    with pytest.raises(RunConfigError, match="must be positive"):
        pair_dpo_loss(model, reference, WithEnd(), "p", "yes", "no", beta=0, template="{prompt}:{response}")


def test_models_and_tokenizers_of_transformers_do_as_well() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    tok = bytes_tokenizer().to_transformers(eos_token="<|endoftext|>", pad_token="<pad>")
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=258, n_positions=256, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0
    )
    models = [GPT2LMHeadModel(shape).eval().requires_grad_(requires_grad=False) for _ in range(2)]
    batch = encode_responses(["ab", "c"], ["xyz", "d"], tok)
    assert batch.labels.tolist() == [[98, 120, 121, 122], [100, 257, 257, 257]]
    found = response_log_probs(models[0], batch.input_ids, batch.labels, with_entropy=True)
    logits = models[0](batch.input_ids).logits
    expected = torch.log_softmax(logits, -1).gather(-1, batch.labels[..., None])[..., 0]
    torch.testing.assert_close(found.log_probs, expected)
    torch.testing.assert_close(found.token_entropy, torch.distributions.Categorical(logits=logits).entropy())
    loss = pair_dpo_loss(models[0], models[1], tok, "fox", "the dog", "their frog", beta=0.5)
    assert 0.3 < float(loss) < 1.2
    assert float(loss) != pytest.approx(math.log(2), abs=1e-4)


def test_examples_are_packed_into_windows(tmp_path: Any) -> None:
    tok = bytes_tokenizer().to_transformers(eos_token="<|endoftext|>")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"prompt": "p{n}", "response": "{{r}}{n}"}}\n' for n in range(9)))
    stream = b"".join(ALPACA.format(prompt=f"p{n}", response=f"{{r}}{n}").encode() + b"\0" for n in range(9))
    plain = PackedExamples(tok, path, 32)
    ids = [256 if byte == 0 else byte for byte in stream]
    assert len(plain) == (len(ids) - 1) // 32
    for number, window in enumerate(plain[index] for index in range(len(plain))):
        assert window["input_ids"].tolist() == ids[32 * number : 32 * number + 32]
        assert window["labels"].tolist() == ids[32 * number + 1 : 32 * number + 33]
    shuffled = PackedExamples(tok, path, 32, shuffle=True)
    assert len(shuffled) == len(plain)
    both = zip((plain[n] for n in range(len(plain))), (shuffled[n] for n in range(len(plain))), strict=True)
    assert any(not torch.equal(a["labels"], b["labels"]) for a, b in both)
