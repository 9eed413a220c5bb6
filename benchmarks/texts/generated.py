"""Texts that are made up: hostile ones, which bring out the worst in an encoder, and random strings.

A maker of hostile texts, one endless pre-token or nothing but rare ones, gives at most `n_bytes` bytes of UTF-8, short
of them by less than one unit of what it repeats. The same seed gives the same text; the makers that repeat one unit do
not need it.

Random strings fall on the boundaries that a pre-tokenizer may get wrong. Each is a few runs of characters out of a
palette of six of its own, so that characters meet each other and themselves often. Every second string begins or ends
with a long run, which carries the rest across the borders of blocks of 16, 32 and 64 bytes at every offset. A batch is
drawn by a few vector operations, and is known by its seed and number.
"""

import base64
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def repeated(unit: str) -> Callable[[int, int], str]:
    """A maker of `unit` again and again.

    >>> repeated("ab")(5, 0)
    'abab'
    """
    size = len(unit.encode("utf-8"))
    return lambda n_bytes, _seed: unit * (n_bytes // size)


def drawn(characters: Sequence[str]) -> Callable[[int, int], str]:
    """A maker of characters drawn at random, all of the same size in UTF-8.

    >>> drawn("ab")(5, 0)
    'bbbaa'
    """
    size = len(characters[0].encode("utf-8"))

    def make(n_bytes: int, seed: int) -> str:
        import numpy as np

        code_points = np.array([ord(character) for character in characters], dtype="<u4")
        drawn = np.random.default_rng(seed).choice(code_points, n_bytes // size)
        return drawn.tobytes().decode("utf-32-le")

    return make


def mixed_words(n_bytes: int, seed: int) -> str:
    """One word without an end: stretches of small letters, capitals, accents, Cyrillic and Greek."""
    alphabets = [
        "etaoinshrdlucmfwypvbgkjqxz",
        "ETAOINSHRDLU",
        "éèüßñåø",
        "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфё",
        "αβγδεζηθικλ",
    ]
    return _stretches(alphabets, n_bytes, seed)


def alternating_scripts(n_bytes: int, seed: int) -> str:
    """Scripts that change every few letters, without a blank."""
    ideographs = "".join(map(chr, range(0x4E00, 0x4F00)))
    alphabets = [
        "abcdefghij",
        "абвгдежзик",
        ideographs,
        "가나다라마바사",
        "אבגדהוז",
        "कखगघचछज",
        "あいうえおアイウエオ",
        "กขคงจฉช",
    ]
    return _stretches(alphabets, n_bytes, seed)


def _stretches(alphabets: Sequence[str], n_bytes: int, seed: int) -> str:
    """Stretches of 1 to 8 characters, each of one alphabet."""
    import numpy as np

    chance = np.random.default_rng(seed)
    # At least a byte a character, so there are enough of them whatever is drawn.
    lengths = chance.integers(1, 9, n_bytes // 4 + 1)
    which = np.repeat(chance.integers(0, len(alphabets), len(lengths)), lengths)[: max(n_bytes, 1)]
    sizes = np.array([len(alphabet) for alphabet in alphabets])
    table = np.zeros((len(alphabets), int(sizes.max())), dtype="<u4")
    for row, alphabet in zip(table, alphabets, strict=True):
        row[: len(alphabet)] = [ord(character) for character in alphabet]
    places = (chance.random(len(which)) * sizes[which]).astype(np.int64)
    code_points = table[which, places]
    widths = 1 + (code_points >= 0x80) + (code_points >= 0x800) + (code_points >= 0x10000)
    kept = int(np.searchsorted(np.cumsum(widths), n_bytes, side="right"))
    return code_points[:kept].tobytes().decode("utf-32-le")


def thue_morse(n_bytes: int, _seed: int) -> str:
    """The Thue-Morse word over a and b, in which no stretch stands three times in a row.

    >>> thue_morse(8, 0)
    'abbabaab'
    """
    word = b"a"
    swap = bytes.maketrans(b"ab", b"ba")
    while len(word) < n_bytes:
        word += word.translate(swap)
    return word[:n_bytes].decode()


def fibonacci(n_bytes: int, _seed: int) -> str:
    """The Fibonacci word over a and b, in which merges come from all ranks in turn.

    >>> fibonacci(8, 0)
    'abaababa'
    """
    before, word = "a", "ab"
    while len(word) < n_bytes:
        before, word = word, word + before
    return word[:n_bytes]


def base64_lines(n_bytes: int, seed: int) -> str:
    """Random bytes in base64, 76 characters a line as in mails."""
    import numpy as np

    encoded = base64.encodebytes(np.random.default_rng(seed).bytes(n_bytes * 3 // 4 + 3))
    return encoded[:n_bytes].decode("ascii")


def base64_one_line(n_bytes: int, seed: int) -> str:
    """The same in one line, as in the data URLs of web pages."""
    return base64_lines(n_bytes * 77 // 76 + 77, seed).replace("\n", "")[:n_bytes]


ASCII_LETTERS = "abcdefghijklmnopqrstuvwxyz"

HOSTILE: dict[str, Callable[[int, int], str]] = {
    "a": repeated("a"),
    "ab": repeated("ab"),
    "blanks": repeated(" "),
    "tabs": repeated("\t"),
    "newlines": repeated("\n"),
    "CR LF": repeated("\r\n"),
    "blank + newline": repeated(" \n"),
    "NBSP": repeated("\u00a0"),
    "ideographic blanks": repeated("\u3000"),
    "^": repeated("^"),
    "apostrophes": repeated("'"),
    "'s": repeated("'s"),
    "digits": repeated("1234567890"),
    "NUL": repeated("\0"),
    "é": repeated("é"),
    "字": repeated("字"),
    "a + accent": repeated("a\u0301"),
    "accents": repeated("\u0301"),
    "emoji family": repeated("👩\u200d👩\u200d👧"),
    "aA": repeated("aA"),
    "Thue-Morse": thue_morse,
    "Fibonacci": fibonacci,
    "random letters": drawn(ASCII_LETTERS),
    "random mixed case": drawn(ASCII_LETTERS + ASCII_LETTERS.upper()),
    "random digits": drawn("0123456789"),
    "random signs": drawn("=-_*#~.,:;!?+/\\|@$%&^()[]{}<>"),
    "random ASCII": drawn([chr(code) for code in range(32, 127)]),
    "random CJK": drawn([chr(code) for code in range(0x4E00, 0x9FA6)]),
    "random Hangul": drawn([chr(code) for code in range(0xAC00, 0xD7A4)]),
    "random marks": drawn([chr(code) for code in range(0x300, 0x370)]),
    "random emoji": drawn([chr(code) for code in range(0x1F300, 0x1F650)]),
    "base64 lines": base64_lines,
    "base64 one line": base64_one_line,
    "mixed letters": mixed_words,
    "alternating scripts": alternating_scripts,
}
"""Name -> maker (n_bytes, seed) of the texts that the case `hostile` runs."""

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
    import numpy as np
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
    import numpy as np

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
    import numpy as np

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
    rare = np.where(kind < 0.85, chosen, any_of_all)
    return np.where(kind < 0.4, chance.choice(code_points(FREQUENT), shape), rare)
