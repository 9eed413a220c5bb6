"""Extension of a tokenizer by merges and words that its own merges precede.

New merges come after all others, so they change only what the old ones leave over: where none of them applies, ids are
those of the base, and the base is what remains without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import CorpusError, TokenizerError
from bytemill.formats.huggingface.exchange import without_special_tokens
from bytemill.formats.spec import TokenFlags
from bytemill.tokenizer.surgery.vocabulary import RESERVED, check_byte_level, free_ids

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from bytemill.formats.spec import TokenizerSpec
    from bytemill.tokenizer.tokenizer import Tokenizer

Merge = tuple[bytes, bytes]


@dataclass(frozen=True)
class WordTokens:
    """A word that was added, and the new tokens on the way to it."""

    word: str
    tokens: list[bytes]
    """New tokens in the order of their merges, the word's own last. Empty if the word was a token already."""


@dataclass(frozen=True)
class AddedWords:
    """A tokenizer with more words as tokens."""

    tokenizer: Tokenizer
    words: list[WordTokens]


def with_merges(
    spec: TokenizerSpec,
    merges: Sequence[Merge],
    counts: Sequence[int] | None = None,
    *,
    reserved: str | None = None,
) -> TokenizerSpec:
    """Return a tokenizer with further merges, each of which makes a new token.

    Args:
        spec: The base.
        merges: The new merges in order.
        counts: The count of each pair in the corpus when it was merged; kept if the base has such counts.
        reserved: Give new tokens the ids of special tokens whose text matches this expression, and ids without a
            token, before the next ids.
    """
    tokens = [left + right for left, right in merges]
    ids, replaced = _new_ids(spec, len(tokens), reserved)
    if replaced:
        spec = without_special_tokens(spec, replaced)
    if spec.ranks is not None:
        return replace(spec, ranks={**spec.ranks, **dict(zip(tokens, ids, strict=True))})
    has_counts = spec.merge_counts is not None and counts is not None
    return replace(
        spec,
        vocab={**spec.vocab, **dict(zip(ids, tokens, strict=True))},
        merges=[*(spec.merges or []), *merges],
        merge_counts=[*(spec.merge_counts or []), *(counts or [])] if has_counts else None,
    )


def add_words(
    base: Tokenizer,
    words: Iterable[str],
    *,
    as_added: bool = False,
    reuse_reserved: bool | str = False,
) -> AddedWords:
    """Make words tokens of a tokenizer.

    A word becomes a token through merges of what the tokenizer splits it into, from the left. Each beginning of it on
    the way is a token too. All merges of the base come before the new ones, so text without these words keeps its ids,
    unless it has one of those beginnings.

    Args:
        base: A byte-level BPE tokenizer.
        words: The words as they appear in texts: a word after a space begins with the space.
        as_added: Add them beside the vocabulary instead, as added tokens that are searched before the text is split.
            They need no merges, and match inside of other words too.
        reuse_reserved: Use ids without a token and those of reserved special tokens first: True for tokens like
            `<|reserved_special_token_7|>`, or a regular expression.

    Returns:
        The new tokenizer, and the new tokens of each word.

    Raises:
        TokenizerError: The base is not byte-level BPE; its pattern divides a word, or its normalizer changes one; or a
            beginning of a word is a token that no merge makes.

    >>> import bytemill
    >>> base = bytemill.train_from_iterator(["low lower lowest"], 258, [], pattern="gpt2")
    >>> added = add_words(base, ["lowest"])
    >>> [word.tokens for word in added.words]
    [[b'lowe', b'lowes', b'lowest']]
    >>> added.tokenizer.encode("lowest")
    [260]
    """
    spec = check_byte_level(base, "extend")
    check_reserved(spec, reuse_reserved)
    reserved = reserved_expression(reuse_reserved)
    words = list(dict.fromkeys(words))
    for word in words:
        _check_text(word)
    if as_added:
        return _with_added_tokens(base, spec, words, reserved)
    for word in words:
        _check_word(base, word)
    vocab = base.vocab
    known = set(vocab.values()) | {text.encode() for text in base.special_tokens}
    merges: list[Merge] = []
    order: dict[Merge, int] = {}
    added: list[WordTokens] = []
    for word in words:
        parts = _merged([vocab[i] for i in base.encode_ordinary(word)], order)
        new: list[bytes] = []
        while len(parts) > 1:
            merge = parts[0], parts[1]
            token = parts[0] + parts[1]
            if token in known:
                raise TokenizerError(
                    f"{word!r} cannot become a token: {token!r}, which it begins with, is a token that no merge makes",
                    hint="add the word beside the vocabulary: --as-added (as_added=True)",
                )
            known.add(token)
            order[merge] = len(merges)
            merges.append(merge)
            new.append(token)
            parts = _merged(parts, order)
        added.append(WordTokens(word, new))
    counts = [0] * len(merges)
    return AddedWords(type(base).from_spec(with_merges(spec, merges, counts, reserved=reserved)), added)


def read_words(path: str | os.PathLike[str]) -> list[str]:
    """Return the words of a file, one per line. Spaces belong to the word; empty lines are left out.

    Raises:
        CorpusError: The file cannot be read, or is not UTF-8.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8: byte {error.start}") from error
    words = [line for line in text.splitlines() if line]
    if not words:
        raise CorpusError(f"{path} has no words", hint="write one word per line")
    return words


def reserved_expression(reuse_reserved: bool | str) -> str | None:
    """Return the expression of reserved special tokens, or None to leave them alone."""
    return RESERVED if reuse_reserved is True else reuse_reserved or None


def check_reserved(spec: TokenizerSpec, reuse_reserved: bool | str) -> None:
    """Raise TokenizerError if the expression is none, or if ranks do not allow tokens with free ids."""
    reserved = reserved_expression(reuse_reserved)
    if reserved is None:
        return
    free, _ = free_ids(spec, reserved)
    if spec.ranks is not None and free and free[0] < (last := max(spec.ranks.values())):
        raise TokenizerError(
            f"ids are ranks here, and a token with the free id {free[0]} would be merged before that of the id {last}",
            hint="use the next ids: leave out --reuse-reserved (reuse_reserved=)",
        )


def _merged(parts: list[bytes], order: dict[Merge, int]) -> list[bytes]:
    """Apply merges to parts: the first one in order wherever it occurs, then the next."""
    parts = list(parts)
    while len(parts) > 1:
        first = min(pairwise(parts), key=lambda pair: order.get(pair, len(order)))
        if first not in order:
            break
        at = next(at for at, pair in enumerate(pairwise(parts)) if pair == first)
        parts[at : at + 2] = [first[0] + first[1]]
    return parts


def _with_added_tokens(
    base: Tokenizer, spec: TokenizerSpec, words: Sequence[str], reserved: str | None
) -> AddedWords:
    new = [word for word in words if word not in spec.special_tokens and base.token_to_id(word) is None]
    ids, replaced = _new_ids(spec, len(new), reserved)
    if replaced:
        spec = without_special_tokens(spec, replaced)
    flags = {word: TokenFlags(special=False) for word in new}
    special = {**spec.special_tokens, **dict(zip(new, ids, strict=True))}
    spec = replace(spec, special_tokens=special, flags={**spec.flags, **flags})
    added = set(new)
    tokens = [WordTokens(word, [word.encode()] if word in added else []) for word in words]
    return AddedWords(type(base).from_spec(spec), tokens)


def _new_ids(spec: TokenizerSpec, n_tokens: int, reserved: str | None) -> tuple[list[int], dict[str, int]]:
    """Return ascending ids for new tokens, and the reserved special tokens that they replace."""
    free, tokens = free_ids(spec, reserved) if reserved is not None else ([], {})
    free = free[:n_tokens]
    taken = {*spec.vocab, *(spec.ranks or {}).values(), *spec.special_tokens.values()}
    first = max(taken) + 1
    used = set(free)
    ids = [*free, *range(first, first + n_tokens - len(free))]
    return ids, {text: token_id for text, token_id in tokens.items() if token_id in used}


def _check_text(word: str) -> None:
    if not isinstance(word, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"words must be str, not {type(word).__name__}")
    if not word:
        raise TokenizerError("a word is empty", hint="remove the empty line")
    if any("\ud800" <= character <= "\udfff" for character in word):
        raise TokenizerError(f"the word {word!a} contains a lone surrogate, which UTF-8 cannot encode")


def _check_word(base: Tokenizer, word: str) -> None:
    """Raise TokenizerError unless a word is one pre-token in a text."""
    data = base.decode_bytes(base.encode(word))
    if data != word.encode():
        raise TokenizerError(
            f"the word {word!r} cannot be a token: the normalizer makes {data.decode('utf-8', 'replace')!r} of it",
            hint="write it as the normalizer does",
        )
    pretokens = base.explain(word)
    if len(pretokens) > 1:
        parts = " | ".join(repr(part.text) for part in pretokens)
        raise TokenizerError(
            f"the word {word!r} cannot be a token under this pattern, which splits it: {parts}",
            hint="add it beside the vocabulary: --as-added (as_added=True)",
        )
