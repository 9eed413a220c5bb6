"""Types of ids and of options, and tiktoken's options for special tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.errors import SpecialTokenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    import numpy as np
    from numpy.typing import NDArray

    TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
    TokenIds: TypeAlias = Sequence[int] | NDArray[Any]

AllowedSpecial: TypeAlias = Literal["all", "none", "none_raise"] | Collection[str]
DisallowedSpecial: TypeAlias = Literal["all"] | Collection[str]

# tiktoken's options: like tiktoken, search the text for disallowed strings first. Any string can be disallowed, special
# token or not. Special tokens that are neither allowed nor disallowed are plain text.


@lru_cache(maxsize=128)
def _finder(refused: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(token) for token in sorted(refused, key=len, reverse=True)))


def refuse(text: str, refused: frozenset[str]) -> None:
    """Raise SpecialTokenError for the leftmost, longest member of `refused` in `text`."""
    found = _finder(refused).search(text) if refused else None
    if found is not None:
        token = found[0]
        raise SpecialTokenError(
            f"the text contains the disallowed special token {token!r} at character {found.start()}",
            hint=f"pass allowed_special={{{token!r}}} to recognize it, or disallowed_special=() to treat it as text",
        )


def options(
    special_tokens: Collection[str], allowed: Set[str], disallowed: DisallowedSpecial
) -> tuple[AllowedSpecial, frozenset[str]]:
    """Return which special tokens the core recognizes, and which strings to refuse first."""
    if isinstance(disallowed, str) and disallowed == "all":
        refused = frozenset(special_tokens) - allowed
    else:
        refused = frozenset(disallowed)
    known = allowed & set(special_tokens)
    if len(known) == len(special_tokens):
        return "all", refused
    return known or "none", refused


def recognized_tokens(
    texts: Iterable[str],
    special_tokens: Collection[str],
    allowed: AllowedSpecial | None,
    disallowed: DisallowedSpecial,
) -> AllowedSpecial:
    """Return which special tokens to recognize in `texts`, with tiktoken's meaning of both options.

    Args:
        texts: The texts to check.
        special_tokens: All special tokens.
        allowed: The user's `allowed_special`; None recognizes none.
        disallowed: The user's `disallowed_special`.

    Raises:
        SpecialTokenError: A text contains a disallowed string. `allowed="none_raise"` disallows all special tokens.
    """
    chosen: frozenset[str] = frozenset()
    if isinstance(allowed, str):
        if allowed not in ("all", "none", "none_raise"):
            raise ValueError(
                "allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens, "
                f"not {allowed!r}"
            )
        if allowed == "all":
            chosen = frozenset(special_tokens)
    elif allowed is not None:
        chosen = frozenset(allowed)
    recognized, refused = options(special_tokens, chosen, disallowed)
    if allowed == "none_raise":
        refused |= frozenset(special_tokens)
    for text in texts:
        refuse(text, refused)
    return recognized
