"""Curate a corpus by a recipe: plan, measure by units, decide about all, write what stays and what goes.

The work folder `measured` in the output holds what tasks leave. Each result has a name that depends on everything that
determines it, and is there as a whole or not at all. So the same call continues after an interruption, and writes the
same bytes. The folder stays, so that thresholds can change without the corpus (`rethreshold`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.corpus.documents import CorpusRange
from bytemill.corpus.ranges import divide
from bytemill.curation.inputs import check_inputs
from bytemill.curation.job import Job, result_identity
from bytemill.curation.place import MEASURED, PLAN, Place
from bytemill.curation.recipe import Recipe
from bytemill.curation.tasks import CurationContext
from bytemill.data.executors.plan import Unit, read_plan, units_of, write_plan
from bytemill.data.stage import note_damage
from bytemill.data.unfinished import RESTART_HINT, as_json, first_difference
from bytemill.errors import CurationError
from bytemill.storage.input_check import check_folder_is_no_input

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.corpus import Corpus
    from bytemill.data.executors.executor import Executor, Report

_FORMAT = 1
_MIN_UNIT_BYTES = 4 << 20
_MAX_UNIT_BYTES = 256 << 20
_WANTED_UNITS = 64


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
    place = Place.of(output)
    if not overwrite and (finished := place.read_result()) is not None:
        if finished["recipe"] == identity["recipe"] and finished["identity"] == result_identity(identity):
            if note is not None:
                note(f"{place} already contains the result: nothing to do")
            return finished
        difference = first_difference(finished["identity"], result_identity(identity))
        raise CurationError(
            f"{place} holds another curation: {difference or 'another recipe'}", hint=RESTART_HINT
        )
    with place.opened():
        if overwrite:
            place.clear()
        units = _planned(place, corpus, identity, unit_bytes)
        note_damage(note, "unit", place.stage.sweep())
        context = CurationContext(recipe, place.stage, place.target, corpus)
        job = Job(executor, context, units, identity, corpus.source_names, progress)
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
    place = Place.of(output)
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
        before = Job(
            executor, CurationContext(old, place.stage, place.target), units, identity, names, progress
        )
        parts = before.measured_before()
        inputs = before.known_inputs()
        context = CurationContext(recipe, place.stage, place.target)
        after = Job(
            executor, context, units, {**identity, "recipe": as_json(recipe.to_dict())}, names, progress
        )
        decisions = after.decided_again(parts)
        after.check(parts[-1], decisions)
        place.remove_result()
        return place.finish(after.result(parts[-1], decisions, inputs))


def _planned(place: Place, corpus: Corpus, identity: dict[str, Any], unit_bytes: int) -> list[Unit]:
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
