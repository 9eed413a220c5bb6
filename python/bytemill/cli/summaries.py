"""Print the results of training and encoding."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.cli.corpus_options import corpus_notes
from bytemill.corpus.documents import CorpusCounts
from bytemill.storage import shown
from bytemill.system.units import (
    format_bytes,
    format_count,
    format_rate,
    format_ratio,
    format_seconds,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.data import Manifest
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.tokenizer.training_report import TrainingReport

_N_LONGEST = 10
_NO_PROFILE: Mapping[str, Any] = {}
_PHASES = {"read": "read (during counting)", "count": "count", "merge": "merge", "build": "build"}


def write_training(
    tokenizer: Tokenizer, file: Path, *, as_json: bool, quiet: bool, profile: Mapping[str, Any] = _NO_PROFILE
) -> None:
    """Print the report of a training."""
    from bytemill.analysis.summary import training_to_dict
    from bytemill.cli.views import quoted

    report = tokenizer.training_report
    if report is None:
        raise ValueError("the tokenizer was not trained in this process")
    if as_json:
        output.write_json(
            {
                "output": shown(file),
                "n_vocab": tokenizer.n_vocab,
                "fingerprint": tokenizer.fingerprint,
                **training_to_dict(report),
                **profile,
            }
        )
    for note in _training_notes(report):
        output.note(note, quiet=quiet)
    if not as_json and not quiet:
        output.write_line(f"{output.styled(shown(file), '1')}: {_vocabulary(tokenizer)}")
        output.write_line()
        output.write_fields(_corpus_fields(report))
        output.write_line()
        output.write_table(
            ("phase", "time", "peak memory"),
            [
                (_PHASES[phase.name], format_seconds(phase.seconds), format_bytes(phase.peak_memory_bytes))
                for phase in report.phases
            ],
            right=(1, 2),
        )
        output.write_line()
        longest = " ".join(quoted(token) for token in report.longest_tokens[:_N_LONGEST])
        output.write_line(f"  longest tokens: {longest or 'none'}")
        output.write_line(f'\nSee it: bytemill tokenizer inspect {shlex.quote(shown(file))} "Some text"')


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write a summary of a shard folder."""
    output.write_line(f"{output.styled(shown(folder), '1')}: {plural(manifest.n_tokens, 'token')}")
    output.write_line()
    output.write_fields(_shard_fields(manifest))
    output.write_line()
    output.write_table(
        ("shard", "tokens", "size"),
        [
            (shard.file, format_count(shard.n_tokens), format_bytes(shard.n_bytes))
            for shard in manifest.shards
        ],
        right=(1, 2),
    )


def manifest_to_json(
    manifest: Manifest, folder: Path, problems: list[str] | None = None, more: dict[str, Any] | None = None
) -> None:
    """Write a manifest as JSON, with the problems that verification found and further entries."""
    found = {} if problems is None else {"problems": problems}
    output.write_json({"folder": shown(folder), **manifest.to_dict(), **found, **(more or {})})


def manifests_to_json(
    manifests: dict[Path, Manifest], problems: list[str] | None = None, more: dict[str, Any] | None = None
) -> None:
    """Write the totals and the manifests of the parts of a split corpus as JSON."""
    found = {} if problems is None else {"problems": problems}
    parts = {
        folder.name: {"folder": shown(folder), **manifest.to_dict()} for folder, manifest in manifests.items()
    }
    all_parts = list(manifests.values())
    totals = {
        "n_tokens": sum(manifest.n_tokens for manifest in all_parts),
        "n_bytes": sum(manifest.n_bytes for manifest in all_parts),
        "n_documents": sum(manifest.n_documents for manifest in all_parts),
        "n_empty_documents": sum(manifest.n_empty_documents for manifest in all_parts),
        "n_shards": sum(len(manifest.shards) for manifest in all_parts),
    }
    output.write_json({**totals, "parts": parts, **found, **(more or {})})


def manifest_notes(manifest: Manifest) -> list[str]:
    """Return notes about what was replaced or left out, a sentence each."""
    counts = CorpusCounts(
        n_replaced=manifest.n_replaced,
        n_skipped_bytes=manifest.n_skipped_bytes,
        n_broken=manifest.n_broken_documents,
        n_byte_order_marks=manifest.n_byte_order_marks,
    )
    return corpus_notes(counts)


def _vocabulary(tokenizer: Tokenizer) -> str:
    n_special = len(tokenizer.special_tokens)
    n_merges = tokenizer.n_vocab - 256 - n_special
    parts = ["256 bytes", plural(n_merges, "merge")] + (
        [plural(n_special, "special token")] if n_special else []
    )
    return f"{plural(tokenizer.n_vocab, 'token')} ({', '.join(parts)})"


def _corpus_fields(report: TrainingReport) -> list[tuple[str, str]]:
    seconds = report.seconds
    fields = [
        ("text", format_bytes(report.n_bytes)),
        ("pre-tokens", f"{report.n_pretokens:,}, {report.n_unique_pretokens:,} unique"),
        ("special tokens", f"{report.n_special_tokens:,} in the text"),
    ]
    if report.n_replaced:
        fields.append(("not UTF-8", f"{plural(report.n_replaced, 'sequence')} read as U+FFFD"))
    if report.min_pretoken_count > 1:
        fields.append(
            (
                "left out",
                f"{plural(report.n_dropped_pretokens, 'unique pre-token')} below {report.min_pretoken_count:,} "
                f"({plural(report.n_dropped_occurrences, 'occurrence')})",
            )
        )
    if report.counts_file is not None:
        how = "read from" if report.from_counts else "saved to"
        fields.append(("counts", f"{how} {report.counts_file}"))
    if report.max_memory is not None or report.spilled_runs:
        fields.append(("on disk", _spilled(report)))
    fields.append(
        ("time", f"{format_seconds(seconds)} ({format_rate(report.n_bytes, seconds, 'bytes')} in total)")
    )
    return fields


def _spilled(report: TrainingReport) -> str:
    within = "" if report.max_memory is None else f" within {format_bytes(report.max_memory)} of memory"
    if not report.spilled_runs:
        return f"nothing: everything fitted{within}"
    return (
        f"{format_bytes(report.spilled_bytes)} in {plural(report.spilled_runs, 'run')}, "
        f"{format_seconds(report.spill_seconds)} of thread time{within}"
    )


def _training_notes(report: TrainingReport) -> list[str]:
    # Replaced sequences are among the fields.
    counts = CorpusCounts(n_skipped_bytes=report.n_skipped_bytes, n_broken=report.n_broken)
    return [*report.notes, *corpus_notes(counts)]


def _shard_fields(manifest: Manifest) -> list[tuple[str, str]]:
    settings = manifest.settings
    index = f", their ends in {manifest.documents.file}" if manifest.documents else ""
    empty = (
        f", {plural(manifest.n_empty_documents, 'empty one')} left out" if manifest.n_empty_documents else ""
    )
    fields = [
        ("text", f"{format_bytes(manifest.n_bytes)} from {plural(len(manifest.sources), 'source')}"),
        ("documents", format_count(manifest.n_documents) + empty + index),
        (
            "bytes per token",
            format_ratio(manifest.n_bytes / manifest.n_tokens) if manifest.n_tokens else "none",
        ),
        ("layout", f"{manifest.layout}, {manifest.dtype}"),
        ("tokenizer", f"{manifest.fingerprint[:12]}…, {plural(manifest.n_vocab, 'token')}"),
        ("separator", _separator(settings.document_separator, append=settings.append_separator)),
    ]
    if settings.prepended is not None:
        fields.append(("begins with", json.dumps(settings.prepended)))
    if settings.shuffle_seed is not None:
        fields.append(("order", f"shuffled, seed {settings.shuffle_seed}"))
    if manifest.part is not None:
        share = f"{100 * settings.validation_fraction:g} % of the documents, seed {settings.split_seed}"
        fields.append(("part", manifest.part if manifest.part == "train" else f"{manifest.part}: {share}"))
    return fields


def _separator(separator: str | None, *, append: bool) -> str:
    if separator is None:
        return "none"
    return json.dumps(separator) + (", added to every document" if append else "")
