"""Rules: published sets, and own expressions over measurements.

A rule names what it removes. The thresholds of a published set are replaced by a rule of the same name.

>>> rules = Rules(RulesSettings(sets=("gopher",), remove={"gopher.few_words": "words < 5"}))
>>> rules.removed_by("Too short.")
['gopher.few_words', 'gopher.not_alphabetic', 'gopher.few_stop_words']
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bytemill.curation.expressions import Expression
from bytemill.curation.steps import Measured, Page
from bytemill.curation.text_measures import (
    c4_lines,
    fineweb_quality,
    gopher_quality,
    gopher_repetition,
    split_words,
)
from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GOPHER = {
    "gopher.few_words": "words < 50",
    "gopher.many_words": "words > 100000",
    "gopher.short_words": "mean_word_length < 3",
    "gopher.long_words": "mean_word_length > 10",
    "gopher.hashes": "hash_ratio > 0.1",
    "gopher.ellipses": "ellipsis_ratio > 0.1",
    "gopher.bullets": "bullet_lines > 0.9",
    "gopher.ellipsis_lines": "ellipsis_lines > 0.3",
    "gopher.not_alphabetic": "alphabetic_words < 0.8",
    "gopher.few_stop_words": "stop_words < 2",
}
"""Quality rules of MassiveText: Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from Training
Gopher", appendix A.1.1 (https://arxiv.org/abs/2112.11446)."""
GOPHER_REPETITION = {
    "gopher.repeated_paragraphs": "repeated_paragraphs > 0.3",
    "gopher.repeated_paragraph_characters": "repeated_paragraph_characters > 0.2",
    "gopher.repeated_lines": "repeated_lines > 0.3",
    "gopher.repeated_line_characters": "repeated_line_characters > 0.2",
    **{f"gopher.top_{n}_gram": f"top_{n}_gram > {limit}" for n, limit in ((2, 0.2), (3, 0.18), (4, 0.16))},
    **{f"gopher.repeated_{n}_grams": f"repeated_{n}_grams > {(20 - n) / 100}" for n in range(5, 11)},
}
"""Repetition rules of MassiveText: the same, table A1."""
C4 = {
    "c4.few_sentences": "sentences < 5",
    "c4.lorem_ipsum": "lorem_ipsum",
    "c4.curly_bracket": "curly_bracket",
}
"""Rules of C4: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
section 2.2 (https://jmlr.org/papers/v21/20-074.html), without the list of bad words. Lines that C4 removes are cut."""
FINEWEB = {
    "fineweb.unpunctuated_lines": "punctuated_lines < 0.12",
    "fineweb.short_lines": "short_lines > 0.67",
    "fineweb.repeated_lines": "repeated_line_share > 0.01",
    "fineweb.line_breaks": "line_breaks > 0.3",
}
"""Rules of FineWeb: Penedo et al. 2024, "The FineWeb Datasets: Decanting the Web for the Finest Text Data at Scale",
section 3.6 (https://arxiv.org/abs/2406.17557)."""

_Measure = "Callable[[str, Sequence[str]], dict[str, Any]]"
_SETS: dict[str, tuple[dict[str, str], Any]] = {
    "gopher": (GOPHER, gopher_quality),
    "gopher_repetition": (GOPHER_REPETITION, gopher_repetition),
    "fineweb": (FINEWEB, fineweb_quality),
    "c4": (C4, None),
}


def _names_of(set_name: str) -> tuple[str, ...]:
    _, measure = _SETS[set_name]
    return tuple(c4_lines("")[0]) if measure is None else tuple(measure("", ()))


@dataclass(frozen=True, kw_only=True)
class RulesSettings:
    """Which rules remove documents.

    Raises:
        CurationError: A rule is no expression.
    """

    sets: tuple[Literal["gopher", "gopher_repetition", "c4", "fineweb"], ...] = ()
    """Published sets. `c4` also cuts lines; the others measure what is left."""
    remove: dict[str, str] = field(default_factory=dict[str, str])
    """Further rules by name: expressions that are true for documents to remove. An empty one switches off the rule of a
    set."""

    def __post_init__(self) -> None:
        for name, source in self.rules.items():
            try:
                Expression(source)
            except CurationError as error:
                raise CurationError(f"rule {name}: {error}", hint=error.hint) from error

    @property
    def rules(self) -> dict[str, str]:
        """All rules in force: the expression by name."""
        published = {name: source for each in self.sets for name, source in _SETS[each][0].items()}
        return {name: source for name, source in {**published, **self.remove}.items() if source.strip()}


class Rules:
    """Removes documents by what is measured of their text."""

    Settings: ClassVar = RulesSettings
    thresholds: ClassVar[frozenset[str]] = frozenset({"remove"})
    measures: ClassVar[tuple[str, ...]] = tuple(name for each in _SETS for name in _names_of(each))

    def __init__(self, settings: RulesSettings) -> None:
        self._rules = {name: Expression(source) for name, source in settings.rules.items()}
        self.names = {name: rule.names for name, rule in self._rules.items()}
        """Measurements of each rule."""
        named = {name for rule in self._rules.values() for name in rule.names}
        self._sets = [
            each
            for each in _SETS
            if each in settings.sets or (each != "c4" and named.intersection(_names_of(each)))
        ]

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """See `DocumentStep`."""
        return [self._measured(page.text) for page in pages]

    def _measured(self, text: str) -> Measured:
        values: dict[str, Any] = {}
        kept = None
        if "c4" in self._sets:
            values, kept = c4_lines(text)
            if kept == text:
                kept = None
        measured = text if kept is None else kept
        words = split_words(measured)
        for each in self._sets:
            function: Callable[[str, Sequence[str]], dict[str, Any]] | None = _SETS[each][1]
            if function is not None:
                values |= function(measured, words)
        return Measured(values, kept)

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:
        """See `DocumentStep`."""
        known = {**page.measurements, **values}
        return [name for name, rule in self._rules.items() if rule.value(known)]

    def removed_by(self, text: str) -> list[str]:
        """Return the rules that remove a text."""
        [measured] = self.measure([Page(text, "text", "0-0", len(text))])
        return self.failed(Page(text, "text", "0-0", len(text)), measured.values)


def gopher_rules(text: str) -> list[str]:
    """Return the quality rules of Gopher that remove a text.

    >>> gopher_rules("word " * 60)
    ['gopher.few_stop_words']
    """
    return Rules(RulesSettings(sets=("gopher",))).removed_by(text)
