"""What rules measure of a text: words, lines, paragraphs, and how much of them is repeated.

Words are runs of letters and digits, with the hyphens and apostrophes inside, and single other characters. Scripts
without spaces have one word a clause.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")
_SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s|\Z)")
_PARAGRAPHS = re.compile(r"\n{2,}")
_LINES = re.compile(r"\n+")
_CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
_STOP_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
_TOP_GRAMS = (2, 3, 4)
_REPEATED_GRAMS = (5, 6, 7, 8, 9, 10)
_C4_ENDS = (".", "?", "!", '"', "'")
_C4_POLICY = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
_C4_LONGEST_WORD = 1000
_C4_FEWEST_WORDS = 3
_SHORT_LINE = 30
_SENTENCE_TERMINALS = (
    "!.?։؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶។៕៖៙៚᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᭽᭾᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼⹓⹔。꓿"
    "꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？｡𐩖𐩗𐽕𐽖𐽗𐽘𐽙𐾆𐾇𐾈𐾉𑁇𑁈𑂾𑂿𑃀𑃁𑅁𑅂𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩𑑋𑑌𑗂𑗃𑗉𑗊"
    "𑗋𑗌𑗍𑗎𑗏𑗐𑗑𑗒𑗓𑗔𑗕𑗖𑗗𑙁𑙂𑜼𑜽𑜾𑥄𑥆𑩂𑩃𑪛𑪜𑱁𑱂𑻷𑻸𑽃𑽄𖩮𖩯𖫵𖬷𖬸𖭄𖺘𛲟𝪈"
)
"""The characters with the property Sentence_Terminal of Unicode, and those of FineWeb beyond them."""
_LINE_ENDS = tuple(_SENTENCE_TERMINALS)
_SYMBOLS = frozenset(string.punctuation + _SENTENCE_TERMINALS + "’‘“”„«»‹›—–…、，：；（）【】「」《》")


def split_words(text: str) -> list[str]:
    """Return the words of a text.

    >>> split_words("Don't stop: it's 3.5 km.")
    ["Don't", 'stop', ':', "it's", '3.5', 'km', '.']
    """
    return _WORD.findall(text)


def count_sentences(text: str) -> int:
    """Return the number of sentences; what follows the last end is one too."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return len(ends) + bool(text[ends[-1] if ends else 0 :].strip())


def gopher_quality(text: str, words: Sequence[str]) -> dict[str, Any]:
    """Measure what the quality rules of MassiveText (Rae et al. 2021, table A1) need."""
    lines = text.splitlines()
    real = [word for word in words if word[0] not in _SYMBOLS or not _SYMBOLS.issuperset(word)]
    return {
        "words": len(real),
        "mean_word_length": _ratio(sum(map(len, real)), len(real)),
        "hash_ratio": _ratio(text.count("#"), len(words)),
        "ellipsis_ratio": _ratio(text.count("...") + text.count("…"), len(words)),
        "bullet_lines": _ratio(sum(line.lstrip().startswith(("•", "-")) for line in lines), len(lines)),
        "ellipsis_lines": _ratio(sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)),
        "alphabetic_words": _ratio(
            sum(word.isalpha() or any(map(str.isalpha, word)) for word in words), len(words)
        ),
        "stop_words": len(_STOP_WORDS.intersection(map(str.lower, words))),
    }


def gopher_repetition(text: str, words: Sequence[str]) -> dict[str, Any]:
    """Measure what the repetition rules of MassiveText need: shares of elements, and of the characters of the text."""
    values: dict[str, Any] = {}
    paragraphs = _PARAGRAPHS.split(text.strip())
    lines = _LINES.split(text)
    for name, parts in (("paragraph", paragraphs), ("line", lines)):
        n_repeated, n_characters = _repeated(parts)
        values[f"repeated_{name}s"] = _ratio(n_repeated, len(parts))
        values[f"repeated_{name}_characters"] = _ratio(n_characters, len(text))
    numbers: dict[str, int] = {}
    ids = np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)
    ends = np.concatenate([[0], np.cumsum([len(word) for word in words], dtype=np.int64)])
    for n, repeated in enumerate(_repeated_grams(ids, _REPEATED_GRAMS[-1]), 1):
        if n in _TOP_GRAMS:
            values[f"top_{n}_gram"] = _ratio(_top_gram_characters(repeated, ends, n), len(text))
        elif n in _REPEATED_GRAMS:
            values[f"repeated_{n}_grams"] = _ratio(_repeated_gram_characters(repeated, ends, n), len(text))
    return values


def _repeated(parts: Sequence[str]) -> tuple[int, int]:
    """Return the number of elements that came before, and their characters."""
    n_characters, n_repeated, seen = 0, 0, set[str]()
    for part in parts:
        if part in seen:
            n_characters += len(part)
            n_repeated += 1
        else:
            seen.add(part)
    return n_repeated, n_characters


class _Repeated(NamedTuple):
    """The n-grams that come several times."""

    starts: NDArray[np.int64]
    """Their first words, ascending."""
    grams: NDArray[np.int64]
    """A number for each different n-gram."""
    counts: NDArray[np.int64]
    """How often each comes."""


def _repeated_grams(ids: NDArray[np.int64], longest: int) -> Iterator[_Repeated]:
    """Yield the repeated n-grams of words for n = 1, 2, …, `longest`.

    An (n+1)-gram can be repeated only where two n-grams in a row are, and it is known by these two.
    """
    starts, grams = np.arange(len(ids)), ids
    for _ in range(longest):
        _, inverse, counts = np.unique(grams, return_inverse=True, return_counts=True)
        copies = counts[inverse]
        chosen = copies > 1
        starts, grams = starts[chosen], inverse[chosen]
        yield _Repeated(starts, grams, copies[chosen])
        following = np.flatnonzero(np.diff(starts) == 1)
        grams = grams[following] * len(counts) + grams[following + 1]
        starts = starts[following]


def _top_gram_characters(repeated: _Repeated, ends: NDArray[np.int64], n: int) -> int:
    """Return the characters, with spaces, of all copies of the most frequent n-gram, of several the first."""
    if len(ends) <= n:
        return 0
    start, n_copies = 0, 1
    if len(repeated.starts):
        first = int(repeated.counts.argmax())
        start, n_copies = int(repeated.starts[first]), int(repeated.counts[first])
    return (int(ends[start + n] - ends[start]) + n - 1) * n_copies


def _repeated_gram_characters(repeated: _Repeated, ends: NDArray[np.int64], n: int) -> int:
    """Return the characters of the n-grams that came before, read from the left without overlaps."""
    characters = (ends[repeated.starts + n] - ends[repeated.starts]).tolist()
    seen, free_from, n_characters = set[int](), 0, 0
    for start, gram, size in zip(repeated.starts.tolist(), repeated.grams.tolist(), characters, strict=True):
        if start < free_from:
            continue
        if gram in seen:
            n_characters += size
            free_from = start + n
        else:
            seen.add(gram)
    return n_characters


def fineweb_quality(text: str, words: Sequence[str]) -> dict[str, Any]:
    """Measure what the rules of FineWeb (Penedo et al. 2024) need."""
    lines = [line for line in text.split("\n") if line.strip()]
    return {
        "punctuated_lines": _ratio(sum(line.endswith(_LINE_ENDS) for line in lines), len(lines)),
        "short_lines": _ratio(sum(len(line) <= _SHORT_LINE for line in lines), len(lines)),
        "repeated_line_share": _ratio(_repeated(lines)[1], len(text) - text.count("\n")),
        "line_breaks": _ratio(text.count("\n"), len(words)),
    }


def c4_lines(text: str, sentences: Callable[[str], int] = count_sentences) -> tuple[dict[str, Any], str]:
    """Measure what the rules of C4 (Raffel et al. 2020) need, and return the lines that they keep.

    Lines need a mark at their end and three words, and no mention of JavaScript or of policies of the site.

    Args:
        text: The text.
        sentences: Counts the sentences of a line.
    """
    kept: list[str] = []
    cut = dict.fromkeys(("unpunctuated", "short", "javascript", "policy", "long_word"), 0)
    n_sentences, has_lorem_ipsum, has_bracket = 0, False, False
    for raw in text.splitlines():
        words = raw.split()
        line = _CITATION.sub("", raw.strip())
        lowered = line.lower()
        if any(len(word) > _C4_LONGEST_WORD for word in words):
            cut["long_word"] += 1
        elif not line.endswith(_C4_ENDS) or line.endswith("..."):
            cut["unpunctuated"] += 1
        elif len(words) < _C4_FEWEST_WORDS:
            cut["short"] += 1
        elif "lorem ipsum" in lowered:
            has_lorem_ipsum = True
        elif "javascript" in lowered:
            cut["javascript"] += 1
        elif "{" in line:
            has_bracket = True
        elif any(phrase in lowered for phrase in _C4_POLICY):
            cut["policy"] += 1
        else:
            n_sentences += sentences(line)
            kept.append(line)
    values = {"sentences": n_sentences, "lorem_ipsum": has_lorem_ipsum, "curly_bracket": has_bracket}
    return {**values, **{f"cut_{name}_lines": n for name, n in cut.items()}}, "\n".join(kept).strip()


def _ratio(part: float, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
