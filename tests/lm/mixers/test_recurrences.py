"""Parallel, chunked and recurrent forms agree, with states, documents and gradients."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bytemill.lm.mixers.delta import chunked_delta, recurrent_delta
from bytemill.lm.mixers.hyena import fft_convolution, last_of_convolution
from bytemill.lm.mixers.linear import elu_plus_one
from bytemill.lm.mixers.scan import chunked_scan, recurrent_scan
from bytemill.lm.mixers.state import ShortConvolution, softplus

lengths = st.integers(1, 40)
chunk_sizes = st.integers(1, 45)
batches = st.integers(1, 3)
seeds = st.integers(0, 2**31)


def inputs(seed: int, batch: int, n_tokens: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Random queries, keys, values, decays, shares and a state, of two heads."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    key = normal(batch, 2, n_tokens, 3)
    return {
        "q": normal(batch, 2, n_tokens, 3),
        "k": key / key.norm(dim=-1, keepdim=True),
        "v": normal(batch, 2, n_tokens, 5),
        "log_decay": -3 * normal(batch, 2, n_tokens).square(),
        "beta": torch.sigmoid(normal(batch, 2, n_tokens)),
        "state": normal(batch, 2, 3, 5),
    }


def run(kind: str, given: dict[str, Tensor], **options: Any) -> tuple[Tensor, Tensor]:
    """Compute the scan or the delta rule, in chunks if a size is given."""
    chunked = "chunk" in options
    if kind == "scan":
        own = {name: tensor for name, tensor in given.items() if name != "beta"}
        return chunked_scan(**own, **options) if chunked else recurrent_scan(**own)
    return chunked_delta(**given, **options) if chunked else recurrent_delta(**given)


@pytest.mark.parametrize("kind", ["scan", "delta"])
@given(seeds, batches, lengths, chunk_sizes)
def test_chunks_give_what_single_tokens_give(kind: str, seed: int, batch: int, n_tokens: int, chunk: int):
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        given = inputs(seed, batch, n_tokens, dtype)
        expected = run(kind, given)
        for ours, theirs in zip(run(kind, given, chunk=chunk), expected, strict=True):
            assert (ours - theirs).abs().max() <= tolerance * max(1.0, float(theirs.abs().max()))


def documents(draw: Any, batch: int, n_tokens: int) -> list[list[int]]:
    """Lengths of the documents of each row."""
    rows: list[list[int]] = []
    for _ in range(batch):
        row: list[int] = []
        while sum(row) < n_tokens:
            row.append(draw(st.integers(1, n_tokens - sum(row))))
        rows.append(row)
    return rows


def starts_of(rows: list[list[int]]) -> Tensor:
    ends = [np.cumsum([0, *row])[:-1] for row in rows]
    return torch.tensor(np.array([np.repeat(own, row) for own, row in zip(ends, rows, strict=True)]))


@pytest.mark.parametrize("kind", ["scan", "delta"])
@given(st.data(), seeds, batches, lengths, chunk_sizes)
def test_the_state_is_empty_at_the_start_of_a_document(
    kind: str, data: st.DataObject, seed: int, batch: int, n_tokens: int, chunk: int
):
    rows = documents(data.draw, batch, n_tokens)
    given = inputs(seed, batch, n_tokens)
    given["state"].zero_()
    ours, state = run(kind, given, chunk=chunk, document_starts=starts_of(rows))
    for number, row in enumerate(rows):
        own = {name: tensor[number : number + 1] for name, tensor in given.items()}
        start = 0
        for length in row:
            part = {n: t if n == "state" else t[:, :, start : start + length] for n, t in own.items()}
            expected, last = run(kind, part)
            torch.testing.assert_close(ours[number : number + 1, :, start : start + length], expected)
            start += length
            if start == n_tokens:
                torch.testing.assert_close(state[number : number + 1], last)


@pytest.mark.parametrize("kind", ["scan", "delta"])
@pytest.mark.parametrize("starts", [None, [[0, 0, 2, 2, 2, 5, 5], [0, 1, 1, 1, 1, 1, 6]]], ids=str)
def test_gradients_are_those_of_finite_differences_and_of_single_tokens(kind: str, starts: Any):
    given = {name: tensor.requires_grad_() for name, tensor in inputs(3, 2, 7).items()}
    options: dict[str, Any] = {"chunk": 3}
    if starts is not None:
        options["document_starts"] = torch.tensor(starts)
    if kind == "scan":
        del given["beta"]
    names = list(given)

    def function(*tensors: Tensor) -> Any:
        return run(kind, dict(zip(names, tensors, strict=True)), **options)

    assert torch.autograd.gradcheck(function, tuple(given.values()))
    if starts is None:
        results = [run(kind, given), run(kind, given, chunk=3)]
        gradients = [torch.autograd.grad(y.square().sum(), tuple(given.values())) for y, _ in results]
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs)


@given(seeds, batches, lengths)
def test_the_scan_without_decay_is_the_sum_of_the_paper(seed: int, batch: int, n_tokens: int):
    given = inputs(seed, batch, n_tokens)
    q, k, v = elu_plus_one(given["q"]), elu_plus_one(given["k"]), given["v"]
    torch.testing.assert_close(elu_plus_one(given["q"]), torch.nn.functional.elu(given["q"]) + 1)
    weights = (q @ k.mT).tril()
    y, _ = chunked_scan(
        q, k, v, torch.zeros_like(given["log_decay"]), torch.zeros_like(given["state"]), chunk=8
    )
    torch.testing.assert_close(y, weights @ v)


@given(seeds, batches, lengths)
def test_the_fourier_transform_convolves(seed: int, batch: int, n_tokens: int):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, n_tokens, 3, generator=generator, dtype=torch.float64)
    filters = torch.randn(n_tokens + 2, 3, generator=generator, dtype=torch.float64)
    ours = fft_convolution(x, filters)
    for row in range(batch):
        for channel in range(3):
            expected = np.convolve(x[row, :, channel].numpy(), filters[:, channel].numpy())[:n_tokens]
            np.testing.assert_allclose(ours[row, :, channel].numpy(), expected, atol=1e-11)
    torch.testing.assert_close(last_of_convolution(x, filters), ours[:, -1:])


@given(seeds, st.integers(1, 5), lengths, st.booleans())
def test_the_short_convolution_is_torchs(seed: int, size: int, n_tokens: int, bias: bool):
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    ours = ShortConvolution(3, size, bias=bias).double()
    theirs = torch.nn.Conv1d(3, 3, size, groups=3, padding=size - 1, bias=bias).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.permute(2, 1, 0).flip(-1))
        if ours.bias is not None and theirs.bias is not None:
            theirs.bias.copy_(ours.bias.normal_())
    x = torch.randn(2, n_tokens, 3, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x.mT)[:, :, :n_tokens].mT)


def test_softplus_is_torchs():
    x = torch.linspace(-200, 200, 99, dtype=torch.float64)
    torch.testing.assert_close(softplus(x), torch.nn.functional.softplus(x))
