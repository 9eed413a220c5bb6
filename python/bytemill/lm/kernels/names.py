"""Names of the choices of kernels."""

from typing import Literal

KernelName = Literal["auto", "torch", "triton", "scratch"]
