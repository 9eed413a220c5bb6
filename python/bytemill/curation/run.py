"""Curate a corpus by a recipe: plan, measure by units, decide about all, write what stays and what goes.

The work folder `measured` in the output holds what tasks leave. Each result has a name that depends on everything that
determines it, and is there as a whole or not at all. So the same call continues after an interruption, and writes the
same bytes. The folder stays, so that thresholds can change without the corpus (`rethreshold`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus.documents import CorpusRange
from bytemill.corpus.ranges import divide
from bytemill.curation.funnel import added
from bytemill.curation.inputs import check_inputs
from bytemill.curation.recipe import Recipe, open_corpus_step
from bytemill.curation.steps import step_kind
from bytemill.curation.tasks import (
    KEPT,
    REMOVED,
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
from bytemill.data.executors.plan import Unit, read_plan, units_of, write_plan
from bytemill.data.stage import FolderStage, StoreStage, digest, note_damage
from bytemill.data.unfinished import RESTART_HINT, as_json, first_difference
from bytemill.errors import CurationError
from bytemill.storage import StoreFolder, url_of, write_file
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import indented_json, make_folder
from bytemill.system.locks import lock_output
from bytemill.system.records import parse_json_object

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from bytemill.corpus import Corpus
    from bytemill.curation.recipe import StepSpec
    from bytemill.data.executors.executor import Executor, Report, UnitProgress
    from bytemill.data.stage import Stage

MEASURED = "measured"
"""The folder of what tasks leave."""
RESULT = "curation.json"
PLAN = "plan.json"
_FORMAT = 1
_MIN_UNIT_BYTES = 4 << 20
_MAX_UNIT_BYTES = 256 << 20
_WANTED_UNITS = 64
_LIBRARIES = ("resiliparse", "fasttext-predict", "warcio", "zstandard")


def default_unit_bytes(total_bytes: int) -> int:
    """Return the size of a unit: minutes of work at most, and enough of them for many workers.

    >>> default_unit_bytes(10**6) >> 20, default_unit_bytes(10**10) >> 20
    (4, 149)
    """
    return max(_MIN_UNIT_BYTES, min(_MAX_UNIT_BYTES, total_bytes // _WANTED_UNITS))


def curate(
    executor: Executor,
    recipe: Recipe,
    corpus: Corpus,
    output: str | os.PathLike[str],
    *,
    unit_bytes: int | None = None,
    progress: Report | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Curate a corpus of files.

    The result depends on the corpus, the recipe and `unit_bytes` alone, whatever runs the tasks. After an interruption
    the same call continues.

    Args:
        executor: What runs the tasks.
        recipe: The steps.
        corpus: The corpus.
        output: The output folder, or its URL in an object store.
        unit_bytes: Bytes of the inputs in a unit of work, which is a file of the result; by default 4 to 256 MiB.
        progress: Called in this thread a few times a second. An exception that it raises ends the work.
        note: Called with sentences about what an interrupted run left.
        overwrite: Replace the result of another curation.

    Returns:
        The content of `curation.json`.

    Raises:
        CorpusError: The corpus cannot be read or divided.
        CurationError: A step fails, or the output is of another curation.
        ClusterError: A task failed for another reason, or an unfinished curation has other settings.
        OutputError: The output cannot be written, or another process writes it.
        StorageError: The store cannot be read or written.
    """
    check_inputs(corpus, recipe.steps[0].use)
    check_folder_is_no_input(output, files=corpus.input_files, folders=corpus.input_folders)
    unit_bytes = unit_bytes or default_unit_bytes(corpus.total_bytes or 0)
    identity = as_json(
        {
            "format": _FORMAT,
            "recipe": recipe.to_dict(),
            "steps": recipe.identities(),
            "corpus": corpus.description,
            "unit_bytes": unit_bytes,
        }
    )
    place = _Place.of(output)
    if not overwrite and (finished := place.read_result()) is not None:
        if finished["recipe"] == identity["recipe"] and finished["identity"] == _result_identity(identity):
            if note is not None:
                note(f"{place} already contains the result: nothing to do")
            return finished
        difference = first_difference(finished["identity"], _result_identity(identity))
        raise CurationError(
            f"{place} holds another curation: {difference or 'another recipe'}", hint=RESTART_HINT
        )
    with place.opened():
        if overwrite:
            place.clear()
        units = _planned(place, corpus, identity, unit_bytes)
        note_damage(note, "unit", place.stage.sweep())
        context = CurationContext(recipe, place.stage, place.target, corpus)
        job = _Job(executor, context, units, identity, corpus.source_names, progress)
        inputs = job.hashed_inputs([source.n_bytes or 0 for source in corpus.sources])
        result = job.result(job.measured(), {}, inputs)
        corpus.check_content()
        return place.finish(result)


def rethreshold(
    executor: Executor,
    recipe: Recipe,
    output: str | os.PathLike[str],
    *,
    progress: Report | None = None,
    note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Decide again by other thresholds, from what a finished curation has measured. The inputs are not read.

    The documents that stay, and the statistics, are those of a curation of the corpus with the new recipe.

    Args:
        executor: What runs the tasks.
        recipe: The recipe, which differs in thresholds alone.
        output: The output folder of the curation, or its URL.
        progress: As for `curate`.
        note: As for `curate`.

    Returns:
        The content of `curation.json`.

    Raises:
        CurationError: There is no finished curation, or something was not measured.
    """
    place = _Place.of(output)
    plan = place.read_plan()
    if plan is None:
        raise CurationError(
            f"{place} holds no measurements", hint="run data curate RECIPE INPUTS --output DIR first"
        )
    with place.opened():
        identity = plan["identity"]
        old = Recipe.from_dict(identity["recipe"], f"{place}/{MEASURED}/{PLAN}")
        if difference := first_difference(as_json(old.measured_by()), as_json(recipe.measured_by())):
            raise CurationError(
                f"the recipe measures something else: {difference}",
                hint="change thresholds only, or run data curate on the corpus again",
            )
        note_damage(note, "unit", place.stage.sweep())
        units, names = _planned_units(plan), plan["sources"]
        before = _Job(
            executor, CurationContext(old, place.stage, place.target), units, identity, names, progress
        )
        parts = before.measured_before()
        inputs = before.known_inputs()
        context = CurationContext(recipe, place.stage, place.target)
        after = _Job(
            executor, context, units, {**identity, "recipe": as_json(recipe.to_dict())}, names, progress
        )
        decisions = after.decided_again(parts)
        after.check(parts[-1], decisions)
        place.remove_result()
        return place.finish(after.result(parts[-1], decisions, inputs))


@dataclass(frozen=True)
class _Place:
    """The output: a folder, or a folder in an object store."""

    target: Path | StoreFolder
    stage: Stage

    @classmethod
    def of(cls, output: str | os.PathLike[str]) -> _Place:
        url = url_of(output)
        if url is None:
            folder = Path(output).absolute()
            return cls(folder, FolderStage(folder / MEASURED / "units"))
        store = StoreFolder(url)
        return cls(store, StoreStage(store / MEASURED / "units"))

    def __str__(self) -> str:
        return str(self.target)

    @property
    def plan(self) -> Path | str:
        if isinstance(self.target, StoreFolder):
            return f"{self.target}/{MEASURED}/{PLAN}"
        return self.target / MEASURED / PLAN

    @contextlib.contextmanager
    def opened(self) -> Generator[None]:
        """Prepare the output, and lock a folder."""
        if isinstance(self.target, StoreFolder):
            self.target.require_writable()
            self.stage.create()
            yield
            return
        make_folder(self.target)
        with lock_output(self.target):
            yield

    def clear(self) -> None:
        """Remove the result of another curation."""
        self.remove_result()
        self.stage.remove()
        names = (KEPT, REMOVED, MEASURED)
        if isinstance(self.target, StoreFolder):
            for name in names:
                (self.target / name).delete((self.target / name).list())
            return
        for name in names:
            FolderStage(self.target / name).remove()

    def read_result(self) -> dict[str, Any] | None:
        """Return the result of a finished curation, or None."""
        if isinstance(self.target, StoreFolder):
            found = self.target.get(RESULT)
            data = None if found is None else found.data
        else:
            path = self.target / RESULT
            data = path.read_bytes() if path.is_file() else None
        return (
            None if data is None else parse_json_object(data, f"{self}/{RESULT}", CurationError, RESTART_HINT)
        )

    def remove_result(self) -> None:
        if isinstance(self.target, StoreFolder):
            self.target.delete([RESULT])
        else:
            (self.target / RESULT).unlink(missing_ok=True)

    def read_plan(self) -> dict[str, Any] | None:
        """Return the plan, whatever its identity."""
        if isinstance(self.plan, Path):
            data = self.plan.read_bytes() if self.plan.is_file() else None
        else:
            found = cast("StoreFolder", self.target).get(f"{MEASURED}/{PLAN}")
            data = None if found is None else found.data
        return None if data is None else parse_json_object(data, str(self.plan), CurationError, RESTART_HINT)

    def finish(self, document: dict[str, Any]) -> dict[str, Any]:
        """Write the result."""
        path = f"{self.target}/{RESULT}" if isinstance(self.target, StoreFolder) else self.target / RESULT
        write_file(path, indented_json(document))
        return document


def _result_identity(identity: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != "recipe"}


def _planned(place: _Place, corpus: Corpus, identity: dict[str, Any], unit_bytes: int) -> list[Unit]:
    """Return the units: those of an interrupted run, or new ones."""
    place.stage.create()
    plan = read_plan(place.plan, identity)
    if plan is not None:
        return _planned_units(plan)
    units = units_of(corpus, divide(corpus, unit_bytes), identity)
    write_plan(place.plan, identity, units, sources=corpus.source_names)
    return units


def _planned_units(plan: dict[str, Any]) -> list[Unit]:
    names: list[str] = plan["sources"]
    units: list[Unit] = []
    for each in plan["units"]:
        found = CorpusRange(**{key: value for key, value in each.items() if key != "name"})
        units.append(Unit(each["name"], found, tuple(names[found.first : found.last + 1])))
    return units


@dataclass(frozen=True)
class _Job:
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
            "identity": _result_identity(self.identity),
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
