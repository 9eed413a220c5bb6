"""Mistral's `tekken.json`: ranks in base64 with their pattern, and special tokens before them.

Special tokens have the first ids, those of the ranks follow. A file lists more tokens than its models have, of which
the first count. Files of the first versions name no special tokens; `_FIRST_VERSIONS` has theirs.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any

from bytemill._core import Encoder, RankFile
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.encoder import Loaded
from bytemill.formats.files import (
    MAX_ID,
    array_at,
    is_array,
    is_object,
    object_at,
    parse_json,
    shown,
    wrong_value,
)
from bytemill.formats.patterns import checked_pattern
from bytemill.formats.spec import TokenizerSpec, missing_bytes

if TYPE_CHECKING:
    from bytemill.formats.registry import Content

_FIRST_VERSIONS = (
    *(
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
    ),
    *(
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[IMG]",
        "<pad>",
        "[IMG_BREAK]",
        "[IMG_END]",
        "[PREFIX]",
        "[MIDDLE]",
    ),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
_MAX_SPECIAL = 2**21
"""Limit for special tokens, each of which gets a name."""


def recognize(content: Content) -> bool:
    """Return whether a file is a JSON object with a configuration and a list of tokens."""
    document = content.document
    if not is_object(document) or not is_array(document.get("vocab")):
        return False
    config = document.get("config")
    return is_object(config) and "pattern" in config


def load(content: Content) -> Loaded | None:
    """Load a file with the core; None if it is another one, or if the reader in Python must read or reject it."""
    if b'"default_vocab_size"' not in content.data[:4096]:
        return None
    if (read := RankFile.read_tekken(content.data)) is None:
        return None
    file, rest = read
    document, location = parse_json(rest, content.location), content.location
    n_special, n_tokens, pattern = _settings(document, location, len(content.data))
    special_tokens = _special_tokens(document.get("special_tokens"), n_special, f"{location}: special_tokens")
    if not 0 <= n_tokens <= MAX_ID - n_special:
        return None
    core = file.tekken_encoder(special_tokens, checked_pattern(pattern), n_tokens, n_special)
    return None if core is None else Loaded(core)


def read(content: Content) -> TokenizerSpec:
    """Read a file. Raises TokenizerFileError."""
    content.refuse_arguments()
    document, location = content.document, content.location
    n_special, n_tokens, pattern = _settings(document, location, len(content.data))
    ranks = _ranks(document["vocab"], n_tokens, f"{location}: vocab")
    try:
        encoder = Encoder.from_ranks(ranks, {}, checked_pattern(pattern))
    except TokenizerError as error:
        raise TokenizerFileError(f"{location}: {error}") from error
    if encoder.ranked:
        raise TokenizerFileError(f"{location}: no list of merges gives the same ids as these ranks")
    return TokenizerSpec(
        pattern=encoder.pattern,
        special_tokens=_special_tokens(
            document.get("special_tokens"), n_special, f"{location}: special_tokens"
        ),
        vocab={n_special + rank: token for token, rank in ranks.items()},
        merges=encoder.merges(),
        ignore_merges=True,
    )


def _settings(document: dict[str, Any], location: str, n_bytes: int) -> tuple[int, int, str]:
    """Return the number of special tokens, that of ranks, and the pattern of a file of `n_bytes`."""
    config = object_at(document.get("config"), f"{location}: config")
    n_special = _number(config, "default_num_special_tokens", location)
    if n_special > min(n_bytes, _MAX_SPECIAL):
        raise TokenizerFileError(
            f"{location}: config.default_num_special_tokens: {n_special} is out of all proportion to the file"
        )
    n_tokens = _number(config, "default_vocab_size", location) - n_special
    pattern = config.get("pattern")
    if not isinstance(pattern, str):
        raise wrong_value(f"{location}: config.pattern", pattern, "a regular expression")
    return n_special, n_tokens, pattern


def _number(config: dict[str, Any], name: str, location: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 0:
        raise wrong_value(f"{location}: config.{name}", value, "a number of tokens")
    return value


def _ranks(entries: Any, n_tokens: int, location: str) -> dict[bytes, int]:
    """Return the first tokens and their ranks."""
    ranks: dict[bytes, int] = {}
    for index, entry in enumerate(array_at(entries, location)):
        rank = entry.get("rank") if is_object(entry) else None
        if type(rank) is not int or rank < 0:
            raise TokenizerFileError(f"{location}[{index}] is {shown(entry)}, not a token with a rank")
        if rank >= n_tokens:
            continue
        try:
            token = binascii.a2b_base64(entry["token_bytes"], strict_mode=True)
        except (KeyError, TypeError, ValueError) as error:
            raise TokenizerFileError(f"{location}[{index}].token_bytes is not base64") from error
        if ranks.setdefault(token, rank) != rank or not token:
            raise TokenizerFileError(f"{location}[{index}]: token {shown(token)} is empty or appears twice")
    if len(ranks) != n_tokens or len(set(ranks.values())) != n_tokens:
        raise TokenizerFileError(
            f"{location} does not have the {n_tokens} tokens that config announces, one per rank"
        )
    if (missing := missing_bytes(ranks)) is not None:
        raise TokenizerFileError(f"{location} lacks {missing}")
    return ranks


def _special_tokens(entries: Any, n_special: int, location: str) -> dict[str, int]:
    """Return the special tokens and those that fill the ids up to the ranks."""
    if entries is None:
        named = dict(zip(_FIRST_VERSIONS, range(n_special), strict=False))
    else:
        named = dict[str, int]()
        for index, entry in enumerate(array_at(entries, location)):
            token, rank = (entry.get("token_str"), entry.get("rank")) if is_object(entry) else (None, None)
            if not isinstance(token, str) or type(rank) is not int or not 0 <= rank < n_special:
                raise TokenizerFileError(f"{location}[{index}] is {shown(entry)}, not a token with a rank")
            if named.setdefault(token, rank) != rank:
                raise TokenizerFileError(f"{location}[{index}]: {shown(token)} appears twice")
    taken = set(named.values())
    return named | {f"<SPECIAL_{i}>": i for i in range(n_special) if i not in taken}
