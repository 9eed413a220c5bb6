"""Tables beside the figures: differences, vocabularies, costs, speed. The first row is the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.analysis.inspection import visible
from bytemill.system.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    from bytemill.comparison.data import ComparisonData

Rows = list[tuple[str, ...]]


def boundary_rows(comparison: ComparisonData) -> Rows:
    """Boundaries that pairs of tokenizers share, by group."""
    rows: Rows = [("group", "tokenizers", "boundaries shared", "of the first", "of the second")]
    for group, differences in comparison.differences.items():
        for own in differences:
            first, second = ("–" if share is None else format_share(share) for share in own.shares)
            rows.append((group, f"{own.first}, {own.second}", format_count(own.n_shared), first, second))
    return rows


def vocabulary_rows(comparison: ComparisonData) -> Rows:
    """Tokens that pairs of vocabularies have in common."""
    rows: Rows = [("tokenizers", "common", "only the first", "only the second", "common / all")]
    for own in comparison.vocabularies:
        numbers = (own.n_common, *own.n_only)
        rows.append((f"{own.first}, {own.second}", *map(format_count, numbers), format_share(own.jaccard)))
    return rows


def token_rows(comparison: ComparisonData, group: str, n: int) -> Rows:
    """The most used tokens that only one of a pair has, in a group."""
    rows: Rows = [("tokenizer", "lacks a token of", "tokens by use")]
    for own in comparison.vocabularies:
        for name, other, tokens in (
            (own.second, own.first, own.only_first),
            (own.first, own.second, own.only_second),
        ):
            shown = [
                f"{visible(token).replace(' ', '␣')} {format_count(uses)}×"
                for token, uses, _ in tokens[group][:n]
            ]
            rows.append((name, other, ", ".join(shown) or "none"))
    return rows


def document_rows(comparison: ComparisonData, group: str, n: int) -> Rows:
    """The documents on which pairs differ most, in a group."""
    rows: Rows = [("tokenizers", "document or passage", "tokens", "bytes", "begins with")]
    for own in comparison.differences[group]:
        for excerpt in own.excerpts[:n]:
            first, second = map(format_count, excerpt.n_tokens)
            rows.append(
                (
                    f"{own.first}, {own.second}",
                    format_count(excerpt.number),
                    f"{first}, {second}",
                    format_count(excerpt.n_bytes),
                    visible(excerpt.text[:60].encode()),
                )
            )
    return rows


def cost_rows(comparison: ComparisonData) -> Rows:
    """What each tokenizer costs the model."""
    names = list(comparison.costs)
    rows: Rows = [(f"for {comparison.settings['model']}", *names)]
    if not names:
        return rows
    costs = list(comparison.costs.values())
    rows += [
        ("ids, padded", *(format_count(own.vocab_size) for own in costs)),
        ("embedding and output parameters", *(format_count(own.embedding_parameters) for own in costs)),
        ("their share of all parameters", *(format_share(own.parameter_share) for own in costs)),
        ("output layer's share of FLOPs", *(format_share(own.output_flops_share) for own in costs)),
    ]
    for group in comparison.groups:
        rows += [
            (f"FLOPs/byte, {group}", *(_number(own.flops_per_byte[group], "{:.3g}") for own in costs)),
            (
                f"KV cache per kB of text, {group}",
                *(_size(own.cache_bytes_per_kilobyte[group]) for own in costs),
            ),
            (f"text in the context, {group}", *(_size(own.context_bytes[group]) for own in costs)),
        ]
    return rows


def speed_rows(comparison: ComparisonData) -> Rows:
    """Speed and memory of each tokenizer."""
    rows: Rows = [("one thread, new text", *comparison.speed)]
    if comparison.speed:
        own = list(comparison.speed.values())
        for group in comparison.groups:
            rows.append((f"MB/s, {group}", *(f"{each.bytes_per_second[group] / 1e6:,.0f}" for each in own)))
        rows.append(("memory", *(_size(each.memory_bytes) for each in own)))
    return rows


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _size(value: float | None) -> str:
    return "–" if value is None else format_bytes(value)
