"""A run as it trains: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from bytemill.analysis.inspection import visible
from bytemill.cli import output
from bytemill.system.units import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Group
    from rich.live import Live

_SECONDS_BETWEEN_LINES = 5.0
_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_CELLS = 60


class TrainingView:
    """Shows the records of a run on standard error; nothing at all with `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._n_steps = 1
        self._first_step = 0
        self._started = time.monotonic()
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
        """Shows one record."""
        if self._quiet:
            return
        kind, step = record["kind"], record["step"]
        if kind == "start":
            self._begin(record)
            return
        line = _LINES[kind](record) if kind in _LINES else ""
        if kind == "step" and record["loss"] is not None:
            self._losses.append(record["loss"])
            line += self._left(step)
        if self._live is not None:
            self._lines[kind] = line
            self._live.update(self._picture(step))
        elif line and (kind != "step" or self._line_is_due(step)):
            self._say(f"step {step:,}: {line}")

    def _begin(self, record: dict[str, Any]) -> None:
        self._n_steps, self._first_step = record["n_steps"], record["step"]
        for problem in record["refused"]:
            self._say(f"passed over: {problem}")
        if record["resumed_from"]:
            self._say(f"going on from {record['resumed_from']}")
        if record["step"] >= record["n_steps"]:
            self._say(f"all {record['n_steps']:,} steps are done: nothing to do")
        self._say(
            f"{record['n_parameters']:,} parameters, {record['n_train_tokens']:,} tokens to train on, "
            f"{record['tokens_per_step']:,} of them a step; on {record['device']} in {record['precision']}"
        )

    def _say(self, line: str) -> None:
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

    def _left(self, step: int) -> str:
        if step in (self._first_step, self._n_steps):
            return ""
        each = (time.monotonic() - self._started) / (step - self._first_step)
        return f", {format_seconds(each * (self._n_steps - step))} left"

    def _picture(self, step: int) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        rows: list[Any] = [
            Text(f"step {step:,} of {self._n_steps:,}"),
            ProgressBar(total=self._n_steps, completed=step, width=_CURVE_CELLS),
        ]
        if self._losses:
            rows.append(Text(f"{curve(self._losses)}  loss {self._losses[-1]:.3f}"))
        rows += [Text(f"{self._lines[kind]}") for kind in _LINES if self._lines.get(kind)]
        return Group(*rows)


def curve(values: list[float], cells: int = _CURVE_CELLS) -> str:
    """A line of values as blocks of different height; of many values each cell has the mean of some.

    >>> curve([8.0, 4.0, 2.0, 1.0])
    '█▄▂▁'
    """
    n = min(cells, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)


def _step_line(record: dict[str, Any]) -> str:
    bits = record["bits_per_byte"]
    return (
        f"loss {record['loss']:.4f}"
        + (f", {bits:.3f} bits per byte" if bits is not None else "")
        + f", learning rate {record['learning_rate']:.2e}, gradient norm {record['grad_norm']:.2f}, "
        f"{format_count(round(record['tokens_per_second']))} tokens/s "
        f"({format_share(record['flop_utilisation'])} of the matrix rate), {format_bytes(record['memory_bytes'])}"
    )


def _validation_line(record: dict[str, Any]) -> str:
    bits = record["bits_per_byte"]
    return f"validation loss {record['loss']:.4f}, perplexity {record['perplexity']:.2f}" + (
        f", {bits:.3f} bits per byte" if bits is not None else ""
    )


def _sample_line(record: dict[str, Any]) -> str:
    return f"sample: {visible((record['prompt'] + record['text']).encode('utf-8', 'replace'))}"


def _skipped_line(record: dict[str, Any]) -> str:
    return f"skipped: its loss or gradient is not finite ({record['in_a_row']} in a row)"


def _checkpoint_line(record: dict[str, Any]) -> str:
    return f"saved {record['path']}"


_LINES = {
    "step": _step_line,
    "validation": _validation_line,
    "sample": _sample_line,
    "skipped": _skipped_line,
    "checkpoint": _checkpoint_line,
}
