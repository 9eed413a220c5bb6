"""Run a study: prepare its text, search learning rates, train and score every cell, keep the results."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from bytemill.comparison import compare
from bytemill.comparison.run import MAX_TOKENIZERS
from bytemill.corpus import Corpus
from bytemill.errors import BytemillError, OutputError
from bytemill.experiment.findings import Findings, tuning_bits
from bytemill.experiment.inputs import StudyInputs, probe_rates
from bytemill.experiment.job import cell_job
from bytemill.experiment.report import report
from bytemill.experiment.results import StoredStudy, StudyFolder
from bytemill.experiment.statistics import choose_rate
from bytemill.experiment.study import Cell, cells, load_study, trials, with_text
from bytemill.storage import url_of
from bytemill.system.atomic_files import write_json, write_text
from bytemill.system.locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bytemill.experiment.job import Job
    from bytemill.experiment.study import Study

_PROCESS = "import sys; from bytemill.experiment.job import main as cell_process; sys.exit(cell_process())"
_STOP_SECONDS = 30
"""How long an interrupted cell may take to save its checkpoint."""


@dataclass(frozen=True)
class Event:
    """What happens in a study."""

    kind: str
    """step, preparing, cell, record, finished, known or failed."""
    cell: str = ""
    message: str = ""
    record: dict[str, Any] = field(default_factory=dict[str, Any])
    n_done: int = 0
    n_cells: int = 0


class Execute(Protocol):
    """Performs jobs, and yields the events of each; the last one of a job is "finished" or "failed"."""

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Event]: ...


def run_study(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    n_jobs: int = 1,
    execute: Execute | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> StudyFolder:
    """Run a study, or what is missing of it.

    Cells are runs of `bytemill lm train`: an interrupted one resumes. A finished cell is trained again only if
    something that its result depends on has changed. A cell that fails is reported, and the others go on.

    Args:
        path: The study file.
        folder: Folder of the study, or the URL of one in an object store; by default the file's name without its
            ending.
        n_jobs: Cells trained at the same time, each in a process of its own, on a GPU of its own if there are several.
        execute: Performs the jobs, instead of processes.
        on_event: Called with what happens.

    Returns:
        The folder. Its `failures` exist if a cell failed.

    Raises:
        RunConfigError: The study is wrong, or its text does not suffice.
        OutputError: The folder is in use, or cannot be written.
        StorageError: The object store cannot be read or written.
    """
    study = load_study(path)
    url = None if folder is None else url_of(folder)
    stored = None if url is None else StoredStudy(url)
    own = StudyFolder(Path(Path(path).stem if folder is None else folder))
    if stored is not None:
        stored.fetch()
        own = StudyFolder(stored.path)
    own.claim(Path(path))

    def report_event(event: Event) -> None:
        if stored is not None and event.kind == "finished":
            stored.push()
        on_event(event)

    lock = try_lock(own.path / "study.lock")
    if lock is None:
        raise OutputError(f"another process is running the study in {own.path}", hint="wait until it ends")
    with lock:
        _Run(study, Path(path), own, execute or Processes(n_jobs), report_event).finish()
        if stored is not None:
            stored.push()
    return own


class _Run:
    def __init__(
        self,
        study: Study,
        path: Path,
        folder: StudyFolder,
        execute: Execute,
        on_event: Callable[[Event], None],
    ) -> None:
        self._study, self._folder, self._execute, self._on_event = study, folder, execute, on_event
        self._inputs = StudyInputs(study, folder.path, path.parent, self._report)
        self._trials, self._cells = trials(study), cells(study)
        self._order = [cell.name for cell in (*self._trials, *self._cells)]
        self._results: dict[str, dict[str, Any]] = {}
        self._failures: dict[str, str] = {}

    def finish(self) -> None:
        study_inputs, folder = self._inputs, self._folder
        # Everything that can be wrong is found before the first model is trained.
        if self._study.budget.equal == "time":
            probe_rates(study_inputs, self._report)
        write_json(
            folder.grid,
            {
                "title": self._study.title,
                "budget": self._study.budget.to_dict(),
                "tokenizers": {
                    name: {"fingerprint": own.fingerprint, "n_ids": own.n_vocab}
                    for name, own in study_inputs.tokenizers.items()
                },
                "models": {name: self._study.shape(name, 1).to_dict() for name in self._study.models},
                "seeds": self._study.seed_list,
                "domains": list(self._study.text.validation),
                "parameters": {
                    f"{arm.tokenizer}/{arm.model}": arm.parameters
                    for arm in study_inputs.arms(study_inputs.rates)
                },
                "context_bytes": study_inputs.context_bytes,
                "cells": self._order,
                **({"texts": self._study.text_names} if self._study.texts else {}),
                "text": {
                    "train": study_inputs.train_text.sha256,
                    **{name: text.sha256 for name, text in study_inputs.arm_texts.items() if name},
                    **{name: text.sha256 for name, text in study_inputs.domains.items()},
                },
            },
        )
        self._run(self._trials)
        self._run(self._cells)
        self._write_results()
        if self._failures:
            write_json(folder.failures, self._failures)
        else:
            folder.failures.unlink(missing_ok=True)
        self._report("writing the report")
        _write_figures(study_inputs)
        write_text(folder.report, report(Findings(folder.path)))

    def _run(self, planned: Sequence[Cell]) -> None:
        for event in self._execute(self._jobs(planned)):
            if event.kind == "failed":
                self._fail(event.cell, event.message)
                continue
            if event.kind == "finished":
                self._results[event.cell] = event.record
                self._write_results()
            self._emit(event.kind, event.cell, event.message, event.record)

    def _jobs(self, planned: Sequence[Cell]) -> Iterator[Job]:
        """Yield the jobs of cells that have no result yet."""
        for cell in planned:
            try:
                rate = self._best_rate(cell) if cell.trial_rate is None else cell.trial_rate
                job = cell_job(self._inputs, cell, rate)
            except BytemillError as error:
                self._fail(cell.name, str(error))
                continue
            if (known := job.result()) is not None:
                self._results[cell.name] = known
                self._emit("known", cell.name)
                continue
            yield job

    def _best_rate(self, cell: Cell) -> float:
        """Return the learning rate of the best trial of the cell's arm."""
        if not self._study.learning_rate.search:
            return self._study.learning_rate.fixed
        own = [
            self._results[trial.name]
            for trial in self._trials
            if (trial.tokenizer, trial.model, trial.text) == (cell.tokenizer, cell.model, cell.text)
            and trial.name in self._results
        ]
        choice = choose_rate(tuning_bits(own), n_seeds=self._study.learning_rate.seeds)
        if choice is None:
            raise OutputError(
                f"a trial of every learning rate of {with_text(cell.tokenizer, cell.text)} with {cell.model} failed",
                hint="choose other rates for learning_rate.search",
            )
        return choice.rate

    def _fail(self, name: str, message: str) -> None:
        self._failures[name] = message
        self._emit("failed", name, message)

    def _emit(self, kind: str, cell: str, message: str = "", record: dict[str, Any] | None = None) -> None:
        n_done = len(self._results) + len(self._failures)
        self._on_event(Event(kind, cell, message, record or {}, n_done, len(self._order)))

    def _report(self, message: str) -> None:
        self._on_event(Event("preparing", message=message))

    def _write_results(self) -> None:
        self._folder.write_results([self._results[name] for name in self._order if name in self._results])


class Processes:
    """Performs jobs in processes: up to `n_jobs` at a time, each on a GPU of its own if there are any."""

    def __init__(self, n_jobs: int) -> None:
        self._n_jobs = n_jobs

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Event]:
        events: queue.Queue[tuple[int, Event | None]] = queue.Queue()
        running: dict[int, tuple[Job, subprocess.Popen[str]]] = {}
        free = list(range(self._n_jobs))
        is_exhausted = False
        try:
            while True:
                while free and not is_exhausted:
                    job = next(jobs, None)
                    if job is None:
                        is_exhausted = True
                        break
                    slot = free.pop(0)
                    process = self._start(job, slot)
                    running[slot] = (job, process)
                    Thread(target=_read, args=(process, slot, job.name, events), daemon=True).start()
                    yield Event("cell", job.name)
                if not running:
                    return
                slot, event = events.get()
                if event is not None and event.kind != "failed":
                    yield event
                    continue
                job, process = running.pop(slot)
                free.append(slot)
                yield event or _ended(job, process.wait())
        finally:
            _stop([process for _, process in running.values()])

    def _start(self, job: Job, slot: int) -> subprocess.Popen[str]:
        import torch

        n_gpus = torch.cuda.device_count()
        own = {"CUDA_VISIBLE_DEVICES": str(slot % n_gpus)} if n_gpus > 1 else {}
        if self._n_jobs > 1 and not n_gpus:
            threads = str(max(1, (os.cpu_count() or 1) // self._n_jobs))
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
            own = {name: threads for name in names if name not in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **own},
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on once
        )
        with contextlib.suppress(OSError):  # a process that could not start is reported when it has ended
            if process.stdin is not None:
                process.stdin.write(json.dumps(asdict(job)) + "\n")
                process.stdin.flush()
        return process


def _read(
    process: subprocess.Popen[str], slot: int, name: str, events: queue.Queue[tuple[int, Event | None]]
) -> None:
    """Put the events of a process into the queue; None at its end."""
    failure: Event | None = None
    for line in process.stdout or ():
        record: dict[str, Any] = json.loads(line)
        if record["kind"] == "error":
            failure = Event("failed", name, record["message"])
        else:
            events.put((slot, Event("record", name, record=record)))
    process.wait()
    events.put((slot, failure))


def _ended(job: Job, status: int) -> Event:
    result = job.result()
    if status == 0 and result is not None:
        return Event("finished", job.name, record=result)
    if status == 130:
        raise KeyboardInterrupt
    return Event("failed", job.name, f"its process ended with status {status}")


def _stop(processes: list[subprocess.Popen[str]]) -> None:
    """Let processes save a checkpoint, and end them."""
    for process in processes:
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        process.kill()


def _write_figures(study_inputs: StudyInputs) -> None:
    """Write the figures that need no model, by tokenizer: means over the domains, null where a domain has no value."""
    if not 2 <= len(study_inputs.tokenizers) <= MAX_TOKENIZERS:
        return
    texts = {
        name: Corpus.from_texts([document.decode() for document in text.documents()])
        for name, text in study_inputs.domains.items()
    }
    comparison = compare(study_inputs.tokenizers, texts)
    figures: dict[str, dict[str, float | None]] = {}
    for by_figure in comparison.values.values():
        for figure, by_tokenizer in by_figure.items():
            own = figures.setdefault(figure, dict.fromkeys(by_tokenizer, 0.0))
            for name, each in by_tokenizer.items():
                so_far, value = own[name], each.value
                own[name] = None if so_far is None or value is None else so_far + value / len(texts)
    write_json(study_inputs.folder / "figures.json", figures)
