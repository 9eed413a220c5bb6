r"""Reference implementation of near duplicates and of repeated lines, as `bytemill.curation` finds them.

Near duplicates are documents whose sets of word n-grams have a Jaccard similarity of at least a threshold. MinHash
(Broder 1997) proposes pairs without comparing all of them: for a random order of all n-grams, two sets have the same
first n-gram with a probability of their similarity. 128 such numbers are a sketch; sketches are divided into bands, and
documents that agree on all rows of a band are a candidate pair. The exact similarity then decides.

>>> texts = ["a b c d e f g", "A, b, c, d, e, f, g!", "something else", "a b c d e f x"]
>>> near_duplicates(texts, 0.8)
[0, 0, 2, 3]
>>> near_duplicates(texts, 0.5)
[0, 0, 2, 0]
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Gram = tuple[str, ...]

N_NUMBERS = 128
"""Numbers of a sketch."""
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x312F),  # radicals, kana, bopomofo
    (0x3190, 0x9FFF),  # ideographs
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""Blocks of scripts without spaces between words."""
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True)
class Word:
    """A word of a text."""

    text: str
    """Its letters, lower-cased one by one, with their marks."""
    start: int
    """Where it starts in the text in NFC, in characters."""
    end: int


def words(text: str) -> Iterator[Word]:
    """Yield the words of a text.

    The text is normalized to NFC. A word starts with a letter or number and continues with letters, numbers and
    combining marks. A letter of a script without spaces between words is a word by itself, with its marks.

    >>> [word.text for word in words("Don't SHOUT, 東京2020!")]
    ['don', 't', 'shout', '東', '京', '2020']
    """
    if text.isascii():
        pattern = _ASCII_WORD
    else:
        text, pattern = unicodedata.normalize("NFC", text), _word_pattern()
    for match in pattern.finditer(text):
        word = match[0].lower() if match[0].isascii() else "".join(map(_lower, match[0]))
        yield Word(word, *match.span())


def _lower(character: str) -> str:
    return character.lower() if unicodedata.category(character) in {"Lu", "Lt"} else character


@lru_cache
def _word_pattern() -> re.Pattern[str]:
    classes: dict[str, list[str]] = {"letter": [], "mark": [], "unspaced": []}
    for code_point in (*range(0x40000), *range(0xE0100, 0xE01F0)):  # others are no letters, numbers or marks
        character = chr(code_point)
        category = unicodedata.category(character)
        if category[0] == "M":
            classes["mark"].append(character)
        elif category in {"Lo", "Lm"} and any(first <= code_point <= last for first, last in _UNSPACED):
            classes["unspaced"].append(character)
        elif category[0] in "LN":
            classes["letter"].append(character)
    letter, mark, unspaced = (_character_class(classes[name]) for name in ("letter", "mark", "unspaced"))
    return re.compile(f"[{unspaced}][{mark}]*|[{letter}][{letter}{mark}]*")


def _character_class(characters: Sequence[str]) -> str:
    """Return the content of a character class, by runs of consecutive characters."""
    runs: list[list[str]] = []
    for character in characters:
        if runs and ord(character) == ord(runs[-1][1]) + 1:
            runs[-1][1] = character
        else:
            runs.append([character, character])
    return "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in runs)


def shingles(text: str, n: int = 5) -> set[Gram]:
    """Return the word n-grams of a text; a text of fewer words is one n-gram.

    >>> sorted(shingles("to be or not", 3))
    [('be', 'or', 'not'), ('to', 'be', 'or')]
    """
    own = [word.text for word in words(text)]
    return {tuple(own[first : first + n]) for first in range(max(1, len(own) - n + 1))} if own else set()


def jaccard(first: set[Gram], second: set[Gram]) -> float:
    """Return the share of common elements among all elements; 0 for two empty sets."""
    return len(first & second) / len(first | second) if first or second else 0.0


def sketch(grams: set[Gram], n_numbers: int = N_NUMBERS) -> tuple[bytes, ...]:
    """Return the MinHash sketch of a set: its smallest hash by each of several hash functions."""
    if not grams:
        return ()
    encoded = ["\0".join(gram).encode("utf-8", "replace") for gram in grams]
    return tuple(
        min(
            hashlib.blake2b(gram, digest_size=8, salt=number.to_bytes(2, "little")).digest()
            for gram in encoded
        )
        for number in range(n_numbers)
    )


def candidates(sketches: Sequence[tuple[bytes, ...]], bands: int, rows: int) -> set[tuple[int, int]]:
    """Return the pairs of documents whose sketches agree on all rows of a band."""
    pairs: set[tuple[int, int]] = set()
    for band in range(bands):
        buckets: dict[tuple[bytes, ...], list[int]] = {}
        for document, own in enumerate(sketches):
            if own:
                buckets.setdefault(own[band * rows : (band + 1) * rows], []).append(document)
        for documents in buckets.values():
            pairs.update(combinations(documents, 2))
    return pairs


def clusters(n_documents: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return for each document the first one that pairs connect it with, directly or by others.

    >>> clusters(5, [(3, 1), (4, 3)])
    [0, 1, 2, 1, 1]
    """
    first = list(range(n_documents))

    def root(document: int) -> int:
        while first[document] != document:
            document = first[document]
        return document

    for a, b in pairs:
        low, high = sorted((root(a), root(b)))
        first[high] = low
    return [root(document) for document in range(n_documents)]


def near_duplicates(
    texts: Sequence[str], threshold: float, *, n: int = 5, bands: int | None = None, rows: int = 1
) -> list[int]:
    """Return for each text the number of the first one of its cluster.

    Args:
        texts: The documents.
        threshold: Least Jaccard similarity of near duplicates.
        n: Words of an n-gram.
        bands: Bands that propose pairs; None compares all pairs.
        rows: Numbers of a sketch in a band.
    """
    sets = [shingles(text, n) for text in texts]
    pairs = set(combinations(range(len(texts)), 2))
    if bands is not None:
        pairs = candidates([sketch(own, bands * rows) for own in sets], bands, rows)
    return clusters(len(texts), [(a, b) for a, b in pairs if jaccard(sets[a], sets[b]) >= threshold])


def repeated_lines(texts: Sequence[str], min_documents: int = 2) -> list[list[int]]:
    r"""Return for each text the numbers of its lines that an earlier text has, of lines that enough texts have.

    Lines are counted without blank ones, and compared without white space around them.

    >>> repeated_lines(["Home\nOne", "Home\n\nTwo", "Two "])
    [[], [0], [0]]
    """
    lines = [[line.strip() for line in text.split("\n") if line.strip()] for text in texts]
    owners: dict[str, list[int]] = {}
    for document, own in enumerate(lines):
        for line in dict.fromkeys(own):
            owners.setdefault(line, []).append(document)
    return [
        [
            number
            for number, line in enumerate(own)
            if len(owners[line]) >= min_documents and owners[line][0] != document
        ]
        for document, own in enumerate(lines)
    ]
