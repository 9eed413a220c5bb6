"""Routes of runs and studies."""

from __future__ import annotations

import time
import tomllib
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request

from bytemill.errors import RunConfigError
from bytemill.lm.training.config_sources import TABLE
from bytemill.studio.arrays import packed
from bytemill.studio.metrics_feed import read_new
from bytemill.studio.models import checkpoint_paths
from bytemill.studio.routes.tokenizers import named
from bytemill.studio.schemas import Metrics, RunList, RunSummary
from bytemill.studio.state import Studio

if TYPE_CHECKING:
    from bytemill.studio.jobs import Check
    from bytemill.studio.library import Entry, Shelf

router = APIRouter(tags=["runs"])


@router.get("/runs")
def runs(studio: Studio) -> RunList:
    """List runs and studies."""
    shelf = studio.library.shelf()
    return RunList(
        runs=[
            summary
            for entry in shelf.runs.values()
            if (summary := _summary(entry, shelf, studio)) is not None
        ],
        studies=[named(entry) for entry in shelf.studies.values()],
    )


def _summary(entry: Entry, shelf: Shelf, studio: Studio) -> RunSummary | None:
    try:
        changed = (entry.path / "metrics.jsonl").stat().st_mtime
        text = (entry.path / "config.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:  # the folder was just removed
        return None
    try:
        settings = tomllib.loads(text)
        settings.pop(TABLE, None)  # a browser learns no paths of this machine
        config = _flat(settings)
    except tomllib.TOMLDecodeError:
        config = {}
    checkpoints = list(checkpoint_paths(entry.path))
    steps = config.get("training.steps")
    return RunSummary(
        id=entry.id,
        name=entry.name,
        argument=studio.library.argument_of(entry),
        seconds_since_change=max(0.0, time.time() - changed),
        is_finished=isinstance(steps, int) and bool(checkpoints) and checkpoints[-1] >= steps,
        checkpoints=checkpoints,
        tokenizer=tokenizer_of(entry, shelf),
        config=config,
    )


def tokenizer_of(entry: Entry, shelf: Shelf) -> str | None:
    """Return the id of the tokenizer in a folder."""
    path = entry.path / "tokenizer.json"
    return next((each.id for each in shelf.tokenizers.values() if each.path == path), None)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


@router.get("/runs/{run_id}/metrics")
def metrics(run_id: str, studio: Studio, cursor: str = "") -> Metrics:
    """Return the records of a run after `cursor`."""
    entry = studio.library.shelf().runs[run_id]
    try:
        new = read_new(entry.path / "metrics.jsonl", cursor)
    except OSError as error:
        raise RunConfigError(f"the metrics of {entry.name} cannot be read: {error.strerror}") from error
    return Metrics(
        cursor=new.cursor,
        is_reset=new.is_reset,
        columns={name: packed(values, "f8") for name, values in new.columns.items()},
        others=new.others,
    )


@router.get("/studies/{study_id}")
async def study(study_id: str, request: Request, studio: Studio) -> dict[str, Any]:
    """Return the findings of a study, as `bytemill experiment report --json` prints them."""
    path = studio.library.shelf().studies[study_id].path

    def work(_: Check) -> dict[str, Any]:
        from bytemill.experiment.findings import Findings

        return Findings(path).to_dict()

    return await studio.jobs.run(request, work)
