"""Progress of a training run: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any, Self

from bytemill.analysis.inspection import visible
from bytemill.cli import output
from bytemill.system.units import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Group
    from rich.live import Live

    from bytemill.lm.training.run_folder import RunFolder

_SECONDS_BETWEEN_LINES = 5.0
_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_CELLS = 60
_SHOWN_WAIT = 0.03


class TrainingView:
    """Display of a run's records on standard error; with `quiet`, nothing is shown."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._n_steps = 1
        self._newest_step = 0
        self._last_line = 0.0
        self._losses: list[float] = []
        self._lines: dict[str, str] = {}

    def __enter__(self) -> Self:
        if not self._quiet and output.is_terminal(sys.stderr):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stderr, highlight=False)
            self._live = Live(console=console, refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show one record."""
        if self._quiet:
            return
        kind, step = record["kind"], record["step"]
        if kind == "start":
            self._begin(record)
            return
        line = _LINES[kind](record) if kind in _LINES else ""
        if kind == "step" and record["loss"] is not None:
            self._losses.append(record["loss"])
            if step < self._n_steps:
                line += f"; {format_seconds(record['seconds_left'])} left"
        self._newest_step = max(self._newest_step, step)  # a checkpoint is complete some steps later
        if self._live is not None:
            self._lines[kind] = line.replace("; ", "\n") if kind == "step" else line
            self._live.update(self._display(self._newest_step))
        elif line and (kind not in {"step", "rollout"} or self._line_is_due(step)):
            self._write(f"step {step:,}: {line}")

    def _begin(self, record: dict[str, Any]) -> None:
        self._n_steps = record["n_steps"]
        for problem in record["refused"]:
            self._write(f"skipped a damaged checkpoint: {problem}")
        if record["resumed_from"]:
            self._write(f"resuming from {record['resumed_from']}")
        for note in record["notes"]:
            self._write(note)
        if record["step"] >= record["n_steps"]:
            self._write(f"all {record['n_steps']:,} steps are done; raise --training.steps to train longer")
        n = record["n_processes"]
        processes = f" in {n} processes ({record['strategy']})" if n > 1 else ""
        self._write(
            f"training {format_count(record['n_parameters'])} parameters on {format_count(record['n_train_tokens'])} "
            f"tokens, {format_count(record['tokens_per_step'])} per step; {record['device']}, "
            f"{record['precision']}{processes}"
        )
        self._write(f"the device's rate of FLOPs is {record['peak_source']}")
        if record["padding_share"]:
            self._write(f"whole documents in windows: {format_share(record['padding_share'])} is padding")
        for group in record["groups"]:
            self._write(_group_line(group))

    def _write(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, markup=False)
        else:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def _line_is_due(self, step: int) -> bool:
        now = time.monotonic()
        if step == self._n_steps or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            return True
        return False

    def _display(self, step: int) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        rows: list[Any] = [
            Text(f"step {step:,} of {self._n_steps:,}"),
            ProgressBar(total=self._n_steps, completed=step, width=_CURVE_CELLS),
        ]
        if self._losses:
            rows.append(Text(f"{curve(self._losses)}  loss {self._losses[-1]:.3f}"))
        rows += [Text(self._lines[kind]) for kind in _LINES if self._lines.get(kind)]
        return Group(*rows)


def write_result(run: RunFolder, n_steps: int, *, as_json: bool) -> None:
    """Print the newest checkpoint of a finished run, or as JSON its last records."""
    from bytemill.lm.training.metrics_log import read_metrics

    checkpoint = run.checkpoint_files()[0]
    folder = str(run.path) if run.stored is None else run.stored.url
    if not as_json:
        output.write_line(f"trained {n_steps:,} steps: {checkpoint if run.stored is None else folder}")
        return
    records: dict[str, Any] = {
        kind: (read_metrics(run.metrics, kind) or [None])[-1] for kind in ("step", "validation", "sample")
    }
    output.write_json({"folder": folder, "checkpoint": str(checkpoint), **records})


def resume_hint(folder: str) -> str:
    """Return how to continue an interrupted run, depending on whether it has saved a checkpoint."""
    from bytemill.lm.training.run_folder import RunFolder

    if RunFolder(folder).checkpoint_files():
        return f"to resume: bytemill lm train {shlex.quote(folder)}"
    return "run the same command again to start over (no checkpoint was saved yet)"


def curve(values: list[float], cells: int = _CURVE_CELLS) -> str:
    """Draw values as blocks of different height; with more values than cells, each cell shows a mean.

    >>> curve([8.0, 4.0, 2.0, 1.0])
    '█▄▂▁'
    """
    n = min(cells, len(values))
    groups = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(group) / len(group) for group in groups]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)


def _step_line(record: dict[str, Any]) -> str:
    bits, use, wait = record["bits_per_byte"], record["flop_utilization"], record["data_wait"]
    return (
        f"loss {record['loss']:.4f}"
        + (f", {bits:.3f} bits per byte" if bits is not None else "")
        + f", learning rate {record['learning_rate']:.2e}, gradient norm {record['grad_norm']:.2f}; "
        f"{format_count(round(record['tokens_per_second']))} tokens/s"
        + (f" ({format_share(use)} of the device's rate)" if use is not None else "")
        + (f", {format_share(wait)} waiting for data" if wait > _SHOWN_WAIT else "")
        + f", {format_bytes(record['memory_bytes'])}"
        + (
            f", busiest experts {record['expert_imbalance']:.2f} × the mean"
            if "expert_tokens" in record
            else ""
        )
    )


def _validation_line(record: dict[str, Any]) -> str:
    bits = record["bits_per_byte"]
    line = f"validation loss {record['loss']:.4f}, perplexity {record['perplexity']:.2f}" + (
        f", {bits:.3f} bits per byte" if bits is not None else ""
    )
    sets = {name: score["bits_per_byte"] for name, score in record.get("sets", {}).items()}
    parts = [f"{visible(name.encode())} {bits:.3f}" for name, bits in sets.items() if bits is not None]
    return line + (f" ({', '.join(parts)})" if parts else "")


def _hellaswag_line(record: dict[str, Any]) -> str:
    if record["acc"] is None:
        return "HellaSwag: the logits are not finite"
    return (
        f"HellaSwag, {record['n_items']:,} items: accuracy {format_share(record['acc'])}, normalized "
        f"{format_share(record['acc_norm'])}"
    )


def _rollout_line(record: dict[str, Any]) -> str:
    error = f" ± {record['reward_error']:.3f}" if record["reward_error"] is not None else ""
    line = (
        f"reward {record['reward']:.3f}{error}; {format_share(record['equal_groups'])} of the "
        f"groups are equal, {record['answer_tokens']:.0f} tokens per answer, "
        f"{format_share(record['cut_share'])} cut off"
    )
    return line + ("; no signal in this step" if record["no_signal"] else "")


def _sample_line(record: dict[str, Any]) -> str:
    if "error" in record:
        return f"no sample: {visible(record['error'].encode('utf-8', 'replace'))}"
    return f"sample: {visible((record['prompt'] + record['text']).encode('utf-8', 'replace'))}"


def _skipped_line(record: dict[str, Any]) -> str:
    return f"skipped: the loss or gradient is not finite ({record['n_consecutive']} consecutive)"


def _notice_line(record: dict[str, Any]) -> str:
    return str(record["text"])


def _spike_line(record: dict[str, Any]) -> str:
    return (
        f"spike{' (step skipped)' if record['skipped'] else ''}: loss {record['loss']:.4f}, median "
        f"{record['median_loss']:.4f}; gradient norm {record['grad_norm']:.2f}, median {record['median_grad_norm']:.2f}"
    )


def _group_line(group: dict[str, Any]) -> str:
    """Describe a parameter group, to show what decays."""
    decay = f"weight decay {group['weight_decay']:g}" if group["weight_decay"] else "no weight decay"
    names = [name.removeprefix("layers.*.").removesuffix(".weight") for name in group["names"]]
    line = (
        f"{group['algorithm']}, {decay}, learning rate {group['learning_rate']:g}: "
        f"{format_count(group['n_parameters'])} in {', '.join(names)}"
    )
    return textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _checkpoint_line(record: dict[str, Any]) -> str:
    return f"saved {record['path']}"


_LINES = {
    "step": _step_line,
    "rollout": _rollout_line,
    "validation": _validation_line,
    "hellaswag": _hellaswag_line,
    "sample": _sample_line,
    "skipped": _skipped_line,
    "spike": _spike_line,
    "notice": _notice_line,
    "checkpoint": _checkpoint_line,
}
