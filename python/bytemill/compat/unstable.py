"""Ids that more text may change, and what they may become: tiktoken's `encode_with_unstable`.

When text is appended, the ids of the last pre-token may change. A *completion* is a shortest list of ids in their
place whose bytes begin with those of the *unstable* ids. One token may extend beyond the end of the text. It is tried
at every offset at which it may start: each token that begins with the rest of the unstable bytes is put there,
everything is encoded again, and the result is cut off after the end of the text.

Only the last offsets, as many as the longest token has bytes, have tokens to try, so the number of lists does not grow
with the text. But each list starts at the first unstable byte, so there is a limit on their total length.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from bytemill._core import Encoder
    from bytemill.tokenizer.encoding import AllowedSpecial

_MAX_BYTES = 1 << 29
"""Most bytes encoded in search of completions. The last pre-token of a text in any language takes at most some
megabytes; 2,000 blanks take 100 MB with cl100k."""

_MAX_IDS = 1 << 26
"""Most ids of all completions together."""


def encode_with_unstable(
    core: Encoder, text: str, allowed_special: AllowedSpecial
) -> tuple[list[int], list[list[int]]]:
    """Encode a text without its last pre-token, and what the latter may become when text is appended.

    White space at the end counts as one pre-token: more of it, or a letter, may divide it differently. After a special
    token nothing is unstable.

    Args:
        core: The encoder.
        text: The text.
        allowed_special: Special tokens to recognize.

    Returns:
        The ids that stay the same, and what may follow them, sorted, without duplicates.

    Raises:
        TokenizerError: The last pre-token is too long for all its completions.
    """
    ids = core.encode(text, allowed_special, 1)
    n_stable = len(ids) - _n_unstable(core, ids, text, allowed_special)
    unstable = b"".join(map(core.token_bytes, ids[n_stable:]))
    return ids[:n_stable], _completions(core, unstable) if unstable else []


def encode_cut_off(core: Encoder, data: bytes) -> list[int]:
    """Encode bytes that may end inside a character, as tiktoken's `_encode_bytes` does.

    From the first malformed sequence on, everything is merged as one pre-token, together with what the valid text
    before it ends with.
    """
    n_valid = len(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        n_valid = error.start
        text = data[:n_valid].decode()
    ids = core.encode(text, "none", 1)
    if n_valid == len(data):
        return ids
    n_stable = len(ids) - _n_unstable(core, ids, text, "none")
    rest = b"".join(map(core.token_bytes, ids[n_stable:])) + data[n_valid:]
    return ids[:n_stable] + core.encode_pretoken(rest, look_up=True)


def _n_unstable(core: Encoder, ids: list[int], text: str, allowed_special: AllowedSpecial) -> int:
    """The number of `ids` of `text`, from the end, that more text may change."""
    last = core.last_pretoken(text, allowed_special)
    if last is None:
        return 0
    of_last = core.encode_pretoken(last, look_up=True)
    n_unstable = len(of_last)
    if of_last and _is_blank(core, of_last[0]):
        while n_unstable < len(ids) and _is_blank(core, ids[-1 - n_unstable]):
            n_unstable += 1
    return n_unstable


def _is_blank(core: Encoder, token_id: int) -> bool:
    """Whether an id is an ordinary token of blanks, tabs and line feeds only."""
    token = core.token_bytes(token_id)
    return not token.strip(b" \n\t") and core.bytes_to_id(token) == token_id


def _completions(core: Encoder, unstable: bytes) -> list[list[int]]:
    longest = core.longest_token
    first = max(len(unstable) - longest, 1)
    tokens_at = {
        offset: core.tokens_beginning_with(unstable[offset:]) for offset in range(first, len(unstable))
    }
    if sum(len(tokens) * (offset + longest) for offset, tokens in tokens_at.items()) > _MAX_BYTES:
        raise _too_long(unstable)
    found: set[tuple[int, ...]] = {(token_id,) for _, token_id in core.tokens_beginning_with(unstable)}
    n_ids = len(found)
    for offset, tokens in tokens_at.items():
        for token, _ in tokens:
            ids = _up_to(core, _ids_of(core, unstable[:offset] + token), len(unstable))
            if ids not in found:
                found.add(ids)
                n_ids += len(ids)
                if n_ids > _MAX_IDS:
                    raise _too_long(unstable)
    # `\s+(?!\S)` gives the last blank back if text follows.
    blank = _last_blank(unstable)
    if blank and len(blank) < len(unstable):
        parts = unstable[: -len(blank)], blank
        found.add(tuple(token_id for part in parts for token_id in core.encode_pretoken(part, look_up=False)))
    return sorted(map(list, found))


def _ids_of(core: Encoder, data: bytes) -> list[int]:
    """The ids of what may be the text; bytes that are no text have no pre-tokens, so they are merged as one."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return core.encode_pretoken(data, look_up=False)
    return core.encode_bytes(data)


def _up_to(core: Encoder, ids: list[int], n_bytes: int) -> tuple[int, ...]:
    """The first ids that have `n_bytes` together."""
    for n, token_id in enumerate(ids, start=1):
        n_bytes -= len(core.token_bytes(token_id))
        if n_bytes <= 0:
            return tuple(ids[:n])
    return tuple(ids)


def _last_blank(data: bytes) -> bytes:
    """The white space character that the bytes end with; empty if they do not end with one."""
    for n_bytes in range(1, 4):
        with contextlib.suppress(UnicodeDecodeError):
            character = data[-n_bytes:].decode()
            # Python takes the separators U+001C to U+001F for white space too.
            return character.encode() if character.isspace() and not "\x1c" <= character <= "\x1f" else b""
    return b""


def _too_long(unstable: bytes) -> TokenizerError:
    return TokenizerError(
        f"the text ends with {len(unstable)} bytes in one pre-token, too many for all its completions"
    )
