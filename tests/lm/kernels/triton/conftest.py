"""Triton kernels run on a GPU, or by Triton's interpreter where TRITON_INTERPRET=1 was set before Triton was imported.

`tests/lm/kernels/test_triton.py` runs these tests in a process with that setting.
"""

import os
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if find_spec("triton") is None or not (INTERPRETED or torch.cuda.is_available()):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> str:
    return "cpu" if INTERPRETED else "cuda"
