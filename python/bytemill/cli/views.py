"""Print tokenizers, tokens and inspected texts."""

import sys
from collections.abc import Iterable
from pathlib import Path

from bytemill.analysis.inspection import Inspection, explanation_to_dict, visible
from bytemill.analysis.metrics import format_tokenizer_metrics
from bytemill.analysis.summary import TokenizerSummary, size_buckets, token_info_to_dict
from bytemill.cli import output
from bytemill.cli.inspection_text import explanation_lines, running_text, totals, with_ids
from bytemill.system.units import format_bytes, format_count, plural
from bytemill.tokenizer.explanation import Explanation, TokenInfo
from bytemill.tokenizer.tokenizer import Tokenizer
from bytemill.tokenizer.verification import Verification

_BAR_CELLS = 32
_MOST_SHOWN = 60
_TIES = {"bytes": "greatest pair of byte strings", "huggingface": "as Hugging Face's trainer"}


def write_tokenizer(summary: TokenizerSummary, file: Path, *, as_json: bool) -> None:
    """A tokenizer at a glance."""
    if as_json:
        output.write_json({"file": str(file), **summary.to_dict()})
        return
    output.write_line(f"{output.styled(str(file), '1')}: {plural(summary.n_tokens, 'token')}")
    output.write_line()
    output.write_fields(_summary_fields(summary))
    output.write_line()
    _write_sizes(summary)
    output.write_line()
    output.write_table(
        ("id", "bytes", "longest tokens"),
        [(str(token_id), str(len(token)), quoted(token)) for token_id, token in summary.longest_tokens],
        right=(0, 1),
    )


def quoted(token: bytes) -> str:
    """Return a token in quotes, truncated if it is long, such as a line of hundreds of dashes.

    >>> quoted(b"-" * 512)
    "'------------------------------------------------------------…'"
    """
    shown = visible(token)
    return f"'{shown}'" if len(shown) <= _MOST_SHOWN else f"'{shown[:_MOST_SHOWN]}…'"


def write_token_list(infos: Iterable[TokenInfo], *, as_json: bool) -> None:
    """Print tokens, one per line."""
    if not as_json:
        output.write_line(f"{'id':>7}  {'rank':>7}  {'count':>12}  token")
    for info in infos:
        if as_json:
            output.write_json(token_info_to_dict(info), indent=None)
            continue
        rank = "special" if info.special else "" if info.rank is None else str(info.rank)
        count = "" if info.count is None else format_count(info.count)
        output.write_line(f"{info.id:>7}  {rank:>7}  {count:>12}  '{visible(info.bytes)}'")


def write_tokens(tokenizer: Tokenizer, infos: Iterable[TokenInfo], *, as_json: bool) -> None:
    """Print single tokens and the tokens that they are merged from."""
    for place, info in enumerate(infos):
        if as_json:
            output.write_json(token_info_to_dict(info), indent=None)
            continue
        if place:
            output.write_line()
        output.write_line(output.styled(f"{info.id}  '{visible(info.bytes)}'", "1"))
        output.write_fields(_token_fields(info))
        if info.parts:
            output.write_line("  merged from")
            _write_parts(tokenizer, info, depth=2)


def write_verification(verification: Verification, file: Path, *, as_json: bool) -> None:
    """Print how a tokenizer compares with another implementation."""
    if as_json:
        output.write_json({"file": str(file), **verification.to_dict()})
        return
    own, other = verification.own_rate, verification.other_rate
    output.write_line(
        f"{output.styled(str(file), '1')}: bytemill ({verification.engine}) and {verification.peer}"
    )
    output.write_line()
    output.write_fields(
        [
            ("texts", f"{format_count(verification.n_texts)}, {format_bytes(verification.n_bytes)}"),
            ("speed", f"{own:.1f} and {other:.1f} MB/s on one thread, text by text"),
        ]
    )
    output.write_line()
    for difference in verification.differences:
        where = "special tokens recognized" if difference.special else "special tokens as text"
        output.write_line(output.styled(f"different {difference.kind}, {where}: {difference.text!r}", "1"))
        output.write_fields([("bytemill", str(difference.own)), (verification.peer, str(difference.other))])
    if not verification.differences:
        output.write_line("no differences")


def write_inspection(
    inspection: Inspection, explanations: list[Explanation] | None, *, ids: bool, as_json: bool
) -> None:
    """Print a text split into tokens, followed by totals."""
    if as_json:
        explained = (
            {} if explanations is None else {"explanations": [explanation_to_dict(e) for e in explanations]}
        )
        output.write_json({**inspection.to_dict(), **explained})
        return
    colour = output.colour_allowed(sys.stdout)
    if explanations is not None:
        for line in explanation_lines(explanations):
            output.write_line(line)
    elif ids:
        for line in with_ids(inspection.tokens, colour=colour, width=output.width()):
            output.write_line(line)
    else:
        for stretch in running_text(inspection.tokens, colour=colour):
            output.write(stretch)
        if not inspection.tokens[-1].bytes.endswith(b"\n"):
            output.write_line()
    output.write_line()
    output.write_line(output.styled(totals(inspection), "2"))


def _summary_fields(summary: TokenizerSummary) -> list[tuple[str, str]]:
    special = ", ".join(f"{visible(token.encode())} = {i}" for token, i in summary.special_tokens.items())
    gaps = "" if summary.n_vocab == summary.n_tokens else f" (ids go up to {summary.n_vocab - 1})"
    pattern = "none" if summary.pattern is None else summary.pattern_name or visible(summary.pattern.encode())
    return [
        ("tokens", format_count(summary.n_tokens) + gaps),
        ("merges", format_count(summary.n_merges)),
        ("special tokens", special or "none"),
        ("pattern", pattern),
        *([("normalizer", summary.normalizer)] if summary.normalizer else []),
        *([("run by", f"{summary.engine}: {summary.engine_reason}")] if summary.engine_reason else []),
        ("ties", _TIES.get(summary.ties or "", "not recorded")),
        ("counts", "of each merge in training" if summary.has_counts else "not recorded"),
        ("array type", summary.dtype),
        ("fingerprint", summary.fingerprint),
        *format_tokenizer_metrics(summary.metrics),
    ]


def _write_sizes(summary: TokenizerSummary) -> None:
    buckets = size_buckets(summary.token_sizes)
    most = max(n for _, n in buckets)
    rows: list[tuple[str, str, str]] = []
    for size, n in buckets:
        cells = n / most * _BAR_CELLS
        bar = "█" * int(cells) + ("▌" if cells % 1 >= 0.5 or (n and cells < 0.5) else "")
        rows.append((size, format_count(n), bar))
    output.write_table(("bytes", "tokens", ""), rows, right=(0, 1))


def _token_fields(info: TokenInfo) -> list[tuple[str, str]]:
    fields = [("bytes", f"{info.bytes.hex(' ')} ({plural(len(info.bytes), 'byte')})")]
    if info.special:
        fields.append(("kind", "special token"))
    elif info.rank is None:
        fields.append(("kind", "not the result of a merge" if len(info.bytes) > 1 else "single byte"))
    else:
        fields.append(("rank", f"{info.rank:,} (merges before it)"))
    if info.count is not None:
        fields.append(("count", f"{plural(info.count, 'time')} in the training corpus when it was merged"))
    return fields


def _write_parts(tokenizer: Tokenizer, info: TokenInfo, depth: int) -> None:
    for part in info.parts or ():
        token = tokenizer.token(part)
        output.write_line(f"{'  ' * depth}{part}  '{visible(token.bytes)}'")
        _write_parts(tokenizer, token, depth + 1)
