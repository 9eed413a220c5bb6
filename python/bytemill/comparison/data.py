"""What a comparison found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bytemill.analysis.inspection import TextToken
    from bytemill.comparison.differences import TextDifference, VocabularyDifference
    from bytemill.comparison.figures import Value, Values
    from bytemill.comparison.model_cost import ModelCost
    from bytemill.comparison.speed import Speed


@dataclass(frozen=True)
class Parallel:
    """Cost of the same content in several languages, for each tokenizer."""

    reference: str
    n_lines: int
    premiums: dict[str, dict[str, float | None]]
    """Tokenizer -> language -> tokens, relative to the reference."""
    gini: dict[str, float | None]
    """Tokenizer -> Gini coefficient over the languages' tokens."""
    line_gini: dict[str, float | None]
    """Tokenizer -> mean over the lines of the Gini coefficient over the languages' tokens for the line."""
    lorenz: dict[str, list[tuple[float, float]]]
    """Tokenizer -> points of the Lorenz curve over the languages."""


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
    """Group -> figure -> the tokenizer that is shown to be better than all others (see `figures.best_of`)."""
    parallel: Parallel | None = None
    by_size: dict[str, dict[str, dict[str, list[tuple[int, Value]]]]] = field(default_factory=dict[str, Any])
    """Group -> figure -> tokenizer -> vocabulary sizes in ascending order, and the values at them."""
    samples: dict[str, dict[str, list[TextToken]]] = field(default_factory=dict[str, Any])
    """Group -> tokenizer -> tokens of the beginning of the text; for the page, not in the JSON."""
    differences: dict[str, list[TextDifference]] = field(default_factory=dict[str, Any])
    """Group -> how pairs of tokenizers divide the text."""
    vocabularies: list[VocabularyDifference] = field(default_factory=list[Any])
    costs: dict[str, ModelCost] = field(default_factory=dict[str, Any])
    """Tokenizer -> what it costs the model of the settings."""
    speed: dict[str, Speed] = field(default_factory=dict[str, Any])
    """Tokenizer -> speed and memory, if they were measured. All else is the same in every run."""

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
                "line_gini": self.parallel.line_gini,
                "lorenz": {
                    name: [list(point) for point in points] for name, points in self.parallel.lorenz.items()
                },
            },
            "differences": {
                group: [own.to_dict() for own in differences]
                for group, differences in self.differences.items()
            },
            "vocabularies": [own.to_dict() for own in self.vocabularies],
            "model_costs": {name: own.to_dict() for name, own in self.costs.items()},
            **({"speed": {name: own.to_dict() for name, own in self.speed.items()}} if self.speed else {}),
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"
