"""State of an optimizer: any number of processes reads what any other number has written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import write_tensors
from bytemill.lm.optim import AdamW, Muon
from bytemill.lm.training.run_checkpoint import OptimizerPart, load_optimizer_part, open_parts, optimizer_part

Optimizer = Callable[[Any], torch.optim.Optimizer]


def trained(make: Optimizer = AdamW) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Linear(3, 7)
    optimizer = make(model.parameters())
    model(torch.ones(3)).square().sum().backward()
    optimizer.step()
    optimizer.state[model.bias]["scalar"] = torch.tensor(3.0)  # like `step` of torch's optimizers
    return model, optimizer


def saved(part: OptimizerPart, path: Path) -> Path:
    with path.open("wb") as file:
        write_tensors(file, part.tensors, part.metadata())
    return path


def in_parts(part: OptimizerPart, n: int, folder: Path) -> list[Path]:
    """Save a whole state as `n` processes would that hold the rows by turns of `torch.chunk`."""
    paths: list[Path] = []
    for rank in range(n):
        own = OptimizerPart()
        for name, tensor in part.tensors.items():
            chunks = tensor.chunk(n) if tensor.ndim else [tensor]
            if rank < len(chunks):
                own.tensors[name] = chunks[rank]
                first = sum(len(chunk) for chunk in chunks[:rank])
                own.offsets[name] = [first, *[0] * (tensor.ndim - 1)] if tensor.ndim else []
        paths.append(saved(own, folder / f"{n}_{rank}.safetensors"))
    return paths


@pytest.mark.parametrize("n", [1, 2, 3, 9])
@pytest.mark.parametrize("make", [AdamW, Muon])
def test_a_state_in_any_number_of_parts_is_restored(tmp_path: Path, n: int, make: Optimizer):
    model, optimizer = trained(make)
    part = optimizer_part(model, optimizer, is_first=True, keep=torch.clone)
    other, its = trained(make)
    its.state.clear()
    load_optimizer_part(other, its, in_parts(part, n, tmp_path), part.numbers)
    ours, theirs = optimizer.state_dict(), its.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for index, moments in ours["state"].items():
        assert moments.keys() == theirs["state"][index].keys()
        for name, value in moments.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs["state"][index][name]))


def test_missing_rows_and_other_models_are_refused(tmp_path: Path):
    model, optimizer = trained()
    part = optimizer_part(model, optimizer, is_first=True, keep=torch.clone)
    paths = in_parts(part, 3, tmp_path)
    with pytest.raises(CheckpointError, match=r"holds 4 of the rows 0 to 7 of (weight|bias)\."):
        load_optimizer_part(model, optimizer, [paths[0], paths[2]], part.numbers)
    small, plain = nn.Linear(3, 3), nn.Linear(3, 7, bias=False)
    with pytest.raises(CheckpointError, match=r"of shape \(7,.*\) for (weight|bias), which has shape \(3,"):
        load_optimizer_part(small, AdamW(small.parameters()), paths, part.numbers)
    with pytest.raises(CheckpointError, match="for bias, which is not there"):
        load_optimizer_part(plain, AdamW(plain.parameters()), paths, part.numbers)
    with (tmp_path / "plain").open("wb") as file:
        write_tensors(file, part.tensors)
    with pytest.raises(CheckpointError, match="lack the positions"), open_parts([tmp_path / "plain"]):
        pass


class Preconditioned(torch.optim.Optimizer):
    """Keeps the second moment of rows and of columns, as Shampoo and SOAP do, and a mean of other length."""

    def __init__(self, parameters: Any, more: Any = None) -> None:
        self.more = more
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:
        assert closure is None
        for parameter in self.param_groups[0]["params"]:
            gradient = parameter.grad.reshape(len(parameter), -1)
            self.state[parameter] |= {
                "rows": gradient @ gradient.T,
                "columns": gradient.T @ gradient,
                "mean": gradient.mean(0),
                "t": 1,
            }
            if self.more is not None:
                self.state[parameter]["more"] = self.more


def test_a_state_of_other_shapes_than_its_parameter_is_restored(tmp_path: Path):
    model, optimizer = trained(Preconditioned)
    part = optimizer_part(model, optimizer, is_first=True, keep=torch.clone)
    path = saved(part, tmp_path / "whole.safetensors")
    other, its = trained(Preconditioned)
    its.state.clear()
    load_optimizer_part(other, its, [path], part.numbers)
    for old, new in zip(model.parameters(), other.parameters(), strict=True):
        assert optimizer.state[old].keys() == its.state[new].keys()
        for name, value in optimizer.state[old].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(its.state[new][name])), name
    plain = nn.Linear(3, 7, bias=False)
    with pytest.raises(CheckpointError, match="for bias, which is not there"):
        load_optimizer_part(plain, Preconditioned(plain.parameters()), [path], part.numbers)


@pytest.mark.parametrize("more", [[torch.ones(2)], {"a": 1}, object()])
def test_a_state_that_could_not_be_read_is_not_saved(more: Any):
    model, optimizer = trained(lambda parameters: Preconditioned(parameters, more))
    with pytest.raises(
        CheckpointError, match=f"the state of Preconditioned: more of weight is a {type(more).__name__}"
    ):
        optimizer_part(model, optimizer, is_first=True, keep=torch.clone)


def test_a_process_saves_numbers_and_shared_tensors_once():
    model, optimizer = trained()
    second = optimizer_part(model, optimizer, is_first=False, keep=torch.clone)
    assert not second.tensors
    assert second.numbers == {"weight": {"t": 1}, "bias": {"t": 1}}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_the_files_as_a_distributed_checkpoint(tmp_path: Path):
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    model, optimizer = trained()
    part = optimizer_part(model, optimizer, is_first=True, keep=torch.clone)
    in_parts(part, 3, tmp_path)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in part.tensors.items()}
    load(loaded, storage_reader=HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    assert all(loaded[name].equal(tensor) for name, tensor in part.tensors.items())
