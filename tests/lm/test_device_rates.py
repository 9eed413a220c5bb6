"""Peak rates: every name of torch finds its data sheet, and no other card's."""

import pytest

from bytemill.errors import RunConfigError
from bytemill.lm import preset
from bytemill.lm.planning.device_rates import DEVICES, find_device
from bytemill.lm.planning.user_input import plan_for


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", None),
        ("NVIDIA A40", "a40"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "h100"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", None),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", None),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-16GB", None),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("AMD Instinct MI300X", None),
    ],
)
def test_names_find_their_device(name: str, key: str | None):
    assert find_device(name) == key


def test_rates_grow_as_precision_falls():
    for rates in DEVICES.values():
        known = [rate for rate in (rates.float32, rates.tf32, rates.bfloat16) if rate]
        assert known == sorted(known)
        assert rates.bfloat16 in (None, rates.float16)


def test_a_precision_that_a_device_lacks_is_an_error():
    assert plan_for(preset("tiny"), device="T4", precision="float16").days
    with pytest.raises(RunConfigError, match="v100 has no products in bfloat16"):
        plan_for(preset("tiny"), device="v100", precision="bfloat16")
