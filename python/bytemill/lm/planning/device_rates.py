"""Peak rates of GPUs: FLOPs per second of dense matrix products, from the vendors' data sheets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.lm.planning.formulas import Precision

_T = 1e12


@dataclass(frozen=True)
class PeakRates:
    """Dense FLOPs per second by precision; None where the device has no such products."""

    float32: float
    tf32: float | None
    float16: float
    bfloat16: float | None
    name: str
    """Regular expression of torch's names of the device."""
    n_multiprocessors: int | None = None
    """Of a device that can be divided into MIG slices."""

    def rate(self, precision: Precision) -> float | None:
        """Return the peak in a precision, or None."""
        return {
            "float32": self.float32,
            "tf32": self.tf32,
            "float16": self.float16,
            "bfloat16": self.bfloat16,
        }[precision]


DEVICES: dict[str, PeakRates] = {
    "v100": PeakRates(15.7 * _T, None, 125 * _T, None, r"V100-SXM2"),
    "t4": PeakRates(8.1 * _T, None, 65 * _T, None, r"T4"),
    "a10": PeakRates(31.2 * _T, 62.5 * _T, 125 * _T, 125 * _T, r"A10"),
    "a30": PeakRates(10.3 * _T, 82 * _T, 165 * _T, 165 * _T, r"A30", 56),
    "a40": PeakRates(37.4 * _T, 74.8 * _T, 149.7 * _T, 149.7 * _T, r"A40"),
    "a100": PeakRates(19.5 * _T, 156 * _T, 312 * _T, 312 * _T, r"A100", 108),
    "h100": PeakRates(67 * _T, 494.7 * _T, 989.4 * _T, 989.4 * _T, r"H100(?! (?:PCIe|NVL))|GH200", 132),
    "h100-pcie": PeakRates(51 * _T, 378 * _T, 756 * _T, 756 * _T, r"H100 PCIe", 114),
    "h100-nvl": PeakRates(60 * _T, 417.5 * _T, 835.5 * _T, 835.5 * _T, r"H100 NVL|H200 NVL", 132),
    "h200": PeakRates(67 * _T, 494.7 * _T, 989.4 * _T, 989.4 * _T, r"H200(?! NVL)", 132),
    "b200": PeakRates(75 * _T, 1125 * _T, 2250 * _T, 2250 * _T, r"B200", 148),
    "l4": PeakRates(30.3 * _T, 60 * _T, 121 * _T, 121 * _T, r"L4"),
    "l40s": PeakRates(91.6 * _T, 183 * _T, 362 * _T, 362 * _T, r"L40S"),
    "rtx3090": PeakRates(35.6 * _T, 35.6 * _T, 71 * _T, 71 * _T, r"RTX 3090(?! Ti)"),
    "rtx4090": PeakRates(82.6 * _T, 82.6 * _T, 165.2 * _T, 165.2 * _T, r"RTX 4090(?! D)"),
    "rtx5090": PeakRates(104.8 * _T, 104.8 * _T, 209.5 * _T, 209.5 * _T, r"RTX 5090(?! D)"),
}
"""Names in `lm plan --device`. GeForce cards sum products in float32, at half their rate with sums in float16."""


def find_device(name: str) -> str | None:
    """Return the key in `DEVICES` of a name that torch gives to a device; None if it is unknown.

    >>> find_device("NVIDIA A100-SXM4-80GB"), find_device("NVIDIA H100 PCIe"), find_device("NVIDIA A10G")
    ('a100', 'h100-pcie', None)
    """
    for key, rates in DEVICES.items():
        if re.search(rf"\b(?:{rates.name})(?![0-9A-Za-z])", name):
            return key
    return None


def is_slice(name: str) -> bool:
    """Return whether a name that torch gives to a device is that of a MIG slice, a part of a GPU.

    >>> is_slice("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), is_slice("NVIDIA A100-SXM4-40GB")
    (True, False)
    """
    return re.search(r"\bMIG\b", name) is not None
