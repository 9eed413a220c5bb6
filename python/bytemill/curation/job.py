"""The work of a curation on all units: the tasks of each stage, and the decisions of steps for the corpus."""

from __future__ import annotations

import contextlib
import importlib.metadata
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.curation.funnel import added
from bytemill.curation.recipe import open_corpus_step
from bytemill.curation.steps import step_kind
from bytemill.curation.tasks import (
    CurationContext,
    Decisions,
    StoredPart,
    UnitItem,
    check_unit,
    hash_input,
    is_there,
    measure_unit,
    write_decisions,
    write_unit,
)
from bytemill.data.executors.executor import Work, run
from bytemill.data.executors.inline import InlineExecutor
from bytemill.data.stage import digest
from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.curation.recipe import Recipe, StepSpec
    from bytemill.data.executors.executor import Executor, Report, UnitProgress
    from bytemill.data.executors.plan import Unit

_LIBRARIES = ("resiliparse", "fasttext-predict", "warcio", "zstandard")


def result_identity(identity: dict[str, Any]) -> dict[str, Any]:
    """Return what determines a result besides the recipe."""
    return {name: value for name, value in identity.items() if name != "recipe"}


@dataclass(frozen=True)
class Job:
    """The work on all units."""

    executor: Executor
    context: CurationContext
    units: Sequence[Unit]
    identity: dict[str, Any]
    source_names: list[str]
    progress: Report | None

    @property
    def _recipe(self) -> Recipe:
        return self.context.recipe

    def hashed_inputs(self, sizes: list[int]) -> list[dict[str, Any]]:
        """Hash the inputs, and keep the result for later runs."""
        name = self._inputs_name()
        stage = self.context.stage
        if (known := stage.result(name)) is not None:
            return known["inputs"]
        self.executor.set_context(self.context)
        found = run(self.executor, Work("hash", hash_input, range(len(sizes)), sizes), self.progress)
        with stage.attempt(name) as attempt:
            return attempt.publish({"inputs": found})["inputs"]

    def known_inputs(self) -> list[dict[str, Any]]:
        """Return what `hashed_inputs` found in an earlier run."""
        known = self.context.stage.result(self._inputs_name())
        return [] if known is None else known["inputs"]

    def _inputs_name(self) -> str:
        return "inputs-" + digest(self.identity["corpus"])

    def measured(self) -> list[dict[str, Any]]:
        """Measure all units by all steps, and return the last part of each."""
        parts: list[dict[str, Any]] | None = None
        for segment in range(len(self._recipe.segments)):
            decisions: list[Decisions] | None = None
            if parts is not None:
                decisions = self._decided(segment - 1, parts, [()] * len(parts))
            items = [self._item(number, segment, parts, decisions) for number in range(len(self.units))]
            parts = self._run("curate", measure_unit, items, parts)
        return parts or []

    def measured_before(self) -> list[list[dict[str, Any]]]:
        """Return the parts of each segment of a finished curation. Raises CurationError if one is missing."""
        found: list[list[dict[str, Any]]] = []
        for segment in range(len(self._recipe.segments)):
            names = [self._name(number, segment) for number in range(len(self.units))]
            results = self.context.stage.results(names)
            if len(results) < len(names):
                raise CurationError(
                    "the curation is not finished, or its measurements are damaged",
                    hint="run data curate again",
                )
            found.append([results[number] for number in range(len(names))])
        return found

    def decided_again(self, parts: list[list[dict[str, Any]]]) -> dict[int, list[Decisions]]:
        """Let the steps for the corpus decide again, and return the decisions of all of them by unit."""
        found: dict[int, list[Decisions]] = {number: [] for number in range(len(self.units))}
        for index in range(len(self._recipe.corpus_steps)):
            earlier = [tuple(found[number]) for number in range(len(self.units))]
            again = self._decided(index, parts[index], earlier, is_new=False)
            for number, each in enumerate(again):
                found[number].append(each)
        return found

    def check(self, parts: list[dict[str, Any]], decisions: dict[int, list[Decisions]]) -> None:
        """Check that everything was measured that the steps decide by. Raises CurationError."""
        self._run("check", check_unit, self._items("check", parts, decisions), parts)

    def _items(
        self, task: str, parts: list[dict[str, Any]], decisions: dict[int, list[Decisions]]
    ) -> list[UnitItem]:
        determined_by = digest(self.identity)
        return [
            UnitItem(
                f"{task}-{digest(determined_by, unit.name)}",
                number,
                str(unit),
                part=parts[number],
                decisions=tuple(decisions.get(number, ())),
            )
            for number, unit in enumerate(self.units)
        ]

    def result(
        self,
        parts: list[dict[str, Any]],
        decisions: dict[int, list[Decisions]],
        inputs: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Write what stays and what goes, and return the content of `curation.json`."""
        recipe = self._recipe
        items = self._items("write", parts, decisions)
        results = self._run("write", write_unit, items, parts, is_written=True)
        return {
            "bytemill": importlib.metadata.version("bytemill"),
            "recipe": recipe.to_dict(),
            "identity": result_identity(self.identity),
            "versions": _versions(),
            "inputs": inputs,
            "n_broken": sum(part.get("n_broken", 0) for part in parts),
            "funnel": added((result["funnel"] for result in results), recipe),
            "outputs": [output for result in results for output in result["outputs"]],
        }

    def _run(
        self,
        stage: str,
        task: Any,
        items: list[UnitItem],
        parts: list[dict[str, Any]] | None,
        *,
        is_written: bool = False,
    ) -> list[dict[str, Any]]:
        known = self.context.stage.results(item.name for item in items)
        if is_written:
            # Files of an earlier choice of thresholds may have taken their place.
            target = self.context.target
            known = {
                index: result
                for index, result in known.items()
                if all(is_there(target, output) for output in result["outputs"])
            }
        sizes = [unit.corpus_range.n_bytes for unit in self.units]
        if parts is not None:
            sizes = [part["n_bytes"] for part in parts]
        report, context = self.progress, self.context
        if self.progress is not None and isinstance(self.executor, InlineExecutor):
            partial = _PartialProgress(self.progress)
            report, context = partial.report, replace(context, tick=partial.tick)
        self.executor.set_context(context)
        return run(self.executor, Work(stage, task, items, sizes, known), report)

    def _name(self, number: int, segment: int) -> str:
        return f"part-{digest(self.identity, self.units[number].name, segment)}"

    def _item(
        self,
        number: int,
        segment: int,
        parts: list[dict[str, Any]] | None,
        decisions: list[Decisions] | None,
    ) -> UnitItem:
        unit = self.units[number]
        return UnitItem(
            self._name(number, segment),
            number,
            str(unit),
            unit.corpus_range,
            segment,
            None if parts is None else parts[number],
            () if decisions is None else (decisions[number],),
        )

    def _stored(
        self,
        number: int,
        part: dict[str, Any],
        n_steps: int,
        decisions: tuple[Decisions, ...],
        *,
        is_new: bool = True,
    ) -> StoredPart:
        stage = self.context.stage
        return StoredPart(stage, self._recipe, part, number, n_steps, self.source_names, decisions, is_new)

    def _decided(
        self,
        index: int,
        parts: list[dict[str, Any]],
        earlier: Sequence[tuple[Decisions, ...]],
        *,
        is_new: bool = True,
    ) -> list[Decisions]:
        """Let a step for the corpus decide about all units; keep what it decided for later runs."""
        spec = self._recipe.corpus_steps[index]
        name = f"decisions-{digest(self.identity, [unit.name for unit in self.units], index)}"
        stage = self.context.stage
        record = stage.result(name)
        if record is None:
            record = self._decide(name, spec, parts, earlier, is_new=is_new)
        file, _ = record["files"]["decisions"]
        is_fixed = not is_new and step_kind(spec.use).load().changes_text
        return [Decisions(spec.name, file, start, stop, is_fixed) for start, stop in record["ranges"]]

    def _decide(
        self,
        name: str,
        spec: StepSpec,
        parts: list[dict[str, Any]],
        earlier: Sequence[tuple[Decisions, ...]],
        *,
        is_new: bool,
    ) -> dict[str, Any]:
        step, n_before = open_corpus_step(spec), self._recipe.steps.index(spec)
        stored = [
            self._stored(number, part, n_before, earlier[number], is_new=is_new)
            for number, part in enumerate(parts)
        ]
        with (
            self.context.stage.attempt(name) as attempt,
            tempfile.TemporaryDirectory(prefix="bytemill-curate-") as folder,
        ):
            ranges = write_decisions(attempt.file("decisions"), step.decide(stored, Path(folder)))
            return attempt.publish({"ranges": ranges})


class _PartialProgress:
    """Progress within units, for the one process that works on them."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last: UnitProgress | None = None

    def report(self, event: UnitProgress) -> None:
        self._last = event
        self._report(event)

    def tick(self, n_bytes: int) -> None:
        if self._last is not None:
            done = min(self._last.n_bytes + n_bytes, self._last.total_bytes)
            self._report(replace(self._last, n_bytes=done))


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
