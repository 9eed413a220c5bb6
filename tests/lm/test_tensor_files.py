"""Safetensors files: the library reads what is written, and damaged files are refused."""

import hashlib
import io
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
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


def test_a_file_that_is_cut_off_while_it_is_read_is_an_error(saved: Path):
    with open_tensors(saved) as file:
        with saved.open("rb+") as other:
            other.truncate(10)
        # If the file were mapped into memory, the process would end here.
        with pytest.raises(CheckpointError, match=r"t\.safetensors was cut off while it was read"):
            file.tensor("a")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a", {"shape": [5, 3]}), ("a", {"shape": [-4, -3]}), ("a", {"dtype": "F64"}),
        ("a", {"data_offsets": [8, 64]}), ("a", {"data_offsets": None}), ("__metadata__", [1]), ("c", 5),
    ],
)  # fmt: skip
def test_a_header_that_does_not_describe_the_file_is_refused(
    saved: Path, tmp_path: Path, name: str, values: object
):
    data = saved.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:size])
    header[name] = header[name] | values if isinstance(values, dict) else values
    text = json.dumps(header).encode()
    other = tmp_path / "other.safetensors"
    other.write_bytes(len(text).to_bytes(8, "little") + text + data[size:])
    with pytest.raises(CheckpointError, match="damaged"), open_tensors(other):
        pass


def test_a_type_that_torch_lacks_is_named(tmp_path: Path):
    header = json.dumps({"x": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}).encode()
    path = tmp_path / "f4.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    with pytest.raises(CheckpointError, match="type F4"), open_tensors(path) as file:
        file.tensor("x")
