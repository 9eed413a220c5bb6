"""Checkpoints and safetensors files: exact round trips, damaged files are refused, no code is executed."""

import contextlib
import hashlib
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bytemill.errors import CheckpointError, OutputError
from bytemill.lm.checkpoint import (
    check_model_state,
    distinct,
    load_checkpoint,
    load_weights,
    open_tensors,
    parse_state,
    save_checkpoint,
    sha256_of,
    state_bytes,
    write_tensors,
)
from bytemill.lm.training.metrics_log import MetricsLog, read_metrics
from bytemill.lm.training.save_and_resume import generators_state, restore_generators

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8,
    torch.bool,
]  # fmt: skip
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
tensors = st.builds(
    lambda shape, dtype: (torch.randn(shape) * 100).to(dtype),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(DTYPES),
)
trees = st.recursive(
    plain | tensors,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(-3, 3), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


class Model(nn.Module):
    """Two matrices, one of them with two names."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(size, 3))
        self.second = nn.Parameter(torch.randn(3, size))
        self.tied = self.first


def trained(size: int = 4) -> tuple[Model, torch.optim.Optimizer]:
    model = Model(size)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        (model.first @ model.second).square().sum().backward()
        optimizer.step()
    return model, optimizer


@given(st.dictionaries(st.text(max_size=5), trees, max_size=4))
def test_states_survive_a_round_trip(state: dict[str, Any]):
    assert same(parse_state(state_bytes(state), "x"), state)


def test_model_optimizer_and_iteration_are_restored(tmp_path: Path):
    model, optimizer = trained()
    buffer = io.BytesIO()
    for out in (tmp_path / "a", str(tmp_path / "b"), buffer):
        save_checkpoint(model, optimizer, 17, out)
    buffer.seek(0)
    for src in (tmp_path / "a", str(tmp_path / "b"), buffer):
        other, its = Model(), None
        its = torch.optim.AdamW(other.parameters())
        assert load_checkpoint(src, other, its) == 17
        assert same(dict(other.state_dict()), dict(model.state_dict()))
        assert same(its.state_dict(), optimizer.state_dict())


def saved_weights(model: Model, path: Path) -> Path:
    with path.open("wb") as file:
        write_tensors(file, distinct(model.state_dict()))
    return path


def test_a_tensor_with_two_names_is_written_once(tmp_path: Path):
    model, _ = trained(1000)
    path = saved_weights(model, tmp_path / "w")
    assert path.stat().st_size < 2 * 12_000 + 2_000
    other = Model(1000)
    load_weights(other, path)
    assert torch.equal(other.tied, model.tied)


def test_every_cut_is_found_and_no_changed_byte_changes_a_tensor():
    state = {"w": torch.arange(4.0), "list": [1, (2, None)]}
    data = state_bytes(state)
    for n_bytes in range(len(data)):
        with pytest.raises(CheckpointError):
            parse_state(data[:n_bytes], "x")
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x01
        with contextlib.suppress(CheckpointError):
            assert same(parse_state(bytes(changed), "x"), state)  # padding between the records


def test_errors_name_the_file(tmp_path: Path):
    model, optimizer = trained()
    with pytest.raises(CheckpointError, match=r"cannot read .*nothing: No such file"):
        load_checkpoint(tmp_path / "nothing", model, optimizer)
    (tmp_path / "text").write_text("hello, I am no checkpoint")
    with pytest.raises(CheckpointError, match="text is not a checkpoint"):
        load_checkpoint(tmp_path / "text", model, optimizer)


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def test_nothing_in_a_file_is_executed(tmp_path: Path):
    (tmp_path / "evil").write_bytes(pickle.dumps(Evil(tmp_path / "made")))
    torch.save(Evil(tmp_path / "made"), tmp_path / "evil.pt")
    for name in ("evil", "evil.pt"):
        model, optimizer = trained()
        with pytest.raises(CheckpointError):
            load_checkpoint(tmp_path / name, model, optimizer)
    assert not (tmp_path / "made").exists()


def test_another_model_is_refused_and_nothing_is_changed(tmp_path: Path):
    model, optimizer = trained(4)
    save_checkpoint(model, optimizer, 3, tmp_path / "four")
    five, its = trained(5)
    before = {name: tensor.clone() for name, tensor in five.state_dict().items()}
    with pytest.raises(
        CheckpointError, match=r"first has shape \(4, 3\), but the model's has \(5, 3\)"
    ) as caught:
        load_checkpoint(tmp_path / "four", five, its)
    assert "the same configuration" in (caught.value.hint or "")
    assert same(dict(five.state_dict()), before)
    one_of_two = torch.optim.SGD([model.first])
    with pytest.raises(CheckpointError, match="groups of"):
        load_checkpoint(tmp_path / "four", model, one_of_two)
    (tmp_path / "no optimizer").write_bytes(state_bytes({"model": model.state_dict()}))
    with pytest.raises(CheckpointError, match="does not hold a model with its optimizer"):
        load_checkpoint(tmp_path / "no optimizer", model, optimizer)


def test_differences_between_weights_and_model_are_listed_up_to_five(tmp_path: Path):
    layers = nn.ModuleDict({f"l{n}": nn.Linear(2, 2) for n in range(4)})
    state: dict[str, torch.Tensor] = {f"x{n}": torch.zeros(1) for n in range(2)}
    state["l0.weight"], state["l0.bias"] = torch.zeros(3, 2), torch.zeros(2, dtype=torch.float64)
    with (tmp_path / "w").open("wb") as file:
        write_tensors(file, state)
    with pytest.raises(CheckpointError) as caught:
        load_weights(layers, tmp_path / "w")
    assert str(caught.value) == (
        "the checkpoint is of another model: l0.weight has shape (3, 2), but the model's has (2, 2); "
        "l0.bias has type float64, but the model's has float32; l1.weight is missing; l1.bias is missing; "
        "l2.weight is missing; and 5 others"
    )
    state = dict(layers.state_dict())
    del state["l3.bias"]
    state["y"] = torch.zeros(1)
    with pytest.raises(CheckpointError, match=r"model: l3\.bias is missing; y is not in the model$"):
        check_model_state(layers, state)


class OfRows(torch.optim.Optimizer):
    """Keeps one number per row of a parameter."""

    def step(self, closure: Any = None) -> Any:
        assert closure is None
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["rows"] = parameter.grad.square().flatten(1).sum(1) + 1


def test_a_state_of_other_shapes_than_its_parameter_is_restored(tmp_path: Path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False), torch.nn.Linear(3, 2, bias=False))
    optimizer = OfRows(model.parameters(), {"lr": 0.1})
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    save_checkpoint(model, optimizer, 7, tmp_path / "state.pt")
    other = OfRows(model.parameters(), {"lr": 0.1})
    assert load_checkpoint(tmp_path / "state.pt", model, other) == 7
    for parameter in model.parameters():
        assert torch.equal(other.state[parameter]["rows"], optimizer.state[parameter]["rows"])
    turned = OfRows(reversed(list(model.parameters())), {"lr": 0.1})
    with pytest.raises(CheckpointError, match="of these in another order"):
        load_checkpoint(tmp_path / "state.pt", model, turned)
    assert not turned.state


def test_a_path_that_cannot_be_written_leaves_nothing(tmp_path: Path):
    model, optimizer = trained()
    with pytest.raises(OutputError):
        save_checkpoint(model, optimizer, 1, tmp_path / "no folder" / "c")
    assert list(tmp_path.iterdir()) == []


def test_generators_are_restored():
    import random

    import numpy as np

    def draw() -> tuple[Any, ...]:
        return random.random(), random.gauss(), np.random.rand(), np.random.randn(), torch.rand(3).tolist()

    draw()
    data = json.dumps(generators_state())
    expected = draw(), draw()
    restore_generators(json.loads(data))
    assert (draw(), draw()) == expected


def test_metrics_after_the_checkpoint_are_removed_on_resume(tmp_path: Path):
    log = MetricsLog(tmp_path / "m.jsonl")
    for step in range(1, 6):
        log.append({"kind": "step", "step": step, "loss": float("nan") if step == 3 else 1.0 / step})
    log.append({"kind": "validation", "step": 5, "loss": 0.1})
    assert [record["loss"] for record in read_metrics(tmp_path / "m.jsonl", "step")] == [
        1.0,
        0.5,
        None,
        0.25,
        0.2,
    ]
    log.close()
    with (tmp_path / "m.jsonl").open("a") as file:
        file.write('{"kind": "step", "ste')
    assert len(read_metrics(tmp_path / "m.jsonl")) == 6
    again = MetricsLog(tmp_path / "m.jsonl", after_step=4)
    again.append({"kind": "step", "step": 5, "loss": 7})
    again.close()
    assert [(record["step"], record["loss"]) for record in read_metrics(tmp_path / "m.jsonl")][3:] == [
        (4, 0.25),
        (5, 7),
    ]
    MetricsLog(tmp_path / "m.jsonl").close()
    assert read_metrics(tmp_path / "m.jsonl") == []


@pytest.mark.parametrize("damage", [b"\x00\xff garbage", b'{"kind": "step", "step": "1"}', b"[1]", b""])
def test_a_damaged_line_of_the_metrics_is_set_aside_and_the_others_stay(tmp_path: Path, damage: bytes):
    path = tmp_path / "m.jsonl"
    lines = [json.dumps({"kind": "step", "step": step}).encode() + b"\n" for step in range(1, 6)]
    path.write_bytes(b"".join([damage + b"\n", *lines[1:3], damage + b"\n", lines[4], b'{"kind": "st']))
    assert [record["step"] for record in read_metrics(path)] == [2, 3, 5]
    log = MetricsLog(path, after_step=4)
    log.close()
    assert log.n_damaged == 2
    assert path.read_bytes() == b"".join(lines[1:3])
    assert log.damaged_path == tmp_path / "m.damaged.jsonl"
    assert log.damaged_path.read_bytes() == (damage + b"\n") * 2
    intact = MetricsLog(path, after_step=4)
    intact.close()
    assert intact.n_damaged == 0
    assert path.read_bytes() == b"".join(lines[1:3])


any_tensors = st.builds(
    lambda shape, dtype: (
        (torch.randn(shape) * 100).to(dtype).mT if len(shape) == 2 else torch.ones(shape, dtype=dtype)
    ),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(DTYPES),
)


@given(
    st.dictionaries(st.text(max_size=5).filter(lambda name: name != "__metadata__"), any_tensors, max_size=5)
)
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
