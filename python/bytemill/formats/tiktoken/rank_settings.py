"""The settings file beside a rank file: `stories.tiktoken.json` for `stories.tiktoken`.

Its fields are the arguments of `tiktoken.Encoding` except the ranks, so that

    tiktoken.Encoding(**json.load(open("stories.tiktoken.json")), mergeable_ranks=load_tiktoken_bpe("stories.tiktoken"))

is the tokenizer. `Tokenizer.load("stories.tiktoken")` reads it too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import checked_pattern, object_at, read_json, shown, wrong_value
from bytemill.formats.ids import check_id

if TYPE_CHECKING:
    from pathlib import Path
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens, TokenizerSpec


def settings_file(rank_file: Path) -> Path:
    """Return the path of the settings file of a rank file.

    >>> from pathlib import Path
    >>> settings_file(Path("stories.tiktoken")).name
    'stories.tiktoken.json'
    """
    return rank_file.with_name(rank_file.name + ".json")


def write(spec: TokenizerSpec, name: str) -> str:
    """Return the text of the settings file. `name` is tiktoken's name for the encoding."""
    from bytemill.formats.tiktoken.pattern import pattern_to
    from bytemill.formats.vocabulary import ordinary_tokens

    special_tokens = dict(sorted(spec.special_tokens.items(), key=lambda item: item[1]))
    settings: dict[str, Any] = {
        "name": name,
        "pat_str": pattern_to(spec.pattern),
        "special_tokens": special_tokens,
    }
    ordinary = ordinary_tokens(spec)
    n_tokens = len(ordinary) + len(special_tokens)
    if max([*ordinary, *special_tokens.values()]) == n_tokens - 1:
        # tiktoken compares it with the number of tokens, so it is valid only for ids without gaps.
        settings["explicit_n_vocab"] = n_tokens
    return json.dumps(settings, ensure_ascii=False, indent=2) + "\n"


def with_settings(
    rank_file: Path,
    data: bytes,
    pattern: str | EllipsisType | None,
    special_tokens: SpecialTokens | None,
) -> tuple[str | EllipsisType | None, SpecialTokens | None]:
    """Return the explicit pattern and special tokens, with defaults from the settings file if there is one.

    Args:
        rank_file: Path of the rank file.
        data: Its content.
        pattern: Explicit pattern, or `...`.
        special_tokens: Explicit special tokens, or None.

    Raises:
        TokenizerFileError: The settings file is damaged or belongs to other ranks.
    """
    if pattern is not ... and special_tokens is not None:
        return pattern, special_tokens
    path = settings_file(rank_file)
    try:
        exists = path.is_file()
    except OSError:  # the longer name may be too long
        exists = False
    if not exists:
        return pattern, special_tokens
    default_pattern, default_special_tokens, n_vocab = _read(path)
    if n_vocab is not None:
        n_tokens = sum(1 for line in data.splitlines() if line) + len(default_special_tokens)
        if n_tokens != n_vocab:
            raise TokenizerFileError(
                f"{rank_file} has {n_tokens} tokens including special tokens; {path.name} says {n_vocab}",
                hint="one of the two is truncated or belongs to another tokenizer: download or write both again",
            )
    return (
        default_pattern if pattern is ... else pattern,
        default_special_tokens if special_tokens is None else special_tokens,
    )


def _read(path: Path) -> tuple[str | None, dict[str, int], int | None]:
    """Return the pattern, the special tokens and the number of tokens, if stored."""
    from bytemill.formats.tiktoken.pattern import pattern_from

    location = str(path)
    settings = object_at(read_json(path), location, "an object with pat_str and special_tokens")
    expression = settings.get("pat_str")
    if not isinstance(expression, str):
        raise wrong_value(f"{location}: pat_str", expression, "a regular expression")
    special_tokens = object_at(
        settings.get("special_tokens"), f"{location}: special_tokens", "an object of tokens and ids"
    )
    for text, token_id in special_tokens.items():
        check_id(token_id, f"{location}: special_tokens[{shown(text)}]")
    n_vocab = settings.get("explicit_n_vocab")
    if n_vocab is not None:
        check_id(n_vocab, f"{location}: explicit_n_vocab")
    try:
        pattern = pattern_from(expression)
        return None if pattern is None else checked_pattern(pattern), special_tokens, n_vocab
    except TokenizerError as error:
        raise TokenizerFileError(f"{location}: pat_str: {error}") from error
