"""Peak rates: every name of torch finds its data sheet, and no other card's."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bytemill.errors import RunConfigError
from bytemill.lm import preset
from bytemill.lm.planning import DEVICES, find_device, plan_for
from bytemill.lm.training.config import TrainingConfig
from bytemill.lm.training.preparation import peak_rate


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


@pytest.mark.parametrize(
    ("name", "share", "source"),
    [
        ("NVIDIA A100-SXM4-40GB", 1, "the peak of NVIDIA A100-SXM4-40GB"),
        (
            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            14 / 108,
            "the peak of 14 of the 108 multiprocessors of NVIDIA A100",
        ),
        ("NVIDIA L40S MIG 1g.5gb", None, "unknown for NVIDIA L40S MIG 1g.5gb, a part of a GPU"),
        ("NVIDIA Nothing", None, "unknown for NVIDIA Nothing in bfloat16"),
    ],
)
def test_the_peak_of_a_mig_slice_is_its_share(
    monkeypatch: pytest.MonkeyPatch, name: str, share: float | None, source: str
):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    properties = SimpleNamespace(multi_processor_count=14)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    config = SimpleNamespace(training=TrainingConfig())
    run: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, config=config)
    rate, said = peak_rate(run)
    assert rate == (None if share is None else pytest.approx(312e12 * share))
    assert said.startswith(source)


def test_rates_grow_as_precision_falls():
    for rates in DEVICES.values():
        known = [rate for rate in (rates.float32, rates.tf32, rates.bfloat16) if rate]
        assert known == sorted(known)
        assert rates.bfloat16 in (None, rates.float16)


def test_a_precision_that_a_device_lacks_is_an_error():
    assert plan_for(preset("tiny"), device="T4", precision="float16").days
    with pytest.raises(RunConfigError, match="v100 has no products in bfloat16"):
        plan_for(preset("tiny"), device="v100", precision="bfloat16")
