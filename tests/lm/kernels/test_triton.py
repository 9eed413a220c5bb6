"""Triton kernels without a GPU: the interpreter runs them, and the compiler translates them."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@pytest.mark.parametrize("selection", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_the_interpreter_agrees_with_the_textbook(selection: str) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    folder = str(Path(__file__).parent / "triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selection, folder]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


ATTENTION = {"N_HEADS": 4, "N_GROUPS": 2, "WIDTH": 80, "BLOCK_WIDTH": 128, "BLOCK": 64}


@pytest.mark.slow
@pytest.mark.filterwarnings("default:TRITON_DEFAULT_FP_FUSION:UserWarning")
@pytest.mark.parametrize(
    ("module", "kernel", "constants"),
    [
        ("layers", "_norm_forward_kernel", {"bias_ptr": None, "CENTRED": False, "BLOCK": 1024}),
        ("layers", "_norm_forward_kernel", {"CENTRED": True, "BLOCK": 1024}),
        ("layers", "_norm_backward_kernel", {"CENTRED": True, "BLOCK": 1024}),
        ("layers", "_loss_kernel", {"SOFT_CAP": None, "BLOCK": 4096}),
        ("layers", "_loss_kernel", {"SOFT_CAP": 30.0, "BLOCK": 4096}),
        ("attention", "_forward_kernel", ATTENTION),
        ("attention", "_queries_kernel", ATTENTION),
        ("attention", "_keys_kernel", ATTENTION),
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
    types |= dict.fromkeys(("eps", "share", "z_loss", "scale", "scale_log2"), "fp32")
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
