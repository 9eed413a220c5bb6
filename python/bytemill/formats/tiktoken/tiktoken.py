"""tiktoken's rank files: a token in base64 and its rank on each line; the rank is id and priority at once.

The file has neither pattern nor special tokens. For OpenAI's published files both are known; for any other
the caller gives them, or a file beside it (`rank_settings`).
"""

from __future__ import annotations

import binascii
import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill._core import NAMED_PATTERNS, Encoder
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import checked_pattern, read_bytes, shown
from bytemill.formats.ids import MAX_ID
from bytemill.formats.spec import TokenizerSpec, check_expressible, explicit_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens


@dataclass(frozen=True)
class KnownFile:
    """What a published rank file does not say itself."""

    name: str
    n_ranks: int
    sha256: str
    pattern: str
    """Name of the pattern."""
    special_tokens: dict[str, int]


KNOWN_FILES = (
    KnownFile(
        "r50k_base",
        50_256,
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
        "gpt2",
        {"<|endoftext|>": 50256},
    ),
    KnownFile(
        "p50k_base",
        50_280,
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        "gpt2",
        {"<|endoftext|>": 50256},
    ),
    KnownFile(
        "cl100k_base",
        100_256,
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "cl100k",
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    KnownFile(
        "o200k_base",
        199_998,
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "o200k",
        {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
)


def read(
    path: str | os.PathLike[str],
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """The tokenizer in a rank file.

    `pattern` is a name, an expression, or None for no splitting; left out, it is that of the published file
    with the same content, and so are the special tokens. Of these, a list gets the next ids after the highest
    rank. Raises TokenizerFileError naming the line that is
    wrong, or where the content is not that of a published file and no pattern is given.
    """
    return from_bytes(read_bytes(path), os.fspath(path), pattern, special_tokens)


def from_bytes(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """As `read`, of a file's content; `location` names it in errors."""
    ranks = _parse(data, location)
    tokens = {rank: token for token, rank in ranks.items()}
    ids = None if special_tokens is None else explicit_ids(special_tokens)
    if ids is None and special_tokens is not None:
        first_id = max(tokens) + 1
        ids = {text: first_id + i for i, text in enumerate(dict.fromkeys(special_tokens))}
    pattern, special = complete(data, location, len(ranks), tokens.get, pattern=pattern, special_tokens=ids)
    return TokenizerSpec(pattern=pattern, special_tokens=special, ranks=ranks, ignore_merges=True)


def complete(
    data: bytes,
    location: str,
    n_ranks: int,
    token_of: Callable[[int], bytes | None],
    *,
    pattern: str | EllipsisType | None,
    special_tokens: Mapping[str, int] | None,
) -> tuple[str | None, dict[str, int]]:
    """What a rank file does not say: the pattern as an expression, and the special tokens.

    Raises TokenizerError where they are not known, or contradict the file's `n_ranks` tokens by rank.
    """
    known = _known_file(data, n_ranks)
    if pattern is ...:
        if known is None:
            raise TokenizerFileError(
                f"{location}: a rank file of {n_ranks} tokens that is none of the published ones, and a rank "
                "file does not name its pattern",
                hint=f"Give the pattern: an expression or one of {', '.join(sorted(NAMED_PATTERNS))}.",
            )
        pattern = known.pattern
    pattern = checked_pattern(pattern)
    if special_tokens is None:
        special_tokens = known.special_tokens if known is not None else {}
    for text, token_id in special_tokens.items():
        token = token_of(token_id)
        if token is not None and token != text.encode():
            raise TokenizerError(
                f"special token {text!r} has id {token_id}, which is another token's in {location}"
            )
    return pattern, dict(special_tokens)


def looks_like_ranks(data: bytes) -> bool:
    """Whether the first line with something in it is a token in base64 and a number."""
    for line in data[:4096].splitlines():
        if line.strip():
            return _parse_line(line) is not None
    return False


def write(spec: TokenizerSpec) -> str:
    """The text of a rank file for the ordinary tokens of `spec`. It holds neither pattern nor special tokens.

    Raises TokenizerError where encoding by ranks would give other ids than `spec` does: where ids do not
    follow the order of the merges, or where tiktoken would put a token together from other parts.
    """
    return "".join(
        f"{binascii.b2a_base64(token, newline=False).decode()} {rank}\n"
        for token, rank in same_ranks(spec).items()
    )


def is_published(text: str, spec: TokenizerSpec) -> bool:
    """Whether `text`, the rank file of `spec`, alone brings back its pattern and special tokens."""
    known = _known_file(text.encode(), text.count("\n"))
    return (
        known is not None
        and spec.pattern == NAMED_PATTERNS[known.pattern]
        and spec.special_tokens == known.special_tokens
    )


def same_ranks(spec: TokenizerSpec) -> dict[bytes, int]:
    """The ranks that encode as `spec` does, in their order. Raises TokenizerError as `write` does."""
    from bytemill.formats.vocabulary import ordinary_tokens

    check_expressible(spec, "ranks")
    ranks = {token: token_id for token_id, token in ordinary_tokens(spec).items()}
    if spec.merges is not None:
        # The core finds the merges behind ranks in a fiftieth of the time; if they are others, what follows says why.
        core = Encoder.from_ranks(ranks, {}, None)
        if core.ranked or core.merges() != spec.merges:
            _check_same_merges(spec.merges, ranks, ignore_merges=spec.ignore_merges)
    return ranks


def _check_same_merges(
    merges: list[tuple[bytes, bytes]], ranks: Mapping[bytes, int], *, ignore_merges: bool
) -> None:
    from bytemill.formats.ranks import merges_of_ranks

    highest = -1
    for index, (left, right) in enumerate(merges):
        rank = ranks.get(left + right)
        if rank is None:
            raise TokenizerError(
                f"merge {index} ({left!r}, {right!r}): {left + right!r} is not in the vocabulary"
            )
        if rank <= highest:
            raise TokenizerError(
                f"ids do not follow the order of the merges: merge {index} makes token {rank}, "
                f"an earlier one token {highest}; a rank file has one number for both",
                hint="Write a tokenizer.json.",
            )
        highest = rank
    by_ranks = {left + right: (left, right) for left, right in merges_of_ranks(ranks)}
    for left, right in merges:
        parts = by_ranks.pop(left + right, None)
        if parts != (left, right):
            raise TokenizerError(
                f"by ranks token {left + right!r} is made of {parts or 'nothing'}, not of {(left, right)}",
                hint="Write a tokenizer.json.",
            )
    # What is left in `by_ranks` would be merged by ranks alone; what is not even there could only be looked
    # up.
    products = {left + right for left, right in merges}
    orphan = next(
        (
            token
            for token in ranks
            if len(token) > 1 and token not in products and (token in by_ranks or not ignore_merges)
        ),
        None,
    )
    if orphan is not None:
        raise TokenizerError(
            f"token {orphan!r} is made by no merge, but a rank file makes every token that it holds",
            hint="Write a tokenizer.json.",
        )


def _known_file(data: bytes, n_ranks: int) -> KnownFile | None:
    candidates = [known for known in KNOWN_FILES if known.n_ranks == n_ranks]
    if not candidates:
        return None
    digest = hashlib.sha256(data.replace(b"\r\n", b"\n") if b"\r" in data else data).hexdigest()
    return next((known for known in candidates if known.sha256 == digest), None)


def _parse_line(line: bytes) -> tuple[bytes, int] | None:
    parts = line.split()
    if len(parts) != 2 or not parts[1].isdigit() or len(parts[1]) > 10:
        return None
    try:
        token = binascii.a2b_base64(parts[0], strict_mode=True)
    except ValueError:
        return None
    rank = int(parts[1])
    return (token, rank) if token and rank <= MAX_ID else None


_LINES = re.compile(rb"[^\r\n]+")


def _line_number(data: bytes, offset: int) -> int:
    """The number of the line at `offset`, from 1."""
    breaks = [data.count(end, 0, offset) for end in (b"\n", b"\r", b"\r\n")]
    return breaks[0] + breaks[1] - breaks[2] + 1


def _parse(data: bytes, location: str) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    # One line after another: of a large file that is none, the first is enough; and empty ones cost nothing.
    for n_lines, line in enumerate(_LINES.finditer(data), start=1):
        entry = _parse_line(line[0])
        if entry is None:
            place = f"{location}:{_line_number(data, line.start())}"
            raise TokenizerFileError(f"{place}: {shown(line[0])} is not a token in base64 and its rank")
        ranks[entry[0]] = entry[1]
        if len(ranks) != n_lines:
            place = f"{location}:{_line_number(data, line.start())}"
            raise TokenizerFileError(f"{place}: token {shown(entry[0])} appears twice")
    if len(set(ranks.values())) != len(ranks):
        seen: dict[int, bytes] = {}
        for token, rank in ranks.items():
            if rank in seen:
                raise TokenizerFileError(
                    f"{location}: tokens {shown(seen[rank])} and {shown(token)} have the same rank {rank}"
                )
            seen[rank] = token
    from bytemill.formats.vocabulary import missing_bytes

    missing = missing_bytes(ranks)
    if missing is not None:
        raise TokenizerFileError(f"{location} lacks {missing}", hint="The file may be cut short.")
    return ranks
