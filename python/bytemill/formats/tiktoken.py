"""tiktoken's rank files and its `Encoding` objects.

A rank file has one line per token with its base64 and its rank, which is both its id and its priority. It stores
neither pattern nor special tokens. They are known for published files, and come from the caller or the settings file
for others.

The settings file beside a rank file is `stories.tiktoken.json` for `stories.tiktoken`. Its fields are the arguments of
`tiktoken.Encoding` except the ranks, so that

    tiktoken.Encoding(**json.load(open("stories.tiktoken.json")), mergeable_ranks=load_tiktoken_bpe("stories.tiktoken"))

is the tokenizer. `Tokenizer.load("stories.tiktoken")` reads it too.
"""

from __future__ import annotations

import binascii
import codecs
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bytemill._core import NAMED_PATTERNS, Encoder, RankFile
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.encoder import Loaded
from bytemill.formats.files import MAX_ID, check_id, is_object, object_at, read_json, shown, wrong_value
from bytemill.formats.patterns import KIMI_K2, checked_pattern
from bytemill.formats.spec import (
    BYTES_SEPARATOR,
    STEP_SEPARATOR,
    TokenizerSpec,
    check_expressible,
    explicit_ids,
    training_left_out,
)
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import EllipsisType

    import tiktoken

    from bytemill.formats.registry import Content
    from bytemill.formats.spec import SpecialTokens

CONFIG_FILE = "tokenizer_config.json"
_PATTERNS_OF_CLASSES = {"ChatGLM4Tokenizer": "llama3", "QWenTokenizer": "qwen2"}
"""Patterns that the code of a model has, by the name of its class in tokenizer_config.json."""

_WRITE_JSON = "write a tokenizer.json"


@dataclass(frozen=True)
class KnownFile:
    """A published rank file, with what the file does not store."""

    name: str
    n_ranks: int
    sha256: str
    pattern: str
    """Name of the pattern, or an expression."""
    special_tokens: dict[str, int]


def _llama3_special_tokens() -> dict[str, int]:
    """Return the 256 special tokens of Llama 3, most of which are reserved."""
    names = ["begin_of_text", "end_of_text", *(f"reserved_special_token_{i}" for i in range(4))]
    names += ["start_header_id", "end_header_id", "reserved_special_token_4", "eot_id"]
    names += [f"reserved_special_token_{i}" for i in range(5, 251)]
    return {f"<|{name}|>": 128_000 + i for i, name in enumerate(names)}


def _llama4_special_tokens() -> dict[str, int]:
    """Return the 2,048 special tokens of Llama 4, most of which are reserved."""

    def reserved(name: str, start: int, stop: int) -> list[str]:
        return [f"{name}_reserved_special_token_{i}" for i in range(start, stop)]

    names = ["begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix"]
    names += ["header_start", "header_end", "eom", "eot", "step", *reserved("text_post_train", 0, 6)]
    names += ["python_start", "python_end", "finetune_right_pad", *reserved("text_post_train", 8, 69)]
    names += ["image_start", "image_end", *reserved("vision", 0, 2), "tile_x_separator", "tile_y_separator"]
    names += [
        *reserved("vision", 2, 6),
        "image",
        *reserved("vision", 6, 7),
        "patch",
        *reserved("vision", 7, 1048),
    ]
    names += [*reserved("reasoning", 0, 8), "reasoning_thinking_start", "reasoning_thinking_end"]
    names += [f"reserved_special_token_{i}" for i in range(2048 - len(names))]
    return {f"<|{name}|>": 200_000 + i for i, name in enumerate(names)}


def _qwen_special_tokens() -> dict[str, int]:
    """Return the special tokens of the first Qwen."""
    names = ["endoftext", "im_start", "im_end", *(f"extra_{i}" for i in range(205))]
    return {f"<|{name}|>": 151_643 + i for i, name in enumerate(names)}


def _glm4_special_tokens() -> dict[str, int]:
    """Return the special tokens of GLM-4."""
    names = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"]
    names += [f"<|{name}|>" for name in ("system", "user", "assistant", "observation")]
    names += [f"<|{part}_of_{kind}|>" for kind in ("image", "video") for part in ("begin", "end")]
    return {name: 151_329 + i for i, name in enumerate(names)}


def _kimi_special_tokens() -> dict[str, int]:
    """Return the special tokens of Kimi K2 that are not reserved ones."""
    names = {"[BOS]": 0, "[EOS]": 1, "[EOT]": 9, "[UNK]": 254, "[PAD]": 255}
    names |= {
        "<|im_end|>": 2,
        "<|im_user|>": 3,
        "<|im_assistant|>": 4,
        "<|im_system|>": 10,
        "<|im_middle|>": 17,
    }
    names |= {"<|start_header_id|>": 6, "<|end_header_id|>": 7}
    names |= {"<|tool_calls_section_begin|>": 11, "<|tool_calls_section_end|>": 12}
    names |= {"<|tool_call_begin|>": 13, "<|tool_call_argument_begin|>": 14, "<|tool_call_end|>": 15}
    return {name: 163_584 + i for name, i in names.items()}


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
    # Llama 3.1 to 3.3 have the same ranks and other names for some of the reserved tokens.
    KnownFile(
        "llama3",
        128_000,
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        "llama3",
        _llama3_special_tokens(),
    ),
    KnownFile(
        "llama4",
        200_000,
        "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
        "o200k",
        _llama4_special_tokens(),
    ),
    KnownFile(
        "qwen",
        151_643,
        "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
        "qwen2",
        _qwen_special_tokens(),
    ),
    KnownFile(
        "glm4",
        151_329,
        "5a493598071550244b2ee7f26118f3edec2150b9dfa967929a99052ac83fe716",
        "llama3",
        _glm4_special_tokens(),
    ),
    # Later models give some of the reserved ids names, which are in their tokenizer_config.json.
    KnownFile(
        "kimi-k2",
        163_584,
        "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103",
        KIMI_K2,
        _kimi_special_tokens(),
    ),
    # The ids of the other special tokens depend on the model's number of languages, 99 or 100.
    KnownFile(
        "whisper",
        50_256,
        "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126",
        "gpt2",
        {"<|endoftext|>": 50_257, "<|startoftranscript|>": 50_258},
    ),
)


def recognize(content: Content) -> bool:
    """Return whether a file's content is that of a rank file."""
    return looks_like_ranks(_lines(content))


def read(content: Content) -> TokenizerSpec:
    """Read a rank file, with the settings file beside it. Raises TokenizerFileError."""
    pattern, special_tokens = _with_settings(content)
    return from_bytes(_lines(content), content.location, pattern, special_tokens)


def load(content: Content) -> Loaded | None:
    """Load a rank file with the core; None if the reader in Python must read or reject it. Raises TokenizerError."""
    pattern, special_tokens = _with_settings(content)
    ids = None if special_tokens is None else explicit_ids(special_tokens)
    if ids is None and special_tokens is not None:
        return None
    if not all(type(token_id) is int and 0 <= token_id <= MAX_ID for token_id in (ids or {}).values()):
        return None
    data = _lines(content)
    file = RankFile.read(data)
    if file is None:
        return None
    pattern, special = complete(
        data, content.location, file.n_ranks, file.token, pattern=pattern, special_tokens=ids
    )
    return Loaded(file.encoder(special, pattern))


def _lines(content: Content) -> bytes:
    """Return the content without a byte-order mark, which tiktoken ignores too."""
    return content.data.removeprefix(codecs.BOM_UTF8)


def render(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    """Return the rank file and, unless it is a published one, its settings file. Raises as `write`."""
    ranks = write(spec)
    if is_published(ranks, spec):
        return {path: ranks.encode()}
    # The settings first: a rank file never exists without them.
    return {settings_file(path): settings_text(spec, path.stem).encode(), path: ranks.encode()}


def left_out(spec: TokenizerSpec) -> list[str]:
    """Describe what the files do not store: the order of overlapping special tokens, and statistics of training."""
    from bytemill.formats.minbpe import hidden_token

    overlapping = hidden_token(sorted(spec.special_tokens))
    if overlapping is None:
        return training_left_out(spec)
    phrase = "that {1} takes precedence over {0}, its prefix".format(*map(shown, overlapping))
    return [phrase, *training_left_out(spec)]


def looks_like_ranks(data: bytes) -> bool:
    """Return whether the first non-blank line is a base64 token and a number."""
    for line in data[:4096].splitlines():
        if line.strip():
            return _parse_line(line) is not None
    return False


def from_bytes(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read the content of a rank file.

    Args:
        data: The content.
        location: Name of the file, for errors.
        pattern: Name, regular expression or None; by default that of the published file with the same content.
        special_tokens: Special tokens, with the same default. Those without explicit ids get the ids after the highest
            rank.

    Raises:
        TokenizerFileError: A line is damaged, or the file is not a published one and `pattern` is not set.
    """
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
    """Return the pattern as a regular expression and the special tokens, with the defaults of a published file.

    Args:
        data: Content of the rank file.
        location: Name of the file, for errors.
        n_ranks: Number of tokens in the file.
        token_of: Maps a rank to its token.
        pattern: Explicit pattern, or `...`.
        special_tokens: Explicit special tokens, or None.

    Raises:
        TokenizerError: The pattern is unknown, or a special token has the id of another token.
    """
    known = _known_file(data, n_ranks)
    if pattern is ...:
        if known is None:
            raise TokenizerFileError(
                f"{location}: a rank file of {n_ranks} tokens that is not a published one; rank files store no pattern",
                hint=f"give the pattern (--pattern, pattern=): one of {', '.join(sorted(NAMED_PATTERNS))}, or a "
                f"regular expression; or put the model's {CONFIG_FILE} beside the file",
            )
        pattern = known.pattern
    pattern = checked_pattern(pattern)
    if special_tokens is None:
        special_tokens = known.special_tokens if known is not None else {}
    for text, token_id in special_tokens.items():
        token = token_of(token_id)
        if token is not None and token != text.encode():
            raise TokenizerError(
                f"special token {text!r} has id {token_id}, which belongs to another token in {location}"
            )
    return pattern, dict(special_tokens)


def _known_file(data: bytes, n_ranks: int) -> KnownFile | None:
    candidates = [known for known in KNOWN_FILES if known.n_ranks == n_ranks]
    if not candidates:
        return None
    digest = hashlib.sha256(data.replace(b"\r\n", b"\n") if b"\r" in data else data).hexdigest()
    return next((known for known in candidates if known.sha256 == digest), None)


def _parse(data: bytes, location: str) -> dict[bytes, int]:
    from bytemill.formats.spec import first_duplicate, missing_bytes

    ranks: dict[bytes, int] = {}
    n_empty = 0
    # An iterator, so that a large file of another kind fails at its first line.
    for n_lines, line in enumerate(_LINES.finditer(data), start=1):
        entry = _parse_line(line[0])
        if entry is not None:
            # An empty token, such as that of Whisper, only keeps an id free.
            if entry[0]:
                ranks[entry[0]] = entry[1]
            else:
                n_empty += 1
            if len(ranks) + n_empty == n_lines:
                continue
        problem = (
            f"{shown(line[0])} is not a base64 token and its rank"
            if entry is None
            else f"token {shown(entry[0])} appears twice"
        )
        raise TokenizerFileError(f"{location}:{_line_number(data, line.start())}: {problem}")
    if (duplicate := first_duplicate(ranks)) is not None:
        first, second, rank = duplicate
        raise TokenizerFileError(
            f"{location}: tokens {shown(first)} and {shown(second)} have the same rank {rank}"
        )
    missing = missing_bytes(ranks)
    if missing is not None:
        raise TokenizerFileError(f"{location} lacks {missing}", hint="the file may be truncated")
    return ranks


def _parse_line(line: bytes) -> tuple[bytes, int] | None:
    parts = line.split()
    if len(parts) != 2 or not parts[1].isdigit() or len(parts[1]) > 10:
        return None
    try:
        token = b"" if parts[0] == _EMPTY else binascii.a2b_base64(parts[0], strict_mode=True)
    except ValueError:
        return None
    rank = int(parts[1])
    return (token, rank) if rank <= MAX_ID else None


_LINES = re.compile(rb"[^\r\n]+")
_EMPTY = b"="
"""How files write an empty token."""


def _line_number(data: bytes, offset: int) -> int:
    """Return the number of the line at `offset`, from 1."""
    breaks = [data.count(end, 0, offset) for end in (b"\n", b"\r", b"\r\n")]
    return breaks[0] + breaks[1] - breaks[2] + 1


def write(spec: TokenizerSpec) -> str:
    """Return the text of a rank file with the ordinary tokens of `spec`.

    Raises:
        TokenizerError: Encoding by ranks would give other ids: the ids do not follow the order of the merges, or
            tiktoken would merge a token from other parts.
    """
    return "".join(
        f"{binascii.b2a_base64(token, newline=False).decode()} {rank}\n"
        for token, rank in same_ranks(spec).items()
    )


def is_published(text: str, spec: TokenizerSpec) -> bool:
    """Return whether `text`, the rank file of `spec`, is a published file with this pattern and special tokens."""
    known = _known_file(text.encode(), text.count("\n"))
    return (
        known is not None
        and spec.pattern == NAMED_PATTERNS.get(known.pattern, known.pattern)
        and spec.special_tokens == known.special_tokens
    )


def same_ranks(spec: TokenizerSpec) -> dict[bytes, int]:
    """Return the ranks, in order, that give the same ids as `spec`. Raises TokenizerError as `write` does."""
    from bytemill.formats.spec import ordinary_tokens

    check_expressible(spec, "ranks")
    ranks = {token: token_id for token_id, token in ordinary_tokens(spec).items()}
    if spec.merges is not None:
        # The core computes the merges of ranks 50 times faster; if they differ, the check below says why.
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
                f"ids do not follow the order of the merges: merge {index} produces token {rank}, "
                f"an earlier one token {highest}; a rank file has one number for both",
                hint=_WRITE_JSON,
            )
        highest = rank
    by_ranks = {left + right: (left, right) for left, right in merges_of_ranks(ranks)}
    for left, right in merges:
        parts = by_ranks.pop(left + right, None)
        if parts != (left, right):
            raise TokenizerError(
                f"ranks merge token {left + right!r} from {parts or 'nothing'}, not from {(left, right)}",
                hint=_WRITE_JSON,
            )
    # Ranks would also merge the tokens left in `by_ranks`. Other tokens without a merge can only be looked up.
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
            f"no merge produces token {orphan!r}, but a rank file produces every token", hint=_WRITE_JSON
        )


def settings_file(rank_file: Path) -> Path:
    """Return the path of the settings file of a rank file.

    >>> from pathlib import Path
    >>> settings_file(Path("stories.tiktoken")).name
    'stories.tiktoken.json'
    """
    return rank_file.with_name(rank_file.name + ".json")


def settings_text(spec: TokenizerSpec, name: str) -> str:
    """Return the text of the settings file. `name` is tiktoken's name for the encoding."""
    from bytemill.formats.spec import ordinary_tokens
    from bytemill.formats.tiktoken_patterns import pattern_to

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


def _with_settings(content: Content) -> tuple[str | EllipsisType | None, SpecialTokens | None]:
    """Return the explicit pattern and special tokens, with defaults from the settings file if there is one.

    Raises:
        TokenizerFileError: The settings file is damaged or belongs to other ranks.
    """
    pattern, special_tokens, rank_file = content.pattern, content.special_tokens, content.file
    if rank_file is None or (pattern is not ... and special_tokens is not None):
        return pattern, special_tokens
    path = settings_file(rank_file)
    config = rank_file.with_name(CONFIG_FILE)
    try:
        exists = path.is_file()
    except OSError:  # the longer name may be too long
        exists = False
    if not exists:
        return (
            _with_config(pattern, special_tokens, config) if config.is_file() else (pattern, special_tokens)
        )
    default_pattern, default_special_tokens, n_vocab = _read_settings(path)
    if n_vocab is not None:
        n_tokens = sum(1 for line in content.data.splitlines() if line) + len(default_special_tokens)
        if n_tokens != n_vocab:
            raise TokenizerFileError(
                f"{rank_file} has {n_tokens} tokens including special tokens; {path.name} says {n_vocab}",
                hint="one of the two is truncated or belongs to another tokenizer: download or write both again",
            )
    return (
        default_pattern if pattern is ... else pattern,
        default_special_tokens if special_tokens is None else special_tokens,
    )


def _with_config(
    pattern: str | EllipsisType | None, special_tokens: SpecialTokens | None, path: Path
) -> tuple[str | EllipsisType | None, SpecialTokens | None]:
    """Return the pattern and the special tokens with defaults from a model's tokenizer_config.json.

    Raises:
        TokenizerFileError: The file is damaged.
    """
    config = object_at(read_json(path), str(path), "an object")
    kind, expression = config.get("tokenizer_class"), config.get("pat_str")
    if pattern is ... and isinstance(expression, str):
        pattern = expression
    elif pattern is ... and isinstance(kind, str):
        pattern = _PATTERNS_OF_CLASSES.get(kind, pattern)
    if special_tokens is None and is_object(added := config.get("added_tokens_decoder")):
        texts = {key: token.get("content") for key, token in added.items() if is_object(token)}
        special_tokens = {
            text: int(key) for key, text in texts.items() if isinstance(text, str) and key.isdecimal()
        }
    return pattern, special_tokens


def _read_settings(path: Path) -> tuple[str | None, dict[str, int], int | None]:
    """Return the pattern, the special tokens and the number of tokens, if stored."""
    from bytemill.formats.tiktoken_patterns import pattern_from

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


class EncodingView(Protocol):
    """An `Encoding` of `bytemill.compat.tiktoken`."""

    name: str


def spec_of(encoding: Any) -> TokenizerSpec:
    """Convert a tiktoken `Encoding`. Raises TokenizerError if no tokenizer has the same ids."""
    tokenizer = getattr(encoding, "source_tokenizer", None)  # of an encoding of bytemill.compat.tiktoken
    if tokenizer is not None:
        return tokenizer.to_spec()
    try:
        ranks: Mapping[bytes, int] = encoding._mergeable_ranks
        special_tokens: Mapping[str, int] = encoding._special_tokens
        expression: str = encoding._pat_str
    except AttributeError as error:
        raise TypeError(f"expected a tiktoken Encoding, not {type(encoding).__name__}") from error
    from bytemill.formats.tiktoken_patterns import coverage_gap, pattern_from

    pattern = pattern_from(expression)
    for reserved in (STEP_SEPARATOR, BYTES_SEPARATOR):
        if pattern is not None and reserved in pattern:
            raise TokenizerError(f"the pattern {shown(pattern)} contains {reserved}, which bytemill reserves")
    if pattern is not None and (reason := coverage_gap(pattern)) is not None:
        raise TokenizerError(
            f"tiktoken drops text that the pattern {shown(pattern)} does not match, and the pattern is not known to "
            f"match all text: {reason}",
            hint=r"add alternatives for the rest, such as |\s|\S; bytemill.compat.tiktoken accepts any pattern",
        )
    check_longer_wins(encoding, special_tokens)
    return TokenizerSpec(
        pattern=pattern, special_tokens=dict(special_tokens), ranks=dict(ranks), ignore_merges=True
    )


def encoding_of(spec: TokenizerSpec, name: str) -> tiktoken.Encoding:
    """Implement `Tokenizer.to_tiktoken`."""
    tiktoken = import_library("tiktoken", "to_tiktoken")

    from bytemill.formats.tiktoken_patterns import pattern_to

    ranks, expression = same_ranks(spec), pattern_to(spec.pattern)
    try:
        encoding = tiktoken.Encoding(
            name, pat_str=expression, mergeable_ranks=ranks, special_tokens=spec.special_tokens
        )
    except ValueError as error:
        raise TokenizerError(f"tiktoken rejects the pattern {shown(expression)}: {error}") from error
    check_longer_wins(encoding, spec.special_tokens)
    return encoding


def check_longer_wins(encoding: Any, special_tokens: Mapping[str, int]) -> None:
    """Raise TokenizerError if tiktoken recognizes a special token inside a longer one that begins with it.

    In tiktoken this depends on the order of a hash table. bytemill recognizes the longer token.
    """
    lengths = sorted({len(token) for token in special_tokens})
    for token, token_id in special_tokens.items():
        for length in lengths:
            if length >= len(token):
                break
            prefix = token[:length]
            if prefix in special_tokens and encoding.encode(token, allowed_special="all") != [token_id]:
                raise TokenizerError(
                    f"special token {token!r} begins with {prefix!r}, and tiktoken recognizes the shorter of the two, "
                    "bytemill the longer"
                )
