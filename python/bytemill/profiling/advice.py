"""Where to look next, from the numbers of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.system.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from bytemill.profiling.result import PhaseUse, ProfileResult, ThreadUse

_BUSY = 0.85
"""A thread that computes so much of its time has no waiting left to be rid of."""
_IDLE = 0.5
_MUCH = 0.2
"""A share of the time that is worth a sentence."""

_REMEDIES = (
    (("spill", "merge runs"), "a larger --max-memory leaves less to be written to the disk and read again"),
    (
        ("read", "decompress", "parse", "fetch"),
        "plain files are read faster than compressed ones, and of these zstd faster than gzip, bzip2 and xz",
    ),
    (
        ("count",),
        "named patterns are faster than a regular expression of your own, for which moreover a text is cut at special "
        "tokens alone; saved counts (--counts) need no second pass over it",
    ),
    (
        ("merge", "learn"),
        "it grows with the number of different pre-tokens: --min-frequency and a smaller --vocab-size end it sooner",
    ),
    (("write", "hash", "sync", "shard"), "another disk may be faster: try a folder on it"),
    (("encode",), "pre-tokens that were seen before are looked up: text with fewer different ones is faster"),
)


def advice(profile: ProfileResult) -> list[str]:
    """Sentences for people, the most important first."""
    phases = [phase for phase in profile.phases if phase.seconds > 0]
    if not phases:
        return [
            "no part of this work is a phase: a sampling profiler (py-spy, perf) says where its time goes"
        ]
    longest = max(phases, key=lambda phase: _own_seconds(phase, phases))
    share = _share(longest.seconds, profile.seconds)
    return [
        f"{share} of the time goes to `{longest.name}`: {_limit(longest, phases, profile)}",
        *_memory(phases),
    ]


def _own_seconds(phase: PhaseUse, phases: list[PhaseUse]) -> float:
    """What a phase takes beside the phases within it."""
    return phase.seconds - sum(other.seconds for other in phases if other.parent == phase.name)


def _limit(longest: PhaseUse, phases: list[PhaseUse], profile: ProfileResult) -> str:
    """What keeps the longest phase from being shorter."""
    n_cores = profile.n_cores
    if longest.cores >= _BUSY * n_cores:
        return (
            f"all {n_cores} processors are busy, so only less work helps, or more processors; `perf record` shows "
            f"the functions{_remedy(longest.name)}"
            if n_cores > 1
            else f"the only processor is busy, so only less work helps{_remedy(longest.name)}"
        )
    # Stages of a pipeline go on at the same time: the one that never waits sets the pace of the others.
    stages = [
        phase
        for phase in phases
        if phase.own_busy >= _BUSY
        and phase.n_threads < 1.5
        and phase.seconds >= (1 - _MUCH) * longest.seconds
    ]
    if stages:
        stage = max(stages, key=lambda phase: phase.own_busy * phase.seconds)
        return (
            f"one thread does `{stage.name}` and is busy {_percent(stage.own_busy)} of its time, while "
            f"{longest.cores:.1f} of {n_cores} processors are: it sets the pace{_remedy(stage.name)}"
        )
    alone = _busy_alone(longest)
    if alone is not None:
        which = (
            f"the thread {alone.name}"
            if alone.n_threads == 1
            else f"one of {alone.n_threads} threads {alone.name}"
        )
        return (
            f"{which} has work {_percent(alone.busiest)} of it, and the others have hardly any: it sets the pace"
            f"{_remedy(alone.name) or _remedy(longest.name)}"
        )
    lacking = sum(thread.runnable_seconds for thread in longest.threads)
    if lacking >= _MUCH * longest.seconds:
        return (
            f"its threads were ready to run for {format_seconds(lacking)} without a free processor: other programs "
            f"use this machine, or there are more threads than its {n_cores} processors (--threads)"
        )
    if _disk_wait(longest.threads) >= _MUCH:
        return "its threads wait for the disk: a faster one, or a second run while the files are still in memory, helps"
    if longest.cores < _IDLE:
        return (
            "the processors have little to do meanwhile: it waits for its input or output (a pipe, the network, a "
            "disk, another process)"
        )
    return (
        f"{longest.cores:.1f} of {n_cores} processors are busy: the threads wait for one another part of the time"
        f"{_remedy(longest.name)}"
    )


def _memory(phases: list[PhaseUse]) -> list[str]:
    peak = max(phase.peak_memory_bytes for phase in phases)
    highest = [phase for phase in phases if phase.peak_memory_bytes == peak]
    # Of a phase and those within it, which have the same peak, the innermost; where the system knows only the peak so
    # far, the first one.
    innermost = [phase for phase in highest if not any(other.parent == phase.name for other in highest)]
    return [f"memory was at its highest in `{innermost[0].name}`: {format_bytes(peak)}"] if peak else []


def _busy_alone(phase: PhaseUse) -> ThreadUse | None:
    """The threads of which one has work all the time, while all others together have little."""
    busiest = max(phase.threads, key=lambda thread: thread.busiest, default=None)
    if busiest is None or busiest.busiest < _BUSY:
        return None
    active = sum(thread.cpu_seconds + thread.runnable_seconds for thread in phase.threads)
    return busiest if active <= (busiest.busiest + _IDLE) * phase.seconds else None


def _disk_wait(threads: list[ThreadUse]) -> float:
    return max((thread.disk_wait for thread in threads), default=0.0)


def _remedy(name: str) -> str:
    for words, remedy in _REMEDIES:
        if any(word in name.lower() for word in words):
            return f"; {remedy}"
    return ""


def _share(part: float, whole: float) -> str:
    return _percent(min(1.0, part / whole) if whole else 0.0)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
