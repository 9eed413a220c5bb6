"""Advice on bottlenecks, derived from the numbers of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.system.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from bytemill.profiling.result import PhaseUse, ProfileResult, ThreadUse

_BUSY = 0.85
"""Share of time computing from which a thread counts as never waiting."""
_IDLE = 0.5
_MUCH = 0.2
"""Share of the time from which a cause is reported."""

_REMEDIES = (
    (("spill", "merge runs"), "a larger --max-memory writes less to the disk"),
    (
        ("read", "decompress", "parse", "fetch"),
        "uncompressed files are the fastest to read; of the compressed ones, zstd is faster than gzip, bzip2 and xz",
    ),
    (
        ("count",),
        "named patterns are faster than custom regular expressions; saved counts (--counts) avoid another pass",
    ),
    (
        ("merge", "learn"),
        "its time grows with the number of distinct pre-tokens; --min-frequency and a smaller --vocab-size stop early",
    ),
    (("write", "hash", "sync", "shard"), "try an output folder on a faster disk"),
    (("encode",), "repeated pre-tokens come from a cache, so text with fewer distinct ones is faster"),
)


def advice(profile: ProfileResult) -> list[str]:
    """Describe the bottleneck and the memory peak, most important first.

    Args:
        profile: A profile; its own `advice` is ignored.
    """
    phases = [phase for phase in profile.phases if phase.seconds > 0]
    if not phases:
        return ["this work has no phases; use a sampling profiler (py-spy, perf)"]
    longest = max(phases, key=lambda phase: _own_seconds(phase, phases))
    share = _share(longest.seconds, profile.seconds)
    return [
        f"{share} of the time is spent in `{longest.name}`: {_limit(longest, phases, profile)}",
        *_memory(phases),
    ]


def _own_seconds(phase: PhaseUse, phases: list[PhaseUse]) -> float:
    """Return the time of a phase without its nested phases."""
    return phase.seconds - sum(other.seconds for other in phases if other.parent == phase.name)


def _limit(longest: PhaseUse, phases: list[PhaseUse], profile: ProfileResult) -> str:
    """Describe what limits the longest phase."""
    n_cores = profile.n_cores
    if longest.cores >= _BUSY * n_cores:
        return (
            f"all {n_cores} cores are busy, so it needs less work or more cores; `perf record` shows the functions"
            f"{_remedy(longest.name)}"
            if n_cores > 1
            else f"the only core is busy, so it needs less work{_remedy(longest.name)}"
        )
    # The stages of a pipeline run at the same time. The one that never waits limits the others.
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
            f"`{stage.name}` runs in one thread, which computes {_percent(stage.own_busy)} of the time, while "
            f"{longest.cores:.1f} of {n_cores} cores are busy; it is the bottleneck{_remedy(stage.name)}"
        )
    alone = _busy_alone(longest)
    if alone is not None:
        which = (
            f"the thread {alone.name}"
            if alone.n_threads == 1
            else f"one of {alone.n_threads} threads {alone.name}"
        )
        return (
            f"{which} computes {_percent(alone.busiest)} of the time while the others mostly wait; it is the bottleneck"
            f"{_remedy(alone.name) or _remedy(longest.name)}"
        )
    lacking = sum(thread.runnable_seconds for thread in longest.threads)
    if lacking >= _MUCH * longest.seconds:
        return (
            f"its threads waited {format_seconds(lacking)} for a free core: other programs use this machine, or there "
            f"are more threads than its {n_cores} cores (--threads)"
        )
    if any(thread.disk_wait >= _MUCH for thread in longest.threads):
        return "its threads wait for the disk; a faster disk helps, or a second run while the files are still in memory"
    if longest.cores < _IDLE:
        return "the cores are mostly idle: it waits for input or output (a pipe, the network, a disk, another process)"
    return (
        f"{longest.cores:.1f} of {n_cores} cores are busy: the threads wait for one another part of the time"
        f"{_remedy(longest.name)}"
    )


def _memory(phases: list[PhaseUse]) -> list[str]:
    peak = max(phase.peak_memory_bytes for phase in phases)
    highest = [phase for phase in phases if phase.peak_memory_bytes == peak]
    # A phase and its nested phases share a peak: report the innermost. On systems that report only the peak so far,
    # later phases share it too: report the first.
    innermost = [phase for phase in highest if not any(other.parent == phase.name for other in highest)]
    return [f"memory peaked in `{innermost[0].name}`: {format_bytes(peak)}"] if peak else []


def _busy_alone(phase: PhaseUse) -> ThreadUse | None:
    """Return the threads of which one always computes, if all other threads together do little."""
    busiest = max(phase.threads, key=lambda thread: thread.busiest, default=None)
    if busiest is None or busiest.busiest < _BUSY:
        return None
    active = sum(thread.cpu_seconds + thread.runnable_seconds for thread in phase.threads)
    return busiest if active <= (busiest.busiest + _IDLE) * phase.seconds else None


def _remedy(name: str) -> str:
    for words, remedy in _REMEDIES:
        if any(word in name.lower() for word in words):
            return f"; {remedy}"
    return ""


def _share(part: float, whole: float) -> str:
    return _percent(min(1.0, part / whole) if whole else 0.0)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
