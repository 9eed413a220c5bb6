"""Read runs of others from tables: CSV, JSON or JSON lines with a row per run."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill.errors import ScalingError
from bytemill.scaling.fits import FLOPS_PER_TOKEN, Runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NAMES = {
    "parameters": ("parameters", "params", "n_parameters", "n", "model size"),
    "tokens": ("tokens", "training_tokens", "n_tokens", "d"),
    "flops": ("flops", "budget", "compute_budget", "compute", "training flop", "training flops", "c"),
    "loss": ("loss", "final_loss", "bits_per_byte", "validation_loss"),
}
"""Names of columns that need not be named, in lower case."""


@dataclass(frozen=True)
class RunTable:
    """Runs of a file."""

    runs: Runs
    flops: NDArray[np.float64]
    """Budget of each run: its column, or else FLOPs per token and parameter times N D."""
    flops_per_token: float
    """k in C = k N D: as given, or 6."""
    columns: dict[str, str]
    """Column of each quantity."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Runs that diverged, and why they are left out."""
    convention: str = "as in the table"
    """What N counts."""
    log_shifts: NDArray[np.float64] | None = None
    """(n, n_runs), what log L might be lower by with a better learning rate; see `fits.fit_loss`."""


def read_runs(
    path: str | Path, columns: Mapping[str, str] | None = None, flops_per_token: float = FLOPS_PER_TOKEN
) -> RunTable:
    """Read runs from a table.

    Args:
        path: A .csv file with a header, a .json file with a list of objects, or a .jsonl file.
        columns: Names of the columns of "parameters", "tokens", "flops" and "loss", where they are unusual. One of
            tokens and FLOPs is enough.
        flops_per_token: k in C = k N D, for the one that is missing.

    Raises:
        ScalingError: The file cannot be read, lacks a column or has a value that is no positive number.
    """
    path = Path(path)
    rows = _rows(path)
    if not rows:
        raise ScalingError(f"{path} has no runs", hint="write a row for each run")
    known = {name.lower().strip(): name for name in rows[0]}
    found: dict[str, str] = {}
    for quantity, names in _NAMES.items():
        own = (columns or {}).get(quantity)
        if own is not None and own not in rows[0]:
            raise ScalingError(f"{path} has no column {own!r}", hint=f"columns: {', '.join(rows[0])}")
        column = own or next((known[name] for name in names if name in known), None)
        if column is not None:
            found[quantity] = column
    for quantity in ("parameters", "loss"):
        if quantity not in found:
            raise ScalingError(
                f"no column of {path} is known to be the {quantity}",
                hint=f"name it: --{quantity}-column NAME; columns: {', '.join(rows[0])}",
            )
    if not {"tokens", "flops"} & found.keys():
        raise ScalingError(
            f"{path} has neither tokens nor FLOPs",
            hint=f"name one: --tokens-column NAME or --flops-column NAME; columns: {', '.join(rows[0])}",
        )
    numbers = {quantity: _column(path, rows, column) for quantity, column in found.items()}
    is_kept = np.isfinite(numbers["loss"])
    left_out = tuple(
        (f"run {number + 1}", f"its {found['loss']} is {rows[number][found['loss']]!r}")
        for number in np.flatnonzero(~is_kept).tolist()
    )
    if not is_kept.any():
        raise ScalingError(f"all runs of {path} diverged", hint="add runs with a lower learning rate")
    numbers = {quantity: own[is_kept] for quantity, own in numbers.items()}
    parameters = numbers["parameters"]
    tokens = numbers.get("tokens")
    if tokens is None:
        tokens = numbers["flops"] / (flops_per_token * parameters)
    flops = numbers.get("flops")
    if flops is None:
        flops = flops_per_token * parameters * tokens
    return RunTable(Runs(parameters, tokens, numbers["loss"]), flops, flops_per_token, found, left_out)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ScalingError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            hint="name a .csv, .json or .jsonl file",
        ) from error
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text)))
    try:
        found: Any = (
            [json.loads(line) for line in text.splitlines() if line.strip()]
            if path.suffix == ".jsonl"
            else json.loads(text)
        )
    except ValueError as error:
        raise ScalingError(
            f"{path} is not JSON: {error}", hint="name a .csv, .json or .jsonl file"
        ) from error
    rows = cast("list[Any]", found) if isinstance(found, list) else []
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ScalingError(f"{path} is not a list of objects", hint="write an object for each run")
    return rows


def _column(path: Path, rows: list[dict[str, Any]], column: str) -> NDArray[np.float64]:
    values: list[float] = []
    for number, row in enumerate(rows, start=1):
        try:
            values.append(float(row[column]))
        except (KeyError, TypeError, ValueError):
            raise ScalingError(
                f"{path}: {column} of run {number} is {row.get(column)!r}", hint="write a number"
            ) from None
    return np.array(values)
