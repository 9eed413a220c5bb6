"""Print manifests of shards, and what was replaced or left out of a corpus."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bytemill.cli import output
from bytemill.corpus.documents import CorpusCounts
from bytemill.data.manifest import PAIR
from bytemill.storage import shown, url_of
from bytemill.system.units import (
    format_bytes,
    format_count,
    format_ratio,
    plural,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.data import Manifest, StoredTokens, TokenShards
    from bytemill.tokenizer import Tokenizer


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write a summary of a shard folder."""
    output.write_line(f"{output.styled(shown(folder), '1')}: {plural(manifest.n_tokens, 'token')}")
    output.write_line()
    output.write_fields([*_shard_fields(manifest), *_target_fields(manifest, folder)])
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
        f"{folder.parent.name}/{folder.name}" if folder.parent.name in PAIR else folder.name: {
            "folder": shown(folder),
            **manifest.to_dict(),
        }
        for folder, manifest in manifests.items()
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


def corpus_notes(counts: CorpusCounts) -> list[str]:
    """Return notes about what was replaced or left out, a sentence each.

    >>> from bytemill.corpus import CorpusCounts
    >>> corpus_notes(CorpusCounts(n_replaced=1_204, n_broken=1))
    ['1,204 malformed sequences were read as U+FFFD', '1 broken document was left out']
    """
    notes: list[str] = []
    if n := counts.n_replaced:
        notes.append(f"{n:,} malformed {'sequence was' if n == 1 else 'sequences were'} read as U+FFFD")
    if n := counts.n_skipped_bytes:
        notes.append(
            f"{n:,} {'byte that is not UTF-8 was' if n == 1 else 'bytes that are not UTF-8 were'} left out"
        )
    if n := counts.n_broken:
        notes.append(f"{n:,} broken {'document was' if n == 1 else 'documents were'} left out")
    if n := counts.n_byte_order_marks:
        files = "1 file" if n == 1 else f"{n:,} files"
        notes.append(f"a UTF-8 byte-order mark was dropped from the start of {files}")
    return notes


def _shard_fields(manifest: Manifest) -> list[tuple[str, str]]:
    settings = manifest.settings
    index = f", their ends in {manifest.documents.file}" if manifest.documents else ""
    what = "empty" if settings.conversations is None else "longer"
    empty = (
        f", {plural(manifest.n_empty_documents, f'{what} one')} left out"
        if manifest.n_empty_documents
        else ""
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
    if settings.conversations is not None:
        named = dict(fields)
        limit = settings.conversations.max_tokens
        whole = "" if limit is None else f", whole turns of at most {plural(limit, 'token')}"
        fields = [
            ("rows", named["text"]),
            ("conversations", named["documents"] + whole),
            *((name, named[name]) for name in ("layout", "tokenizer")),
        ]
    if settings.prepended is not None:
        fields.append(("begins with", json.dumps(settings.prepended)))
    if settings.shuffle_seed is not None:
        fields.append(("order", f"shuffled, seed {settings.shuffle_seed}"))
    if settings.dropout is not None:
        chance = settings.dropout
        fields.append(
            ("dropout", f"{chance.probability:g} of the merges, seed {chance.seed}, epoch {chance.epoch}")
        )
    if manifest.part is not None:
        share = f"{100 * settings.validation_fraction:g} % of the documents, seed {settings.split_seed}"
        fields.append(("part", manifest.part if manifest.part == "train" else f"{manifest.part}: {share}"))
    return fields


def _target_fields(manifest: Manifest, folder: Path) -> list[tuple[str, str]]:
    """Return what distinguishes shards of conversations."""
    if manifest.settings.conversations is None:
        return []
    n_targets = _open(folder).n_targets
    share = 100 * n_targets / max(1, manifest.n_tokens)
    return [("targets", f"{plural(n_targets, 'token')}, {share:.1f} %")]


def _open(folder: Path) -> TokenShards | StoredTokens:
    from bytemill.data import StoredTokens, TokenShards

    url = url_of(folder)
    return TokenShards(folder) if url is None else StoredTokens(url, cache_bytes=0)


def write_examples(folder: Path, tokenizer: Tokenizer, n_examples: int) -> None:
    """Write the first conversations of a shard folder: targets in green, or between « and », and other tokens dim.

    Raises:
        ShardError: The shards are not of conversations, or of another tokenizer.
    """
    from bytemill.data.conversations import first_conversations

    tokens = _open(folder)
    examples = list(first_conversations(tokens, tokenizer, n_examples))
    output.write_line(f"\n{output.styled(shown(folder), '1')}: {plural(tokens.n_targets, 'target')}")
    for ids, mask in examples:
        bounds = [0, *(i for i in range(1, len(ids)) if mask[i] != mask[i - 1]), len(ids)]
        text = "".join(
            _target(tokenizer.decode(ids[first:stop]), is_target=mask[first])
            for first, stop in pairwise(bounds)
        )
        output.write_line(f"\n{text.rstrip()}")


def _target(text: str, *, is_target: bool) -> str:
    if not is_target:
        return output.styled(text, "2")
    coloured = output.styled(text, "32")
    return coloured if coloured != text else f"«{text}»"


def _separator(separator: str | None, *, append: bool) -> str:
    if separator is None:
        return "none"
    return json.dumps(separator) + (", added to every document" if append else "")
