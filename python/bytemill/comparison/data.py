"""What a comparison found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bytemill.analysis.inspection import TextToken
    from bytemill.comparison.values import Value, Values


@dataclass(frozen=True)
class Parallel:
    """Cost of the same content in several languages, for each tokenizer."""

    reference: str
    n_lines: int
    premiums: dict[str, dict[str, float]]
    """Tokenizer -> language -> tokens, relative to the reference."""
    gini: dict[str, float | None]
    """Tokenizer -> Gini coefficient over the languages' tokens."""


@dataclass(frozen=True)
class ComparisonData:
    """Figures of tokenizers on text groups, and what they were computed from."""

    tokenizers: dict[str, dict[str, Any]]
    """Name -> n_vocab, pattern, fingerprint."""
    groups: dict[str, dict[str, Any]]
    """Name -> inputs, n_bytes, n_units, sha256."""
    values: Values
    settings: dict[str, Any]
    version: str
    best: dict[str, dict[str, str | None]]
    """Group -> figure -> the tokenizer that is shown to be better than all others (see `values.best_of`)."""
    parallel: Parallel | None = None
    by_size: dict[str, dict[str, dict[str, list[tuple[int, Value]]]]] = field(default_factory=dict[str, Any])
    """Group -> figure -> tokenizer -> vocabulary sizes in ascending order, and the values at them."""
    samples: dict[str, dict[str, list[TextToken]]] = field(default_factory=dict[str, Any])
    """Group -> tokenizer -> tokens of the beginning of the text; for the page, not in the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "bytemill_version": self.version,
            "settings": self.settings,
            "tokenizers": self.tokenizers,
            "groups": self.groups,
            "values": {
                group: {
                    figure: {name: value.to_dict() for name, value in own.items()}
                    for figure, own in figures.items()
                }
                for group, figures in self.values.items()
            },
            "best": self.best,
            "by_size": {
                group: {
                    figure: {
                        name: [{"n_vocab": size, **value.to_dict()} for size, value in points]
                        for name, points in own.items()
                    }
                    for figure, own in figures.items()
                }
                for group, figures in self.by_size.items()
            },
            "parallel": None
            if self.parallel is None
            else {
                "reference": self.parallel.reference,
                "n_lines": self.parallel.n_lines,
                "premiums": self.parallel.premiums,
                "gini": self.parallel.gini,
            },
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"
