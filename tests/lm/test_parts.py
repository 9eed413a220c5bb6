"""A part of a model or of training is known to export, planning, checkpoints and the core, or refused by name there."""

from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import pytest
import torch

from bytemill.errors import ModelConfigError, RunConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.inspection import trace
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.model import FeedForward, MultiHeadSelfAttention
from bytemill.lm.model_config import (
    FEED_FORWARDS,
    KNOWN_OPTIONS,
    MIXERS,
    NORMS,
    FeedForwardKind,
    Mixer,
    Norm,
    Part,
)
from bytemill.lm.optimizers import OPTIMIZERS, OptimizerName
from bytemill.lm.planning import block_matrices, forward_flops, n_parameters, plan, training_memory
from bytemill.lm.processes import Processes
from bytemill.lm.training.config import OptimizerConfig, TrainConfig
from bytemill.lm.training.run import make_optimizer, set_rates
from tests.lm.conftest import sizes

SMALL: dict[str, Any] = sizes(50, 16, 24, 2, 4, 40)


class NewConfig(ModelConfig):
    """A configuration with an option that nobody was taught."""

    twist: Literal["none", "left"] = "none"


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
    assert set(ModelConfig.fields_by_name()) >= KNOWN_OPTIONS
    use(NewConfig(**SMALL))
    with pytest.raises(ModelConfigError, match="twist 'left'"):
        use(NewConfig(**SMALL, twist="left"))


def test_the_core_leaves_a_new_option_or_a_new_module_to_torch():
    model = TransformerLM(NewConfig(**SMALL)).eval()
    assert CoreDecoder.supports(model, KVCache(model.config, 1))
    model.config = NewConfig(**SMALL, twist="left")
    assert not CoreDecoder.supports(model, KVCache(model.config, 1))

    class Louder(MultiHeadSelfAttention):
        def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
            return 2 * super().forward(*arguments, **options)

    model = TransformerLM(ModelConfig(**SMALL)).eval()
    model.layers[0].attn = Louder(24, 4)
    assert not CoreDecoder.supports(model, KVCache(model.config, 1))


REGISTRIES: dict[str, tuple[Any, Any]] = {
    "mixer": (MIXERS, None),
    "feed_forward": (FEED_FORWARDS, FeedForwardKind),
    "norm": (NORMS, Norm),
}


@pytest.mark.parametrize("option", REGISTRIES)
def test_every_part_is_known_everywhere_or_refused_by_name(option: str):
    parts, names = REGISTRIES[option]
    assert names is None or set(get_args(names)) == set(parts)
    for kind, part in parts.items():
        name = kind + getattr(part, "example", "")
        for bias in (False, True):
            config = ModelConfig(**SMALL, **{option: name}, bias=bias)
            model = TransformerLM(config, device="meta")
            assert any(type(module) is part.load() for module in model.modules())
            assert n_parameters(config) == model.n_parameters()
        assert training_memory(config).total(1) > 0
        assert sum(forward_flops(config).values()) > 0
        for gguf in (False, True):
            refused = ""
            try:
                check_supported(config, gguf=gguf)
            except ModelConfigError as error:
                refused = str(error)
            assert not refused or "lacks" in refused
        model = TransformerLM(ModelConfig(**SMALL, **{option: name})).eval()
        assert CoreDecoder.supports(model, KVCache(model.config, 1)) == part.in_core


@pytest.mark.parametrize("option", REGISTRIES)
def test_what_a_part_does_not_count_is_an_error_that_names_it(option: str, monkeypatch: pytest.MonkeyPatch):
    parts, _ = REGISTRIES[option]
    name = next(iter(parts))
    config = ModelConfig(**SMALL)
    model = TransformerLM(config).eval()
    monkeypatch.setitem(
        parts, name, Mixer(parts[name].code) if option == "mixer" else Part(parts[name].code, option=option)
    )
    for count in (n_parameters, training_memory):
        with pytest.raises(ModelConfigError, match=f"the parameters of {option} '{name}' are unknown"):
            count(config)
    if option != "norm":  # whose operations are not counted
        with pytest.raises(ModelConfigError, match=f"the FLOPs of {option} '{name}' are unknown"):
            forward_flops(config)
    assert not CoreDecoder.supports(model, KVCache(config, 1))


def test_the_weights_of_another_mixer_are_not_shown_as_attention():
    model = TransformerLM(ModelConfig(**SMALL)).eval()
    model.layers[0].attn = FeedForward(24, 40)
    with pytest.raises(RunConfigError, match="has no attention weights"):
        trace(model, [1, 2])


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
    assert set(get_args(OptimizerName)) == set(optimizers()) == set(OPTIMIZERS)
    unknown: Any = "none"
    with pytest.raises(ModelConfigError, match="the state of the optimizer 'none' is unknown"):
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
