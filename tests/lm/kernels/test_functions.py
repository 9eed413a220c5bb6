"""FlashAttention and RMSNorm as functions equal the formula in values and gradients."""

import torch

from bytemill.lm.kernels import functions
from bytemill.lm.model import rms_norm

from .functions_cases import check_all_attention, check_norm, check_refusals


def test_attention_equals_the_formula():
    check_all_attention(functions, "cpu")


def test_what_attention_does_not_support_is_refused():
    check_refusals(functions, "cpu")


def test_rms_norm_equals_the_formula():
    check_norm(functions, "cpu")


def test_the_gradients_of_rms_norm_are_functions():
    x, weight = torch.randn(4, 5, 7, requires_grad=True), torch.randn(7, requires_grad=True)
    gradient = torch.randn(4, 5, 7)
    d_x, d_weight = torch.autograd.grad(rms_norm(x, weight, 1e-5), [x, weight], gradient)
    torch.testing.assert_close(functions.rms_norm_backward_x(gradient, x, weight), d_x)
    torch.testing.assert_close(functions.rms_norm_backward_weight(gradient, x, weight), d_weight)
