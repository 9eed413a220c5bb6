"""The rules of `lint`, one function each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bytemill.tokenizer.explanation import show_token
from bytemill.tokenizer.surgery.findings import Example, Finding, Level
from bytemill.tokenizer.surgery.scripts import scripts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.formats.spec import TokenizerSpec
    from bytemill.tokenizer.tokenizer import Tokenizer

SHARE_OF_TEXT = 0.999
"""Share of a text's tokens whose most frequent ids `needed-ids` counts."""
_RUN = 16
"""Characters from which a run of hexadecimal digits, base64 or one character is junk."""


@dataclass(frozen=True)
class Subject:
    """What is checked."""

    tokenizer: Tokenizer
    spec: TokenizerSpec
    tokens: dict[int, bytes]
    """Ordinary tokens."""
    uses: NDArray[np.int64] | None
    """Uses of each id in a text."""


Rule: TypeAlias = Callable[[Subject], Iterable[Finding]]


def _unreachable(subject: Subject) -> Iterable[Finding]:
    """Tokens that are not what their own bytes merge to. No text produces such a token.

    Nothing crosses the ends of a stretch that becomes a token in some text, so its bytes alone become that token too.
    """
    core = subject.tokenizer.own_core("checking merges")
    found: list[Example] = []
    for token_id, token in subject.tokens.items():
        if len(token) == 1:
            continue
        ids = core.encode_pretoken(token, look_up=False)
        if ids != [token_id]:
            found.append(Example(token_id, token, f"its bytes give {' '.join(map(str, ids[:8]))}"))
    if not found:
        return
    if core.ignore_merges:
        # Whole pre-tokens are looked up.
        lone = [each for each in found if not _is_pretoken(subject.tokenizer, each.token)]
        looked_up = [each for each in found if each not in lone]
        if looked_up:
            yield Finding(
                "only-whole",
                "note",
                "tokens that only a whole pre-token gives, because no merges lead to them",
                looked_up,
            )
        found = lone
    if found:
        yield Finding("unreachable", "error", "tokens that no text can produce", found)


def _is_pretoken(tokenizer: Tokenizer, token: bytes) -> bool:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return False
    return tokenizer.encode_ordinary(text) == [tokenizer.token_to_id(token)]


def _crosses_pattern(subject: Subject) -> Iterable[Finding]:
    """Tokens that merges lead to, but whose text the pattern or the normalizer always changes or divides."""
    core = subject.tokenizer.own_core("checking merges")
    found: list[Example] = []
    texts: list[tuple[int, bytes, str]] = []
    for token_id, token in subject.tokens.items():
        try:
            texts.append((token_id, token, token.decode()))
        except UnicodeDecodeError:
            continue
    encoded = subject.tokenizer.encode_ordinary_batch([text for _, _, text in texts])
    for (token_id, token, _), ids in zip(texts, encoded, strict=True):
        is_reachable = len(token) == 1 or core.encode_pretoken(token, look_up=False) == [token_id]
        if is_reachable and list(ids) != [token_id]:
            found.append(Example(token_id, token, f"its text gives {' '.join(map(str, ids[:8]))}"))
    if found:
        yield Finding(
            "divided-by-pattern",
            "warning",
            "tokens whose own text gives other ids: the pattern divides it, or the normalizer changes it",
            found,
        )


def _dead_merges(subject: Subject) -> Iterable[Finding]:
    """Merges that never fire: those of tokens that are not reachable through them."""
    core = subject.tokenizer.own_core("checking merges")
    merges = subject.spec.merges or []
    ids = {token: i for i, token in subject.tokens.items()}
    dead: list[Example] = []
    for left, right in merges:
        token = left + right
        steps = core.encode_pretoken(token, look_up=False)
        if steps != [ids.get(token)]:
            dead.append(Example(ids.get(token, -1), token, f"{show_token(left)} + {show_token(right)}"))
    if dead:
        yield Finding("dead-merge", "warning", "merges that never fire", dead)


def _partial_characters(subject: Subject) -> Iterable[Finding]:
    found: list[Example] = []
    for token_id, token in subject.tokens.items():
        if len(token) > 1 and not _is_utf8(token):
            found.append(Example(token_id, token))
    if found:
        share = len(found) / len(subject.tokens)
        yield Finding("partial-character", "note", f"tokens that are not valid UTF-8 ({share:.1%})", found)


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


_HEXADECIMAL = re.compile(rf"[0-9a-f]{{{_RUN},}}|[0-9A-F]{{{_RUN},}}")
_BASE64 = re.compile(
    rf"(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[0-9])[A-Za-z0-9+/]{{{_RUN},}}"
)
_URL = re.compile(
    r"https?|www\.|\.(com|org|net|html?|php|aspx?|jsp|jpe?g|png)\b|://|&nbsp;|%[0-9A-F]{2}", re.IGNORECASE
)
_REPEATED = re.compile(rf"(.)\1{{{_RUN - 1},}}", re.DOTALL)


def _junk(subject: Subject) -> Iterable[Finding]:
    """Texts that no corpus of prose or code needs as tokens, one rule each."""
    found: dict[str, list[Example]] = {
        name: [] for name in ("hexadecimal", "base64", "url", "repeated-character", "mixed-scripts")
    }
    for token_id, token in subject.tokens.items():
        if not _is_utf8(token):
            continue
        text = token.decode()
        if match := _REPEATED.search(text):
            n = len(match[0])
            found["repeated-character"].append(Example(token_id, token, f"{n} of 1 character"))
        elif _HEXADECIMAL.search(text) and not text.strip().isalpha():
            found["hexadecimal"].append(Example(token_id, token))
        elif _BASE64.search(text):
            found["base64"].append(Example(token_id, token))
        elif _URL.search(text):
            found["url"].append(Example(token_id, token))
        scripts = scripts_of(text)
        if len(scripts) > 1:
            found["mixed-scripts"].append(Example(token_id, token, ", ".join(sorted(scripts)).lower()))
    messages: dict[str, tuple[Level, str]] = {
        "hexadecimal": ("warning", f"tokens with {_RUN} or more hexadecimal digits"),
        "base64": ("warning", f"tokens with {_RUN} or more characters of base64"),
        "url": ("note", "tokens with pieces of URLs or of HTML"),
        "repeated-character": ("warning", f"tokens with {_RUN} or more times the same character"),
        "mixed-scripts": ("warning", "tokens with letters of several scripts"),
    }
    for name, examples in found.items():
        if examples:
            level, message = messages[name]
            yield Finding(name, level, message, examples)


def _half_words(subject: Subject) -> Iterable[Finding]:
    """Tokens that are used almost only inside of one longer token."""
    uses, merges = subject.uses, subject.spec.merges
    if uses is None or not merges or subject.spec.merge_counts is not None:
        return
    ids = {token: i for i, token in subject.tokens.items()}
    users: dict[int, list[int]] = {}
    for left, right in merges:
        for part in {left, right}:
            users.setdefault(ids[part], []).append(ids[left + right])
    found: list[Example] = []
    for token_id, longer in users.items():
        token = subject.tokens[token_id]
        if len(token) > 1 and len(longer) == 1 and not uses[token_id] and uses[longer[0]]:
            found.append(Example(token_id, token, f"only in {show_token(subject.tokens[longer[0]])}"))
    if found:
        yield Finding(
            "half-word", "note", "tokens that the text uses only as a part of one longer token", found
        )


def _special_tokens(subject: Subject) -> Iterable[Finding]:
    """Special tokens whose text is an ordinary word, which a text may well contain."""
    found = [
        Example(token_id, text.encode())
        for text, token_id in subject.spec.special_tokens.items()
        if re.fullmatch(r"\w[\w \-']*", text) and subject.tokenizer.token_flags.get(text) is None
    ]
    if found:
        yield Finding(
            "special-token-as-text", "warning", "special tokens that ordinary text can spell", found
        )


def _holes(subject: Subject) -> Iterable[Finding]:
    taken = set(subject.tokens) | set(subject.spec.special_tokens.values())
    holes = [i for i in range(subject.tokenizer.n_vocab) if i not in taken]
    if holes:
        first = ", ".join(map(str, holes[:8])) + (", …" if len(holes) > 8 else "")
        yield Finding("id-without-token", "note", f"{len(holes):,} ids without a token: {first}")


def _size(subject: Subject) -> Iterable[Finding]:
    n_vocab = subject.tokenizer.n_vocab
    if n_vocab % 64:
        padded = n_vocab + -n_vocab % 64
        yield Finding(
            "size", "note", f"{n_vocab:,} ids do not divide by 64: models pad their embeddings, to {padded:,}"
        )


def _duplicates(subject: Subject) -> Iterable[Finding]:
    ordinary = {token: i for i, token in subject.tokens.items()}
    found = [
        Example(token_id, text.encode(), f"also {ordinary[text.encode()]}")
        for text, token_id in subject.spec.special_tokens.items()
        if ordinary.get(text.encode(), token_id) != token_id
    ]
    if found:
        yield Finding(
            "duplicate", "warning", "added tokens that are ordinary tokens with another id too", found
        )


def _use(subject: Subject) -> Iterable[Finding]:
    uses = subject.uses
    if uses is None:
        return
    unused = [Example(i, token) for i, token in subject.tokens.items() if len(token) > 1 and not uses[i]]
    if unused:
        share = len(unused) / len(subject.tokens)
        yield Finding("unused", "note", f"tokens that the text does not use ({share:.1%})", unused)
    total = int(uses.sum())
    if total:
        sums = np.cumsum(np.sort(uses)[::-1])
        n_needed = int(np.searchsorted(sums, SHARE_OF_TEXT * total)) + 1
        share = n_needed / len(subject.tokenizer)
        yield Finding(
            "needed-ids",
            "note",
            f"{n_needed:,} ids ({share:.1%}) make {SHARE_OF_TEXT:.1%} of the {total:,} tokens of the text",
        )


RULES: dict[str, Rule] = {
    "unreachable": _unreachable,
    "dead-merge": _dead_merges,
    "duplicate": _duplicates,
    "divided-by-pattern": _crosses_pattern,
    "junk": _junk,
    "special-token-as-text": _special_tokens,
    "partial-character": _partial_characters,
    "half-word": _half_words,
    "id-without-token": _holes,
    "size": _size,
    "use": _use,
}
"""The rules in the order of their findings."""
