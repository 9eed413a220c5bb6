"""The ledger: runs that were paid for, within a budget of FLOPs.

`ledger.jsonl` has one line per run, sorted by its settings. It depends on the sweep and on the runs that were asked for
alone, however often the process was killed: a line is written when a run is finished, and a run that is finished is
found in its folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import OutputError, ScalingError
from bytemill.experiment.inputs import StudyInputs, encoded_text
from bytemill.experiment.runner import Event, Processes
from bytemill.lm.settings import flattened
from bytemill.scaling.chain_job import PROGRAM, ChainJob, trunk_settings
from bytemill.scaling.points import Chain, Outcome, Point, Points
from bytemill.scaling.sweep import FILE, Sweep, load_sweep
from bytemill.system.atomic_files import make_folder, write_json, write_text
from bytemill.system.locks import try_lock
from bytemill.system.records import read_json_object

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bytemill.experiment.runner import Execute

_DAMAGED = "restore it from a copy, or remove it and run the sweep again: finished runs are not trained again"


class Ledger:
    """Runs of a sweep, kept in a folder and paid from a budget.

    Args:
        folder: Folder of the ledger, created if needed.
        budget_flops: FLOPs that all runs together may take; by default the sweep's.
        sweep: The sweep file; by default the one that an earlier call has copied into the folder.

    Raises:
        ScalingError: The folder has no sweep, the file is wrong, or the folder holds runs on another text or with
            other settings of training.
        OutputError: The folder holds other files, or cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        budget_flops: float | None = None,
        sweep: str | os.PathLike[str] | None = None,
        *,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.path = Path(folder)
        source = self.path / FILE if sweep is None else Path(sweep)
        if sweep is None and not source.exists():
            raise ScalingError(
                f"{folder} is no ledger", hint=f"name a sweep file: Ledger(folder, sweep={FILE!r})"
            )
        self.sweep: Sweep = load_sweep(source)
        self.points = Points(self.sweep)
        self.budget_flops = self.sweep.limit_flops if budget_flops is None else budget_flops
        self._check({"settings of training": self.points.fingerprint})
        self._claim(source, is_new=sweep is not None)
        self._inputs = StudyInputs(self.sweep.study(), self.path, self._base(source), report)
        self._outcomes = self._read()

    def _claim(self, source: Path, *, is_new: bool) -> None:
        """Copy the sweep file into the folder, and remember where its paths start."""
        own = self.path / FILE
        if self.path.is_dir() and not own.exists() and any(self.path.iterdir()):
            raise OutputError(
                f"{self.path} holds files that are not of a sweep", hint="choose another folder: -o DIR"
            )
        make_folder(self.path)
        if is_new and own.resolve() != source.resolve():
            write_text(own, source.read_text(encoding="utf-8-sig"))
            write_json(self.path / "origin.json", {"base": str(source.resolve().parent)})

    def _base(self, source: Path) -> Path:
        """Return the folder that paths in the sweep file are relative to."""
        if source.resolve() != (self.path / FILE).resolve():
            return source.parent
        try:
            return Path(read_json_object(self.path / "origin.json", ScalingError, _DAMAGED)["base"])
        except FileNotFoundError:
            return self.path

    @property
    def file(self) -> Path:
        """The ledger's lines."""
        return self.path / "ledger.jsonl"

    def _read(self) -> dict[Point, Outcome]:
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        found: dict[Point, Outcome] = {}
        for number, line in enumerate(lines, 1):
            try:
                outcome = Outcome.from_dict(json.loads(line))
                outcome.to_dict()
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ScalingError(f"{self.file}:{number}: this is no run: {error}", hint=_DAMAGED) from error
            found[outcome.point] = outcome
        return found

    @property
    def outcomes(self) -> list[Outcome]:
        """Finished runs, in the order of the file."""
        return [self._outcomes[point] for point in sorted(self._outcomes)]

    @property
    def spent_flops(self) -> float:
        """FLOPs of the finished runs."""
        return self.points.spent(self._outcomes)

    def cost(self, points: Sequence[Point]) -> float:
        """Return the FLOPs that runs would add; those that are finished cost nothing."""
        return self.points.spent([*self._outcomes, *points]) - self.spent_flops

    def loss(
        self, settings: Mapping[str, Any], on_event: Callable[[Event], None] = lambda _: None
    ) -> Outcome:
        """Return the outcome of a run, which is trained if it is not in the ledger.

        Args:
            settings: See `Points.point`.
            on_event: Called with what happens.

        Raises:
            ScalingError: A setting is wrong, the run exceeds the budget, or it failed. A run that diverged has not
                failed: it has no loss.
        """
        point = self.points.point(settings)
        for name, message in self.run([point], on_event=on_event).items():
            raise ScalingError(f"{name} failed: {message}", hint="correct the cause, and submit it again")
        return self._with_seconds(self._outcomes[point])

    def _with_seconds(self, outcome: Outcome) -> Outcome:
        known = self._job(outcome.point.chain, [outcome.point.n_steps]).known(outcome.point.n_steps)
        return Outcome.from_dict(outcome.to_dict(), None if known is None else known.get("seconds"))

    def run(
        self,
        points: Sequence[Point],
        *,
        n_jobs: int = 1,
        execute: Execute | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> dict[str, str]:
        """Train the runs that are not in the ledger.

        Args:
            points: The runs.
            n_jobs: Chains trained at the same time.
            execute: Performs the jobs, instead of processes.
            on_event: Called with what happens.

        Returns:
            Messages of the chains that failed, by name.

        Raises:
            ScalingError: The runs exceed the budget; nothing was trained.
            OutputError: Another process uses the ledger.
        """
        lock = None
        if any(point not in self._outcomes for point in points):
            lock = try_lock(self.path / "ledger.lock")
            if lock is None:
                raise OutputError(
                    f"another process is using the ledger in {self.path}", hint="wait until it ends"
                )
        if lock is None:
            return {}
        with lock:
            self._outcomes = self._read()
            self._check_budget(points)
            self._check_text()
            return self._run(points, execute or Processes(n_jobs, PROGRAM), on_event)

    def _check_budget(self, points: Sequence[Point]) -> None:
        cost, left = self.cost(points), self.budget_flops - self.spent_flops
        if cost > left * (1 + 1e-9):
            raise ScalingError(
                f"the runs would cost {cost:.4g} FLOPs, and {max(0.0, left):.4g} of {self.budget_flops:.4g} are left",
                hint="ask for fewer or smaller runs, or raise limit_flops",
            )

    def _check_text(self) -> None:
        """Raise ScalingError if the ledger has runs on another text; remember the text of the first runs."""
        inputs = self._inputs
        shared = {
            "settings of training": self.points.fingerprint,
            "training text": inputs.train_text.sha256,
            "validation text": {name: text.sha256 for name, text in inputs.domains.items()},
        }
        self._check(shared)
        if not self._shared.exists():
            write_json(self._shared, shared)

    @property
    def _shared(self) -> Path:
        """File with what all runs share."""
        return self.path / "inputs.json"

    def _check(self, shared: Mapping[str, Any]) -> None:
        """Raise ScalingError if the runs of the ledger share something else."""
        try:
            known = read_json_object(self._shared, ScalingError, _DAMAGED)
        except FileNotFoundError:
            return
        if changed := [key for key, own in shared.items() if known.get(key) != own]:
            raise ScalingError(
                f"{self.path} holds runs with other {changed[0]}", hint="use another folder: -o DIR"
            )

    def _run(
        self, points: Sequence[Point], execute: Execute, on_event: Callable[[Event], None]
    ) -> dict[str, str]:
        chains: dict[str, tuple[Chain, list[int]]] = {}
        for point in sorted(set(points) - set(self._outcomes)):
            chains.setdefault(point.chain.name, (point.chain, []))[1].append(point.n_steps)
        failures: dict[str, str] = {}
        n_done, n_runs = len(set(points) & set(self._outcomes)), len(set(points))

        def jobs() -> Iterator[ChainJob]:
            # Long chains first: with several processes, none of them is left alone with the longest.
            for chain, lengths in sorted(chains.values(), key=lambda own: -self._flops(*own)):
                yield self._job(chain, lengths)

        for event in execute(jobs()):  # pyright: ignore[reportArgumentType] (any job)
            chain = chains[event.cell][0]
            if event.kind == "failed":
                failures[event.cell] = event.message
            if event.kind == "record" and event.record["kind"] == "run":
                outcome = self._outcome(chain, event.record)
                n_done += outcome.point not in self._outcomes
                self._outcomes[outcome.point] = outcome
                self._write()
            on_event(Event(event.kind, event.cell, event.message, event.record, n_done, n_runs))
        return failures

    def _flops(self, chain: Chain, lengths: list[int]) -> float:
        return self.points.spent([Point(chain, n_steps) for n_steps in lengths])

    def _write(self) -> None:
        write_text(self.file, "".join(json.dumps(own.to_dict()) + "\n" for own in self.outcomes))

    def _outcome(self, chain: Chain, found: Mapping[str, Any]) -> Outcome:
        point = Point(chain, found["n_steps"])
        n_tokens = point.n_steps * self.sweep.step_tokens
        density = self.bytes_per_token(chain.vocab_size)
        return Outcome(
            point,
            n_tokens,
            round(n_tokens * density),
            self.points.parameters(chain),
            self.points.flops(point),
            *(
                found[key]
                for key in ("loss", "bits_per_byte", "unigram_bits_per_byte", "diverged", "seconds")
            ),
        )

    def bytes_per_token(self, vocab_size: int) -> float:
        """Return the bytes per token of a vocabulary on the training text."""
        return self._inputs.bytes_per_token[self.sweep.tokenizer_name(vocab_size), ""]

    @property
    def n_text_bytes(self) -> int:
        """Bytes of the training text."""
        return self._inputs.train_text.n_bytes

    def probe_settings(self, depth: float) -> dict[str, Any]:
        """Return the settings of a model's trunk, to measure its speed."""
        chain = Chain(self.sweep.vocabularies.sizes[0], depth, 0, self.sweep.dial_rate(depth))
        return self._job(chain, []).settings

    def _job(self, chain: Chain, lengths: list[int]) -> ChainJob:
        inputs, name = self._inputs, self.sweep.tokenizer_name(chain.vocab_size)
        text = inputs.train_text
        order = {"seed": chain.seed, "n_bytes": text.n_bytes}
        settings = trunk_settings(
            **{f"model.{key}": value for key, value in self.points.shape(chain).to_dict().items()},
            **{
                **flattened(self.sweep.train.other),
                "data.tokenizer": str(inputs.tokenizer_path(name)),
                "data.train": str(encoded_text(inputs, name, text, f"seed{chain.seed}", order)),
                "schedule.warmup_steps": self.sweep.train.warmup_steps,
                "optimizer.learning_rate": chain.learning_rate,
                "training.batch_size": self.sweep.train.batch_size,
                "training.seed": chain.seed,
            },
        )
        return ChainJob(
            chain.name,
            str(self.path / "runs" / chain.name),
            settings,
            [(n_steps, self.points.start(n_steps)) for n_steps in sorted(lengths)],
            [str(own.folder) for own in inputs.domains.values()],
            self.sweep.text.context_bytes or self.sweep.train.context_length,
            inputs.tokenizers[name].n_vocab,
        )
