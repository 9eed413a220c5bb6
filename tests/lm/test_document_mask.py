"""Documents in a window: each gives what it gives alone, with every kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.lm.batches import DocumentMask, JoinedShards, spread_starts
from bytemill.lm.evaluate import evaluate_windows, score_shards
from bytemill.lm.kernels.attention import causal_attention, flex_attention, windowed_attention
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.model import ModelConfig, TransformerLM, causal_mask, scaled_dot_product_attention
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from bytemill.lm.model_config import KernelName
    from bytemill.lm.training.config import Resolved
    from tests.lm.conftest import Corpus

    Settings = Callable[..., Resolved]

SMALL: dict[str, Any] = sizes(50, 160, 24, 2, 4, 40)
SHAPES: list[dict[str, Any]] = [
    {},
    {"attention": {"num_kv_heads": 2, "sliding_window": 7}},
    {"mixer": ["window:9", "full:nope"]},
    {"position": "learned", "norm": "layer", "feed_forward": "gelu", "norm_position": "post"},
]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.booleans())
def test_a_document_starts_after_a_separator_or_with_it(row: list[int], separator_first: bool):
    expected, start = list[int](), 0
    for position, token in enumerate(row):
        if separator_first and token == 0:
            start = position
        expected.append(start)
        if not separator_first and token == 0:
            start = position + 1
    ids = torch.tensor([row, row])
    assert DocumentMask(0, separator_first).starts(ids).tolist() == [expected, expected]


def windows() -> Tensor:
    """Two windows with documents of different lengths: the separator, 0, is where it is put."""
    ids = torch.randint(1, 50, (2, 160), generator=torch.Generator().manual_seed(1))
    ids[0, [9, 10, 100]] = 0
    ids[1, [0, 69, 159]] = 0
    return ids


def losses_of_documents(model: TransformerLM, ids: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of windows whose documents are run one by one."""
    total = torch.zeros(())
    for row, target in zip(ids, targets, strict=True):
        ends = [*(position + 1 for position in (row == 0).nonzero()[:, 0].tolist()), len(row)]
        for start, end in zip([0, *ends], ends, strict=False):
            if end > start:
                total = total + model.loss(row[None, start:end], target[None, start:end]) * (end - start)
    return total / targets.numel()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kernels", ["auto", "torch", "scratch"])
def test_each_document_has_the_losses_and_gradients_that_it_has_alone(
    kernels: KernelName, shape: dict[str, Any]
):
    model = TransformerLM(ModelConfig(**SMALL, **shape), seed=1).use_kernels(kernels)
    ids = windows()
    targets = ids.roll(-1, 1)
    ours = model.losses(ids, targets, documents=DocumentMask(0, reset_positions=True))[0]
    alone = losses_of_documents(model, ids, targets)
    torch.testing.assert_close(ours, alone)
    parameters = tuple(model.parameters())
    for a, b in zip(*(torch.autograd.grad(loss, parameters) for loss in (ours, alone)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ours, model.loss(ids, targets))
    model.checkpoint_activations("full")
    again = model.losses(ids, targets, documents=DocumentMask(0, reset_positions=True))[0]
    assert torch.equal(again, ours)


@pytest.mark.parametrize("n_kv_heads", [1, 4])
@pytest.mark.parametrize("window", [None, 20])
def test_kernels_equal_the_textbook_under_the_mask(n_kv_heads: int, window: int | None):
    starts = DocumentMask(0).starts(windows())
    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(2, n, 160, 8, generator=generator).requires_grad_() for n in (4, n_kv_heads, n_kv_heads)
    )
    gradient = torch.randn(2, 4, 160, 8, generator=generator)
    mask = causal_mask(160, 160, window, document_starts=starts)
    heads = [t.repeat_interleave(4 // n_kv_heads, 1) for t in (k, v)]
    expected = scaled_dot_product_attention(q, heads[0], heads[1], mask)
    wanted = torch.autograd.grad(expected, (q, k, v), gradient)
    kernels: tuple[Any, ...] = (causal_attention, windowed_attention)
    for kernel in kernels:
        ours = kernel(q, k, v, window, starts)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
        for a, b in zip(torch.autograd.grad(ours, (q, k, v), gradient), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_has_the_same_mask():
    starts = DocumentMask(0).starts(windows())
    q, k, v = (torch.randn(2, 4, 160, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))
    expected = windowed_attention(q, k, v, 20, starts)
    torch.testing.assert_close(flex_attention(q, k, v, 20, starts), expected, rtol=1e-5, atol=1e-5)


def test_a_run_with_the_mask_learns(settings: Settings):
    always = {"training__document_mask": True, "schedule__name": "constant"}
    folder = train(settings(**always, training__steps=20, optimizer__learning_rate=1e-2))
    first, *_, last = read_metrics(folder.metrics, "step")
    assert last["loss"] < first["loss"]
    assert read_metrics(folder.metrics, "validation")[-1]["loss"] > 0


def test_positions_restart_only_with_the_mask(settings: Settings):
    with pytest.raises(RunConfigError) as raised:
        settings(training__reset_positions=True)
    assert raised.value.hint == "add --training.document-mask"


def test_evaluation_has_the_mask_of_training(settings: Settings, corpus: Corpus):
    folder = train(settings(training__steps=2, training__document_mask=True, training__reset_positions=True))
    (record,) = read_metrics(folder.metrics, "validation")
    trained = load_trained(folder.path, "cpu")
    tokens = JoinedShards([corpus.folder / "validation"])
    documents = trained.documents(corpus.folder / "validation")
    assert documents == DocumentMask(corpus.tokenizer.eot_token, reset_positions=True)
    starts = spread_starts(len(tokens), 16, trained.config.run.validation_windows)
    counts = token_byte_counts(trained.tokenizer)
    score = evaluate_windows(trained.model, tokens, starts, counts, documents=documents)
    assert score.loss == pytest.approx(record["loss"])
    masked, plain = (
        score_shards(trained.model, trained.tokenizer, corpus.folder / "validation", documents=mask)
        for mask in (documents, None)
    )
    assert masked.n_tokens == plain.n_tokens == len(tokens) - 1
    assert masked.loss != plain.loss
