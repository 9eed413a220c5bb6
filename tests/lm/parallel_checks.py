"""Checks of the strategies of data parallelism, called in each of several processes by `rank_server`."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.optim import AdamW, Muon, clip_gradients, muon_groups, parameter_groups
from bytemill.lm.processes import Processes
from bytemill.lm.strategies import STRATEGIES, OwnStrategyName
from bytemill.lm.tensors import local, whole

COLLECTIVES = ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor")


@dataclass(frozen=True)
class Case:
    """A model and how it is trained."""

    optimizer: str
    n_passes: int
    dtype: torch.dtype = torch.float64
    checkpointing: Any = "none"
    clip: float = 100.0
    model: dict[str, Any] = field(default_factory=dict)

    def config(self) -> ModelConfig:
        # The 19 rows of an embedding are divided unevenly.
        sizes = {
            "vocab_size": 19,
            "context_length": 8,
            "d_model": 12,
            "num_layers": 3,
            "num_heads": 2,
            "d_ff": 18,
        }
        return ModelConfig(**sizes, **self.model)


CASES = [
    Case("adamw", 2, clip=0.5, model={"tied_embeddings": True}),
    Case("muon", 1, checkpointing="full"),
    Case("adamw", 1, torch.float32, model={"norm": "layer"}),
]


def strategies_train_like_one_process(rank: int, n: int, n_steps: int) -> None:
    """Compare weights with those of a process that computes the whole batch, for every strategy and case."""
    connect(rank, n)
    for case in CASES:
        expected = dict(trained(None, case, n_steps, rank, n).named_parameters())
        for name in STRATEGIES:
            for key, parameter in trained(name, case, n_steps, rank, n).named_parameters():
                difference = float((whole(parameter.detach()) - expected[key].detach()).abs().max())
                assert difference < 1e-6, f"{name}, {case}: {key} differs by {difference:.1e}"
    dist.destroy_process_group()


def connect(rank: int, n: int) -> None:
    dist.init_process_group("gloo", init_method=os.environ["BYTEMILL_RENDEZVOUS"], rank=rank, world_size=n)


def trained(name: OwnStrategyName | None, case: Case, n_steps: int, rank: int, n: int) -> TransformerLM:
    """Train with a strategy on this process's share of each batch, or in this process alone on all of it."""
    data = torch.randint(19, (n_steps, case.n_passes, 4, 9), generator=torch.Generator().manual_seed(1))
    model = TransformerLM(case.config(), seed=0 if name is None else rank, dtype=case.dtype)
    parallel = None
    if name is not None:
        parallel = STRATEGIES[name].load().of_model(model, bucket_mb=0.002, dtype=torch.float32)
    model.checkpoint_activations(case.checkpointing)
    optimizer = made_optimizer(model, case.optimizer, parallel, rank, n)
    for batch in data:
        for index, windows in enumerate(batch):
            own = windows if parallel is None else windows[rank::n]
            ids, targets = own[:, :-1], own[:, 1:]
            if parallel is None:
                (model.loss(ids, targets) / case.n_passes).backward()
                continue
            with parallel.exchanged(now=index == case.n_passes - 1):
                (parallel.call(model.loss, ids, targets) / case.n_passes).backward()
        clip_gradients(model.parameters(), case.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if name == "sharded_optimizer":
        check_bytes(optimizer, n)
    return model


def made_optimizer(model: TransformerLM, name: str, parallel: Any, rank: int, n: int) -> Any:
    alone = parallel is None or parallel.divides_steps
    processes = Processes() if alone else Processes(rank=rank, count=n)
    made: Any = (
        AdamW(parameter_groups(model), 1e-3)
        if name == "adamw"
        else Muon(muon_groups(model, adamw_lr=1e-3), processes=processes)
    )
    return made if parallel is None else parallel.wrap_optimizer(made)


def check_bytes(optimizer: Any, n: int) -> None:
    """Each process holds at most total / n + the largest parameter's of the optimizer's state."""
    sizes = [
        sum(moment.nbytes for moment in state.values() if torch.is_tensor(moment))
        for state in optimizer.state.values()
    ]
    own, largest = torch.tensor(sum(sizes)), torch.tensor(max(sizes))
    numbers = torch.tensor([sum(sizes), len(sizes)])
    dist.all_reduce(numbers)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    assert int(numbers[1]) == sum(len(group["params"]) for group in optimizer.param_groups)
    assert int(own) <= int(numbers[0]) / n + int(largest)


def strategies_send_what_they_say(rank: int, n: int) -> None:
    """Count the messages and bytes of a step of two passes, without the broadcast of the first weights."""
    connect(rank, n)
    config = ModelConfig(vocab_size=16, context_length=8, d_model=8, num_layers=3, num_heads=2, d_ff=16)
    plain = TransformerLM(config, seed=0)
    n_parameters, n_bytes = len(list(plain.parameters())), 4 * plain.n_parameters()
    n_units = config.num_layers
    in_rest = n_bytes - 4 * sum(p.numel() for p in plain.layers.parameters())
    expected = {
        "naive": {"all_reduce": (n_parameters, n_bytes)},
        "flat": {"all_reduce": (1, n_bytes)},
        "bucketed": {"all_reduce": (1, n_bytes)},
        "sharded_optimizer": {"all_reduce": (1, n_bytes), "broadcast": (n_parameters, n_bytes)},
        "fully_sharded": {
            "all_gather_into_tensor": (4 * n_units + 2, 4 * n_bytes - 2 * in_rest),
            "reduce_scatter_tensor": (n_units + 1, n_bytes),
        },
        "offload": {"all_reduce": (1, n_bytes)},
    }
    ids = torch.zeros(1, 8, dtype=torch.int64)
    for name, strategy in STRATEGIES.items():
        model = TransformerLM(config, seed=rank)
        parallel = strategy.load().of_model(model, bucket_mb=25, dtype=torch.float32)
        optimizer = made_optimizer(model, "adamw", parallel, rank, n)
        messages: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        before = {each: getattr(dist, each) for each in COLLECTIVES}
        for each, function in before.items():
            setattr(dist, each, counted(each, function, messages, sizes))
        for now in (False, True):
            with parallel.exchanged(now=now):
                parallel.call(model.loss, ids, ids).backward()
        optimizer.step()
        for each, function in before.items():
            setattr(dist, each, function)
        assert {each: (messages[each], sizes[each]) for each in messages} == expected[name], name
        n_held = sum(local(parameter.detach()).nbytes for parameter in model.parameters())
        assert n_held == (n_bytes // n if name == "fully_sharded" else n_bytes)
    dist.destroy_process_group()


def counted(
    name: str, function: Callable[..., Any], messages: Counter[str], sizes: Counter[str]
) -> Callable[..., Any]:
    def call(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        messages[name] += 1
        # The whole buffer: what is gathered, or reduced to shards.
        sizes[name] += (arguments[0] if name == "reduce_scatter_tensor" else tensor).nbytes
        return function(tensor, *arguments, **options)

    return call
