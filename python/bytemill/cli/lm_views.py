"""Print plans of language models and profiles of their training steps, as tables or JSON."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.system.units import format_bytes, format_count, format_seconds, format_share, plural

if TYPE_CHECKING:
    from bytemill.lm.batch_size import BatchSizes
    from bytemill.lm.planning import Plan
    from bytemill.lm.training.config import TrainConfig
    from bytemill.lm.training.step_profile import StepProfile


def write_plan(plan: Plan, name: str, run: TrainConfig | None = None, *, as_json: bool) -> None:
    """Print the parameters, memory, FLOPs and training time of a model.

    Args:
        plan: The plan.
        name: Name of the model.
        run: Settings of a run to print as well.
        as_json: Print JSON.
    """
    chosen = {} if run is None else _chosen(run)
    if as_json:
        output.write_json({"model": name, **({"run": chosen} if chosen else {}), **plan.to_dict()})
        return
    memory, batch = plan.memory, plan.batch_size
    output.write_line(output.styled(f"{name}: {format_count(sum(plan.parameters.values()))} parameters", "1"))
    output.write_line()
    if chosen:
        output.write_line(output.styled("  the run", "2"))
        rows = [
            (key, f"{value:g}" if isinstance(value, float) else f"{value:,}") for key, value in chosen.items()
        ]
        output.write_fields(rows, indent="    ")
        output.write_line()
    _write_parts("parameters", plan.parameters, format_count)
    output.write_line()
    rows = [
        ("parameters", format_bytes(memory.parameters)),
        ("gradients", format_bytes(memory.gradients)),
        (f"optimizer ({plan.optimizer})", format_bytes(memory.optimizer)),
        *([("average of weights", format_bytes(memory.average))] if memory.average else []),
        (
            "activations",
            f"{format_bytes(memory.activations_fixed)} + {format_bytes(memory.activations_per_sequence)} × batch "
            f"= {format_bytes(memory.activations(batch))}",
        ),
        ("total", f"{format_bytes(memory.total(batch))} for a batch of {batch} × {plan.n_tokens:,} tokens"),
    ]
    if plan.available_bytes is not None:
        verdict = "fits" if plan.fits else "does not fit"
        largest = plan.largest_batch or 0
        rows.append(
            (
                "available",
                f"{format_bytes(plan.available_bytes)}: {verdict}"
                + (f"; the largest batch is {largest:,}" if largest else ", not even a batch of 1"),
            )
        )
    how = "" if plan.checkpointing == "none" else f", {plan.checkpointing} activation checkpointing"
    if plan.n_processes > 1 or plan.strategy == "offload":
        how += f", on each of {plan.n_processes} devices with {plan.strategy}"
    output.write_line(output.styled(f"  memory in {plan.precision}{how}", "2"))
    output.write_fields(rows, indent="    ")
    output.write_line()
    _write_parts(f"FLOPs forward, batch of {batch}", plan.forward_flops, _flops)
    output.write_line(
        f"    {_flops(sum(plan.step_flops.values()))} for a training step, with the backward pass"
    )
    output.write_line()
    summary = [("compute-optimal", f"{format_count(plan.compute_optimal_tokens)} tokens, 20 per parameter")]
    if plan.days is not None:
        summary.append(
            (
                "time",
                f"{_days(plan.days)} for {format_count(plan.training_tokens)} tokens at "
                f"{plan.utilization:.0%} of {_flops(plan.flops_per_second or 0)}/s",
            )
        )
    output.write_fields(summary)


def _chosen(run: TrainConfig) -> dict[str, int | float]:
    """Return the settings that follow from a depth, by key."""
    training, model = run.training, run.model
    per_step = training.batch_size * training.accumulation * model.context_length
    return {
        "model.d_model": model.d_model,
        "model.num_layers": model.num_layers,
        "model.num_heads": model.num_heads,
        "model.d_ff": model.d_ff,
        "optimizer.learning_rate": run.optimizer.learning_rate,
        "training.batch_size": training.batch_size,
        "training.accumulation": training.accumulation,
        "training.steps": training.steps,
        "tokens per step": per_step,
        "tokens": training.steps * per_step,
    }


def write_step_profile(profile: StepProfile, *, as_json: bool) -> None:
    """Print the time, communication, memory and FLOPs of a training step."""
    if as_json:
        output.write_json(profile.to_dict())
        return
    in_processes = f", {profile.n_processes} processes" if profile.n_processes > 1 else ""
    output.write_line(
        f"a step of {format_count(profile.tokens_per_step)} tokens on {profile.device}, {profile.precision}"
        f"{in_processes}: {format_seconds(profile.seconds)}, mean of {plural(profile.n_steps, 'step')}"
    )
    output.write_line()
    planned = sum(profile.planned_flops.values()) / profile.n_processes
    rows: list[tuple[str, ...]] = []
    for phase, seconds in profile.phases.items():
        rate = profile.phase_flops.get(phase, 0) / seconds if seconds else 0
        rows.append(
            (
                phase,
                format_seconds(seconds),
                format_share(seconds / profile.seconds),
                f"{_flops(rate)}/s" if rate else "",
            )
        )
    rate = planned / profile.seconds
    rows.append(("step", format_seconds(profile.seconds), "", f"{_flops(rate)}/s"))
    output.write_table(("phase", "time", "share", "rate"), rows, right=(1, 2, 3))
    if profile.peak_flops is not None:
        share = rate * profile.n_processes / profile.peak_flops
        output.write_line(f"the step reaches {format_share(share)} of the device's rate of FLOPs")
    if (sent := profile.communication) is not None:
        output.write_line(
            f"communication: {sent.n_messages:,.0f} messages, {format_seconds(sent.seconds)}, of which "
            f"{format_seconds(sent.hidden_seconds)} hidden behind computing and {format_seconds(sent.exposed_seconds)} "
            "exposed"
        )
    output.write_line()
    memory = [
        (part, "not counted" if n_bytes is None else format_bytes(n_bytes), format_bytes(planned))
        for part, planned in profile.planned_memory.items()
        for n_bytes in (profile.memory[part],)
    ]
    output.write_table(("memory", "measured", "planned"), memory, right=(1, 2))
    output.write_line(f"peak of the {_whose_peak(profile.device)}: {format_bytes(profile.peak_memory)}")
    output.write_line()
    counted = profile.flops
    flops = [
        (part, "" if counted is None else _flops(counted[part]), _flops(planned))
        for part, planned in profile.planned_flops.items()
    ]
    if counted is None:
        output.write_line("torch cannot count the FLOPs of this model without computing it")
    elif counted["other"]:
        flops.append(("other", _flops(counted["other"]), ""))
    output.write_table(("FLOPs of a step", "counted", "planned"), flops, right=(1, 2))


def write_batch_sizes(measured: BatchSizes, *, as_json: bool) -> None:
    """Print what the branches of a run reached, and the critical batch size."""
    if as_json:
        output.write_json(measured.to_dict())
        return
    bend = measured.bend
    output.write_line(
        f"{measured.run} at step {measured.step:,}: {measured.before:.4f} bits per byte; branches of "
        f"{format_count(measured.n_tokens)} tokens"
    )
    output.write_line()
    rows = [
        (
            f"{size:,}",
            f"{measured.n_tokens // size:,}",
            f"{rate:.2e}",
            f"{fmean(bits):.4f}",
            f"{measured.before - fmean(bits):.4f}",
            f"{bend.improvement(size):.4f}",
        )
        for size, rate, bits in zip(
            measured.batch_tokens, measured.learning_rates, measured.bits_per_byte, strict=True
        )
    ]
    header = ("tokens per step", "steps", "learning rate", "bits per byte", "improvement", "fitted")
    output.write_table(header, rows, right=range(6))
    output.write_line()
    if not math.isfinite(bend.critical):
        output.write_line(
            f"no bend up to {measured.batch_tokens[-1]:,} tokens per step: the critical batch size is larger; try "
            "larger --batch-sizes"
        )
        return
    high = f"{bend.high:,.0f}" if math.isfinite(bend.high) else "no bound"
    interval = "" if math.isnan(bend.low) else f" (95 % interval {bend.low:,.0f} to {high})"
    output.write_line(f"critical batch size: {bend.critical:,.0f} tokens{interval}")


def _whose_peak(device: str) -> str:
    return "process" if device == "cpu" else "device's memory"


def _write_parts(title: str, parts: dict[str, int], render: Any) -> None:
    total = sum(parts.values())
    output.write_line(output.styled(f"  {title}", "2"))
    rows = [(name, render(value), format_share(value / total)) for name, value in parts.items()]
    width = max(len(name) for name in [*parts, "total"])
    widest = max(len(value) for _, value, _ in [*rows, ("", render(total), "")])
    for name, value, share in [*rows, ("total", render(total), "")]:
        output.write_line(f"    {name:<{width}}  {value:>{widest}}  {share:>7}".rstrip())


def _flops(value: float) -> str:
    for unit, size in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if value >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.0f} FLOP"


def _days(days: float) -> str:
    if days >= 1:
        return f"{days:,.1f} days"
    return f"{days * 24:.1f} hours" if days * 24 >= 1 else f"{days * 1440:.1f} minutes"
