"""The multi-token head learns the token after the next one, and leaves the rest of the model as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bytemill.errors import ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.batches import DocumentMask
from bytemill.lm.generation import generate
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.optim import AdamW
from bytemill.lm.planning import n_parameters, parameters_by_part, step_flops
from tests.lm.conftest import sizes


def config(**options: Any) -> ModelConfig:
    return ModelConfig(**sizes(50, 16, 24, 2, 4, 40), **{"multi_token_weight": 0.3, **options})


def second_loss(model: TransformerLM, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The definition, position by position."""
    head: Any = model.multi_token
    hidden, losses = model.hidden(ids), []
    inputs = torch.cat((head.norm_hidden(hidden), head.norm_embedding(model.token_embeddings(targets))), -1)
    rows = head.norm(head.block(head.projection(inputs[:, :-1])))
    for row in range(len(ids)):
        for position in range(ids.shape[1] - 1):
            logits = model.lm_head(rows[row, position])
            losses.append(-logits.log_softmax(-1)[targets[row, position + 1]])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("kernels", ["scratch", "auto"])
def test_the_loss_is_that_of_its_definition(kernels: Any) -> None:
    model = TransformerLM(config(), seed=0).use_kernels(kernels)
    text = torch.randint(50, (3, 13))
    ids, targets = text[:, :-1], text[:, 1:]
    total, cross_entropy = model.losses(ids, targets)
    torch.testing.assert_close(total, cross_entropy + 0.3 * second_loss(model, ids, targets))
    total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_evaluation_and_generation_leave_the_head_out() -> None:
    model = TransformerLM(config(), seed=0).eval()
    plain = TransformerLM(config(multi_token_weight=None)).eval()
    plain.load_state_dict(
        {name: own for name, own in model.state_dict().items() if "multi_token" not in name}
    )
    ids = torch.randint(50, (2, 12))
    assert torch.equal(model(ids), plain(ids))
    assert torch.equal(model.loss(ids, ids), plain.loss(ids, ids))
    assert torch.equal(model(ids, KVCache(model.config, 2)), plain(ids, KVCache(plain.config, 2)))
    assert generate(model, [1, 2], 10, temperature=0) == generate(plain, [1, 2], 10, temperature=0)


def test_positions_without_a_target_do_not_count_and_documents_are_kept_apart() -> None:
    model = TransformerLM(config(), seed=0)
    ids = torch.tensor([[1, 2, 3, 7, 4, 5, 6, 9]])
    targets = torch.tensor([[2, 3, 7, -1, 5, 6, 9, -1]])
    padded, cross_entropy = model.losses(
        ids, targets, documents=DocumentMask(7, reset_positions=True), is_padded=True
    )
    apart: list[torch.Tensor] = []
    for start in (0, 4):
        own, wanted = ids[:, start : start + 3], targets[:, start : start + 3]
        apart.append(second_loss(model, own, wanted))
    torch.testing.assert_close(padded, cross_entropy + 0.3 * (apart[0] + apart[1]) / 2)
    nothing, alone = model.losses(ids[:, :1], ids[:, :1])
    assert torch.equal(nothing, alone)


def test_the_head_learns_what_comes_two_tokens_later() -> None:
    model = TransformerLM(config(), seed=0)
    optimizer = AdamW(model.parameters(), lr=3e-3)
    text = (torch.arange(17) * 7 % 50).expand(4, -1)
    losses: list[float] = []
    for _ in range(60):
        total, cross_entropy = model.losses(text[:, :-1], text[:, 1:])
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((total - cross_entropy).item() / 0.3)
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("options", [{}, {"bias": True, "norm": "layer", "mixer": ["window:4", "full"]}])
def test_its_parameters_and_flops_are_counted(options: dict[str, Any]) -> None:
    own = config(**options)
    model = TransformerLM(own)
    assert n_parameters(own) == model.n_parameters()
    assert parameters_by_part(own)["multi-token head"] == sum(
        p.numel() for p in model.multi_token.parameters()
    )
    ids = torch.randint(50, (3, 16))
    with FlopCounterMode(display=False) as counter:
        model.loss(ids, ids).backward()
    assert counter.get_total_flops() == sum(step_flops(own, 3).values())


def test_export_refuses_it_by_name() -> None:
    for gguf in (False, True):
        with pytest.raises(ModelConfigError, match=r"lacks multi_token_weight 0\.3"):
            check_supported(config(), gguf=gguf)
