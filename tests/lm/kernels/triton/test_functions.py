"""FlashAttention and RMSNorm by Triton, as functions, equal the formula in values and gradients."""

from bytemill.lm.kernels.triton import functions
from tests.lm.kernels.functions_cases import check_all_attention, check_norm, check_refusals


def test_attention_equals_the_formula(device: str) -> None:
    check_all_attention(functions, device)
    check_refusals(functions, device)


def test_rms_norm_equals_the_formula(device: str) -> None:
    check_norm(functions, device)
