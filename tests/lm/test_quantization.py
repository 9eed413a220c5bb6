"""Quantized weights: llama.cpp's numbers, bounded errors, one function in the textbook, the decoder and on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import CheckpointError, ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.generation.decoding import generate
from bytemill.lm.quantization import (
    Bits,
    QuantizedLinear,
    dequantize,
    empty_quantized_model,
    model_tensors,
    quantize,
    quantize_model,
    quantized_weights,
)
from bytemill.lm.training.saved_model import read_model_folder, write_model_folder
from tests.lm.test_decoders import SHAPES

if TYPE_CHECKING:
    from pathlib import Path

BOTH: Any = pytest.mark.parametrize("bits", [8, 4])

floats = st.floats(-2.0, 2.0, width=32)
groups = st.one_of(
    st.lists(floats, min_size=32, max_size=32),
    floats.map(lambda value: [value] * 32),  # constant
    st.just([0.0] * 32),
    st.tuples(st.lists(floats, min_size=32, max_size=32), st.sampled_from([1e-30, 1e-7, 1e-4, 1e5])).map(
        lambda pair: [value * pair[1] for value in pair[0]]
    ),
)
matrices = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.lists(groups, min_size=width, max_size=width).map(
            lambda row: [value for group in row for value in group]
        ),
        min_size=1,
        max_size=4,
    )
)


def blocks_of(codes: torch.Tensor, scales: torch.Tensor) -> np.ndarray[Any, Any]:
    own = [part.contiguous().view(torch.uint8).reshape(*scales.shape, -1) for part in (scales, codes)]
    return torch.cat(own, dim=-1).flatten(1).numpy()


@BOTH
@given(rows=matrices)
def test_numbers_are_those_of_llama_cpp(bits: Bits, rows: list[list[float]]) -> None:
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[f"Q{bits}_0"]
    weight = torch.tensor(rows)
    codes, scales = quantize(weight, bits)
    with np.errstate(all="ignore"):
        expected = gguf.quants.quantize(weight.numpy(), kind)
    has_scale = (scales != 0).numpy().repeat(32, axis=1)
    values = gguf.quants.dequantize(blocks_of(codes, scales), kind)
    assert np.array_equal(values, gguf.quants.dequantize(expected, kind))
    assert np.array_equal(values, dequantize(codes, scales).numpy())
    if has_scale.all():
        assert np.array_equal(blocks_of(codes, scales), expected)


@BOTH
@given(rows=matrices)
def test_errors_are_at_most_half_a_step(bits: Bits, rows: list[list[float]]) -> None:
    weight = torch.tensor(rows).double()
    codes, scales = quantize(weight.float(), bits)
    error = (dequantize(codes, scales) - weight).abs().unflatten(1, (-1, 32))
    largest = weight.abs().unflatten(1, (-1, 32)).amax(-1, keepdim=True)
    step = largest / (127 if bits == 8 else 8)
    # Rounding of the scale to float16 moves every weight by up to 2⁻¹¹ of it, and of tiny ones by more. The code 8 of
    # four bits does not exist: a weight of the largest magnitude and the other sign has the code 7.
    bound = step / 2 + largest / 2048 + 128 * 2.0**-25
    if bits == 4:
        signed = weight.unflatten(1, (-1, 32))
        first = signed.gather(-1, signed.abs().argmax(-1, keepdim=True))
        is_clipped = -signed * first.sign() > 7.5 * step
        bound = torch.where(is_clipped, step + largest / 2048 + 128 * 2.0**-25, bound)
    assert bool((error <= bound * (1 + 1e-6)).all())


@BOTH
@given(rows=matrices)
def test_quantizing_again_changes_nothing(bits: Bits, rows: list[list[float]]) -> None:
    once = dequantize(*quantize(torch.tensor(rows), bits))
    assert torch.equal(dequantize(*quantize(once, bits)), once)


def model_of(shape: dict[str, Any]) -> TransformerLM:
    sizes: dict[str, Any] = {"vocab_size": 61, "context_length": 24, "d_model": 64, "num_layers": 2}
    model = TransformerLM(ModelConfig(**{**sizes, "num_heads": 4, "d_ff": 96, **shape}), seed=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


OWN_SHAPES: dict[str, dict[str, Any]] = {
    name: {**shape, "attention": {**shape.get("attention", {}), "head_dim": 16}}
    for name, shape in SHAPES.items()
    if name != "unrotated layers"  # which the core does not decode
}


@BOTH
@pytest.mark.parametrize("shape", OWN_SHAPES.values(), ids=OWN_SHAPES)
@torch.inference_mode()
def test_the_decoder_and_the_forward_pass_compute_a_float32_model_of_the_same_values(
    shape: dict[str, Any], bits: Bits
) -> None:
    plain = model_of(shape)
    model = quantize_model(model_of(shape), bits)
    values = quantized_weights(model)
    for name, parameter in plain.named_parameters():
        if name in values:
            parameter.copy_(values[name].rows())
    ids = np.random.default_rng(2).integers(0, 61, 24).tolist()
    expected = plain(torch.tensor([ids]))
    assert torch.allclose(model(torch.tensor([ids])), expected, rtol=1e-6, atol=1e-6)
    cache = KVCache(model.config, 1)
    assert CoreDecoder.supports(model, cache)
    model(torch.tensor([ids[:3]]), cache)
    decoder = CoreDecoder(model, cache)
    for position, token in enumerate(ids[3:], start=3):
        difference = (decoder.logits_after(token) - expected[0, position]).abs().max()
        assert difference < 1e-5 * expected[0, position].abs().max()


@BOTH
def test_generation_and_batches_are_those_of_the_textbook(bits: Bits) -> None:
    model = quantize_model(model_of(OWN_SHAPES["gpt2"]), bits)
    expected = generate(model, [1, 2, 3], 40, temperature=0)
    model.use_kernels("auto")
    assert generate(model, [1, 2, 3], 40, temperature=0) == expected
    assert generate(model, [1, 2, 3], 40, temperature=0, n_samples=2) == expected * 2


@BOTH
@pytest.mark.parametrize("name", ["gpt2", "default"])
def test_quantized_parameters_are_counted(bits: Bits, name: str) -> None:
    model = model_of(OWN_SHAPES[name])
    expected = [model.n_parameters(non_embedding=own) for own in (False, True)]
    quantized = quantize_model(model, bits)
    assert [quantized.n_parameters(non_embedding=own) for own in (False, True)] == expected


def test_tied_weights_are_shared_and_what_is_no_matrix_stays() -> None:
    model = quantize_model(model_of(OWN_SHAPES["gpt2"]), 8)
    assert isinstance(model.lm_head, QuantizedLinear)
    assert model.lm_head.quantized is model.token_embeddings.quantized
    assert {name.rpartition(".")[2] for name, _ in model.named_parameters()} == {"weight", "bias"}
    assert all(
        parameter.ndim == 1 or name == "position_embeddings.weight"
        for name, parameter in model.named_parameters()
    )
    model.bfloat16()
    assert {each.scales.dtype for each in quantized_weights(model).values()} == {torch.float16}


@BOTH
def test_rows_that_are_no_whole_groups_are_refused_by_name(bits: Bits) -> None:
    model = model_of({"d_ff": 70})
    with pytest.raises(ModelConfigError, match=r"layers\.0\.ffn\.w2\.weight has rows of 70 weights"):
        quantize_model(model, bits)
    assert not quantized_weights(model)
    with pytest.raises(ModelConfigError, match="the matrix has rows of 33 weights"):
        quantize(torch.zeros(2, 33), bits)


@BOTH
@pytest.mark.parametrize("name", ["gpt2", "post-norm", "grouped heads"])
def test_a_folder_returns_the_codes(tmp_path: Path, bits: Bits, name: str) -> None:
    model = quantize_model(model_of(OWN_SHAPES[name]), bits)
    tensors = model_tensors(model)
    written = write_model_folder(tmp_path, model.config, tensors, None, source="a test", bits=bits)
    found = read_model_folder(tmp_path)
    assert found == written
    own = empty_quantized_model(found.model, bits)
    found.load_weights(own)
    assert all(torch.equal(tensor, tensors[key]) for key, tensor in model_tensors(own).items())
    ids = torch.arange(20)[None]
    assert torch.equal(own(ids), model(ids))
    plain = TransformerLM(found.model, seed=0).eval()
    found.load_weights(plain)
    assert torch.allclose(plain(ids), model(ids), rtol=1e-5, atol=1e-5)
    other = empty_quantized_model(found.model, 4 if bits == 8 else 8)
    with pytest.raises((CheckpointError, RuntimeError)):
        found.load_weights(other)
