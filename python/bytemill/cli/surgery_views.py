"""What `bytemill tokenizer extend`, `trim` and `lint` print."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bytemill.cli import output
from bytemill.cli.tokenizer_views import corpus_fields, training_notes
from bytemill.errors import TokenizerError
from bytemill.storage import shown
from bytemill.system.units import plural
from bytemill.tokenizer.explanation import show_token

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bytemill.tokenizer.surgery.extension import WordTokens
    from bytemill.tokenizer.surgery.findings import Finding, Lint
    from bytemill.tokenizer.surgery.trimming import Trimmed
    from bytemill.tokenizer.tokenizer import Tokenizer

_N_SHOWN = 12
_N_EXAMPLES = 3


def write_extension(
    before: Tokenizer, after: Tokenizer, words: Sequence[WordTokens], file: Path, *, as_json: bool
) -> None:
    """Print what was added to a tokenizer."""
    # A special token that was reserved may have had the id of a new one.
    old = before.vocab
    new = {i: token for i, token in after.vocab.items() if old.get(i) != token}
    report = after.training_report
    if as_json:
        output.write_json(
            {
                "output": shown(file),
                "n_vocab": after.n_vocab,
                "fingerprint": after.fingerprint,
                "n_new": len(new),
                "new_ids": sorted(new),
                "replaced": sorted(set(before.special_tokens) - set(after.special_tokens)),
                "words": {each.word: [show_token(token) for token in each.tokens] for each in words},
            }
        )
        return
    for note in training_notes(report) if report else []:
        output.note(note)
    output.write_line(
        f"{output.styled(shown(file), '1')}: {plural(len(after), 'token')}, {len(new):,} of them new"
    )
    output.write_line()
    fields: list[tuple[str, str]] = []
    if new:
        fields.append(("new ids", _ranges(sorted(new))))
    replaced = set(before.special_tokens) - set(after.special_tokens)
    if replaced:
        fields.append(("reserved tokens used", f"{len(replaced):,}"))
    if report:
        fields += corpus_fields(report)
    output.write_fields(fields)
    if words:
        output.write_line()
        for each in words[:_N_SHOWN]:
            tokens = " ".join(map(show_token, each.tokens)) or "a token already"
            output.write_line(f"  {each.word!r}: {tokens}")
        if len(words) > _N_SHOWN:
            output.write_line(f"  and {len(words) - _N_SHOWN:,} more words (--json lists all)")
    elif new:
        first = " ".join(show_token(new[i]) for i in sorted(new)[:_N_SHOWN])
        output.write_line(f"\n  first new tokens: {first}")
    output.write_line(f'\nSee it: bytemill tokenizer inspect {shlex.quote(shown(file))} "Some text"')


def _ranges(ids: Sequence[int]) -> str:
    """Return ascending ids as ranges.

    >>> _ranges([1, 2, 3, 7, 9, 10])
    '1 to 3, 7, 9 to 10'
    """
    ranges: list[list[int]] = []
    for i in ids:
        if ranges and ranges[-1][1] == i - 1:
            ranges[-1][1] = i
        else:
            ranges.append([i, i])
    shown_ranges = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:4]]
    more = [f"{len(ranges) - 4:,} more ranges"] if len(ranges) > 4 else []
    return ", ".join(shown_ranges + more)


def write_trimming(
    before: Tokenizer, trimmed: Trimmed, n_uses: int | None, file: Path, map_file: Path, *, as_json: bool
) -> None:
    """Print what was removed from a tokenizer. `n_uses` is the number of tokens in the text."""
    after = trimmed.tokenizer
    if as_json:
        output.write_json(
            {
                "output": shown(file),
                "id_map": shown(map_file),
                "n_vocab": after.n_vocab,
                "n_removed": len(trimmed.removed),
                "fingerprint": after.fingerprint,
                "n_tokens_in_text": n_uses,
                "n_uses_removed": trimmed.n_uses_removed,
            }
        )
        return
    output.write_line(
        f"{output.styled(shown(file), '1')}: {plural(len(after), 'token')} of {len(before):,}, "
        f"{len(trimmed.removed):,} removed"
    )
    output.write_line()
    fields = [("id map", shown(map_file))]
    if n_uses is not None and trimmed.n_uses_removed is not None:
        share = trimmed.n_uses_removed / n_uses if n_uses else 0.0
        fields.append(
            ("removed in the text", f"{trimmed.n_uses_removed:,} of {plural(n_uses, 'token')} ({share:.2%})")
        )
    output.write_fields(fields)
    if trimmed.removed:
        last = " ".join(show_token(token) for token in trimmed.removed[: -_N_SHOWN - 1 : -1])
        output.write_line(f"\n  removed last: {last}")
    output.write_line(f'\nSee it: bytemill tokenizer inspect {shlex.quote(shown(file))} "Some text"')


def write_lint(found: Lint, file: Path, *, as_json: bool, quiet: bool) -> None:
    """Print the findings about a vocabulary."""
    if as_json:
        output.write_json({"tokenizer": shown(file), **found.to_dict()})
        return
    for finding in found.findings:
        if quiet and finding.level != "error":
            continue
        number = f"{len(finding.examples):,} " if finding.examples else ""
        output.write_line(f"{output.styled(finding.level, '1')} {finding.rule}: {number}{finding.message}")
        for example in finding.examples[:_N_EXAMPLES]:
            output.write_line(f"    {example}")
        if len(finding.examples) > _N_EXAMPLES:
            output.write_line(f"    and {len(finding.examples) - _N_EXAMPLES:,} more (--json lists all)")
    if not quiet:
        output.write_line(
            f"{shown(file)}: {plural(found.n_tokens, 'token')}, {plural(found.count('error'), 'error')}, "
            f"{plural(found.count('warning'), 'warning')}"
        )


def under_trained_tokens(model: str, tokenizer: Tokenizer) -> Finding | None:
    """Return what a model with this tokenizer has hardly learned.

    Raises:
        TokenizerError: The model has another tokenizer.
        CheckpointError: There is no model.
    """
    from bytemill.cli.lm_interchange import usable_path
    from bytemill.lm.training.saved_model import load_trained
    from bytemill.lm.under_trained import under_trained_finding

    trained = load_trained(usable_path(model))
    if trained.tokenizer.fingerprint != tokenizer.fingerprint:
        raise TokenizerError(f"{model} has another tokenizer", hint="name the tokenizer of the model")
    return under_trained_finding(trained)
