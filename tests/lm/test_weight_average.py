"""Moving average of the weights: its formula, and its way into the model and back."""

import torch

from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.training.run import WeightAverage

TINY = ModelConfig(
    vocab_size=20, context_length=8, d_model=8, num_layers=1, num_heads=2, d_ff=16, tied_embeddings=True
)


def copies(model: TransformerLM) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_an_average_is_its_formula() -> None:
    model = TransformerLM(TINY, seed=1)
    average = WeightAverage(model, decay=0.3)
    expected = copies(model)
    for t in range(1, 6):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update()
        decay = min(0.3, (1 + t) / (10 + t))
        expected = [
            decay * mean + (1 - decay) * weights
            for mean, weights in zip(expected, copies(model), strict=True)
        ]
    for ours, theirs in zip(average.tensors, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_average_is_in_the_model_inside_the_block_alone() -> None:
    model = TransformerLM(TINY, seed=1)
    average = WeightAverage(model, decay=0.5)
    first = copies(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    last = copies(model)
    with average.in_model():
        assert all(torch.equal(a, b) for a, b in zip(first, copies(model), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(last, copies(model), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, average.tensors, strict=True))
