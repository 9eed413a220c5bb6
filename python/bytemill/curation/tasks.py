"""What the tasks of a curation do: measure the documents of a unit, and write those that stay and those that go.

Between steps the documents of a unit are in a part: all that the unit has, with their measurements so far.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.curation.funnel import count, empty_funnel
from bytemill.curation.inputs import UnitReader
from bytemill.curation.parts import (
    SUFFIX,
    PageWriter,
    batched,
    read_records,
    stored_file,
    stored_pages,
    to_record,
)
from bytemill.curation.recipe import measure_pages, open_corpus_step
from bytemill.errors import CurationError
from bytemill.storage import StoreFolder
from bytemill.system.atomic_files import make_folder, output_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from bytemill.corpus import Corpus
    from bytemill.corpus.documents import CorpusRange
    from bytemill.curation.recipe import Recipe
    from bytemill.curation.steps import Measurements, Page
    from bytemill.data.stage import Stage

KEPT, REMOVED = "kept", "removed"
_LENGTH = struct.Struct("<Q")
_HASH_BLOCK = 1 << 20


@dataclass(frozen=True)
class Decisions:
    """What a step for the corpus has decided about the documents of a unit: a range of a file."""

    step: str
    file: str
    start: int
    stop: int
    is_fixed: bool = False
    """Whether the texts depend on it, so that it must be what it was."""


@dataclass(frozen=True)
class CurationContext:
    """What tasks have in common."""

    recipe: Recipe
    stage: Stage
    target: Path | StoreFolder
    corpus: Corpus | None = None
    """None if the thresholds of a finished curation change."""
    tick: Callable[[int], None] | None = None
    """In this process: called with the bytes of the unit that are done."""


@dataclass(frozen=True)
class UnitItem:
    """A unit of work."""

    name: str
    number: int
    label: str
    """Its inputs, for messages."""
    corpus_range: CorpusRange | None = None
    segment: int = 0
    """Number of the steps for corpora before the steps to measure."""
    part: dict[str, Any] | None = None
    """The result of the task that measured the segment before, or of the last one."""
    decisions: tuple[Decisions, ...] = ()

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class StoredPart:
    """A part, as a step for the corpus sees it; see `steps.Part`."""

    stage: Stage = field(repr=False)
    recipe: Recipe
    result: dict[str, Any]
    number: int
    n_steps: int
    """Number of the steps before."""
    source_names: Sequence[str]
    decisions: tuple[Decisions, ...] = ()
    is_new: bool = True
    """Whether the thresholds are those with which the part was made."""

    def pages(self) -> Iterator[Page]:
        """See `steps.Part`."""
        for page in with_decisions(self.stage, stored_pages(self.stage, self.result), self.decisions):
            if self.recipe.decide(page, n_steps=self.n_steps) is None:
                yield page

    def sketches(self) -> Iterator[bytes]:
        """See `steps.Part`."""
        with stored_file(self.stage, self.result, "sketch") as path, path.open("rb") as file:
            while header := file.read(_LENGTH.size):
                yield file.read(_LENGTH.unpack(header)[0])


def with_decisions(stage: Stage, pages: Iterable[Page], decisions: Sequence[Decisions]) -> Iterator[Page]:
    """Put what steps for the corpus have decided into the measurements of documents."""
    found: list[tuple[Decisions, dict[str, Any]]] = []
    for each in decisions:
        with stage.range_as_file(each.file, each.start, each.stop) as (path, start, stop):
            found.append((each, dict(read_records(path, start, stop))))
    for page in pages:
        for each, values in found:
            before, now = page.measurements.pop(each.step, None), values.get(page.id)
            if now is None:
                continue
            if each.is_fixed and (
                before is None or any(before.get(name) != value for name, value in now.items())
            ):
                raise CurationError(
                    f"{each.step} now changes document {page.id} of {page.source} in another way",
                    hint="run data curate on the corpus again with this recipe",
                )
            page.measurements[each.step] = {**before, **now} if each.is_fixed and before else now
        yield page


def hash_input(context: CurationContext, number: int) -> dict[str, Any]:
    """Return the size and the hash of an input. Those of an object store have versions, and are not read again."""
    assert context.corpus is not None  # noqa: S101
    source = context.corpus.sources[number]
    found: dict[str, Any] = {"name": source.name, "n_bytes": source.n_bytes}
    if source.remote is not None:
        return {**found, "version": source.remote.version}
    digest = hashlib.sha256()
    with source.open() as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return {**found, "sha256": digest.hexdigest()}


def measure_unit(context: CurationContext, item: UnitItem) -> dict[str, Any]:
    """Measure the documents of a unit by the steps up to the next one for the corpus, and prepare that one."""
    stage, recipe = context.stage, context.recipe
    if (known := stage.result(item.name)) is not None:
        return known
    steps = recipe.segments[item.segment]
    following = recipe.corpus_steps[item.segment] if item.segment < len(recipe.corpus_steps) else None
    n_pages = n_alive = n_bytes = 0
    with stage.attempt(item.name) as attempt, PageWriter(attempt.file("pages")) as writer:
        sketch_path = attempt.file("sketch")
        reader: UnitReader | None = None
        if item.part is None:
            assert context.corpus is not None and item.corpus_range is not None  # noqa: S101, PT018
            reader = UnitReader(context.corpus, item.corpus_range, item.number)
            pages = reader.pages()
        else:
            pages = _continued(context, item, item.part)
        with output_errors(sketch_path), sketch_path.open("wb") as sketches:
            for batch in batched(pages):
                if recipe.steps[0].use != "extract":
                    _check_texts(batch)
                measure_pages(batch, steps, measures_all=recipe.measures_all)
                for page in batch:
                    n_pages += 1
                    n_alive += page.removed_by is None
                    n_bytes += len(page.text)
                alive = [page for page in batch if page.removed_by is None]
                if following is not None and alive:
                    sketch = open_corpus_step(following).sketch(alive)
                    sketches.write(_LENGTH.pack(len(sketch)) + sketch)
                writer.write(map(to_record, batch))
                if context.tick is not None:
                    context.tick(n_bytes if reader is None else reader.n_bytes_read)
        writer.close()
        record = {"n_pages": n_pages, "n_alive": n_alive, "n_bytes": n_bytes}
        record["n_broken"] = (item.part or {}).get("n_broken", 0) if reader is None else reader.n_broken
        return attempt.publish(record)


def _check_texts(pages: Iterable[Page]) -> None:
    """Check that documents are texts, whatever their files are called. Raises CurationError."""
    for page in pages:
        if page.payload is not None:
            raise CurationError(
                f"{page.source} holds web pages, and the recipe does not extract their text",
                hint='begin the recipe with [[step]] and use = "extract"',
            )


def _continued(context: CurationContext, item: UnitItem, part: dict[str, Any]) -> Iterator[Page]:
    """Yield the documents of a part after the step for the corpus that follows it."""
    recipe = context.recipe
    spec = recipe.corpus_steps[item.segment - 1]
    step, index = open_corpus_step(spec), recipe.steps.index(spec)
    for page in with_decisions(context.stage, stored_pages(context.stage, part), item.decisions):
        page.removed_by = recipe.decide(page, n_steps=index)
        values = page.measurements.get(spec.name)
        if page.removed_by is None:
            if values is None:
                raise CurationError(f"{spec.name} has not decided about document {page.id}")
            if (text := step.applied(page, values)) is not None:
                page.text = text
                values["bytes"] = len(text.encode())
            if rules := step.failed(page, values):
                page.removed_by = spec.name, rules
        yield page


def check_unit(context: CurationContext, item: UnitItem) -> None:
    """Check that every document of a unit has what the steps decide by. Raises CurationError."""
    assert item.part is not None  # noqa: S101
    for page in with_decisions(context.stage, stored_pages(context.stage, item.part), item.decisions):
        context.recipe.decide(page)


def write_unit(context: CurationContext, item: UnitItem) -> dict[str, Any]:
    """Write the documents of a unit that stay and those that go, and count them."""
    stage, recipe = context.stage, context.recipe
    known = stage.result(item.name)
    if known is not None and all(is_there(context.target, output) for output in known["outputs"]):
        return known
    assert item.part is not None  # noqa: S101
    funnel = empty_funnel(recipe)
    name = f"part-{item.number:05}{SUFFIX}"
    with stage.attempt(item.name) as attempt:
        folder = attempt.folder()
        with PageWriter(folder / KEPT) as kept, PageWriter(folder / REMOVED) as removed:
            pages = with_decisions(stage, stored_pages(stage, item.part), item.decisions)
            for batch in batched(pages):
                for page in batch:
                    page.removed_by = recipe.decide(page)
                    page.measurements = _reached(page, recipe)
                    failures = recipe.failures(page) if page.removed_by is not None else {}
                    count(funnel, page, failures, recipe)
                kept.write(to_record(page) for page in batch if page.removed_by is None)
                removed.write(_removed(page) for page in batch if page.removed_by is not None)
        files = [_publish(context.target, which, name, folder / which) for which in (KEPT, REMOVED)]
        return attempt.publish({"funnel": funnel, "outputs": files})


def _reached(page: Page, recipe: Recipe) -> Measurements:
    """Return the measurements of the steps that a document reaches, in their order."""
    found: Measurements = {}
    for step in recipe.steps:
        if step.name in page.measurements:
            found[step.name] = page.measurements[step.name]
        if page.removed_by is not None and page.removed_by[0] == step.name and not recipe.measures_all:
            break
    return found


def _removed(page: Page) -> dict[str, Any]:
    step, rules = page.removed_by or ("", [])
    return {**to_record(page), "removed_by": {"step": step, "rules": rules}}


def _publish(target: Path | StoreFolder, folder: str, name: str, path: Path) -> dict[str, Any]:
    """Give a file its place in the result, and describe it."""
    with output_errors(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        found = {"file": f"{folder}/{name}", "n_bytes": file.tell(), "sha256": sha256}
    if isinstance(target, StoreFolder):
        (target / folder).upload(name, path)
    else:
        make_folder(target / folder)
        with output_errors(target / folder / name):
            path.replace(target / folder / name)
    return found


def is_there(target: Path | StoreFolder, output: dict[str, Any]) -> bool:
    """Check whether a file of the result is what was written."""
    if isinstance(target, StoreFolder):
        name = output["file"]
        return target.size(name) == output["n_bytes"] and target.sha256(name) == output["sha256"]
    path = target / output["file"]
    if not path.is_file() or path.stat().st_size != output["n_bytes"]:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == output["sha256"]


def write_decisions(path: Path, decided: Iterable[list[tuple[str, dict[str, Any]]]]) -> list[tuple[int, int]]:
    """Write what a step for the corpus has decided, and return the range of each unit in the file."""
    ends = [0]
    with PageWriter(path) as writer:
        for unit in decided:
            writer.write(unit)
            ends.append(writer.n_bytes)
    return list(itertools.pairwise(ends))
