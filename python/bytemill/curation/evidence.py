"""Why a rule has removed a document: the measurements in words, and the places in the text that decided."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from bytemill.curation.classifier import LinearModel, QualityModel
from bytemill.curation.contamination import ContaminationIndex
from bytemill.curation.expressions import Expression
from bytemill.curation.text_measures import split_words
from bytemill.errors import BytemillError
from bytemill.reference.duplicates import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bytemill.curation.recipe import StepSpec

    Span = tuple[int, int]

_N_WORDS = 20
"""Most different words that are marked for a classifier."""
_N_GRAM = 5
_LINE = re.compile(r"[^\n]+")
_PARAGRAPH = re.compile(r"\S(?:.|\n(?!\n))*")
_TOP_GRAM = re.compile(r"top_(\d+)_gram")


@dataclass(frozen=True)
class Evidence:
    """Why a document was removed."""

    reason: str
    """The measurements that decided."""
    spans: list[Span]
    """The parts of the text that decided, ascending and apart; none if it is the text as a whole."""


def evidence(
    spec: StepSpec, rule: str, text: str, values: dict[str, Any], first: str | None = None
) -> Evidence:
    """Explain a removal.

    Args:
        spec: The step that removed the document.
        rule: One of the rules that removed it.
        text: The text as it reached the step, or as the step left it.
        values: All measurements of the document, by step.
        first: For near duplicates the document that stays.
    """
    own: dict[str, Any] = values.get(spec.name, {})
    match spec.use:
        case "rules":
            reason, spans = _rules(spec, rule, text, values)
        case "language":
            reason, spans = _language(spec, rule, own), []
        case "classifier":
            reason, spans = _classifier(spec, text, own)
        case "contamination":
            reason, spans = _contamination(spec, text, own)
        case "near":
            reason, spans = _near(text, own, first)
        case _:
            reason, spans = _plain(own), []
    return Evidence(reason, _apart(spans))


def _plain(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in values.items() if name != "bytes")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Return the union of spans.

    >>> _apart([(5, 7), (0, 2), (1, 3)])
    [(0, 3), (5, 7)]
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif start < end:
            found.append((start, end))
    return found


def _rules(spec: StepSpec, rule: str, text: str, values: dict[str, Any]) -> tuple[str, list[Span]]:
    source: str | None = spec.settings.rules.get(rule)
    if source is None:
        return _plain(values.get(spec.name, {})), []
    known = {**values, **values.get(spec.name, {})}
    measured: list[str] = []
    spans: list[Span] = []
    for name in sorted(Expression(source).names):
        value: Any = known
        for part in name.split("."):
            value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
        measured.append(f"{name} is {_shown(value)}")
        spans += _of_measurement(name, text)
    return f"{source}: {', '.join(measured)}", spans


def _of_measurement(name: str, text: str) -> list[Span]:
    """Return what a measurement of `text_measures` counts."""
    if pattern := _PATTERNS.get(name):
        return [match.span() for match in pattern.finditer(text)]
    if match := _TOP_GRAM.fullmatch(name):
        return _top_gram(text, int(match[1]))
    return _FINDERS[name](text) if name in _FINDERS else []


_PATTERNS = {
    "hash_ratio": re.compile("#"),
    "ellipsis_ratio": re.compile(r"\.\.\.|…"),
    "ellipsis_lines": re.compile(r"(?:\.\.\.|…)[^\S\n]*$", re.MULTILINE),
    "bullet_lines": re.compile(r"^[^\S\n]*[•-]", re.MULTILINE),
    "alphabetic_words": re.compile(r"(?<!\w)[^\w\s]*\d[\d.,:/-]*(?!\w)|(?<!\w)[^\w\s.,;:!?'\"()]+(?!\w)"),
    "curly_bracket": re.compile("[{}]"),
    "lorem_ipsum": re.compile("lorem ipsum", re.IGNORECASE),
    "short_lines": re.compile(r"^[^\n]{1,30}$", re.MULTILINE),
    "line_breaks": re.compile(r"\S*\n"),
}


def _repeated(pattern: re.Pattern[str]) -> Callable[[str], list[Span]]:
    def find(text: str) -> list[Span]:
        seen: set[str] = set()
        spans: list[Span] = []
        for match in pattern.finditer(text):
            if match[0] in seen:
                spans.append(match.span())
            seen.add(match[0])
        return spans

    return find


_FINDERS = {
    **dict.fromkeys(("repeated_lines", "repeated_line_characters", "repeated_line_share"), _repeated(_LINE)),
    **dict.fromkeys(("repeated_paragraphs", "repeated_paragraph_characters"), _repeated(_PARAGRAPH)),
}


def _top_gram(text: str, n: int) -> list[Span]:
    """Return the places of the most frequent n-gram of the words of rules."""
    spans: list[Span] = []
    end = 0
    for word in split_words(text):
        start = text.index(word, end)
        end = start + len(word)
        spans.append((start, end))
    grams = [tuple(text[i:j] for i, j in spans[k : k + n]) for k in range(len(spans) - n + 1)]
    if not grams:
        return []
    ((top, count),) = Counter(grams).most_common(1)
    if count < 2:
        return []
    return [(spans[k][0], spans[k + n - 1][1]) for k, gram in enumerate(grams) if gram == top]


def _language(spec: StepSpec, rule: str, own: dict[str, Any]) -> str:
    settings = spec.settings
    label, probability = own.get("label"), own.get("probability", 0.0)
    if rule == "probability":
        return f"{label} with the probability {_shown(probability)}, below {settings.threshold:g}"
    return f"{label} ({_shown(probability)}), which is not {' or '.join(settings.keep)}"


def _classifier(spec: StepSpec, text: str, own: dict[str, Any]) -> tuple[str, list[Span]]:
    settings, score = spec.settings, own.get("score", 0.0)
    is_low = score < settings.least
    limit = f"below {settings.least:g}" if is_low else f"above {settings.most:g}"
    reason = f"the probability of {settings.label} is {_shown(score)}, {limit}"
    model = _model(settings.model)
    if not isinstance(model, LinearModel) or settings.label not in model.labels:
        return reason, []
    sign = -1.0 if is_low else 1.0
    found = [(word.start, word.end, word.text) for word in words(text)]
    weights = model.word_weights(dict.fromkeys(word for _, _, word in found), settings.label)
    decisive = sorted(weights, key=lambda word: -sign * weights[word])[:_N_WORDS]
    chosen = {word for word in decisive if sign * weights[word] > 0}
    return reason, [(start, end) for start, end, word in found if word in chosen]


@cache
def _model(path: str) -> QualityModel | None:
    """Return a classifier if its file is still there."""
    try:
        return QualityModel.load(path)
    except BytemillError:
        return None


def _contamination(spec: StepSpec, text: str, own: dict[str, Any]) -> tuple[str, list[Span]]:
    settings = spec.settings
    index = _index(tuple(settings.items), settings.n)
    matches = [] if index is None else index.matches(text)
    items = ", ".join(own.get("items", ()))
    return f"{own.get('words', 0):,} words of {items}", [(match.start, match.end) for match in matches]


@cache
def _index(items: tuple[str, ...], n: int) -> ContaminationIndex | None:
    """Return the index of evaluation items if their files are still there."""
    try:
        return ContaminationIndex.load(items, n)
    except BytemillError:
        return None


def _near(text: str, own: dict[str, Any], first: str | None) -> tuple[str, list[Span]]:
    reason = f"similarity {_shown(own.get('similarity'))} to document {own.get('duplicate_of')}"
    if first is None:
        return reason, []
    known = {gram for _, _, gram in _grams(first)}
    shared = [(start, end) for start, end, gram in _grams(text) if gram in known]
    return f"{reason}; what both have is marked", shared


def _grams(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    own = list(words(text))
    for k in range(len(own) - _N_GRAM + 1):
        gram = own[k : k + _N_GRAM]
        yield gram[0].start, gram[-1].end, tuple(word.text for word in gram)
