"""Print scores and plans of language models, as tables or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.system.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    from bytemill.lm.evaluate import HellaSwagScore, LossByClass, TextScore
    from bytemill.lm.planning import Plan
    from bytemill.lm.training.saved_model import TrainedModel


def write_scores(
    trained: TrainedModel,
    texts: dict[str, TextScore],
    hellaswag: dict[str, HellaSwagScore],
    classes: dict[str, LossByClass],
    *,
    as_json: bool,
) -> None:
    """Print the scores of a model.

    Args:
        trained: The model.
        texts: Scores by text file or shard folder.
        hellaswag: Scores by HellaSwag file.
        classes: Losses by class of token, by text file or shard folder.
        as_json: Print JSON instead of tables.
    """
    if as_json:
        output.write_json(
            {
                "checkpoint": str(trained.path),
                "step": trained.step,
                "texts": {
                    name: score.to_dict() | (_classes(classes[name]) if name in classes else {})
                    for name, score in texts.items()
                },
                "hellaswag": {name: score.to_dict() for name, score in hellaswag.items()},
            }
        )
        return
    output.write_line(output.styled(f"{trained.path}, step {trained.step:,}", "1"))
    if texts:
        output.write_line()
        output.write_table(
            ("text", "tokens", "bytes", "loss", "perplexity", "bits/byte"),
            [
                (
                    name,
                    format_count(score.n_tokens),
                    format_count(score.n_bytes),
                    f"{score.loss:.4f}",
                    f"{score.perplexity:.2f}",
                    f"{score.bits_per_byte:.4f}",
                )
                for name, score in texts.items()
            ],
            right=(1, 2, 3, 4, 5),
        )
    for name, by_class in classes.items():
        output.write_line()
        _write_classes(name, by_class)
    if hellaswag:
        output.write_line()
        names = list(next(iter(hellaswag.values())).accuracy)
        output.write_table(
            ("HellaSwag, accuracy by", "items", *names),
            [
                (file, format_count(score.n_items), *(f"{score.accuracy[name]:.2%}" for name in names))
                for file, score in hellaswag.items()
            ],
            right=range(1, len(names) + 2),
        )
        if n_unaligned := sum(score.n_unaligned for score in hellaswag.values()):
            output.write_line(
                f"{format_count(n_unaligned)} endings share a token with their context, whose tokens are therefore not "
                "those of the context alone."
            )


def _classes(by_class: LossByClass) -> dict[str, Any]:
    return {"classes": by_class.to_dict(), "frequencies": by_class.by_frequency()}


def _write_classes(name: str, by_class: LossByClass) -> None:
    _write_losses(name, by_class.to_dict())
    output.write_line()
    tenths = enumerate(by_class.by_frequency())
    _write_losses(
        "tokens by frequency",
        {
            f"{'most frequent ' if not number else ''}{10 * number}–{10 * number + 10} %: {row['n_ids']:,} ids": row
            for number, row in tenths
            if row["n_tokens"]
        },
    )


def _write_losses(name: str, rows: dict[str, dict[str, Any]]) -> None:
    output.write_table(
        (name, "tokens", "share", "loss", "bits/byte", "share of loss"),
        [
            (
                kind,
                format_count(row["n_tokens"]),
                format_share(row["token_share"]),
                f"{row['loss']:.4f}",
                "–" if row["bits_per_byte"] is None else f"{row['bits_per_byte']:.4f}",
                "–" if row["loss_share"] is None else format_share(row["loss_share"]),
            )
            for kind, row in rows.items()
        ],
        right=(1, 2, 3, 4, 5),
    )


def write_plan(plan: Plan, name: str, *, as_json: bool) -> None:
    """Print the parameters, memory, FLOPs and training time of a model."""
    if as_json:
        output.write_json({"model": name, **plan.to_dict()})
        return
    memory, batch = plan.memory, plan.batch_size
    output.write_line(output.styled(f"{name}: {format_count(sum(plan.parameters.values()))} parameters", "1"))
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
