"""The scripts of a text's letters, by the first words of their names in Unicode."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_SHARED = frozenset((
    "ANGSTROM", "BLACK-LETTER", "DOUBLE-STRUCK", "FEMININE", "FULLWIDTH", "HALFWIDTH", "KATAKANA-HIRAGANA", "KELVIN",
    "MASCULINE", "MATHEMATICAL", "MICRO", "MODIFIER", "OHM", "SCRIPT", "SUBSCRIPT", "SUPERSCRIPT",
))  # fmt: skip
"""First words of names of letters that several scripts use."""
_EAST_ASIAN = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"))
"""Scripts that one word may mix."""


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str | None:
    """Return the script of a letter; None for other characters and for letters that several scripts use.

    >>> script_of("ж"), script_of("漢"), script_of("a"), script_of("5")
    ('CYRILLIC', 'CJK', 'LATIN', None)
    """
    if not character.isalpha():
        return None
    script = unicodedata.name(character, "").split(" ", 1)[0]
    return None if not script or script in _SHARED else script


def scripts_of(text: str) -> set[str]:
    """Return the scripts of the letters of a text. Those that East Asian words mix count as one.

    >>> scripts_of("日本の"), sorted(scripts_of("aж 5"))
    ({'EAST ASIAN'}, ['CYRILLIC', 'LATIN'])
    """
    scripts = {script for character in text if (script := script_of(character)) is not None}
    return (scripts - _EAST_ASIAN) | ({"EAST ASIAN"} if scripts & _EAST_ASIAN else set())
