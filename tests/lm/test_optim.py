"""Optimizers against torch and their papers, clipping, schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.optim import SGD, SOAP, AdamW, Muon, base, clip_gradients, muon_groups, parameter_groups
from bytemill.lm.optim.muon import balanced, coefficients, orthogonal
from bytemill.lm.optimizers import OPTIMIZERS
from bytemill.lm.schedule import constant, cosine_with_warmup, warmup_stable_decay

if TYPE_CHECKING:
    from collections.abc import Callable


shapes = st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=1, max_size=3)
TINY = ModelConfig(vocab_size=20, context_length=8, d_model=16, num_layers=2, num_heads=2, d_ff=32, bias=True)


def parameters(shapes: list[list[int]], seed: int, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]


def run(
    params: list[nn.Parameter], optimizer: torch.optim.Optimizer, n_steps: int, scale: float = 1.0
) -> list[nn.Parameter]:
    """Take `n_steps` steps on gradients that are equal for every optimizer."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(n_steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype) * scale
        optimizer.step()
    return params


def assert_close(
    a: list[nn.Parameter], b: list[nn.Parameter], rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=atol)


@given(
    shapes,
    st.floats(1e-4, 0.1),
    st.floats(0, 0.99),
    st.floats(0.5, 0.999),
    st.floats(0, 1e-2),
    st.floats(0, 0.5),
    st.integers(1, 9),
)
def test_adamw_equals_torchs_bit_for_bit(
    shapes: list[list[int]],
    lr: float,
    beta_1: float,
    beta_2: float,
    eps: float,
    weight_decay: float,
    block: int,
) -> None:
    settings: Any = {"lr": lr, "betas": (beta_1, beta_2), "eps": eps, "weight_decay": weight_decay}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_BLOCK", block)
        ours = parameters(shapes, 1)
        run(ours, AdamW(ours, **settings), 6)
    theirs = parameters(shapes, 1)
    run(theirs, torch.optim.AdamW(theirs, foreach=True, **settings), 6)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("scale", [1e-7, 1.0])
def test_adamw_equals_torchs_over_100_steps_also_for_small_gradients(scale: float) -> None:
    ours, theirs = parameters([[5, 4], [4]], 2), parameters([[5, 4], [4]], 2)
    settings: Any = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    run(ours, AdamW(ours, **settings), 100, scale)
    run(theirs, torch.optim.AdamW(theirs, foreach=False, **settings), 100, scale)
    assert_close(ours, theirs, rtol=1e-7, atol=0)


@pytest.mark.parametrize("scale", [1e-7, 1.0])
def test_fused_adamw_equals_the_textbook_also_for_small_gradients(scale: float) -> None:
    ours, theirs = parameters([[5, 4], [4]], 2), parameters([[5, 4], [4]], 2)
    settings: Any = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    optimizers = AdamW(ours, **settings, fused=True), AdamW(theirs, **settings)
    run(ours, optimizers[0], 100, scale)
    run(theirs, optimizers[1], 100, scale)
    assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    for x, y in zip(ours, theirs, strict=True):
        for name in ("m", "v"):
            torch.testing.assert_close(
                optimizers[0].state[x][name], optimizers[1].state[y][name], rtol=1e-5, atol=0
            )


def test_adamw_of_many_tensors_at_once_equals_one_after_the_other() -> None:
    # Not contiguous, so not divided into blocks.
    ours = [nn.Parameter(torch.randn(4, 3).T) for _ in range(3)]
    theirs = [nn.Parameter(p.detach().clone().contiguous()) for p in ours]
    assert_close(run(ours, AdamW(ours), 3), run(theirs, AdamW(theirs), 3))


def test_moments_of_bfloat16_weights_are_float32() -> None:
    ours = parameters([[3, 4], [5]], 1, torch.bfloat16)
    optimizer = AdamW(ours, lr=0.1)
    run(ours, optimizer, 3)
    assert {optimizer.state[p][name].dtype for p in ours for name in ("m", "v")} == {torch.float32}
    wide = parameters([[3, 4], [5]], 1)
    run(wide, AdamW(wide, lr=0.1), 3)
    for x, y in zip(ours, wide, strict=True):  # three roundings to 8 bits
        torch.testing.assert_close(x.float(), y, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [AdamW, Muon, SGD, SOAP])
def test_an_optimizer_continues_from_its_saved_state_bit_for_bit(
    make: Callable[..., torch.optim.Optimizer], dtype: torch.dtype
) -> None:
    whole = parameters([[4, 3], [3]], 1, dtype)
    optimizer = make(whole, lr=0.05)
    run(whole, optimizer, 2)
    resumed = [nn.Parameter(p.detach().clone()) for p in whole]
    other = make(resumed, lr=0.01)
    other.load_state_dict(optimizer.state_dict())  # a copy, so that later steps do not change both
    run(whole, optimizer, 3)
    run(resumed, other, 3)
    assert other.param_groups[0]["lr"] == 0.05
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


def test_parameters_without_gradient_do_not_change() -> None:
    for make in (AdamW, Muon, SGD, SOAP):
        p = nn.Parameter(torch.ones(2, 2))
        make([p]).step()
        assert torch.equal(p, torch.ones(2, 2))
        assert make([p]).step(lambda: 2.5) == 2.5


def test_sgd_slows_down_with_the_root_of_time() -> None:
    (p,) = parameters([[5]], 1)
    expected = p.detach().clone()
    run([p], SGD([p], lr=0.5), 4)
    generator = torch.Generator().manual_seed(7)
    for t in range(4):
        expected -= 0.5 / math.sqrt(t + 1) * torch.randn(5, generator=generator)
    torch.testing.assert_close(p.detach(), expected)
    ours, theirs = parameters([[5]], 1), parameters([[5]], 1)
    assert_close(
        run(ours, SGD(ours, lr=0.1, decay=False), 3), run(theirs, torch.optim.SGD(theirs, lr=0.1), 3)
    )


@given(st.integers(2, 12), st.integers(2, 12), st.booleans(), st.floats(0, 0.2), st.booleans())
def test_muon_equals_torchs(
    rows: int, columns: int, nesterov: bool, weight_decay: float, like_adamw: bool
) -> None:
    settings: Any = {"lr": 0.05, "momentum": 0.9, "nesterov": nesterov, "weight_decay": weight_decay}
    ours, theirs = parameters([[rows, columns]], 3), parameters([[rows, columns]], 3)
    run(ours, Muon(ours, scaling="match_adamw" if like_adamw else "original", **settings), 2)
    adjustment = "match_rms_adamw" if like_adamw else "original"
    run(theirs, torch.optim.Muon(theirs, adjust_lr_fn=adjustment, **settings), 2)
    # torch's iteration runs in bfloat16, ours (on the CPU) in float32; an update has singular values of about 1, and
    # after five iterations in bfloat16 each number is exact to a few per cent.
    for x, y in zip(ours, theirs, strict=True):
        scale = 0.2 * math.sqrt(max(rows, columns)) if like_adamw else math.sqrt(max(1, rows / columns))
        assert (x - y).abs().max() < 2 * 0.05 * 0.2 * scale


def test_polar_express_converges_to_the_orthogonal_factor_and_newton_schulz_does_not() -> None:
    torch.manual_seed(1)
    left, right = (torch.linalg.qr(torch.randn(40, 40)).Q for _ in range(2))
    matrix = left @ torch.diag(torch.logspace(-2, 0, 40)) @ right
    for n_iterations, error in ((5, 0.15), (6, 0.005), (8, 1e-6)):
        values = torch.linalg.svdvals(orthogonal(matrix, n_iterations, "polar_express"))
        assert (values - 1).abs().max() < error
    torch.testing.assert_close(orthogonal(matrix, 9, "polar_express"), left @ right)
    values = torch.linalg.svdvals(orthogonal(matrix, 5, "newton_schulz"))
    assert 0.2 < (values - 1).abs().max() < 0.35


def test_polynomials_of_polar_express_map_each_interval_into_the_next() -> None:
    low, high = 1e-3, 1.0
    for a, b, c in coefficients("polar_express", 10):
        x = torch.linspace(low, high, 10_001, dtype=torch.float64)
        y = a * x + b * x**3 + c * x**5
        assert y.max() < 2
        assert y.min() > 0
        assert (1 - y).abs().max() <= max(1 - low, high - 1) + 1e-12
        low, high = float(y.min()), float(y.max())
    assert high - low < 1e-6


def test_muon_refuses_unknown_methods_and_scalings() -> None:
    with pytest.raises(ValueError, match="method is 'svd': choose 'newton_schulz' or 'polar_express'"):
        Muon([nn.Parameter(torch.ones(2, 2))], method="svd")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="scaling is 'rms': choose 'original' or 'match_adamw'"):
        Muon([nn.Parameter(torch.ones(2, 2))], scaling="rms")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("options", [{}, {"nesterov": False}, {"variance_beta": 0.9, "cautious": True}])
def test_stacks_of_matrices_have_the_updates_of_single_ones(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    random = torch.Generator().manual_seed(0)
    shapes = [(6, 4), (4, 9), (6, 4), (4, 4), (4, 9), (6, 4)]
    ours, theirs = ([nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    optimizers = [Muon(each, weight_decay=0.1, **options) for each in (ours, theirs)]
    monkeypatch.setattr(optimizers[0], "_update_matrices", optimizers[0]._update_stacks)
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=random)
            b.grad = a.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
        momenta = [
            optimizer.state[each]["momentum"] for optimizer, each in zip(optimizers, (a, b), strict=True)
        ]
        torch.testing.assert_close(*momenta)


def test_muon_leaves_vectors_and_embeddings_to_adamw() -> None:
    model = TransformerLM(TINY, seed=1)
    groups = muon_groups(model, lr=0.02, adamw_lr=1e-3)
    optimizer = Muon(groups)
    assert sum(p.numel() for g in optimizer.param_groups for p in g["params"]) == model.n_parameters()
    by_algorithm = {id(p): g["algorithm"] for g in optimizer.param_groups for p in g["params"]}
    assert by_algorithm[id(model.token_embeddings.weight)] == "adamw"
    assert by_algorithm[id(model.lm_head.weight)] == "adamw"
    first = model.layers[0]
    assert by_algorithm[id(first.get_parameter("attn.q_proj.weight"))] == "muon"
    assert by_algorithm[id(first.get_parameter("attn.q_proj.bias"))] == "adamw"
    with pytest.raises(ValueError, match="muon is for matrices"):
        Muon([{"params": [nn.Parameter(torch.ones(3))], "algorithm": "muon"}])
    with pytest.raises(ValueError, match="choose 'muon' or 'adamw'"):
        Muon([{"params": [nn.Parameter(torch.ones(3, 3))], "algorithm": "moun"}])


def test_balanced_rows_have_equal_usual_sizes_and_the_norm_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([[0.1], [1.0], [3.0], [10.0]])
    for shape in ((4, 3), (2, 4, 3)):
        variance = torch.zeros(*shape[:-1], 1)
        update = scaled = torch.zeros(shape)
        for _ in range(400):
            update = torch.randn(shape, generator=generator) * sizes
            scaled = balanced(update, variance, 0.99)
            torch.testing.assert_close(scaled.norm(dim=(-2, -1)), update.norm(dim=(-2, -1)))
        torch.testing.assert_close(variance.sqrt(), sizes.expand_as(variance), rtol=0.2, atol=0)
        usual = scaled / (update / variance.sqrt())
        torch.testing.assert_close(usual, usual[..., :1, :1].expand_as(usual))
    wide = torch.zeros(1, 9)
    balanced(torch.ones(4, 9), wide, 0.5)
    torch.testing.assert_close(wide, torch.full((1, 9), 0.5))


def stepped(make: Any, weights: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return the weights after three steps of an optimizer."""
    own = [nn.Parameter(weights.clone())]
    return run(own, make(own, lr=1e-3, **options), 3)[0].detach()


@pytest.mark.parametrize("make", [AdamW, Muon, SOAP])
def test_cautious_decay_spares_the_weights_that_the_update_makes_larger(make: Any) -> None:
    weights = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
    free, decayed, cautious = (
        stepped(make, weights, **options)
        for options in ({"weight_decay": 0.0}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "cautious": True})
    )
    grows = (free - weights) * weights > 0
    assert grows.any()
    assert not grows.all()
    # Where the update pushes away from 0 in every step, there is no decay; where it pushes to 0, the full one.
    spared = (cautious - free).abs() < 1e-9
    full = (cautious - decayed).abs() < 1e-7
    assert spared.any()
    assert full.any()
    assert ((cautious.abs() <= free.abs() + 1e-9) & (cautious.abs() >= decayed.abs() - 1e-6)).all()


def soap_by_the_book(
    weights: torch.Tensor,
    gradients: list[torch.Tensor],
    every: int,
    q_left: torch.Tensor,
    q_right: torch.Tensor,
) -> torch.Tensor:
    """SOAP of one matrix, from its definition and the eigenvectors of the first gradient's products."""
    lr, beta_1, beta_2, beta, eps, decay = 0.01, 0.9, 0.8, 0.7, 1e-8, 0.1
    first = gradients[0]
    left, right = (1 - beta) * first @ first.T, (1 - beta) * first.T @ first
    for q, side in ((q_left, left), (q_right, right)):  # those of the eigenvalue 0 are arbitrary
        values = q.T @ side @ q
        torch.testing.assert_close(q.T @ q, torch.eye(len(q)).double())
        torch.testing.assert_close(values, torch.diag(torch.diag(values)))
        assert (torch.diag(values).diff() <= 1e-12).all()
    mean, variance = torch.zeros_like(weights), torch.zeros_like(weights)
    for t, gradient in enumerate(gradients[1:], start=1):
        mean = beta_1 * mean + (1 - beta_1) * gradient
        variance = beta_2 * variance + (1 - beta_2) * (q_left.T @ gradient @ q_right) ** 2
        step = (
            q_left.T @ mean @ q_right / (variance.sqrt() + eps) * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        )
        weights = (1 - lr * decay) * (weights - lr * q_left @ step @ q_right.T)
        left = beta * left + (1 - beta) * gradient @ gradient.T
        right = beta * right + (1 - beta) * gradient.T @ gradient
        if t % every == 0:
            rows, columns = (
                torch.diag(q.T @ side @ q).argsort(descending=True)
                for q, side in ((q_left, left), (q_right, right))
            )
            variance = variance[rows][:, columns]
            q_left = torch.linalg.qr(left @ q_left[:, rows])[0]
            q_right = torch.linalg.qr(right @ q_right[:, columns])[0]
    return weights


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 7)])
def test_soap_equals_its_definition(shape: tuple[int, int], every: int) -> None:
    generator = torch.Generator().manual_seed(2)
    weights, *gradients = (torch.randn(shape, generator=generator).double() for _ in range(13))
    ours = nn.Parameter(weights.clone())
    optimizer = SOAP([ours], 0.01, (0.9, 0.8), preconditioner_beta=0.7, weight_decay=0.1, every=every)
    bases: list[torch.Tensor] = []
    for gradient in gradients:
        ours.grad = gradient.clone()
        optimizer.step()
        bases = bases or [optimizer.state[ours][f"{side}_basis"].clone() for side in ("left", "right")]
    torch.testing.assert_close(ours.detach(), soap_by_the_book(weights, gradients, every, *bases))


def test_soap_without_rotation_is_adam() -> None:
    ours, theirs = parameters([[4, 3]], 5), parameters([[4, 3]], 5)
    soap = SOAP(ours, 0.01, (0.9, 0.95), weight_decay=0.0, max_dim=0)
    ours[0].grad = torch.ones(4, 3)
    soap.step()  # the first gradient has no update
    run(ours, soap, 5)
    run(theirs, AdamW(theirs, 0.01, (0.9, 0.95), weight_decay=0.0), 5)
    assert_close(ours, theirs)


def test_the_state_of_soap_has_the_planned_size() -> None:
    model = TransformerLM(TINY, seed=1)
    optimizer = SOAP(muon_groups(model, algorithm="soap"))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    tensors = [
        each
        for state in optimizer.state.values()
        for each in state.values()
        if isinstance(each, torch.Tensor)
    ]
    n_bytes = sum(each.numel() * each.element_size() for each in tensors)
    assert n_bytes == OPTIMIZERS["soap"].state_bytes(TINY, model.n_parameters(), 0)


def test_vectors_do_not_decay() -> None:
    model = TransformerLM(TINY, seed=1)
    matrices, vectors = parameter_groups(model, weight_decay=0.1)
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert {p.ndim for p in matrices["params"]} == {2}
    assert {p.ndim for p in vectors["params"]} == {1}
    assert sum(p.numel() for g in (matrices, vectors) for p in g["params"]) == model.n_parameters()


@pytest.mark.parametrize(
    "settings", [{"lr": -1.0}, {"eps": -1.0}, {"betas": (1.0, 0.9)}, {"weight_decay": math.nan}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it must be"):
        AdamW([nn.Parameter(torch.ones(1))], **settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: AdamW(parameter_groups(m), lr=3e-3),
        lambda m: Muon(muon_groups(m), method="polar_express"),
        lambda m: Muon(muon_groups(m), variance_beta=0.95, cautious=True),
        lambda m: SOAP(muon_groups(m, 1e-2, 3e-3, algorithm="soap")),
    ],
)
def test_a_model_overfits_a_batch(make: Callable[[TransformerLM], torch.optim.Optimizer]) -> None:
    model = TransformerLM(TINY, seed=1)
    optimizer = make(model)
    ids = torch.arange(17).remainder(5)[None]
    losses: list[float] = []
    for _ in range(60):
        optimizer.zero_grad()
        value = model.loss(ids[:, :8], ids[:, 1:9])
        value.backward()
        clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < losses[0] / 5


@given(shapes, st.floats(1e-3, 10), st.sampled_from([torch.float32, torch.bfloat16]))
def test_clipping_equals_torchs(shapes: list[list[int]], max_norm: float, dtype: torch.dtype) -> None:
    ours, theirs = parameters(shapes, 1, dtype), parameters(shapes, 1, dtype)
    for a, b in zip(ours, theirs, strict=True):
        a.grad, b.grad = a.detach().clone() * 3, b.detach().clone() * 3
    norm, expected = clip_gradients(ours, max_norm), nn.utils.clip_grad_norm_(theirs, max_norm)
    rtol = 1e-4 if dtype == torch.float32 else 2e-2  # torch's norm is rounded to bfloat16
    torch.testing.assert_close(norm, expected.float(), rtol=rtol, atol=1e-6)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=rtol, atol=1e-6)


def test_clipping_preserves_small_gradients_and_returns_the_norm() -> None:
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3.0, 4.0])
    assert clip_gradients([p], 5.0).item() == 5.0
    assert p.grad.tolist() == [3.0, 4.0]
    assert clip_gradients(p, 1.0).item() == 5.0
    torch.testing.assert_close(p.grad, torch.tensor([0.6, 0.8]), rtol=1e-6, atol=0)
    assert clip_gradients([nn.Parameter(torch.zeros(1))], 1.0) == 0
    p.grad = torch.tensor([math.inf, 0.0])
    assert clip_gradients(p, 1.0).item() == math.inf


def test_cosine_is_continuous_and_ends_at_the_minimum() -> None:
    def rate(t: int) -> float:
        return cosine_with_warmup(t, max_lr=1.0, min_lr=0.1, warmup_steps=7, cycle_steps=21)

    # The definition at t < T_w, t = T_w, midway, t = T_c and later.
    assert [rate(t) for t in (0, 7, 14, 21, 22, 999)] == pytest.approx([0, 1, 0.55, 0.1, 0.1, 0.1])
    assert rate(6) == pytest.approx(6 / 7)
    assert all(rate(t) >= rate(t + 1) for t in range(7, 30))
    assert cosine_with_warmup(3, 1.0, 0.1, warmup_steps=3, cycle_steps=3) == 1.0
    assert cosine_with_warmup(0, 1.0, 0.1, warmup_steps=0, cycle_steps=10) == 1.0


def test_other_schedules() -> None:
    rates = [
        warmup_stable_decay(t, 2.0, 0.0, warmup_steps=2, decay_steps=4, total_steps=10) for t in range(12)
    ]
    assert rates == pytest.approx([0, 1, 2, 2, 2, 2, 2, 1.5, 1, 0.5, 0, 0])
    rates = [
        warmup_stable_decay(t, 2.0, 0.0, warmup_steps=2, decay_steps=4, total_steps=10, decay_shape="1-sqrt")
        for t in range(5, 11)
    ]
    assert rates == pytest.approx([2, 2, 1, 2 - math.sqrt(2), 2 - math.sqrt(3), 0])
    assert [constant(t, 2.0, 4) for t in (0, 1, 4, 100)] == [0, 0.5, 2, 2]
    assert constant(0, 2.0) == 2


@pytest.mark.parametrize("name", ["add_param_group", "zero_grad", "state_dict"])
@pytest.mark.parametrize("kind", [SGD, AdamW, Muon, SOAP])
def test_methods_are_torchs_without_the_wrapper_that_imports_the_compiler(kind: Any, name: str):
    """`test_trainer` checks in a separate process that nothing else imports the compiler."""
    assert getattr(kind, name) is getattr(torch.optim.Optimizer, name).__wrapped__


@pytest.mark.parametrize("make", [SGD, AdamW, Muon, SOAP])
def test_gradients_become_none_or_zero(make: Any):
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = make([parameter])
    parameter.grad = torch.ones(2, 2)
    optimizer.zero_grad(set_to_none=False)
    assert torch.equal(parameter.grad, torch.zeros(2, 2))
    optimizer.zero_grad()
    assert parameter.grad is None
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [parameter]})
