"""The mixer of each block: names with arguments, repeated over the blocks."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from bytemill.errors import ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.batches import DocumentMask
from bytemill.lm.training.config import (
    config_from_dict,
    config_to_toml,
    file_layer,
    parse_setting,
    resolve,
)
from tests.lm.conftest import sizes

SMALL: dict[str, Any] = sizes(50, 24, 24, 5, 4, 40)


def test_names_are_repeated_over_the_blocks():
    model = TransformerLM(ModelConfig(**SMALL, mixer=("window:3", "window:30", "full:nope")))
    attentions: list[Any] = [layer.attn for layer in model.layers]
    assert [attention.window for attention in attentions] == [3, 30, None, 3, 30]
    assert [attention.rope is None for attention in attentions] == [False, False, True, False, False]
    assert len({id(attention.rope) for attention in attentions if attention.rope}) == 1
    assert [cache.keys.shape[2] for cache in KVCache(model.config, 1).layers] == [2, 24, 24, 2, 24]
    for layer in model.config.layers:
        assert layer.config.layers[0] == layer


@pytest.mark.parametrize("kernels", ["auto", "torch", "scratch"])
@pytest.mark.parametrize(
    ("names", "same"),
    [
        (["window:5"], {"attention": {"sliding_window": 5}}),
        (["full"], {}),
        ("attention", {}),
        (["full:nope", "full:nope"], {"position": "none"}),
    ],
    ids=str,
)
def test_equal_mixers_give_equal_models(kernels: Any, names: Any, same: dict[str, Any]):
    ids = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(1))
    models = [TransformerLM(ModelConfig(**SMALL, **own), seed=1) for own in ({"mixer": names}, same)]
    losses = [model.use_kernels(kernels).loss(ids, ids.roll(1, 1)) for model in models]
    assert torch.equal(*losses)


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        ("windw:4", "mixer is 'windw:4'", "did you mean window"),
        ("window", "mixer is 'window'", "such as window:512"),
        (["full", "window:0"], "mixer is 'window:0'", "such as window:512"),
        ("full:rope", "mixer is 'full:rope'", "full:nope"),
        ("attention:4", "mixer is 'attention:4'", "no arguments"),
        ([], r"mixer is \[\]", ""),
    ],
)
def test_unknown_names_and_arguments_are_one_line(names: Any, message: str, hint: str):
    with pytest.raises(ModelConfigError, match=message) as raised:
        ModelConfig(**SMALL, mixer=names)
    assert hint in (raised.value.hint or "")


def test_the_names_survive_files_and_the_command_line(tmp_path: Any):
    names = parse_setting("model.mixer", "window:4 full")
    assert names == ["window:4", "full"]
    data = {"data.train": "x", "data.tokenizer": "x", "run.folder": "x"}
    resolved = resolve([("here", {"model.mixer": names, "model.vocab_size": 50, **data})])
    assert resolved.config.model.mixer == ("window:4", "full")
    (tmp_path / "config.toml").write_text(config_to_toml(resolved))
    again = resolve([file_layer(tmp_path / "config.toml")])
    assert again.config.model == resolved.config.model
    old = resolved.config.to_dict()
    old["model"]["mixer"] = "attention"  # as runs stored it that knew one mixer
    assert config_from_dict(old).model.mixer == ("attention",)


def test_each_window_has_a_mask_of_the_kernels_for_documents():
    model = TransformerLM(ModelConfig(**SMALL, mixer=("window:3", "full")), seed=1).eval()
    made = list[Any]()

    def mask(starts: torch.Tensor, window: int | None) -> tuple[torch.Tensor, int | None]:
        made.append((tuple(starts.shape), window))
        return starts, window

    def attention(q: Any, k: Any, v: Any, window: int | None, mask: Any) -> torch.Tensor:
        assert mask[1] == window
        return model.kernels.masked_attention(q, k, v, None, 0.0)  # pyright: ignore[reportOptionalCall]

    model.use_kernels("torch")
    model.use_kernels(replace(model.kernels, document_mask=mask, attention=attention))
    model.hidden(torch.randint(50, (2, 24)), documents=DocumentMask(0))
    assert sorted(made, key=str) == [((2, 24), 3), ((2, 24), None)]
