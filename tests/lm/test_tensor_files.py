"""Safetensors files: the library reads what is written, and damaged files are refused."""

import hashlib
import io
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import open_tensors, sha256_of, write_tensors

TYPES = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
tensors = st.builds(
    lambda shape, dtype: (
        (torch.randn(shape) * 100).to(dtype).mT if len(shape) == 2 else torch.ones(shape, dtype=dtype)
    ),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(TYPES),
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "__metadata__"), tensors, max_size=5))
def test_the_library_reads_the_same_tensors(saved: dict[str, torch.Tensor]):
    file = io.BytesIO()
    digest = write_tensors(file, saved)
    assert digest == hashlib.sha256(file.getvalue()).hexdigest()
    loaded = safetensors.torch.load(file.getvalue())
    assert loaded.keys() == saved.keys()
    for name, tensor in saved.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].equal(tensor)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with (tmp_path / "t.safetensors").open("wb") as file:
        write_tensors(file, {"a": torch.arange(12.0).view(4, 3), "b": torch.tensor(7)}, {"note": "x"})
    return tmp_path / "t.safetensors"


def test_tensors_and_rows_are_read_by_name(saved: Path):
    with open_tensors(saved) as file:
        assert sorted(file.names) == ["a", "b"]
        assert file.metadata["note"] == "x"
        assert (file.shape("a"), file.dtype("b"), file.shape("b")) == ((4, 3), torch.int64, ())
        assert file.rows("a", 1, 3).equal(torch.arange(3.0, 9.0).view(2, 3))
        assert file.tensor("b").item() == 7


def test_every_cut_and_other_files_are_refused(saved: Path, tmp_path: Path):
    data = saved.read_bytes()
    for n_bytes in range(len(data)):
        saved.write_bytes(data[:n_bytes])
        with (
            pytest.raises(
                CheckpointError, match=r"t\.safetensors is not a safetensors file, or it is damaged"
            ),
            open_tensors(saved),
        ):
            pass
    with pytest.raises(CheckpointError, match=r"cannot read .*nothing"):
        sha256_of(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"cannot read .*nothing"), open_tensors(tmp_path / "nothing"):
        pass
