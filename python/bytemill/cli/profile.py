"""`--profile`: what a command's time and memory went into, on standard error and in its JSON."""

import contextlib
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from bytemill.cli import output
from bytemill.profiling import PhaseUse, Profile, ProfileResult
from bytemill.storage.input_check import check_file_is_no_input
from bytemill.system.atomic_files import AtomicFile, write_json
from bytemill.system.units import format_bytes, format_rate, format_seconds


class Profiled:
    """What a command knows of its profile."""

    def __init__(self) -> None:
        self.result: ProfileResult | None = None

    def to_json(self) -> dict[str, Any]:
        """What belongs into the command's JSON: the key `profile`, or nothing where nobody asked for one."""
        return {} if self.result is None else {"profile": self.result.to_dict()}


@contextlib.contextmanager
def profiled(
    enabled: bool, file: Path | None = None, others: Iterable[str | Path] = ()
) -> Generator[Profiled]:
    """Profiles the block where somebody asked for it, and shows the result on standard error at its end.

    At its end means also after Ctrl-C and after an error. `file` takes the profile as JSON, and must be none of the
    `others` that the command reads or writes. The block should enclose the display of progress, whose bar is to be
    gone by then; `Profiled` has its result only after the block.
    """
    measured = Profiled()
    if not enabled and file is None:
        yield measured
        return
    if file is not None:
        check_file_is_no_input(file, others)
        AtomicFile(file).discard()  # what cannot be written should be known before the work
    profile = Profile()
    try:
        with profile:
            yield measured
    finally:
        measured.result = profile.result
        write_profile(profile.result)
        if file is not None:
            write_json(file, profile.result.to_dict())


def write_profile(profile: ProfileResult) -> None:
    """Write the profile as text to standard error."""
    sys.stderr.write(output.printable("\n".join([*_lines(profile), ""])))


def _lines(profile: ProfileResult) -> Iterator[str]:
    yield (
        f"profile: {format_seconds(profile.seconds)}, {profile.cores:.2f} of {profile.n_cores} cores busy, "
        f"at most {format_bytes(profile.peak_memory_bytes)} of memory"
    )
    yield ""
    header = ("phase", "time", "share", "thread busy", "cores", "peak memory", "rate")
    rows = [_phase_row(phase, profile) for phase in _nested(profile.phases)]
    if profile.outside_seconds >= 0.01 * profile.seconds:
        outside = profile.outside_seconds
        rows.append(
            ("in no phase", format_seconds(outside), _share(outside / profile.seconds), "", "", "", "")
        )
    yield from _indented(output.table_lines(header, rows, right=range(1, 6)))
    yield ""
    for sentence in profile.advice:
        yield f"  - {sentence}"


def _phase_row(phase: PhaseUse, profile: ProfileResult) -> tuple[str, ...]:
    rates = [
        format_rate(amount, phase.seconds, unit)
        for amount, unit in ((phase.n_bytes, "bytes"), (phase.n_tokens, "tokens"))
        if amount
    ]
    return (
        ("  " if phase.parent else "") + phase.name,
        format_seconds(phase.seconds),
        _share(phase.seconds / profile.seconds if profile.seconds else 0.0),
        _share(phase.own_busy),
        f"{phase.cores:.2f}",
        format_bytes(phase.peak_memory_bytes),
        ", ".join(rates),
    )


def _nested(phases: list[PhaseUse]) -> Iterator[PhaseUse]:
    """Phases with those that were entered within them below."""
    known = {phase.name for phase in phases}
    for phase in phases:
        if phase.parent not in known:
            yield from _with_children(phase, phases)


def _with_children(phase: PhaseUse, phases: list[PhaseUse]) -> Iterator[PhaseUse]:
    yield phase
    for child in phases:
        if child.parent == phase.name and child.name != phase.name:
            yield from _with_children(child, phases)


def _indented(lines: list[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"
