"""Triton kernels without a GPU: the interpreter runs them, and the compiler translates them."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

FOLDER = Path(__file__).parent / "triton"
SLOW_FILES = [path.name for path in sorted(FOLDER.glob("test_*.py")) if "mark.slow" in path.read_text()]


def run_interpreted(selection: str, path: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selection, str(path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_interpreter_agrees_with_the_textbook() -> None:
    run_interpreted("not slow", FOLDER)


@pytest.mark.slow
@pytest.mark.parametrize("file", SLOW_FILES)  # minutes each
def test_the_interpreter_agrees_with_the_textbook_in_slow_cases(file: str) -> None:
    run_interpreted("slow", FOLDER / file)


VECTORS = {
    "N_IN": 768, "N_ROWS": 1, "HAS_NORM": True, "CENTRED": True, "ACTIVATION": "gelu", "HAS_CAP": False,
    "statistics_ptr": None, "positions_ptr": None, "residual_ptr": None, "WIDTH": 1, "WINDOW": 0,
    "N_PARTS": 0, "BLOCK_KEYS": 1, "BLOCK_OUT": 8, "BLOCK_IN": 1024, "OVERLAP": False,
}  # fmt: skip
PRODUCT = {
    "N_IN": 768, "ACTIVATION": "swiglu", "HAS_CAP": False, "BLOCK_ROWS": 64, "BLOCK_OUT": 64,
    "BLOCK_IN": 64, "OVERLAP": False,
}  # fmt: skip
CACHED = {
    "N_HEADS": 8, "N_KV_HEADS": 2, "HAS_ROTATION": True, "WIDTH": 80, "BLOCK_WIDTH": 128, "WINDOW": 512,
    "N_PARTS": 4, "BLOCK_KEYS": 32, "OVERLAP": False,
}  # fmt: skip
CHOICE = {"IS_GREEDY": False, "BLOCK": 1024, "N_BLOCKS": 64, "OVERLAP": False}
ATTENTION = {"N_HEADS": 4, "N_GROUPS": 2, "WIDTH": 80, "BLOCK_WIDTH": 128, "BLOCK": 64, "CAUSAL": True}


@pytest.mark.slow
@pytest.mark.filterwarnings("default:TRITON_DEFAULT_FP_FUSION:UserWarning")
@pytest.mark.parametrize(
    ("module", "kernel", "constants"),
    [
        ("layers", "_norm_forward_kernel", {"bias_ptr": None, "CENTRED": False, "BLOCK": 1024}),
        ("layers", "_norm_forward_kernel", {"CENTRED": True, "BLOCK": 1024}),
        ("layers", "_norm_backward_kernel", {"CENTRED": True, "BLOCK": 1024}),
        ("layers", "_loss_kernel", {"SOFT_CAP": None, "BLOCK": 4096, "RUN": 8}),
        ("layers", "_loss_kernel", {"SOFT_CAP": 30.0, "BLOCK": 4096, "RUN": 8}),
        ("attention", "_forward_kernel", ATTENTION),
        ("attention", "_queries_kernel", ATTENTION),
        ("attention", "_keys_kernel", ATTENTION),
        ("attention", "_forward_kernel", {**ATTENTION, "CAUSAL": False}),
        ("attention", "_queries_kernel", {**ATTENTION, "CAUSAL": False}),
        ("attention", "_keys_kernel", {**ATTENTION, "CAUSAL": False}),
        ("decoding", "_vector_kernel", VECTORS),
        ("decoding", "_vector_kernel", {**VECTORS, "ACTIVATION": "swiglu"}),
        ("decoding", "_dot_kernel", PRODUCT),
        ("decoding", "_attention_kernel", CACHED),
        ("decoding", "_choose_kernel", CHOICE),
    ],
)
def test_kernels_compile_and_fit_in_shared_memory(
    module: str, kernel: str, constants: dict[str, Any]
) -> None:
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    float32 = {
        "weight_ptr",
        "bias_ptr",
        "statistics_ptr",
        "d_weight_ptr",
        "d_bias_ptr",
        "losses_ptr",
        "log_z_ptr",
    }
    types = dict.fromkeys(float32 | {"log_sum_ptr", "along_ptr"}, "*fp32") | {"targets_ptr": "*i64"}
    types |= dict.fromkeys(("first_ptr", "end_ptr"), "*i32")
    types |= dict.fromkeys(
        ("eps", "share", "z_loss", "scale", "scale_log2", "soft_cap", "temperature"), "fp32"
    )
    types |= dict.fromkeys(("positions_ptr", "indices_ptr", "ids_ptr"), "*i64") | {"uniforms_ptr": "*fp64"}
    if module == "decoding":
        types |= dict.fromkeys(("x_ptr", "y_ptr", "qkv_ptr", "mixed_ptr", "logits_ptr"), "*fp32")
        types |= {"weight_ptr": "*bf16", "allowed_ptr": "*i1", "blocks_ptr": "*fp32"}
        types |= dict.fromkeys(("norm_weight_ptr", "norm_bias_ptr", "q_norm_ptr", "k_norm_ptr"), "*fp32")
        types |= {"rotations_ptr": "*fp32"} | ({"x_ptr": "*bf16"} if kernel == "_dot_kernel" else {})
    function = getattr(importlib.import_module(f"bytemill.lm.kernels.triton.{module}"), kernel)
    names = function.arg_names
    signature = {name: types.get(name, "*bf16" if name.endswith("_ptr") else "i32") for name in names}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        function, signature, {(names.index(name),): value for name, value in constants.items()}
    )
    compiled = triton.compile(
        source, target=GPUTarget("cuda", 80, 32), options={"num_stages": 2, "num_warps": 8}
    )
    assert compiled.metadata.shared <= 99 * 1024
