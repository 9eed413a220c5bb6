"""Language models on the CPU or a GPU: the cases `lm`, `lm-train`, `lm-load` and `lm-parallel`.

`bytemill.lm` is imported inside functions: `lm-train` measures the memory of a process beyond importing torch.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

import bytemill
from benchmarks import harness
from benchmarks.harness import option

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from bytemill.lm.model import ModelConfig, TransformerLM

LEARNING_RATE, WARMUP = 1e-3, 20
CONTENDERS = ["torch.nn", "bytemill", "bytemill, scratch", "bytemill, compiled"]
SIZES = {"context_length": 256, "d_model": 512, "d_ff": 1344, "num_layers": 4, "num_heads": 16}
VOCAB_SIZE = 10_000
PROGRAMS = ["torch.nn", "bare loop", "bytemill lm train"]
WAYS = ("spin", "sleep", "one thread", "adaptive")


@harness.case(
    option("text", type=Path),
    option("--preset", default="tiny", help="of bytemill.lm.presets, without those of GPT-2 (%(default)s)"),
    option("--vocab-size", type=int),
    option("--steps", type=int, default=60),
    option("--seeds", type=int, default=1),
    option("--turn", type=int, default=5, help="steps that each contender takes in a row"),
    option("--batch-size", type=int, default=16),
    option("--device", default="auto"),
    option("--compile", action="store_true"),
)
def lm(options: argparse.Namespace) -> None:
    """Train side by side: our model, and one of the same shape made of torch.nn alone. Loss and tokens/s.

        python -m benchmarks lm stories.txt --preset tiny --steps 60
        python -m benchmarks lm stories.txt --preset tinystories --vocab-size 4096 --batch-size 8 --seeds 2
        python -m benchmarks lm stories.txt --preset tinystories --steps 400 --compile

    All contenders begin with the same weights, each seed with others, get the same batches in the same order,
    AdamW with the same settings, and take turns of a few steps, so that a machine that slows down slows them all.
    The text is cut 95:5 into training and validation. Memory is what a process with one contender alone has at
    most, beyond what importing torch takes.
    """
    from bytemill.lm.device import matmul_rate, pick_device
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.planning import flops_per_token
    from bytemill.lm.presets import PRESETS

    presets = [name for name in PRESETS if not name.startswith("gpt2")]
    if options.preset not in presets:
        raise harness.UsageError(f"--preset {options.preset!r} is none of {', '.join(presets)}")
    device = pick_device(options.device)
    config = PRESETS[options.preset]
    text = options.text.read_text(encoding="utf-8")
    cut = int(0.95 * len(text))
    tokenizer = bytemill.train_from_iterator(
        iter([text[:cut]]), options.vocab_size or config.vocab_size, ["<|endoftext|>"]
    )
    train_ids, validation_ids = (tokenizer.encode_to_numpy(part) for part in (text[:cut], text[cut:]))
    config = config.replace(vocab_size=tokenizer.n_vocab)
    length = config.context_length
    rate = matmul_rate(device, torch.float32, seconds=2)
    print(
        f"{options.preset}: {TransformerLM(config, device='meta').n_parameters():,} parameters, "
        f"{options.steps} steps of {options.batch_size} x {length} tokens on {device}, "
        f"{torch.get_num_threads()} threads; matrix products at {rate / 1e9:,.1f} GFLOP/s"
    )
    names = CONTENDERS if options.compile else CONTENDERS[:3]
    runs: list[list[Contender]] = []
    for seed in range(options.seeds):
        models = [contender(name, config, device, seed) for name in names]
        race(models, train_ids, length, options, device)
        for model in models:
            model.validation = validation_loss(model, validation_ids, length, device)
        runs.append(models)
        if seed + 1 < options.seeds:
            print(f"seed {seed}: " + ", ".join(f"{m.name} {m.validation:.3f}" for m in models), flush=True)
    per_token = flops_per_token(config, length, backward=True)
    base = [rate for run in runs for rate in run[0].rates]
    rows: list[list[str]] = []
    for index, name in enumerate(names):
        rates = [rate for run in runs for rate in run[index].rates]
        speed = statistics.median(rates)
        ratio = statistics.median(own / other for own, other in zip(rates, base, strict=True))
        request = {"name": name, "config": config.to_dict(), "batch_size": options.batch_size}
        memory = harness.measure_in_process(train_two_steps, request | {"device": str(device)})
        if memory.reason:
            raise SystemExit(f"error: {memory.reason}")
        last = statistics.fmean(loss for run in runs for loss in run[index].losses[-10:])
        speeds = [f"{speed:,.0f}", f"{ratio:.2f}", f"{speed * per_token / rate:.1%}"]
        validation = " ".join(f"{run[index].validation:.3f}" for run in runs)
        rows.append(
            [name, *speeds, f"{memory.values['memory_bytes'] / 1e6:,.0f} MB", f"{last:.3f}", validation]
        )
    header = ["", "tokens/s", "ratio", "FLOP use", "memory", "train", "validation, by seed"]
    print(harness.format_table(header, rows))


@dataclass
class Contender:
    """One model in training."""

    name: str
    model: Any
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    clip: Callable[[Any, float], Any]
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    validation: float = 0.0

    def step(self, inputs: Tensor, targets: Tensor, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = self.loss(inputs, targets)
        loss.backward()
        self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(float(loss.detach()))


def contender(name: str, config: ModelConfig, device: torch.device, seed: int) -> Contender:
    """One of `CONTENDERS`, not trained yet."""
    from benchmarks.peers.torch_lm import TorchLM
    from bytemill.lm.kernels.choice import choose_kernels
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optim import AdamW, clip_gradients

    settings: Any = {"betas": (0.9, 0.95), "weight_decay": 0.1}
    if name == "torch.nn":
        torch.manual_seed(seed)
        theirs = TorchLM(config).to(device)
        theirs.start_as(TransformerLM(config, seed=seed).to(device))
        adamw = torch.optim.AdamW(theirs.parameters(), LEARNING_RATE, fused=True, **settings)
        return Contender(name, theirs, theirs.loss, adamw, nn.utils.clip_grad_norm_)
    is_compiled = "compiled" in name
    kernels = choose_kernels("scratch" if "scratch" in name else "auto", device, compiled=is_compiled)
    model = TransformerLM(config, seed=seed).to(device).use_kernels(kernels)
    if is_compiled:
        model.compile_blocks()
    adamw = AdamW(model.parameters(), LEARNING_RATE, fused=kernels.fused_adamw, **settings)
    return Contender(name, model, model.loss, adamw, clip_gradients)


def race(
    models: list[Contender],
    ids: NDArray[np.integer],
    length: int,
    options: argparse.Namespace,
    device: torch.device,
) -> None:
    """Train the models in turns; each then has its losses and its rate of each turn."""
    from bytemill.lm.batches import get_batch
    from bytemill.lm.device import synchronise
    from bytemill.lm.schedule import cosine_with_warmup

    for model in models:  # first calls allocate and compile
        model.loss(*get_batch(ids, options.batch_size, length, device)).backward()
        model.optimizer.zero_grad(set_to_none=True)
    for first in range(0, options.steps, options.turn):
        for model in models:
            synchronise(device)
            started = time.perf_counter()
            steps = range(first, min(first + options.turn, options.steps))
            for step in steps:
                generator = torch.Generator().manual_seed(step)
                batch = get_batch(ids, options.batch_size, length, device, generator=generator)
                lr = cosine_with_warmup(step + 1, LEARNING_RATE, 0.1 * LEARNING_RATE, WARMUP, options.steps)
                model.step(*batch, lr)
            synchronise(device)
            n_tokens = len(steps) * options.batch_size * length
            model.rates.append(n_tokens / (time.perf_counter() - started))


@torch.no_grad()
def validation_loss(model: Contender, ids: NDArray[np.integer], length: int, device: torch.device) -> float:
    from bytemill.lm.batches import spread_starts, windows_at

    starts = spread_starts(len(ids), length, 64)
    losses = [
        float(model.loss(*windows_at(ids, starts[first : first + 8], length, device)))
        for first in range(0, len(starts), 8)
    ]
    return statistics.fmean(losses)


def train_two_steps(request: dict[str, Any]) -> dict[str, Any]:
    """One process: by how much two steps of a contender raise the peak of memory."""
    from bytemill.lm.device import peak_memory
    from bytemill.lm.model import ModelConfig

    # The memory of what a contender imports does not count.
    for module in ("benchmarks.peers.torch_lm", "bytemill.lm.kernels.choice", "bytemill.lm.optim"):
        import_module(module)
    device, config = torch.device(request["device"]), ModelConfig(**request["config"])
    before = peak_memory(device)
    one = contender(request["name"], config, device, 0)
    ids = torch.randint(0, config.vocab_size, (request["batch_size"], config.context_length), device=device)
    for _ in range(2):
        one.step(ids, ids, LEARNING_RATE)
    return {"memory_bytes": peak_memory(device) - before}


@harness.case(
    *(option(f"--{size.replace('_', '-')}", type=int, default=value) for size, value in SIZES.items()),
    option("--batch-size", type=int, default=8),
    option("--steps", type=int, default=20),
    harness.ROUNDS,
    option("--kernels", default="auto", choices=["auto", "torch", "scratch"]),
    option("--compile", action="store_true"),
)
def lm_train(options: argparse.Namespace) -> None:
    """Measure speed and memory of training beside a model of the same shape made of torch.nn, eager and compiled.

        python -m benchmarks lm-train
        python -m benchmarks lm-train --compile --rounds 5
        python -m benchmarks lm-train --kernels scratch --d-model 256

    Three programs train on random tokens, each in a process of its own, in turns: `bytemill lm train` as started
    from the shell; its model and optimizer in a bare loop, without data, log and checks; and the model of
    torch.nn, with SDPA and fused AdamW. Ratios are medians over the rounds, so that a machine that slows down
    slows all three. Memory is the peak of the process beyond importing torch. With --compile, the first round has
    an empty cache, and the table shows how long the first step takes with and without one.
    """
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder), 4 * options.batch_size * options.context_length * (options.steps + 4))

        def measured(program: str) -> harness.Outcome:
            cache = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache/{program.replace(' ', '-')}"}
            request = vars(options) | {"program": program, "data": folder}
            outcome = harness.measure_in_process(train_alone, request, environment=cache)
            shown = {key: round(value, 2) for key, value in outcome.values.items()}
            print(f"{program}: {shown}", file=sys.stderr, flush=True)
            return outcome

        runs, _ = harness.in_turns(PROGRAMS, options.rounds, measured, needed=True)
        shutil.rmtree(f"{folder}/cache", ignore_errors=True)
    rates = {name: [each.values["tokens_per_second"] for each in own] for name, own in runs.items()}
    base_memory = harness.median_of(runs[PROGRAMS[0]], "memory_bytes")
    rows: list[list[str]] = []
    for program, own in runs.items():
        both = zip(rates[program], rates[PROGRAMS[0]], strict=True)
        speed = (
            f"{statistics.median(rates[program]):,.0f}",
            f"{statistics.median(a / b for a, b in both):.2f}",
        )
        n_bytes = harness.median_of(own, "memory_bytes")
        memory = f"{n_bytes / 1e6:,.0f} MB", f"{n_bytes / base_memory:.2f}"
        first = f"{own[0].values['first_step_seconds']:.1f} s"
        later = f"{harness.median_of(own[1:], 'first_step_seconds'):.1f} s" if own[1:] else ""
        rows.append([program, *speed, *memory, first, later])
    header = ["", "tokens/s", "ratio", "memory", "ratio", "first step", "cached"]
    print(harness.format_table(header, rows))


def train_alone(request: dict[str, Any]) -> dict[str, Any]:
    """One process: train as a program; gives speed, memory and the time of the first step."""
    options = argparse.Namespace(**request)
    before = harness.peak_memory_bytes()
    if options.program == "bytemill lm train":
        result = from_the_command_line(options)
    else:
        step, n_tokens = training_step(options)
        started = time.perf_counter()
        step()
        first = time.perf_counter() - started
        for _ in range(2):
            step()
        started = time.perf_counter()
        for _ in range(options.steps):
            step()
        rate = options.steps * n_tokens / (time.perf_counter() - started)
        result = {"tokens_per_second": rate, "first_step_seconds": first}
    n_bytes = harness.peak_memory_bytes() - before
    return {**result, "memory_bytes": n_bytes, "threads": torch.get_num_threads()}


def training_step(options: argparse.Namespace) -> tuple[Callable[[], None], int]:
    """Return a function that trains for a step, and the number of its tokens."""
    from benchmarks.peers.torch_lm import TorchLM
    from bytemill.lm import ModelConfig, TransformerLM
    from bytemill.lm.kernels.choice import choose_kernels
    from bytemill.lm.optim import AdamW, clip_gradients, parameter_groups

    config = ModelConfig(vocab_size=VOCAB_SIZE, **sizes(options))
    settings: Any = {"lr": 1e-3, "betas": (0.9, 0.95)}
    if options.program == "torch.nn":
        model: Any = TorchLM(config)
        loss: Any = torch.compile(model.loss) if options.compile else model.loss
        optimizer: Any = torch.optim.AdamW(model.parameters(), fused=True, weight_decay=0.1, **settings)
        clip: Any = torch.nn.utils.clip_grad_norm_
    else:
        kernels = choose_kernels(options.kernels, torch.device("cpu"), compiled=options.compile)
        model = TransformerLM(config, seed=0).use_kernels(kernels)
        if options.compile:
            model.compile_blocks()
        loss, clip = model.loss, clip_gradients
        optimizer = AdamW(parameter_groups(model), fused=kernels.fused_adamw, **settings)
    model.train()
    shape = (options.batch_size, config.context_length)
    ids, targets = (torch.randint(0, VOCAB_SIZE, shape) for _ in range(2))

    def step() -> None:
        loss(ids, targets).backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, ids.numel()


def from_the_command_line(options: argparse.Namespace) -> dict[str, float]:
    """Run `bytemill lm train` in this process, with its own start of the interpreter's modules and its own data."""
    from bytemill.cli import main

    folder = Path(options.data) / "run"
    arguments = {
        "data.tokenizer": Path(options.data) / "tokenizer.json",
        "data.train": Path(options.data) / "shards",
        "run.folder": folder,
        "run.log-every": 1,
        "run.checkpoint-every": 0,
        "training.device": "cpu",
        "training.steps": options.steps + 3,
        "training.batch-size": options.batch_size,
        "training.kernels": options.kernels,
        "model.vocab-size": VOCAB_SIZE,
        **{f"model.{name.replace('_', '-')}": size for name, size in sizes(options).items()},
    }
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    compiled = "--training.compile" if options.compile else "--training.no-compile"
    sys.argv = ["bytemill", "lm", "train", "--overwrite", "--quiet", compiled, *words]
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    if code:
        raise SystemExit(code)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rates = [row["tokens_per_second"] for row in rows if row["kind"] == "step"]
    n_tokens = options.batch_size * options.context_length
    return {
        "tokens_per_second": options.steps / sum(1 / rate for rate in rates[3:]),
        "first_step_seconds": n_tokens / rates[0],
    }


def sizes(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in SIZES}


def make_data(folder: Path, n_tokens: int) -> None:
    """Write a small tokenizer, and shards of random text."""
    generator = np.random.default_rng(0)
    text = "".join(chr(97 + c) for c in generator.integers(0, 26, n_tokens))
    tokenizer = bytemill.train_from_iterator(iter([text[:1000]]), 257, ["<|endoftext|>"])
    tokenizer.save(folder / "tokenizer.json")
    (folder / "text.txt").write_text(text)
    bytemill.encode_corpus(tokenizer, str(folder / "text.txt"), str(folder / "shards"))


@harness.case(
    option("--preset", default="tiny"),
    option("--vocab-size", type=int, default=2000),
    option("--batch-size", type=int, default=8),
    option("--busy", type=int, default=2, help="busy processes"),
    option("--seconds", type=float, default=6),
    option("--turns", type=int, default=3),
)
def lm_load(options: argparse.Namespace) -> None:
    """Train and generate on the CPU, on a quiet machine and beside busy processes, by how idle threads wait.

        python -m benchmarks lm-load
        python -m benchmarks lm-load --preset tinystories --busy 4 --seconds 10

    Ways: threads that spin (OpenMP's default), threads that sleep, one thread, and `shared_cores`, which chooses.
    They take turns; each row is the median of its rates, and of its ratios to the best of the first three in the
    same turn.
    """
    from bytemill.lm import preset
    from bytemill.lm.model import TransformerLM

    model = TransformerLM(preset(options.preset, vocab_size=options.vocab_size), seed=0)
    steps = {"training": training(model, options.batch_size), "generation": generation(model)}
    print(f"{options.preset}, {torch.get_num_threads()} threads; tokens/s")
    rows: list[list[str]] = []
    for n_busy in (0, options.busy):
        with busy(n_busy):
            for name, step in steps.items():
                turns: list[list[float]] = []
                for _ in range(options.turns):
                    turns.append([])
                    for way in WAYS:
                        with waiting(way):
                            turns[-1].append(rate(step, options.seconds))
                rows.append([name + (f", {n_busy} busy" if n_busy else ", quiet")])
                for number in range(len(WAYS)):
                    median = statistics.median(turn[number] for turn in turns)
                    ratio = statistics.median(turn[number] / max(turn[:-1]) for turn in turns)
                    rows[-1].append(f"{median:,.0f} ({ratio:.2f})")
    print(harness.format_table(["", *WAYS], rows))


@contextmanager
def busy(n: int) -> Generator[None]:
    """Keep `n` cores busy during the block; the processes end by themselves after ten minutes."""
    code = "import time\nend = time.monotonic() + 600\nwhile time.monotonic() < end: pass"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def waiting(way: str) -> Generator[None]:
    from bytemill.lm import device

    n_threads = torch.get_num_threads()
    with ExitStack() as stack:
        if way == "sleep" and (library := device._libgomp()) is not None:
            stack.callback(device._ExtraTeam(library).close)
        if way == "one thread":
            torch.set_num_threads(1)
            stack.callback(torch.set_num_threads, n_threads)
        if way == "adaptive":
            stack.enter_context(device.shared_cores(torch.device("cpu")))
        yield


def training(model: TransformerLM, batch_size: int) -> Callable[[], int]:
    from bytemill.lm.optim import AdamW

    optimizer = AdamW(model.parameters(), lr=1e-4)
    shape = (batch_size, model.config.context_length)
    inputs, targets = (torch.randint(0, model.config.vocab_size, shape) for _ in range(2))

    def step() -> int:
        loss, _ = model.losses(inputs, targets)
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return inputs.numel()

    return step


def generation(model: TransformerLM) -> Callable[[], int]:
    from bytemill.lm.generation.core_decoder import CoreDecoder
    from bytemill.lm.model import KVCache

    def step() -> int:
        decoder = CoreDecoder(model, KVCache(model.config, 1))
        for token in range(32):
            decoder.logits_after(token)
        return 32

    return torch.inference_mode()(step)


def rate(step: Callable[[], int], seconds: float) -> float:
    step()
    started, n = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < seconds:
        n += step()
    return n / passed


@harness.case(
    option("--preset", default="tiny"),
    option("--vocab-size", type=int, default=2000),
    option("--batch-size", type=int, default=4, help="sequences per process"),
    option("--processes", type=int, default=2),
    option("--steps", type=int, default=5, help="steps that each strategy takes in a row"),
    option("--turns", type=int, default=5),
    option("--bucket-mb", type=float, default=25.0),
)
def lm_parallel(options: argparse.Namespace) -> None:
    """Measure a training step of each strategy of data parallelism beside torch's DDP, on the CPU.

        python -m benchmarks lm-parallel
        python -m benchmarks lm-parallel --preset tinystories --processes 4 --bucket-mb 1

    Processes of one thread each train all models in turns of a few steps, with AdamW and clipping. Ratios are medians
    over the turns of the time to that of DDP in the same turn, so that a machine that slows down slows all.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ranks: list[subprocess.Popen[str]] = []
        for rank in range(options.processes):
            request = {**vars(options), "rank": rank, "folder": folder}
            command = harness.worker_command(time_strategies, request)
            environment = harness.worker_environment(OMP_NUM_THREADS="1")
            output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            ranks.append(
                stack.enter_context(subprocess.Popen(command, env=environment, stdout=output, text=True))
            )
            stack.callback(ranks[-1].kill)
        text, _ = ranks[0].communicate()
        if ranks[0].returncode:
            raise SystemExit(f"error: process 0 ended with {ranks[0].returncode}")
    seconds: dict[str, list[float]] = json.loads(text.splitlines()[-1])
    rows = [
        [name, f"{1000 * statistics.median(own):,.1f}", f"{statistics.median(ratios):.2f}"]
        for name, own in seconds.items()
        for ratios in [[a / b for a, b in zip(own, seconds["torch DDP"], strict=True)]]
    ]
    print(f"{options.preset}, {options.processes} processes, {options.batch_size} sequences each")
    print(harness.format_table(["", "ms per step", "ratio"], rows))


def time_strategies(request: dict[str, Any]) -> dict[str, list[float]]:
    """One process: train a model with each strategy, in turns; gives the seconds per step of each turn."""
    from torch import distributed

    from bytemill.lm import preset
    from bytemill.lm.kernels.choice import choose_kernels
    from bytemill.lm.model import TransformerLM
    from bytemill.lm.optim import AdamW, clip_gradients, parameter_groups
    from bytemill.lm.parallel.registry import STRATEGIES
    from bytemill.lm.processes import average_gradients

    options = argparse.Namespace(**request)
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=(Path(options.folder) / "rendezvous").as_uri(),
        rank=options.rank,
        world_size=options.processes,
    )
    config = preset(options.preset, vocab_size=options.vocab_size)
    device = torch.device("cpu")
    shape = (options.batch_size, config.context_length)
    ids = torch.randint(0, config.vocab_size, shape, generator=torch.Generator().manual_seed(options.rank))

    def made(name: str) -> Callable[[], None]:
        kernels = choose_kernels("auto", device)
        model = TransformerLM(config, seed=0).use_kernels(kernels)
        parallel: Any = None
        if name == "torch DDP":
            losses: Any = average_gradients(model, model.losses, device)
        else:
            made_strategy = STRATEGIES[name].load()  # pyright: ignore[reportArgumentType]
            parallel = made_strategy.of_model(model, bucket_mb=options.bucket_mb, dtype=torch.float32)
            losses = model.losses
        optimizer: Any = AdamW(parameter_groups(model), LEARNING_RATE, fused=kernels.fused_adamw)
        if parallel is not None:
            optimizer = parallel.wrap_optimizer(optimizer)

        def step() -> None:
            loss = losses(ids, ids)[0] if parallel is None else parallel.call(losses, ids, ids)[0]
            loss.backward()
            if parallel is not None:
                parallel.finish()
            clip_gradients(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    steps = {name: made(name) for name in ("torch DDP", *STRATEGIES)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.turns + 1):
        for name, step in steps.items():
            distributed.barrier()
            started = time.perf_counter()
            for _ in range(options.steps if turn else 2):
                step()
            distributed.barrier()
            if turn:  # the first calls allocate
                seconds[name].append((time.perf_counter() - started) / options.steps)
    distributed.destroy_process_group()
    return seconds
