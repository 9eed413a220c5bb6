"""What a rank file leaves out, in a JSON file beside it: `stories.tiktoken.json` for `stories.tiktoken`.

Its fields are the arguments of `tiktoken.Encoding` but for the ranks, so that

    tiktoken.Encoding(**json.load(open("stories.tiktoken.json")), mergeable_ranks=load_tiktoken_bpe("stories.tiktoken"))

is the tokenizer. Who opens the rank file with bytemill need not name them either.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import checked_pattern, decode_utf8, is_object, parse_json, read_bytes, shown
from bytemill.formats.ids import check_id

if TYPE_CHECKING:
    from pathlib import Path
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens, TokenizerSpec


def settings_file(rank_file: Path) -> Path:
    """The file that says what `rank_file` leaves out.

    >>> from pathlib import Path
    >>> settings_file(Path("stories.tiktoken")).name
    'stories.tiktoken.json'
    """
    return rank_file.with_name(rank_file.name + ".json")


def write(spec: TokenizerSpec, name: str) -> str:
    """The text of the file beside the ranks of `spec`. `name` is tiktoken's name for the encoding."""
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
        # tiktoken compares this number with the tokens that there are, and takes it only where ids have no gaps.
        settings["explicit_n_vocab"] = n_tokens
    return json.dumps(settings, ensure_ascii=False, indent=2) + "\n"


def with_settings(
    rank_file: Path,
    data: bytes,
    pattern: str | EllipsisType | None,
    special_tokens: SpecialTokens | None,
) -> tuple[str | EllipsisType | None, SpecialTokens | None]:
    """`pattern` and `special_tokens`, or what the file beside `rank_file` says where they are not given.

    `data` is what the rank file holds. Raises TokenizerFileError where the other one is damaged or belongs to
    other ranks.
    """
    if pattern is not ... and special_tokens is not None:
        return pattern, special_tokens
    beside = settings_file(rank_file)
    try:
        is_there = beside.is_file()
    except OSError:  # the longer name may be too long
        is_there = False
    if not is_there:
        return pattern, special_tokens
    own_pattern, own_special_tokens, n_vocab = _read(beside)
    if n_vocab is not None:
        n_tokens = sum(1 for line in data.splitlines() if line) + len(own_special_tokens)
        if n_tokens != n_vocab:
            raise TokenizerFileError(
                f"{rank_file} has with its special tokens {n_tokens} tokens, and {beside.name} says {n_vocab}",
                hint="One of the two is cut short or another tokenizer's: fetch or write both again.",
            )
    return (
        own_pattern if pattern is ... else pattern,
        own_special_tokens if special_tokens is None else special_tokens,
    )


def _read(path: Path) -> tuple[str | None, dict[str, int], int | None]:
    """Pattern, special tokens and the number of tokens, where the file says it."""
    location = str(path)
    settings = parse_json(decode_utf8(read_bytes(path), location), location)
    if not is_object(settings):
        raise TokenizerFileError(
            f"{location} is {shown(settings)}, not an object with pat_str and special_tokens"
        )
    pattern = settings.get("pat_str")
    if not isinstance(pattern, str):
        raise TokenizerFileError(f"{location}: pat_str is {shown(pattern)}, not an expression")
    special_tokens: Any = settings.get("special_tokens")
    if not is_object(special_tokens):
        raise TokenizerFileError(
            f"{location}: special_tokens is {shown(special_tokens)}, not an object of tokens and ids"
        )
    for text, token_id in special_tokens.items():
        check_id(token_id, f"{location}: special_tokens[{shown(text)}]")
    n_vocab = settings.get("explicit_n_vocab")
    if n_vocab is not None:
        check_id(n_vocab, f"{location}: explicit_n_vocab")
    try:
        from bytemill.formats.tiktoken.pattern import pattern_from

        own = pattern_from(pattern)
        expression = None if own is None else checked_pattern(own)
    except TokenizerError as error:
        raise TokenizerFileError(f"{location}: pat_str: {error}") from error
    return expression, special_tokens, n_vocab
