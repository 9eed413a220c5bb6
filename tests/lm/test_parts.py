"""A part of a model or of training is known to export, planning, checkpoints and the core, or refused by name there."""

from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import pytest
import torch

from bytemill.errors import ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.generation.decoding import CoreDecoder
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.model import MultiHeadSelfAttention
from bytemill.lm.model_config import FEED_FORWARD_MATRICES, KNOWN_OPTIONS, FeedForwardKind
from bytemill.lm.planning import (
    OptimizerName,
    block_matrices,
    forward_flops,
    n_parameters,
    plan,
    training_memory,
)
from bytemill.lm.processes import Processes
from bytemill.lm.training.config import OptimizerConfig, TrainConfig
from bytemill.lm.training.run import make_optimizer, set_rates

SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "context_length": 16,
    "d_model": 24,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 40,
}


class NewConfig(ModelConfig):
    """A configuration with an option that nobody was taught."""

    mixer: Literal["attention", "convolution"] = "attention"


@pytest.mark.parametrize(
    "use",
    [
        n_parameters,
        block_matrices,
        forward_flops,
        training_memory,
        plan,
        check_supported,
        partial(check_supported, gguf=True),
    ],
)
def test_a_new_option_is_refused_by_name_unless_it_has_its_default(use: Any):
    assert set(ModelConfig.model_fields) >= KNOWN_OPTIONS
    use(NewConfig(**SMALL))
    with pytest.raises(ModelConfigError, match="mixer 'convolution'"):
        use(NewConfig(**SMALL, mixer="convolution"))


def test_the_core_leaves_a_new_option_or_a_new_module_to_torch():
    model = TransformerLM(NewConfig(**SMALL)).eval()
    assert CoreDecoder.supports(model, KVCache(model.config, 1))
    model.config = NewConfig(**SMALL, mixer="convolution")
    assert not CoreDecoder.supports(model, KVCache(model.config, 1))

    class Louder(MultiHeadSelfAttention):
        def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
            return 2 * super().forward(*arguments, **options)

    model = TransformerLM(ModelConfig(**SMALL)).eval()
    model.layers[0].attn = Louder(24, 4)
    assert not CoreDecoder.supports(model, KVCache(model.config, 1))


def test_every_feed_forward_network_has_its_parameters_counted():
    assert set(get_args(FeedForwardKind)) == set(FEED_FORWARD_MATRICES)
    for kind in FEED_FORWARD_MATRICES:
        for bias in (False, True):
            config = ModelConfig(**SMALL, feed_forward=kind, bias=bias)
            assert n_parameters(config) == TransformerLM(config, device="meta").n_parameters()


def optimizers() -> tuple[str, ...]:
    return get_args(OptimizerConfig.model_fields["name"].annotation)


@pytest.mark.parametrize("name", optimizers())
def test_the_planned_state_of_every_optimizer_is_the_one_that_it_keeps(name: Any):
    config = TrainConfig.model_validate(
        {
            "model": {key: value for key, value in SMALL.items() if key != "vocab_size"} | {"vocab_size": 50},
            "data": {"train": "x", "tokenizer": "x"},
            "run": {"folder": "x"},
            "training": {"steps": 10},
            "optimizer": {"name": name},
        }
    )
    model = TransformerLM(config.model, seed=0)
    optimizer = make_optimizer(model, config, Processes())
    model.loss(torch.arange(16)[None], torch.arange(16)[None]).backward()
    set_rates(optimizer, 0, config)
    optimizer.step()
    tensors = [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    kept = sum(4 * tensor.numel() for tensor in tensors if tensor.ndim)
    assert training_memory(config.model, optimizer=name).optimizer == kept


def test_the_state_of_an_unknown_optimizer_is_not_guessed():
    assert set(get_args(OptimizerName)) == set(optimizers())
    unknown: Any = "soap"
    with pytest.raises(ModelConfigError, match="the state of the optimizer 'soap' is unknown"):
        training_memory(ModelConfig(**SMALL), optimizer=unknown)


PATHS = {
    "layers": "Linear Embedding RMSNorm LayerNorm SwiGLU FeedForward silu gelu",
    "attention": "softmax scaled_dot_product_attention RotaryEmbedding MultiHeadSelfAttention",
    "model": "ModelConfig TransformerBlock TransformerLM",
    "loss": "cross_entropy perplexity bits_per_byte",
    "optim": "SGD AdamW Muon clip_gradients",
    "schedule": "cosine_with_warmup warmup_stable_decay",
    "batches": "get_batch",
    "checkpoint": "save_checkpoint load_checkpoint",
    "generation": "generate",
}


@pytest.mark.parametrize("module", PATHS)
def test_the_textbook_parts_have_stable_import_paths(module: str):
    imported = import_module(f"bytemill.lm.{module}")
    for name in PATHS[module].split():
        assert callable(getattr(imported, name))
