"""Strings drawn at random to fall on the boundaries that a pre-tokenizer may get wrong.

A string is a few runs of characters out of a palette of six of its own, so that characters meet each other and
themselves often; one in two begins or ends with a long run, which carries the rest across the borders of blocks of
16, 32 and 64 bytes at every offset. All of a batch is drawn by a few vector operations, and a batch is known by its
seed and number.
"""

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LETTERS = "aZesStTmMdDlLvVrReEkK\u017f\u212aéßẞİıµǅǲǈʰªº一한アﾊرשกΑωЖԱაკ\U0001f150𝒜𞤀𐐨"
MARKS = "\u0301\u0300\u0345\u0903\u094d\u20dd\ufe0f\U0001f3fb\U000e0100"
NUMBERS = "0159²½٣Ⅷ〇五௰𝟘"
SPACES = " \t\v\f\x1c\x1f\x85\u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
BREAKS = "\r\n"
NOT_SPACES = "\u180e\u200b\u2060\ufeff\x00\x08\x0e\x1b\x7f"
OTHERS = "'’.,;-_/\\!$€(〈。😀👩\u200d❤\U000e0041\ue000\U0010ffff"
CHOSEN = LETTERS + MARKS + NUMBERS + SPACES + BREAKS + NOT_SPACES + OTHERS
FREQUENT = "'sStTlLdDmMrReEvV \r\n\t a1./"
"""What the expressions name, and what stands beside it: drawn more often."""

PALETTE = 6
MOST_RUNS = 12
LONGEST_RUN = 140


@cache
def agreed_code_points() -> "NDArray[np.uint32]":
    """Code points that are assigned, and of one class in all versions of Unicode that the tools may know.

    Python's own tables are older than those of the core and of `regex`; a class that both give stands in between too.
    U+0295 is left out, because Unicode has moved it from Ll to Lo since.
    """
    import regex

    classes = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N"]
    by_regex: dict[str, str] = {}
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and code != 0x295)
    for name in classes:
        by_regex.update(dict.fromkeys(regex.findall(rf"\p{{{name}}}", every), name))

    def of_python(character: str) -> str | None:
        category = unicodedata.category(character)
        return category if category in classes else category[0] if category[0] in "MN" else None

    agreed = [
        ord(character)
        for character in every
        if unicodedata.category(character) != "Cn" and by_regex.get(character) == of_python(character)
    ]
    return np.array(agreed, dtype=np.uint32)


def draw(seed: int, batch: int, n_strings: int) -> list[str]:
    """The strings of one batch; the same seed, batch and number of strings give the same ones."""
    chance = np.random.default_rng([seed, batch])
    palettes = _palettes(chance, n_strings)
    n_runs = chance.integers(1, MOST_RUNS + 1, n_strings)
    shape = (n_strings, MOST_RUNS)
    characters = np.take_along_axis(palettes, chance.integers(0, PALETTE, shape), axis=1)
    lengths = np.where(chance.random(shape) < 0.7, 1, chance.integers(1, 5, shape))
    lengths[np.arange(MOST_RUNS) >= n_runs[:, None]] = 0
    # A long run in the first or in the last place; ASCII in half of them, so that a byte more is a byte more.
    long = chance.integers(0, LONGEST_RUN, n_strings)
    where = chance.integers(0, 4, n_strings)
    fillers = chance.choice(np.array([ord(c) for c in "xX .1\n'"], dtype=np.uint32), n_strings)
    fillers = np.where(chance.random(n_strings) < 0.5, fillers, palettes[:, 0])
    for place, column in ((0, np.zeros(n_strings, dtype=np.int64)), (1, n_runs - 1)):
        rows = np.flatnonzero(where == place)
        lengths[rows, column[rows]] = long[rows]
        characters[rows, column[rows]] = fillers[rows]
    ends = np.cumsum(lengths.sum(axis=1)).tolist()
    whole = np.repeat(characters.ravel(), lengths.ravel()).astype("<u4").tobytes().decode("utf-32-le")
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _palettes(chance: "np.random.Generator", n_strings: int) -> "NDArray[Any]":
    """Six characters a string: of those named by the expressions, of the chosen ones, and of all."""
    shape = (n_strings, PALETTE)

    def code_points(characters: str) -> "NDArray[np.uint32]":
        return np.array([ord(character) for character in characters], dtype=np.uint32)

    kind = chance.random(shape)
    # One string in four is ASCII alone, which has the quickest paths to itself.
    ascii_only = chance.random((n_strings, 1)) < 0.25
    chosen = np.where(
        ascii_only,
        chance.choice(np.arange(128, dtype=np.uint32), shape),
        chance.choice(code_points(CHOSEN), shape),
    )
    any_of_all = np.where(ascii_only, chosen, chance.choice(agreed_code_points(), shape))
    return np.where(
        kind < 0.4,
        chance.choice(code_points(FREQUENT), shape),
        np.where(kind < 0.85, chosen, any_of_all),
    )
