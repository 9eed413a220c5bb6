"""Recipes: the steps of a curation and their settings, read from TOML."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.curation.steps import STEPS, Page, step_kind
from bytemill.errors import CurationError
from bytemill.system.records import first_problem

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from bytemill.curation.steps import CorpusStep, DocumentStep, Step

_MEASURE = ("reached", "all")


@dataclass(frozen=True)
class StepSpec:
    """A step of a recipe."""

    name: str
    """Its name in measurements: that of its kind, unless the recipe has a `name`."""
    use: str
    settings: Any

    @property
    def is_for_corpus(self) -> bool:
        """Whether it compares all documents."""
        return step_kind(self.use).is_for_corpus

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"use": self.use, "name": self.name, **_plain(asdict(self.settings))}


@dataclass(frozen=True)
class Recipe:
    """Steps in order."""

    steps: tuple[StepSpec, ...]
    measures_all: bool = False
    """Whether documents that a step has removed are measured by later steps for each document too."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "measure": _MEASURE[self.measures_all],
            "step": [step.to_dict() for step in self.steps],
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recipe:
        """Read a recipe.

        Raises:
            CurationError: The file cannot be read, or a step or setting is wrong.
        """
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise CurationError(f"cannot read {path}: {error.strerror or error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CurationError(f"{path} is not TOML: {error}") from error
        return cls.from_dict(table, str(path), Path(path).parent)

    @classmethod
    def from_dict(
        cls, table: Mapping[str, Any], name: str = "the recipe", folder: Path | None = None
    ) -> Recipe:
        """Make a recipe of the tables of a TOML file.

        Args:
            table: The tables.
            name: Name of the file, for messages.
            folder: The folder to which the names of files in it are relative; None for the current one.

        Raises:
            CurationError: A step or setting is wrong.
        """
        _check_keys(table, ("step", "measure"), name)
        measure = table.get("measure", "reached")
        if measure not in _MEASURE:
            raise CurationError(f"{name}: measure is {measure!r}", hint='use "reached" or "all"')
        tables = table.get("step")
        if not isinstance(tables, list) or not tables:
            raise CurationError(f"{name} has no steps", hint='begin one with [[step]] and use = "rules"')
        steps: list[StepSpec] = []
        for number, each in enumerate(cast("list[Any]", tables), 1):
            steps.append(_step(each, f"{name}, step {number}", (folder or Path()).absolute()))
        recipe = cls(tuple(steps), measure == "all")
        recipe._check(name)
        return recipe

    def _check(self, name: str) -> None:
        names = [step.name for step in self.steps]
        for step in names:
            if names.count(step) > 1:
                hint = 'give each a name of its own: name = "…"'
                raise CurationError(f"{name} has several steps {step!r}", hint=hint)
        if any(step.use == "extract" for step in self.steps[1:]):
            raise CurationError(f"{name}: extract makes the text, so it is the first step")
        known: set[str] = set()
        for spec in self.steps:
            step = _opened(spec.use, _frozen(spec.settings))
            rules: dict[str, tuple[str, ...]] = getattr(step, "names", {})
            own = {*step.measures}
            for rule, measurements in rules.items():
                for each in measurements:
                    if each not in own | known:
                        raise CurationError(
                            f"{name}: rule {rule} of {spec.name} names {each}, which nothing measures",
                            hint=f"use one of {', '.join(sorted(own | known))}",
                        )
            known |= {f"{spec.name}.{each}" for each in step.measures}

    @cached_property
    def segments(self) -> list[list[StepSpec]]:
        """The steps for each document, divided by the steps for the corpus."""
        found: list[list[StepSpec]] = [[]]
        for step in self.steps:
            if step.is_for_corpus:
                found.append([])
            else:
                found[-1].append(step)
        return found

    @cached_property
    def corpus_steps(self) -> list[StepSpec]:
        """The steps for the corpus."""
        return [step for step in self.steps if step.is_for_corpus]

    def measured_by(self) -> dict[str, Any]:
        """Return what determines the measurements: the recipe without the thresholds of the steps."""
        steps: list[dict[str, Any]] = []
        for spec in self.steps:
            thresholds = step_kind(spec.use).load().thresholds
            steps.append({key: value for key, value in spec.to_dict().items() if key not in thresholds})
        return {"measure": _MEASURE[self.measures_all], "step": steps}

    def identities(self) -> dict[str, Any]:
        """Return what steps depend on besides their settings, such as files of models, by step."""
        found = {spec.name: getattr(open_step(spec), "identity", None) for spec in self.steps}
        return {name: identity for name, identity in found.items() if identity is not None}

    def decide(self, page: Page, *, n_steps: int | None = None) -> tuple[str, list[str]] | None:
        """Return the first step that removes a document, and its rules; None if none does.

        Args:
            page: The document with its measurements.
            n_steps: Look at so many steps; None for all.

        Raises:
            CurationError: A step was not measured.
        """
        for spec in self.steps[:n_steps]:
            values = page.measurements.get(spec.name)
            if values is None:
                raise CurationError(
                    f"document {page.id} of {page.source} passes the steps before {spec.name}, but was not measured "
                    "by it",
                    hint='run data curate on the corpus again; measure = "all" in the recipe measures all documents',
                )
            if rules := open_step(spec).failed(page, values):
                return spec.name, rules
        return None

    def failures(self, page: Page) -> dict[str, list[str]]:
        """Return all rules that a document fails, by step, as far as it was measured."""
        found: dict[str, list[str]] = {}
        for spec in self.steps:
            values = page.measurements.get(spec.name)
            if values is not None and (rules := open_step(spec).failed(page, values)):
                found[spec.name] = rules
        return found


def measure_pages(pages: Sequence[Page], steps: Iterable[StepSpec], *, measures_all: bool) -> None:
    """Measure documents by steps for each document, replace their texts, and note what removes them.

    Args:
        pages: The documents. `removed_by` is set for those that earlier steps have removed.
        steps: The steps.
        measures_all: Measure documents that a step has removed too.
    """
    for spec in steps:
        step = cast("DocumentStep", open_step(spec))
        chosen = [page for page in pages if page.removed_by is None or measures_all]
        for page, measured in zip(chosen, step.measure(chosen), strict=True):
            values = dict(measured.values)
            if measured.text is not None:
                page.text = measured.text
                values["bytes"] = len(measured.text.encode())
            page.title = measured.title or page.title
            page.payload = None
            page.measurements[spec.name] = values
            if page.removed_by is None and (rules := step.failed(page, values)):
                page.removed_by = spec.name, rules


def open_step(spec: StepSpec) -> Step:
    """Return a step, the same object for the same settings in a process."""
    return _opened(spec.use, _frozen(spec.settings))


def open_corpus_step(spec: StepSpec) -> CorpusStep:
    """Return a step for the corpus."""
    return cast("CorpusStep", open_step(spec))


class _Frozen:
    """Settings that a cache can compare."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self._key = type(settings).__qualname__ + repr(settings)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and other._key == self._key


def _frozen(settings: Any) -> _Frozen:
    return _Frozen(settings)


@cache
def _opened(use: str, settings: _Frozen) -> Step:
    return step_kind(use).load()(settings.settings)


def _step(table: Any, where: str, folder: Path) -> StepSpec:
    if not isinstance(table, dict):
        raise CurationError(f"{where} is not a table", hint="write [[step]]")
    given = dict(cast("dict[str, Any]", table))
    use = given.pop("use", None)
    if not isinstance(use, str):
        raise CurationError(f"{where} has no use", hint=f"use one of {', '.join(STEPS)}")
    try:
        kind = step_kind(use)
    except CurationError as error:
        raise CurationError(f"{where}: {error}", hint=error.hint) from error
    name = given.pop("name", use)
    if not isinstance(name, str) or not name.isidentifier():
        raise CurationError(f"{where}: the name is {name!r}", hint="use letters, digits and _")
    implementation = kind.load()
    for setting in getattr(implementation, "files", ()):
        # Workers may run in another folder.
        match given.get(setting):
            case str(path) if path:
                given[setting] = str(folder / path)
            case list():
                given[setting] = [str(folder / str(path)) for path in cast("list[object]", given[setting])]
            case _:
                pass
    return StepSpec(name, use, settings_of(implementation.Settings, given, f"{where} ({use})"))


def settings_of(kind: type[Any], table: dict[str, Any], where: str) -> Any:
    """Make the settings of a step.

    Args:
        kind: Their dataclass.
        table: Values by name.
        where: Where they are written, for messages.

    Raises:
        CurationError: A key is unknown, or a value is wrong.
    """
    from pydantic import TypeAdapter, ValidationError

    _check_keys(table, [field.name for field in fields(kind)], where)
    try:
        return TypeAdapter(kind).validate_json(json.dumps(table), strict=True)
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        if isinstance(cause, CurationError):
            raise CurationError(f"{where}: {cause}", hint=cause.hint) from error
        raise CurationError(f"{where}: {first_problem(error, table)}") from error
    except TypeError as error:  # a date of TOML
        raise CurationError(f"{where}: {error}") from error


def _check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    if unknown := [key for key in table if key not in known]:
        hint = f"it has {', '.join(known)}" if known else "it has no settings"
        raise CurationError(f"{where}: unknown setting {unknown[0]!r}", hint=hint)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings))
