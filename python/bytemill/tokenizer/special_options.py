"""tiktoken's two options for special tokens: those that are recognised, and those that may not stand in a text.

tiktoken looks for the refused ones first, in the text as it is given, and does not ask whether they are special tokens:
any string may be refused. What is neither recognised nor refused is plain text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, cast

from bytemill.errors import SpecialTokenError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Set

    from bytemill.tokenizer.types import AllowedSpecial, DisallowedSpecial

BY_DEFAULT: Final = cast('Literal["all"]', "".join(("a", "ll")))
"""An "all" that is no caller's: where `disallowed_special` is given, the default is to recognise none."""


@lru_cache(maxsize=128)
def _finder(refused: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(token) for token in sorted(refused, key=len, reverse=True)))


def refuse(text: str, refused: frozenset[str]) -> None:
    """Raise SpecialTokenError where one of `refused` stands in `text`: the leftmost, and of those the longest."""
    found = _finder(refused).search(text) if refused else None
    if found is not None:
        token = found[0]
        raise SpecialTokenError(
            f"the text holds {token!r} at character {found.start()}, a special token that is disallowed; "
            f"allowed_special={{{token!r}}} recognises it, disallowed_special=() takes all that are not "
            "allowed as plain text"
        )


def options(
    special_tokens: Collection[str], allowed: Set[str], disallowed: DisallowedSpecial
) -> tuple[AllowedSpecial, frozenset[str]]:
    """What the core is to recognise, and what is to be refused beforehand."""
    if isinstance(disallowed, str) and disallowed == "all":
        refused = frozenset(special_tokens) - allowed
    else:
        refused = frozenset(disallowed)
    known = allowed & set(special_tokens)
    if len(known) == len(special_tokens):
        return "all", refused
    return known or "none", refused


def allowed_in(
    texts: Iterable[str],
    special_tokens: Collection[str],
    allowed: AllowedSpecial,
    disallowed: DisallowedSpecial,
) -> AllowedSpecial:
    """What is to be recognised in `texts`, with tiktoken's meaning of both options.

    `allowed` is `BY_DEFAULT` where the caller has not said; that recognises nothing, as `"none"` does. `"none_raise"`
    refuses all special tokens besides. Raises SpecialTokenError where one is refused that stands in a text.
    """
    chosen: frozenset[str] = frozenset()
    if isinstance(allowed, str):
        if allowed not in ("all", "none", "none_raise"):
            raise ValueError(
                "allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens, "
                f"not {allowed!r}"
            )
        if allowed == "all" and allowed is not BY_DEFAULT:
            chosen = frozenset(special_tokens)
    else:
        chosen = frozenset(allowed)
    recognised, refused = options(special_tokens, chosen, disallowed)
    if allowed == "none_raise":
        refused |= frozenset(special_tokens)
    for text in texts:
        refuse(text, refused)
    return recognised
