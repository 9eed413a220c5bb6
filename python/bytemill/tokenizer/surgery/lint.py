"""Checks of a vocabulary by named rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import TokenizerError
from bytemill.tokenizer.surgery.findings import Finding, Lint
from bytemill.tokenizer.surgery.lint_rules import RULES, Subject
from bytemill.tokenizer.surgery.vocabulary import check_byte_level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer


def lint(tokenizer: Tokenizer, counts: Sequence[int] | NDArray[Any] | None = None) -> Lint:
    """Check the vocabulary of a byte-level BPE tokenizer.

    Args:
        tokenizer: The tokenizer.
        counts: Uses of each id in a text (`bytemill.count_tokens`), for the rules about use.

    Raises:
        TokenizerError: It is not byte-level BPE, or `counts` belong to another tokenizer.

    >>> import bytemill
    >>> tok = bytemill.train_from_iterator(["low " + "a" * 32], 262, [])
    >>> finding = lint(tok).findings[0]
    >>> finding.rule, finding.level, str(finding.examples[0])
    ('repeated-character', 'warning', "259 'aaaaaaaaaaaaaaaa' (16 of 1 character)")
    """
    spec = check_byte_level(tokenizer, "lint")
    uses = None if counts is None else np.asarray(counts, dtype=np.int64)
    if uses is not None and uses.shape != (tokenizer.n_vocab,):
        raise TokenizerError(
            f"counts have the shape {uses.shape}, but this tokenizer has {tokenizer.n_vocab} ids",
            hint="count with the tokenizer that is checked",
        )
    tokens = spec.vocab or {i: token for token, i in (spec.ranks or {}).items()}
    subject = Subject(tokenizer, spec, dict(sorted(tokens.items())), uses)
    found: list[Finding] = [finding for rule in RULES for finding in RULES[rule](subject)]
    return Lint([], len(tokenizer)).plus(*found)
