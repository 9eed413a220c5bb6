"""Print tokenizers, tokens, inspected texts, reports of training and conversions.

Inspected texts are coloured on a terminal and have separators between their tokens elsewhere.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from bytemill.analysis.inspection import (
    LINE_END,
    TextToken,
    explanation_to_dict,
    merge_history,
    visible,
    visible_parts,
)
from bytemill.analysis.metrics import format_text_metrics, format_tokenizer_metrics
from bytemill.analysis.summary import size_buckets, token_info_to_dict, training_to_dict
from bytemill.cli import output
from bytemill.formats.registry import FORMATS
from bytemill.storage import is_url, shown
from bytemill.system.units import format_bytes, format_count, format_rate, format_seconds, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from bytemill.analysis.inspection import Inspection
    from bytemill.analysis.summary import TokenizerSummary
    from bytemill.tokenizer.conversion import Conversion
    from bytemill.tokenizer.explanation import Explanation, TokenInfo
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.tokenizer.training_report import TrainingReport
    from bytemill.tokenizer.verification import Verification

SEPARATOR = "│"
SPACE = "·"
"""What a space is shown as where tokens stand apart and colours do not show how far they reach."""

_RESET = "\x1b[0m"
# Black on light backgrounds of xterm's 256 colours: readable whatever the terminal's own colours are.
_BACKGROUNDS = tuple(f"\x1b[38;5;16;48;5;{colour}m" for colour in (153, 157, 223, 225, 229))
_SPECIAL = "\x1b[1;38;5;231;48;5;60m"

_BAR_CELLS = 32
_MOST_SHOWN = 60
_TIES = {"bytes": "greatest pair of byte strings", "huggingface": "as Hugging Face's trainer"}
_N_LONGEST = 10
_NO_PROFILE: Mapping[str, Any] = {}
_PHASES = {"read": "read (during counting)", "count": "count", "merge": "merge", "build": "build"}
_PROOFS = {
    "fingerprint": "yes: the new file has the same fingerprint",
    "ids": "yes: the new file gives the same ids for a sample text, every token and every special token",
    "none": "no: a listing cannot be read back",
}


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


# Texts.


def running_text(tokens: Iterable[TextToken], *, colour: bool) -> Iterator[str]:
    """The text with its tokens set apart, in its own lines, as stretches to write one after another.

    Without colour, `│` stands between tokens.

    >>> from bytemill import Tokenizer
    >>> from bytemill.analysis.inspection import inspect
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
    >>> print("".join(running_text(inspect(tok, "the").tokens, colour=False)))
    th│e
    """
    at_line_start = True
    for place, token in enumerate(tokens):
        if not colour and not at_line_start:
            yield SEPARATOR
        style = _style(token, place) if colour else ""
        for part in visible_parts(token.bytes):
            at_line_start = part.kind == "line end"
            # The colour ends before the line does: terminals would fill the rest of the line with it.
            yield f"{style}{part.shown}{_RESET if colour else ''}" + ("\n" if at_line_start else "")


def with_ids(tokens: Iterable[TextToken], *, colour: bool, width: int) -> Iterator[str]:
    """Lines of at most `width` cells with the tokens, each followed by a line with their ids below them.

    A line ends where the text's line ends. Without colour, spaces are shown as `·`.
    """
    tokens_line = ids_line = ""
    used = 0
    for place, token in enumerate(tokens):
        shown = visible(token.bytes)
        if not colour:
            shown = shown.replace(" ", SPACE)
        cells = max(cell_len(shown), len(str(token.id)))
        if used and used + cells > width:
            yield from (tokens_line.rstrip(" "), ids_line.rstrip(" "))
            tokens_line, ids_line, used = "", "", 0
        padding = " " * (cells - cell_len(shown) + 1)
        tokens_line += (f"{_style(token, place)}{shown}{_RESET}" if colour else shown) + padding
        ids_line += f"{token.id:<{cells}} "
        used += cells + 1
        if shown.endswith(LINE_END):
            yield from (tokens_line.rstrip(" "), ids_line.rstrip(" "))
            tokens_line, ids_line, used = "", "", 0
    if used:
        yield from (tokens_line.rstrip(" "), ids_line.rstrip(" "))


def totals(inspection: Inspection) -> str:
    """The sums in one line.

    >>> from bytemill.analysis.inspection import Inspection
    >>> tokens = [TextToken(116, b"t", False, 0), TextToken(104, b"h", False, 1)]
    >>> totals(Inspection(tokens, 2, 2, {"bytes_per_token": 1.0}))
    '2 tokens, 2 bytes, 2 characters, 1.00 bytes/token'
    """
    return ", ".join(
        (
            plural(inspection.n_tokens, "token"),
            plural(inspection.n_bytes, "byte"),
            plural(inspection.n_characters, "character"),
            *format_text_metrics(inspection.metrics),
        )
    )


def explanation_lines(explanations: Iterable[Explanation]) -> Iterator[str]:
    """For each different pre-token, in the order in which they first occur: its tokens and its merges.

    >>> from bytemill import Tokenizer
    >>> tok = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")])
    >>> print("\\n".join(explanation_lines(tok.explain("the the"))))
    the → th│e (256 101)
      rank 0  t + h → th│e
    ·the → ·│th│e (32 256 101)
      rank 0  t + h → ·│th│e
    """
    different: dict[tuple[str, bool], Explanation] = {}
    n_times: Counter[tuple[str, bool]] = Counter()
    for explanation in explanations:
        key = (explanation.text, explanation.special)
        different.setdefault(key, explanation)
        n_times[key] += 1
    for key, explanation in different.items():
        repeated = f", {n_times[key]} times" if n_times[key] > 1 else ""
        ids = " ".join(map(str, explanation.ids))
        if explanation.special:
            yield f"{_apart([explanation.text.encode()])} ({ids}): special token{repeated}"
            continue
        whole = _apart([explanation.text.encode()])
        yield f"{whole} → {_apart(explanation.tokens)} ({ids}){repeated}"
        history = merge_history(explanation)
        rank_width = max((len(str(step.rank)) for step in explanation.steps), default=0)
        for step, parts in zip(explanation.steps, history[1:], strict=True):
            pair = f"{_apart([step.left])} + {_apart([step.right])}"
            yield f"  rank {step.rank:>{rank_width}}  {pair} → {_apart(parts)}"
        if history[-1] != explanation.tokens:
            yield "  taken whole: the pre-token is in the vocabulary"


def _apart(tokens: list[bytes]) -> str:
    return SEPARATOR.join(visible(token).replace(" ", SPACE) for token in tokens)


def _style(token: TextToken, place: int) -> str:
    return _SPECIAL if token.special else _BACKGROUNDS[place % len(_BACKGROUNDS)]


# Training and conversion.


def write_training(
    tokenizer: Tokenizer, file: Path, *, as_json: bool, quiet: bool, profile: Mapping[str, Any] = _NO_PROFILE
) -> None:
    """Print the report of a training."""
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
    for note in training_notes(report):
        output.note(note, quiet=quiet)
    if not as_json and not quiet:
        output.write_line(f"{output.styled(shown(file), '1')}: {_vocabulary(tokenizer)}")
        output.write_line()
        output.write_fields(corpus_fields(report))
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


def _vocabulary(tokenizer: Tokenizer) -> str:
    n_special = len(tokenizer.special_tokens)
    n_merges = tokenizer.n_vocab - 256 - n_special
    parts = ["256 bytes", plural(n_merges, "merge")] + (
        [plural(n_special, "special token")] if n_special else []
    )
    return f"{plural(tokenizer.n_vocab, 'token')} ({', '.join(parts)})"


def corpus_fields(report: TrainingReport) -> list[tuple[str, str]]:
    """Return what a training has read, as names and values."""
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


def training_notes(report: TrainingReport) -> list[str]:
    """Return remarks about a training, a sentence each."""
    from bytemill.cli.summaries import corpus_notes
    from bytemill.corpus import CorpusCounts

    # Replaced sequences are among the fields.
    counts = CorpusCounts(n_skipped_bytes=report.n_skipped_bytes, n_broken=report.n_broken)
    return [*report.notes, *corpus_notes(counts)]


def write_conversion(conversion: Conversion, *, as_json: bool, quiet: bool) -> None:
    """Print the files, what the format omits, and how to open them."""
    if as_json:
        output.write_json(conversion.to_dict())
        return
    for warning in conversion.warnings:
        output.note(warning, quiet=quiet)
    if quiet:
        return
    title = FORMATS[conversion.written_format].title
    first, *others = conversion.files
    n_tokens = len(conversion.tokenizer.vocab)
    output.write_line(f"{output.styled(shown(first), '1')}: {title}, {plural(n_tokens, 'token')}")
    output.write_line()
    more_files = [("second file", shown(file)) for file in others]
    output.write_fields(
        [
            ("from", shown(conversion.source)),
            *more_files,
            ("same tokenizer", _PROOFS[conversion.proof]),
            ("fingerprint", conversion.tokenizer.fingerprint),
            ("left out", "; ".join(conversion.left_out) or "nothing"),
        ]
    )
    if lines := _how_to_open(conversion):
        output.write("\nOpen it:\n" + "".join(f"  {line}\n" for line in lines))


def _how_to_open(conversion: Conversion) -> list[str]:
    """Return a bytemill command, and the Python code that opens the files with the library of their format."""
    first = shlex.quote(shown(conversion.files[0]))
    command = f"bytemill tokenizer show {first}"
    names = [repr(str(file)) for file in conversion.files]
    if conversion.written_format != "vocab" and is_url(conversion.files[0]):
        return [command]  # the other libraries read no URLs
    match conversion.written_format:
        case "vocab":
            return [] if is_url(conversion.files[0]) else [f"less {first}"]
        case "huggingface":
            return [command, f"import tokenizers; tok = tokenizers.Tokenizer.from_file({names[0]})"]
        case "gpt2":
            return [command, f"import transformers; tok = transformers.GPT2TokenizerFast({', '.join(names)})"]
        case "minbpe":
            # minbpe does not compile the pattern that it reads.
            has_pattern = conversion.tokenizer.pattern is not None
            pattern = f"open({names[0]}).readlines()[1].strip()"
            kind = f"RegexTokenizer({pattern})" if has_pattern else "BasicTokenizer()"
            return [command, f"import minbpe; tok = minbpe.{kind}; tok.load({names[0]})"]
        case "tiktoken" if len(names) == 2:
            ranks = f"tiktoken.load.load_tiktoken_bpe({names[0]})"
            encoding = f"tiktoken.Encoding(**json.load(open({names[1]})), mergeable_ranks={ranks})"
            return [command, f"import json, tiktoken.load; tok = {encoding}"]
        case _:
            return [command]
