"""The folder of a study, on this machine and in an object store, and the results in it.

`results.jsonl` has one JSON object per finished cell, in the order of the grid. What is read is validated, since
folders of studies are copied, shared and damaged.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np

from bytemill.errors import OutputError, RunConfigError, StorageError
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.storage import StoreFolder, split_url, url_of
from bytemill.storage.store import RequestPool
from bytemill.system.atomic_files import make_folder, write_bytes, write_text
from bytemill.system.paths import cache_folder, file_name, relative_name
from bytemill.system.records import Flag, Record, Strict, parse_json_object, parse_record, read_json_object

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DAMAGED_HINT = (
    "restore it from a copy, or run the study again: models that are finished are not trained again"
)
_MAX_NUMBER = 10**30
"""Above every number of a study, so that sums of numbers that are read stay finite."""
_REQUESTS_AT_ONCE = 8
_LAST = ("result.json", "results.jsonl", "report.html")
"""Files that are uploaded after the others, in this order."""


def _number(value: float) -> float:
    if not math.isfinite(value) or abs(value) > _MAX_NUMBER:
        raise ValueError("it must be a finite number")
    return value


def _text(value: str) -> str:
    value.encode()  # lone surrogates cannot be shown
    return value


def _some(values: list[Any]) -> list[Any]:
    if not values:
        raise ValueError("it must not be empty")
    return values


Name = Annotated[str, Strict(check=file_name)]
Shown = Annotated[str, Strict(check=_text)]
Number = Annotated[float, Strict(check=_number)]
NotNegative = Annotated[float, Strict(ge=0, check=_number)]
Seed = Annotated[int, Strict(ge=0, lt=_MAX_NUMBER)]
Size = Annotated[int, Strict(ge=0, lt=_MAX_NUMBER)]
Positive = Annotated[int, Strict(ge=1, lt=_MAX_NUMBER)]


@dataclass(frozen=True, kw_only=True)
class _Budget(Record):
    equal: Literal["bytes", "tokens", "flops", "time"]
    amount: NotNegative


@dataclass(frozen=True, kw_only=True)
class _TokenizerAbout(Record):
    n_ids: Positive
    fingerprint: Shown


@dataclass(frozen=True, kw_only=True)
class _Grid(Record):
    """The content of `study.json`."""

    title: Shown
    budget: _Budget
    tokenizers: dict[Name, _TokenizerAbout]
    models: dict[Name, dict[str, Any]]
    seeds: Annotated[list[Seed], Strict(check=_some)]
    domains: Annotated[list[Name], Strict(check=_some)]
    parameters: dict[Shown, dict[str, Size]]
    cells: list[Name]
    text: dict[Shown, Shown]
    texts: list[Name] = field(default_factory=list[str])
    """Texts that models are trained on, if they are compared."""
    context_bytes: Positive | None = None
    """None in studies of earlier versions."""
    segment_bytes: Positive | None = None
    """In studies of earlier versions, whose models are scored on pieces of the text."""


@dataclass(frozen=True, kw_only=True)
class _Class(Record):
    bits_per_byte: NotNegative | None


@dataclass(frozen=True, kw_only=True)
class _HellaSwag(Record):
    acc: NotNegative
    acc_norm: NotNegative
    n_items: Size
    n_unaligned: Size


@dataclass(frozen=True, kw_only=True)
class _Continued(Record):
    prompt: Shown
    text: Shown


@dataclass(frozen=True, kw_only=True)
class _Context(Record):
    least: Size | None
    mean: NotNegative


@dataclass(frozen=True, kw_only=True)
class _Result(Record):
    """A line of `results.jsonl`, which is also the content of a cell's `result.json`."""

    cell: Name
    tokenizer: Name
    model: Name
    seed: Seed
    is_trial: Flag
    learning_rate: NotNegative
    n_steps: Positive
    n_tokens: Size
    n_bytes: Size
    flops: NotNegative
    bits_per_byte: dict[Name, NotNegative]
    classes: dict[Shown, _Class]
    inputs: Shown = ""
    text: Shown = ""
    """Name of the text that it was trained on, if texts are compared."""
    unigram_bits_per_byte: dict[Name, NotNegative] = field(default_factory=dict[str, float])
    """Empty in results of earlier versions, as the next two are."""
    n_scored_tokens: dict[Name, Positive] = field(default_factory=dict[str, int])
    context: dict[Name, _Context] = field(default_factory=dict[str, _Context])
    hellaswag: _HellaSwag | None = None
    samples: list[_Continued] = field(default_factory=list[_Continued])


@dataclass(frozen=True, kw_only=True)
class _Failures(Record):
    messages: dict[Shown, Shown]


@dataclass(frozen=True, kw_only=True)
class _Figures(Record):
    figures: dict[Shown, dict[Shown, Number | None]]


@dataclass(frozen=True, kw_only=True)
class _Rates(Record):
    rates: dict[Shown, NotNegative]


@dataclass(frozen=True, kw_only=True)
class StepRecord(Record):
    """What curves need of a record of training."""

    step: Size
    n_tokens: Size
    tokens_per_second: NotNegative | None


@dataclass(frozen=True, kw_only=True)
class ValidationRecord(Record):
    """What curves need of a record of validation."""

    step: Size
    bits_per_byte: NotNegative | None


@dataclass(frozen=True)
class StudyFolder:
    """The files of a study."""

    path: Path

    @property
    def results(self) -> Path:
        """One line per finished cell. It depends on the study file and its inputs alone: no times are in it."""
        return self.path / "results.jsonl"

    @property
    def grid(self) -> Path:
        """Names of all cells, and what the report needs to know of the study."""
        return self.path / "study.json"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def failures(self) -> Path:
        """Messages of the cells that failed."""
        return self.path / "failures.json"

    @property
    def figures(self) -> Path:
        """Figures of the tokenizers that need no model."""
        return self.path / "figures.json"

    @property
    def files(self) -> list[Path]:
        """The files in the folder itself."""
        return [self.results, self.grid, self.report, self.failures, self.figures, self.path / "study.toml"]

    def cell(self, name: str) -> Path:
        """Return the folder of a cell."""
        return self.path / "cells" / name

    def claim(self, study_file: Path) -> None:
        """Create the folder, and copy the study file into it.

        Raises:
            OutputError: The folder holds other files.
        """
        own = self.path / "study.toml"
        if self.path.is_dir() and not own.exists() and any(self.path.iterdir()):
            raise OutputError(
                f"{self.path} holds files that are not of a study", hint="choose another folder: -o NAME"
            )
        make_folder(self.path)
        if own.resolve() != study_file.resolve():
            write_text(own, study_file.read_text(encoding="utf-8"))

    def write_results(self, results: Sequence[dict[str, Any]]) -> None:
        """Replace the results."""
        write_text(self.results, "".join(json.dumps(result, ensure_ascii=False) + "\n" for result in results))


def read_grid(folder: StudyFolder) -> dict[str, Any]:
    """Return what the report needs to know of a study.

    Raises:
        RunConfigError: It is not the folder of a study, or the file is damaged.
    """
    try:
        grid = read_json_object(folder.grid, RunConfigError, _DAMAGED_HINT)
    except FileNotFoundError as error:
        raise RunConfigError(
            f"{folder.path} is not the folder of a study",
            hint="make one with: bytemill experiment run STUDY.toml",
        ) from error
    parse_record(_Grid, grid, folder.grid, RunConfigError, _DAMAGED_HINT)
    if grid.get("context_bytes") is None and grid.get("segment_bytes") is None:
        raise _damaged(folder.grid, "context_bytes is missing")
    for name in grid["parameters"]:
        if name.split("/")[0] not in grid["tokenizers"]:
            what = f"parameters names the tokenizer of {name!r:.80}, which tokenizers lacks"
            raise _damaged(folder.grid, what)
    return grid


def read_results(folder: StudyFolder, domains: Sequence[str]) -> list[dict[str, Any]]:
    """Return the results so far, those of trials included.

    Args:
        folder: The study.
        domains: Names of the texts that final models are scored on.

    Raises:
        RunConfigError: The file is damaged; names its line and the field.
    """
    try:
        text = folder.results.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunConfigError(f"cannot read {folder.results}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _damaged(folder.results, str(error)) from error
    results: list[dict[str, Any]] = []
    lines = text.removesuffix("\n").split("\n") if text else []  # strings may hold other line separators
    for number, line in enumerate(lines, 1):
        where = Path(f"{folder.results}:{number}")
        result = check_result(parse_json_object(line, where, RunConfigError, _DAMAGED_HINT), where)
        unigram = result.get("unigram_bits_per_byte")
        for domain in ["tuning"] if result["is_trial"] else domains:
            if domain not in result["bits_per_byte"]:
                raise _damaged(where, f"bits_per_byte.{domain} is missing")
            if unigram and (domain not in unigram or domain not in result.get("n_scored_tokens", {})):
                missing = f"unigram_bits_per_byte.{domain} or n_scored_tokens.{domain} is missing"
                raise _damaged(where, missing)
        results.append(result)
    return results


def check_result(result: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the result of a cell if it is whole. Raises RunConfigError, which names the field, if it is not."""
    parse_record(_Result, result, path, RunConfigError, _DAMAGED_HINT)
    return result


def read_failures(folder: StudyFolder) -> dict[str, str]:
    """Return the messages of failed cells by name. Raises RunConfigError if the file is damaged."""
    return _read_optional(folder.failures, _Failures, "messages")


def read_figures(folder: StudyFolder) -> dict[str, dict[str, float | None]]:
    """Return figure -> tokenizer -> mean over the domains. Raises RunConfigError if the file is damaged."""
    return _read_optional(folder.figures, _Figures, "figures")


def read_rates(path: Path) -> dict[str, float]:
    """Return the measured tokens per second by tokenizer and model, as in "own-8k/tiny".

    Raises:
        FileNotFoundError: Nothing was measured.
        RunConfigError: The file is damaged.
    """
    hint = "remove it, so that the speed is measured again"
    rates = read_json_object(path, RunConfigError, hint)
    parse_record(_Rates, {"rates": rates}, path, RunConfigError, hint)
    return rates


def _read_optional(path: Path, kind: type[Record], name: str) -> dict[str, Any]:
    try:
        document = read_json_object(path, RunConfigError, _DAMAGED_HINT)
    except FileNotFoundError:
        return {}
    parse_record(kind, {name: document}, path, RunConfigError, _DAMAGED_HINT)
    return document


@dataclass(frozen=True)
class ScoredDocuments:
    """Losses of a model on the documents of a text."""

    bits: NDArray[np.float64]
    """Bits of each document."""
    n_bytes: NDArray[np.int64]
    """Bytes of each document."""
    unigram_bits: NDArray[np.float64] | None
    """Bits of each document under the unigram distribution; None in studies of earlier versions."""


def write_scores(
    cell: Path, domain: str, bits: NDArray[Any], n_bytes: NDArray[Any], unigram_bits: NDArray[Any]
) -> None:
    """Write the losses of a model to the folder of its cell. Raises OutputError."""
    write_bytes(cell / f"bits.{domain}.f64", bits.astype("<f8").tobytes())
    write_bytes(cell / f"bytes.{domain}.i64", n_bytes.astype("<i8").tobytes())
    write_bytes(cell / f"unigram.{domain}.f64", unigram_bits.astype("<f8").tobytes())


def read_scores(cell: Path, domain: str, result: dict[str, Any]) -> ScoredDocuments:
    """Read the losses of a model from the folder of its cell.

    Args:
        cell: The folder.
        domain: Name of the text.
        result: Result of the cell.

    Raises:
        RunConfigError: A file is missing or damaged, or belongs to another result.
    """
    bits_path, bytes_path = cell / f"bits.{domain}.f64", cell / f"bytes.{domain}.i64"
    bits, n_bytes = _read_array(bits_path, "<f8"), _read_array(bytes_path, "<i8")
    _check_mean(bits_path, bits, n_bytes, result["bits_per_byte"][domain])
    unigram = None
    if (expected := result.get("unigram_bits_per_byte", {}).get(domain)) is not None:
        path = cell / f"unigram.{domain}.f64"
        unigram = _read_array(path, "<f8")
        _check_mean(path, unigram, n_bytes, expected)
    return ScoredDocuments(bits, n_bytes, unigram)


def _check_mean(path: Path, bits: NDArray[np.float64], n_bytes: NDArray[np.int64], expected: float) -> None:
    if len(bits) != len(n_bytes):
        raise _damaged(path, f"it has {len(bits):,} documents, and another file beside it {len(n_bytes):,}")
    found = float(bits.sum() / n_bytes.sum())
    if not math.isclose(found, expected, rel_tol=1e-6):
        raise _damaged(path, f"it has {found:.6f} bits per byte, and the result {expected:.6f}")


def _read_array(path: Path, dtype: str) -> NDArray[Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunConfigError(f"cannot read {path}: {error.strerror or error}", hint=_DAMAGED_HINT) from error
    if not data or len(data) % 8:
        raise _damaged(path, f"it has {len(data)} bytes, which are no numbers of 8 bytes")
    values = np.frombuffer(data, dtype)
    least = 1 if dtype == "<i8" else 0  # documents are not empty
    if not (np.isfinite(values).all() and (values >= least).all() and (values < 1e15).all()):
        raise _damaged(path, "a number is out of range")
    return values


_Curve = TypeVar("_Curve", StepRecord, ValidationRecord)


def read_curve(metrics: Path, kind: str, record: type[_Curve]) -> list[_Curve]:
    """Return the records of a kind in the training log of a cell; none if there is no log.

    Args:
        metrics: The log.
        kind: Kind of the records: "step" or "validation".
        record: Class of the records.

    Raises:
        RunConfigError: The log cannot be read, or a record is damaged.
    """
    if not metrics.exists():
        return []
    hint = "remove it, and run the study again"
    return [parse_record(record, own, metrics, RunConfigError, hint) for own in read_metrics(metrics, kind)]


def _damaged(path: Path, what: str) -> RunConfigError:
    return RunConfigError(f"{path} is damaged: {what}", hint=_DAMAGED_HINT)


class StoredStudy:
    """The copy of a study in an object store: what a report needs, so that another machine shows or finishes the study.

    Texts and shards are made again from the study's inputs, and a model that is not finished is trained again: their
    files stay on the machine that made them. The result of a cell is uploaded after the files that it belongs to.

    Args:
        url: URL of the study.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        key = hashlib.sha256(url.encode()).hexdigest()[:24]
        self.path = cache_folder("studies") / key / split_url(url)[1]
        """The folder of the study on this machine."""
        self._store = StoreFolder(url)
        self._uploaded: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Download the files that are not on this machine. Raises StorageError or OutputError."""
        names = map(self._inside, self._store.list())
        missing = [name for name in names if _is_kept(name) and not (self.path / name).exists()]
        # A cell counts as finished as soon as its result is here.
        for rank in range(-1, len(_LAST)):
            own = [name for name in missing if _rank(name) == rank]
            with RequestPool(self._download, _REQUESTS_AT_ONCE) as pool:
                list(pool.in_order(own, len(own)))

    def push(self) -> None:
        """Upload the files that are new or have changed. Raises StorageError."""
        files = [path for path in self.path.rglob("*") if path.is_file()]
        names = [name for path in files if _is_kept(name := path.relative_to(self.path).as_posix())]
        for name in sorted(names, key=lambda each: (_rank(each), each)):
            state = _state(self.path / name)
            if self._uploaded.get(name) != state:
                self._store.upload(name, self.path / name)
                self._uploaded[name] = state

    def _inside(self, name: str) -> str:
        try:
            return relative_name(name)
        except ValueError as error:
            what = f"{self.url} has an object {name!r:.80}, which is no file of a study: {error}"
            raise StorageError(what, hint="remove it") from error

    def _download(self, name: str) -> None:
        path = self.path / name
        make_folder(path.parent)
        self._store.download(name, path)
        self._uploaded[name] = _state(path)


def local_study(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a study on this machine: the path, or a copy of what a URL names.

    Raises:
        StorageError: The store cannot be read.
    """
    url = url_of(path)
    if url is None:
        return Path(path)
    stored = StoredStudy(url)
    stored.fetch()
    return stored.path


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _is_kept(name: str) -> bool:
    parts = name.split("/")
    is_made_again = parts[0] in ("text", "shards") or ("run" in parts[:-1] and parts[-1] != "metrics.jsonl")
    return not is_made_again and not any(part.startswith(".") for part in parts) and parts[-1] != "study.lock"


def _rank(name: str) -> int:
    base = name.rpartition("/")[2]
    return _LAST.index(base) if base in _LAST else -1
