"""Translation of regular expressions between Rust's syntax and Oniguruma's, which Hugging Face's pre-tokenizers use.

Most expressions have the same meaning in both, some do not: `$` is the end of the text or of a line, `x{1,3}+` is
possessive or repeats the repetition, and `\\w`, POSIX classes and case folding differ. An expression is parsed and
written again in the other syntax; a part without an exact equivalent is an error that names it. The tables of letters,
digits and white space cannot be translated: `tokenizers` 0.23 and bytemill use Unicode 16; earlier versions have fewer
letters.
"""

from __future__ import annotations

import re
from typing import Literal

Syntax = Literal["rust", "oniguruma"]


class ExpressionError(ValueError):
    """An expression has no exact equivalent; the message names the part."""


_QUANTIFIER = re.compile(r"[?*+]|\{(\d+)(,(\d*))?\}|\{,(\d+)\}")
_LOOK_AROUNDS = ("(?=", "(?!", "(?<=", "(?<!")
_OPENINGS = (*_LOOK_AROUNDS, "(?:", "(?i:", "(?>", "(")
_PROPERTY = re.compile(r"[pP](?:\{(\^?[A-Za-z_]+)\}|([A-Z]))")
_CODE_POINT = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-7][0-9A-Fa-f])|u([0-9A-Fa-f]{4})")
# Without "<" and ">", which are word boundaries in Rust's engine when escaped.
_PUNCTUATION = frozenset(r"\.+*?()|[]{}^$#&-~/'`!%,:;=@_ " + '"')
_META = frozenset(r"\.+*?()|[]{}^$")
_CLASS_META = frozenset(r"\[]^-&~")
# POSIX names, which have other meanings in Oniguruma's \p{...}.
_POSIX = re.compile(
    r"\^?(alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit)", re.IGNORECASE
)
# Pairs that equal one character (ß, ﬁ, ﬆ) under full case folding, which only Oniguruma applies.
_FOLDED_TOGETHER = frozenset({"ss", "st", "ff", "fi", "fl"})
_MAX_DEPTH = 50


def to_oniguruma(expression: str) -> str:
    """Translate an expression from Rust's syntax to Oniguruma's.

    Raises:
        ExpressionError: There is no exact equivalent, or the expression can match the empty string, for which Hugging
            Face's pre-tokenizer gives wrong offsets.

    >>> to_oniguruma(r"\\p{N}{1,3}+|\\s++$")
    '(?>\\\\p{N}{1,3})|\\\\s++\\\\z'
    """
    return _Translation(expression, "rust").whole()


def from_oniguruma(expression: str) -> str:
    """Translate an expression from Oniguruma's syntax to Rust's.

    Raises:
        ExpressionError: There is no exact equivalent, or the expression can match the empty string.

    >>> from_oniguruma(r"\\p{N}{1,3}+|\\s+$")
    '(?:\\\\p{N}{1,3})+|\\\\s+(?=\\\\n|\\\\z)'
    """
    return _Translation(expression, "oniguruma").whole()


def check_matches_something(expression: str) -> None:
    """Raise ExpressionError if an expression in Rust's syntax can match the empty string, or is not understood.

    >>> check_matches_something(r"\\w+(?!\\S)|(?i:ab)")
    """
    _Parser(expression, "rust").whole()


class _Translation:
    """A recursive-descent parser. Methods return the translated part and whether it can match the empty string."""

    def __init__(self, expression: str, source: Syntax) -> None:
        self.expression = expression
        self.source = source
        self.at = 0

    def whole(self) -> str:
        translated, nullable = self.alternatives(depth=0, ignore_case=False)
        if self.at < len(self.expression):
            raise ExpressionError(f"unbalanced ')' at character {self.at}")
        if nullable:
            raise ExpressionError("it can match the empty string")
        return translated

    def alternatives(self, depth: int, *, ignore_case: bool) -> tuple[str, bool]:
        if depth > _MAX_DEPTH:
            raise ExpressionError(f"groups are nested more than {_MAX_DEPTH} deep")
        branches: list[str] = []
        any_nullable = False
        while True:
            branch, nullable = self.branch(depth, ignore_case=ignore_case)
            branches.append(branch)
            any_nullable |= nullable
            if not self.take("|"):
                return "|".join(branches), any_nullable

    def branch(self, depth: int, *, ignore_case: bool) -> tuple[str, bool]:
        parts: list[str] = []
        all_nullable = True
        previous_letter = ""
        while self.at < len(self.expression) and self.expression[self.at] not in "|)":
            start = self.at
            atom, nullable = self.atom(depth, ignore_case=ignore_case)
            letter = atom.lower() if len(atom) == 1 else ""
            if ignore_case and previous_letter + letter in _FOLDED_TOGETHER:
                raise ExpressionError(
                    f"{previous_letter + letter!r} in a case-insensitive group at character {start - 1}"
                )
            quantified, can_repeat_zero_times = self.quantified(atom)
            parts.append(quantified)
            all_nullable &= nullable or can_repeat_zero_times
            previous_letter = letter if quantified == atom else ""
        return "".join(parts), all_nullable

    def atom(self, depth: int, *, ignore_case: bool) -> tuple[str, bool]:
        character = self.expression[self.at]
        if character == "(":
            return self.group(depth, ignore_case=ignore_case)
        if character == "[":
            return self.character_class(ignore_case=ignore_case), False
        if character == "\\":
            return self.escape(ignore_case=ignore_case, in_class=False)
        self.at += 1
        if character == "$":
            return (r"\z" if self.source == "rust" else r"(?=\n|\z)"), True
        if character == "^":
            if self.source == "oniguruma":
                raise self.refused("'^'")
            return r"\A", True
        if character in "?*+{}":
            raise self.refused(f"{character!r}")
        return self.literal(character, ignore_case=ignore_case, meta=frozenset()), False

    def group(self, depth: int, *, ignore_case: bool) -> tuple[str, bool]:
        start = self.at
        opening = next(opening for opening in _OPENINGS if self.expression.startswith(opening, start))
        self.at += len(opening)
        if opening == "(" and self.expression.startswith("?", self.at):
            raise ExpressionError(f"{self.expression[start : start + 4]!r} at character {start}")
        inner, nullable = self.alternatives(depth + 1, ignore_case=ignore_case or opening == "(?i:")
        if not self.take(")"):
            raise ExpressionError(f"the group at character {start} is not closed")
        return f"{opening}{inner})", nullable or opening in _LOOK_AROUNDS

    def quantified(self, atom: str) -> tuple[str, bool]:
        """Return `atom` with its quantifier, and whether that allows zero occurrences."""
        match = _QUANTIFIER.match(self.expression, self.at)
        if match is None:
            return atom, False
        if atom in {r"\z", r"\A"} or atom.startswith(_LOOK_AROUNDS):
            raise self.refused("a repeated assertion")
        self.at = match.end()
        quantifier = match[0]
        can_be_absent = quantifier in {"?", "*"} or match[1] is None or int(match[1]) == 0
        can_be_absent &= quantifier != "+"
        suffix = "+" if self.take("+") else "?" if self.take("?") else ""
        if _QUANTIFIER.match(self.expression, self.at) is not None:
            raise self.refused("a quantifier of a quantifier")
        if quantifier.startswith("{,"):
            if self.source == "rust":
                raise self.refused(repr(quantifier))
            quantifier = "{0" + quantifier[1:]
        if suffix == "" or not quantifier.startswith("{"):
            return atom + quantifier + suffix, can_be_absent
        if suffix == "+":
            return (
                f"(?>{atom}{quantifier})" if self.source == "rust" else f"(?:{atom}{quantifier})+"
            ), can_be_absent
        if match[2] is None and match[4] is None:
            if self.source == "rust":  # exactly n times, lazily or not
                return atom + quantifier, can_be_absent
            return f"(?:{atom}{quantifier})?", True
        return atom + quantifier + "?", can_be_absent

    def character_class(self, *, ignore_case: bool, depth: int = 0) -> str:
        start = self.at
        self.at += 1
        parts = ["[^" if self.take("^") else "["]
        while not (self.take("]") and len(parts) > 1):
            if self.at >= len(self.expression):
                raise ExpressionError(f"the class at character {start} is not closed")
            if len(parts) == 1 and self.expression[self.at - 1] == "]":
                raise self.refused("']' at the start of a class (write \\])")
            if self.expression.startswith(("--", "~~"), self.at):
                raise self.refused(f"{self.expression[self.at : self.at + 2]!r} in a class")
            if self.take("&&"):  # binds less than everything but "^" in both syntaxes
                parts.append("&&")
                continue
            character = self.expression[self.at]
            if character == "\\":
                parts.append(self.escape(ignore_case=ignore_case, in_class=True)[0])
                continue
            if character == "[":
                if self.expression.startswith("[:", self.at):
                    raise self.refused("'[:' in a class")
                if depth >= _MAX_DEPTH:
                    raise ExpressionError(f"classes are nested more than {_MAX_DEPTH} deep")
                parts.append(self.character_class(ignore_case=ignore_case, depth=depth + 1))
                continue
            self.at += 1
            # "-" between two characters is a range; "^" is special only as the first.
            parts.append(self.literal(character, ignore_case=ignore_case, meta=frozenset()))
        return "".join(parts) + "]"

    def escape(self, *, ignore_case: bool, in_class: bool) -> tuple[str, bool]:
        """Translate an escape sequence: a character, a class or an assertion."""
        start = self.at
        self.at += 1
        if self.at >= len(self.expression):
            raise self.refused("a backslash at the end")
        character = self.expression[self.at]
        if (match := _PROPERTY.match(self.expression, self.at)) is not None:
            name = match[1] or match[2]
            self.at = match.end()
            if _POSIX.fullmatch(name) or ignore_case:
                raise ExpressionError(f"{self.expression[start : self.at]!r} at character {start}")
            return f"\\{character}{{{name}}}", False
        if (match := _CODE_POINT.match(self.expression, self.at)) is not None:
            self.at = match.end()
            code_point = int(match[1] or match[2] or match[3], 16)
            if code_point > 0x10FFFF or 0xD800 <= code_point < 0xE000:
                raise ExpressionError(f"{match[0]!r} is not a character")
            meta = _CLASS_META if in_class else _META
            return self.literal(chr(code_point), ignore_case=ignore_case, meta=meta), False
        self.at += 1
        if character in "rntfsSdD":
            return "\\" + character, False
        if character in _PUNCTUATION:
            meta = _CLASS_META if in_class else _META
            return self.literal(character, ignore_case=ignore_case, meta=meta), False
        if character in "Az" and not in_class:
            return "\\" + character, True
        raise ExpressionError(f"{self.expression[start : self.at]!r} at character {start}")

    def literal(self, character: str, *, ignore_case: bool, meta: frozenset[str]) -> str:
        if ignore_case and not character.isascii():
            raise self.refused(f"{character!r} in a case-insensitive group")
        return "\\" + character if character in meta else character

    def take(self, text: str) -> bool:
        if not self.expression.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def refused(self, what: str) -> ExpressionError:
        return ExpressionError(f"{what} near character {self.at}")


class _Parser(_Translation):
    """A parser that also accepts what Oniguruma interprets differently."""

    def escape(self, *, ignore_case: bool, in_class: bool) -> tuple[str, bool]:
        if self.expression.startswith(("\\w", "\\W", "\\b", "\\B"), self.at):
            self.at += 2
            return self.expression[self.at - 2 : self.at], not in_class and self.expression[
                self.at - 1
            ] in "bB"
        return super().escape(ignore_case=ignore_case, in_class=in_class)
