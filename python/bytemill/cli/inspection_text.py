"""Inspections as text: with colours for a terminal, with separators for everything else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.cells import cell_len

from bytemill.analysis.inspection import LINE_END, TextToken, merge_history, visible, visible_parts
from bytemill.analysis.metrics import format_text_metrics
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bytemill.analysis.inspection import Inspection
    from bytemill.tokenizer.explanation import Explanation

SEPARATOR = "│"
SPACE = "·"
"""What a space is shown as where tokens stand apart and colours do not show how far they reach."""

_RESET = "\x1b[0m"
# Black on light backgrounds of xterm's 256 colours: readable whatever the terminal's own colours are.
_BACKGROUNDS = tuple(f"\x1b[38;5;16;48;5;{colour}m" for colour in (153, 157, 223, 225, 229))
_SPECIAL = "\x1b[1;38;5;231;48;5;60m"


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
