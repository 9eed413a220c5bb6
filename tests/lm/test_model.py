"""The whole model: names, options, cache, and the parts of torch that it uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import bytemill.lm
from bytemill.errors import ModelConfigError
from bytemill.lm import PRESETS, KVCache, ModelConfig, TransformerLM, preset
from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.loss import cross_entropy
from bytemill.lm.model import TransformerBlock
from bytemill.system.extras import install_hint
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from bytemill.lm.model_config import KernelName

SMALL: dict[str, Any] = sizes(50, 16, 24, 2, 4, 40)
options = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["rms", "layer"]),
        "position": st.sampled_from(["rotary", "learned", "sinusoidal", "none"]),
        "feed_forward": st.sampled_from(["swiglu", "gelu", "relu"]),
        "norm_position": st.sampled_from(["pre", "post"]),
        "tied_embeddings": st.booleans(),
        "bias": st.booleans(),
        "attention": st.fixed_dictionaries(
            {"num_kv_heads": st.sampled_from([None, 1, 2]), "sliding_window": st.none() | st.integers(1, 20)}
        ),
    }
)
kernel_names = st.sampled_from(["auto", "torch", "scratch"])


def test_names_in_the_state_dict() -> None:
    model = TransformerLM(ModelConfig(**SMALL))
    layer = [
        "attn.k_proj.weight",
        "attn.output_proj.weight",
        "attn.q_proj.weight",
        "attn.v_proj.weight",
        "ffn.w1.weight",
        "ffn.w2.weight",
        "ffn.w3.weight",
        "ln1.weight",
        "ln2.weight",
    ]
    assert sorted(model.state_dict()) == sorted(
        ["token_embeddings.weight", "ln_final.weight", "lm_head.weight"]
        + [f"layers.{n}.{name}" for n in range(2) for name in layer]
    )


def test_tied_embeddings_are_one_tensor_under_two_names() -> None:
    model = TransformerLM(ModelConfig(**SMALL, tied_embeddings=True))
    assert model.state_dict()["lm_head.weight"].data_ptr() == model.token_embeddings.weight.data_ptr()
    # As rows of the output layer they would otherwise give logits of the size √d_model.
    assert model.token_embeddings.weight.std().item() == pytest.approx(0.02, rel=0.1)
    other = TransformerLM(model.config)
    other.load_state_dict(model.state_dict())
    assert other.lm_head.weight is other.token_embeddings.weight


@given(
    options,
    kernel_names,
    st.integers(0, 2**31),
    st.lists(st.integers(1, 6), min_size=2, max_size=3),
    st.booleans(),
)
def test_logits_with_a_cache_are_those_without(
    chosen: dict[str, Any], kernels: KernelName, seed: int, pieces: list[int], padded: bool
) -> None:
    config = ModelConfig(**SMALL, **chosen)
    model = TransformerLM(config, seed=seed).eval().use_kernels(kernels)
    ids = torch.randint(50, (2, max(3, min(16, sum(pieces)))), generator=torch.Generator().manual_seed(seed))
    n_padding = torch.tensor([0, 2]) if padded else None
    cache = KVCache(config, 2, n_padding=n_padding)
    with_cache = torch.empty(0)
    with torch.no_grad():
        for _ in range(2):
            parts = [model(piece, cache) for piece in ids.split(pieces[0], dim=1)]
            with_cache = torch.cat(parts, dim=1)
            assert cache.n_positions == ids.shape[1]
            assert cache.n_positions == ids.shape[1]
            cache.reset(n_padding)
        whole = model(ids)
        torch.testing.assert_close(with_cache[0], whole[0], rtol=1e-4, atol=1e-4)
        if padded:  # the second row without its two padding ids is a text of its own
            whole = torch.cat((whole[:1], torch.nn.functional.pad(model(ids[1:, 2:]), (0, 0, 2, 0))))
            with_cache[1, :2] = 0
        torch.testing.assert_close(with_cache, whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model(ids, last_only=True), model(ids)[:, -1:])


@given(options, st.sampled_from(["auto", "torch"]), st.integers(0, 2**31))
def test_loss_and_gradients_of_kernels_are_those_of_the_textbook(
    chosen: dict[str, Any], kernels: KernelName, seed: int
) -> None:
    model = TransformerLM(ModelConfig(**SMALL, **chosen), seed=seed)
    ids = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(seed))
    inner: list[torch.Tensor] = []
    for name, module in model.named_modules():
        if name.endswith("ffn.w1"):
            module.register_forward_hook(lambda *found: inner.append(found[2].detach()))
    reference = cross_entropy(model(ids[:, :-1]), ids[:, 1:])
    # The slope of ReLU jumps at 0, where roundings choose the side.
    assume(chosen.get("feed_forward") != "relu" or min(float(each.abs().min()) for each in inner) > 1e-5)
    values = [model.use_kernels(kernels).loss(ids[:, :-1], ids[:, 1:]), reference]
    torch.testing.assert_close(*values, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(value, tuple(model.parameters())) for value in values]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@given(options, kernel_names, st.integers(0, 14))
def test_no_token_attends_to_later_tokens(chosen: dict[str, Any], kernels: KernelName, position: int) -> None:
    model = TransformerLM(ModelConfig(**SMALL, **chosen), seed=1).eval().use_kernels(kernels)
    ids = torch.arange(16)
    changed = ids.clone()
    changed[position + 1 :] = 49
    with torch.no_grad():
        torch.testing.assert_close(
            model(ids)[: position + 1], model(changed)[: position + 1], rtol=1e-5, atol=1e-5
        )


def test_any_leading_dimensions() -> None:
    model = TransformerLM(ModelConfig(**SMALL), seed=1)
    ids = torch.randint(50, (2, 3, 7))
    logits = model(ids)
    assert logits.shape == (2, 3, 7, 50)
    torch.testing.assert_close(model(ids[1, 2]), logits[1, 2], rtol=1e-4, atol=1e-5)
    block = TransformerBlock(model.config)
    assert block(torch.randn(2, 3, 7, 24)).shape == (2, 3, 7, 24)


def test_a_seed_sets_the_weights_and_preserves_torchs_generator() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b = (TransformerLM(ModelConfig(**SMALL), seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_applies_only_in_training() -> None:
    model = TransformerLM(ModelConfig(**SMALL, dropout=0.5), seed=1)
    ids = torch.arange(8)
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


def test_more_positions_than_the_context_are_refused() -> None:
    model = TransformerLM(ModelConfig(**SMALL))
    with pytest.raises(ValueError, match="17 positions exceed the context length of 16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="batch size is 2"):
        KVCache(model.config, 2, n_padding=torch.tensor([1]))


def test_mixed_precision_and_bfloat16_stay_near_float32() -> None:
    model = TransformerLM(ModelConfig(**SMALL), seed=1)
    ids = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(1))
    exact = model.loss(ids[:, :-1], ids[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.loss(ids[:, :-1], ids[:, 1:])
    mixed.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    narrow = model.bfloat16().loss(ids[:, :-1], ids[:, 1:])
    # 8 bits per number, some dozens of consecutive roundings
    torch.testing.assert_close(mixed, exact, rtol=2e-2, atol=0)
    torch.testing.assert_close(narrow.float(), exact, rtol=2e-2, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "feed_forward": "relu2",
            "logit_soft_cap": 2.0,
            "attention": {"head_dim": 8, "num_kv_heads": 2, "qk_norm": True, "qkv_bias": True},
            "rope": {"fraction": 0.5},
        },
    ],
    ids=["default", "options"],
)
def test_blocks_are_compiled_once_and_give_the_same_values_and_gradients(options: dict[str, Any]) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, example_inputs: Any) -> Any:
        graphs.append(graph)
        return compile_fx(graph, example_inputs)

    from torch._inductor.compile_fx import compile_fx

    torch.compiler.reset()  # what other tests have compiled counts towards the limit of recompilations
    model = TransformerLM(ModelConfig(**SMALL, **options), seed=1)
    ids = torch.randint(50, (2, 13), generator=torch.Generator().manual_seed(1))
    plain = model.loss(ids[:, :-1], ids[:, 1:])
    model.use_kernels(choose_kernels("auto", torch.device("cpu"), compiled=True)).compile_blocks(
        backend=backend
    )
    values = [plain, model.loss(ids[:, :-1], ids[:, 1:])]
    torch.testing.assert_close(*values)
    for a, b in zip(*(torch.autograd.grad(v, tuple(model.parameters())) for v in values), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1
    model.eval()
    model(ids)  # other shapes outside of training are not compiled
    assert len(graphs) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_gives_the_results_of_the_cpu(dtype: torch.dtype) -> None:
    config = ModelConfig(
        **{**SMALL, "context_length": 600, "d_model": 64, "attention": {"sliding_window": 550}}
    )
    model, ids = TransformerLM(config, seed=1), torch.randint(50, (3, 601))
    loss = model.loss(ids[:, :-1], ids[:, 1:])
    expected = torch.autograd.grad(loss, tuple(model.parameters()))
    model, ids = model.cuda(), ids.cuda()
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        on_gpu = model.loss(ids[:, :-1], ids[:, 1:])
    rtol = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(on_gpu.cpu(), loss, rtol=rtol, atol=0)
    for a, b in zip(torch.autograd.grad(on_gpu, tuple(model.parameters())), expected, strict=True):
        # TF32 is off; only the order of sums and roundings in bfloat16 differ.
        assert (a.cpu() - b).norm() <= (1e-3 if dtype == torch.float32 else 5e-2) * b.norm()


def test_presets() -> None:
    assert preset("tinystories") == ModelConfig(**sizes(10_000, 256, 512, 4, 16, 1344))
    assert preset("gpt2", context_length=64).context_length == 64
    millions = {
        name: round(TransformerLM(c, device="meta").n_parameters() / 1e6) for name, c in PRESETS.items()
    }
    assert millions == {
        "tiny": 2,
        "tinystories": 23,
        "gpt2": 124,
        "gpt2-medium": 355,
        "gpt2-large": 774,
        "gpt2-xl": 1558,
        "llama-30m": 31,
        "llama-60m": 62,
        "llama-125m": 125,
        "llama-350m": 348,
        "llama-1b": 1100,
        "nanochat-d12": 186,
        "nanochat-d20": 561,
    }
    with pytest.raises(ModelConfigError, match="unknown preset 'gpt5'"):
        preset("gpt5")
    with pytest.raises(ModelConfigError, match="unknown setting n_layer"):
        preset("tiny", n_layer=3)


def test_a_configuration_survives_a_dictionary() -> None:
    config = preset("gpt2-xl", attention={"num_kv_heads": 5})
    assert ModelConfig(**config.to_dict()) == config
    with pytest.raises(ModelConfigError, match="vocab_size must be set"):
        ModelConfig(**{name: SMALL[name] for name in SMALL if name != "vocab_size"})


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        ({"num_heads": 5}, "d_model 24 is not divisible by num_heads 5", "4 or 6"),
        (
            {"attention": {"num_kv_heads": 3}},
            "num_heads 4 is not divisible by attention.num_kv_heads 3",
            "2 or 4",
        ),
        ({"num_heads": 8}, "d_model / num_heads is 3", "even"),
        ({"position": "sinusoidal", "d_model": 25, "num_heads": 5}, "d_model is 25", "even"),
        ({"attention": {"head_dim": 7}}, "attention.head_dim is 7", "make attention.head_dim even"),
        (
            {"attention": {"head_dim": 6}, "rope": {"fraction": 0.5}},
            "of a head of width 6 is 3",
            "another rope.fraction",
        ),
        (
            {"rope": {"factor": 8.0}},
            "rope.factor is 8.0, but rope.scaling is not set",
            "linear, llama3 or yarn",
        ),
        ({"rope": {"scaling": "llama3", "high_freq_factor": 1.0}}, "1.0 is not above", "4 and 1"),
        ({"rope": {"scaling": "ntk"}}, "rope.scaling is 'ntk'", "linear, llama3"),
        ({"logit_soft_cap": 0}, "logit_soft_cap is 0", "above 0"),
        ({"norm": "batch"}, "norm is 'batch'", "rms, layer"),
        ({"d_ff": 0}, "d_ff is 0", "at least 1"),
        ({"num_layers": 2.0}, r"num_layers is 2\.0", "whole number"),
        ({"attention": {"sliding_window": 0}}, "attention.sliding_window is 0", "at least 1"),
        ({"dropout": 1.0}, r"dropout is 1\.0", "below 1"),
        ({"rope": {"thet": 1.0}}, r"unknown setting rope\.thet", "theta"),
        ({"rope": {"theta": 0.0}}, r"rope\.theta is 0\.0", "above 0"),
        ({"norm_eps": float("nan")}, "norm_eps is nan", "finite"),
    ],
)
def test_impossible_configurations_are_refused_with_a_hint(
    wrong: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(ModelConfigError, match=message) as failure:
        ModelConfig(**{**SMALL, **wrong})
    assert hint in str(failure.value.hint)


# Allowed names of torch.nn and torch.optim outside of lm/kernels.
ALLOWED = {
    "Parameter", "Module", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Sequential",
    "Optimizer",
}  # fmt: skip
FUSED = {("processes.py", "torch.nn.parallel.DistributedDataParallel")}
FORBIDDEN_FUNCTIONS = {
    "softmax", "log_softmax", "layer_norm", "rms_norm", "embedding", "dropout", "logsumexp", "relu",
}  # fmt: skip


def dotted(node: ast.AST) -> str:
    """Return the dotted name `a.b.c` of an expression, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def borrowed(source: str, file: str) -> list[str]:
    """Return the forbidden names of torch that a source uses."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.startswith(("torch.nn", "torch.optim")):
            deep = module not in ("torch.nn", "torch.optim")
            found += [f"{module}.{a.name}" for a in node.names if deep or a.name not in ALLOWED]
        elif isinstance(node, ast.ImportFrom) and module == "torch":
            found += [
                f"torch.{a.name}" for a in node.names if a.name in {"nn", "optim", *FORBIDDEN_FUNCTIONS}
            ]
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith(("torch.nn", "torch.optim"))]
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            package = name.startswith(("torch.nn.", "torch.optim.")) and name.split(".")[2] not in ALLOWED
            whole = not name.endswith((".functional", ".parallel"))  # a prefix of a longer name
            if (package and whole and (file, name) not in FUSED) or (
                name.startswith("torch.") and name.split(".")[1] in FORBIDDEN_FUNCTIONS
            ):
                found.append(name)
    return found


def test_no_layers_losses_or_optimizers_of_torch_are_used() -> None:
    folder = Path(bytemill.lm.__file__).parent
    files = sorted(file for file in folder.rglob("*.py") if file.parent.name != "kernels")
    assert len(files) > 20
    found = [f"{file.name}: {name}" for file in files for name in borrowed(file.read_text(), file.name)]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch.nn.functional as F",
        "from torch.nn import functional",
        "from torch.nn.init import trunc_normal_",
        "from torch import nn",
        "import torch\ntorch.softmax(x, -1)",
        "import torch\ntorch.nn.functional.silu(x)",
        "from torch.optim import AdamW",
    ],
)
def test_forbidden_names_are_detected(source: str) -> None:
    assert borrowed(source, "layers.py")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_shapes_and_plans_do_not_import_torch() -> None:
    answer = run(
        "import sys, bytemill.lm, bytemill.lm.planning as planning\n"
        "planning.plan(bytemill.lm.preset('tiny')); print('torch' in sys.modules)"
    )
    assert answer.stdout.strip() == "False", answer.stderr


def test_without_torch_the_error_says_how_to_install_it() -> None:
    answer = run(
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "from bytemill.errors import MissingExtraError\n"
        "try:\n    import bytemill.lm\nexcept MissingExtraError as error:\n    print(error, '|', error.hint)\n"
    )
    assert "needs torch" in answer.stdout
    assert install_hint("lm") in answer.stdout
