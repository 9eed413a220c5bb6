"""Options of tokenizer training, validated before anything is read."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from bytemill.errors import TokenizerError
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.storage import url_of
from bytemill.storage.files import working_path
from bytemill.training.memory_budget import MemoryBudget, parse_max_memory

if TYPE_CHECKING:
    import os

    from bytemill.formats.spec import Ties
    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training.token_rules import TokenRules

_MAX_TOKENS = (1 << 21) - 1
"""Ordinary tokens that a vocabulary of the core can hold."""
_MAX_THREADS = 4096
_MAX_CHUNK_BYTES = 1 << 30
"""Chunks are allocated whole, several per thread."""
_MAX_COUNT = (1 << 64) - 1

SPECIAL_TOKENS = ("<|endoftext|>",)
"""Special tokens of a tokenizer for which none are named: what ends documents."""

CHECKPOINT_SECONDS = 30.0
"""Default time between checkpoints of counting, and so the most work that an interruption loses."""


@dataclass(frozen=True)
class TrainingOptions:
    """Options of `bytemill.train`; see there."""

    special_tokens: list[str]
    n_merges: int
    pattern: str | None
    ties: Ties
    min_pretoken_count: int
    min_frequency: int
    special_ids: Literal["last", "first"]
    num_threads: int | None
    chunk_bytes: int | None
    budget: MemoryBudget | None
    counts: Path | None
    """File of counts to read or to write."""
    work_folder: Path | None
    """Folder of runs and checkpoints that a later call can find; None for a temporary one."""
    checkpoint_seconds: float
    base: Tokenizer | None = None
    """The tokenizer whose merges training continues."""
    token_rules: TokenRules | None = None
    first: Tokenizer | None = None
    """The bytes, and merges that come before those that are learned."""

    @property
    def rules(self) -> str | None:
        """What besides pattern and special tokens determines pre-tokens."""
        return None if self.base is None else self.base.text_rules


def training_options(
    vocab_size: int,
    special_tokens: Iterable[str],
    *,
    pattern: str | Pattern | None,
    ties: Ties,
    min_pretoken_count: int,
    min_frequency: int,
    special_ids: Literal["last", "first"],
    num_threads: int | None,
    chunk_bytes: int | None,
    max_memory: int | str | None,
    counts: str | os.PathLike[str] | None,
    work_folder: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    token_rules: TokenRules | None = None,
    first: Tokenizer | None = None,
) -> TrainingOptions:
    """Validate the arguments of `bytemill.train`.

    Raises:
        TokenizerError: A value is out of range.
        TypeError: A value has the wrong type.
    """
    special = _checked_special(special_tokens)
    n_merges = _n_merges(vocab_size, special)
    expression = resolve_pattern(pattern)
    if first is not None:
        if len(first.merges) > n_merges:
            raise TokenizerError(
                f"vocab_size {vocab_size} has no room for the {len(first.merges)} merges that come first",
                hint=f"use at least {256 + len(special) + len(first.merges)}",
            )
        n_merges -= len(first.merges)
    check_one_of("ties", ties, ("bytes", "huggingface"))
    check_one_of("special_ids", special_ids, ("last", "first"))
    check_int("min_frequency", min_frequency, 1, _MAX_COUNT)
    check_int("min_pretoken_count", min_pretoken_count, 1, _MAX_COUNT)
    if num_threads is not None:
        check_int("num_threads", num_threads, 1, _MAX_THREADS)
    if chunk_bytes is not None:
        check_int("chunk_bytes", chunk_bytes, 1, _MAX_CHUNK_BYTES)
    counts_path = None if counts is None else Path(counts)
    if work_folder is not None:
        work_path = Path(work_folder)
    else:
        work_path = None if counts_path is None else checkpoint_folder(counts_path)
    return TrainingOptions(
        special_tokens=special,
        n_merges=n_merges,
        pattern=expression,
        ties=ties,
        min_pretoken_count=min_pretoken_count,
        min_frequency=min_frequency,
        special_ids=special_ids,
        num_threads=num_threads,
        chunk_bytes=chunk_bytes,
        budget=None if max_memory is None else MemoryBudget(parse_max_memory(max_memory)),
        counts=counts_path,
        work_folder=work_path,
        checkpoint_seconds=checkpoint_seconds,
        token_rules=token_rules,
        first=first,
    )


def checkpoint_folder(output: Path) -> Path:
    """Return the folder for checkpoints beside an output or a file of counts, on this machine."""
    path = output if (url := url_of(output)) is None else working_path(url)
    return path.with_name(f".{path.name}.counting")


def check_one_of(name: str, value: object, choices: tuple[str, str]) -> None:
    """Raise `TokenizerError` unless `value` is one of two choices."""
    if value not in choices:
        raise TokenizerError(f"{name} is {value!r}", hint=f"use {choices[0]!r} or {choices[1]!r}")


def _checked_special(special_tokens: Any) -> list[str]:
    if isinstance(special_tokens, str):
        raise TokenizerError(
            "special_tokens is a str, not a list of str", hint=f"use special_tokens=[{special_tokens!r}]"
        )
    is_iterable = isinstance(special_tokens, Iterable)
    special = list(cast("Iterable[Any]", special_tokens)) if is_iterable else [special_tokens]
    if not all(isinstance(token, str) for token in special):
        raise TypeError(f"special_tokens must be a list of str, not {special_tokens!r:.80}")
    for token, n_times in Counter(special).items():
        if not token:
            raise TokenizerError("a special token is empty", hint="remove it: it would match everywhere")
        if n_times > 1:
            raise TokenizerError(f"special token {token!r} occurs twice", hint="name it once")
        if any("\ud800" <= character <= "\udfff" for character in token):
            raise TokenizerError(
                f"special token {token!r} contains a lone surrogate", hint="use complete characters"
            )
    return special


def _n_merges(vocab_size: int, special: list[str]) -> int:
    smallest = 256 + len(special)
    vocab_size = _as_int("vocab_size", vocab_size)
    if vocab_size < smallest:
        n_special = "1 special token" if len(special) == 1 else f"{len(special)} special tokens"
        raise TokenizerError(
            f"vocab_size {vocab_size} is too small: 256 bytes and {n_special} make {smallest}",
            hint=f"use a vocab_size of at least {smallest}",
        )
    largest = _MAX_TOKENS + len(special)
    if vocab_size > largest:
        raise TokenizerError(
            f"vocab_size {vocab_size} is too large: at most {_MAX_TOKENS} ordinary tokens are supported",
            hint=f"use a vocab_size of at most {largest}",
        )
    return vocab_size - smallest


def _as_int(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__} ({value!r:.40})") from None


def check_int(name: str, value: Any, smallest: int, largest: int) -> None:
    """Raise `TokenizerError` unless `value` is in a range, TypeError unless it is an integer."""
    number = _as_int(name, value)
    if not smallest <= number <= largest:
        bound = f"at least {smallest}" if number < smallest else f"at most {largest}"
        raise TokenizerError(f"{name} is {number}", hint=f"use a {name} of {bound}")
