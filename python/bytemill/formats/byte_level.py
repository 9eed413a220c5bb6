"""Vocabularies and merges as files spell them, with a character for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.bytes_to_unicode import (
    CHARACTER_TO_BYTE,
    bytes_to_text,
    first_foreign_character,
    text_to_bytes,
)
from bytemill.formats.files import is_object, shown
from bytemill.formats.ids import MAX_ID, check_id
from bytemill.formats.vocabulary import missing_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bytemill.formats.spec import TokenizerSpec


def checked_vocab(vocab: Any, place: str) -> dict[str, int]:
    """A JSON value as spelling -> id.

    Raises TokenizerFileError where it is no object, is empty, or an id is none or stands twice.
    """
    if not is_object(vocab):
        raise TokenizerFileError(f"{place}: is {shown(vocab)}, not an object of tokens and ids")
    if not vocab:
        raise TokenizerFileError(f"{place}: is empty")
    ids = vocab.values()
    well_formed = set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= MAX_ID
    if not well_formed or len(set(ids)) != len(vocab):
        seen: dict[int, str] = {}
        for text, token_id in vocab.items():
            check_id(token_id, f"{place}[{shown(text)}]")
            if token_id in seen:
                raise TokenizerFileError(
                    f"{place}: {shown(seen[token_id])} and {shown(text)} have the same id {token_id}"
                )
            seen[token_id] = text
    return vocab


def tokens_and_merges(
    vocab: Mapping[str, int],
    pairs: Sequence[Sequence[str]],
    special_tokens: Mapping[str, int],
    *,
    vocab_location: str,
    merge_location: Callable[[int], str],
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The ordinary tokens by id and the merges, as bytes.

    `vocab` may hold the special tokens. One that is a single byte or the product of a merge is an ordinary
    token as well, of the same id. Raises TokenizerFileError where a spelling is none, a special token has an
    ordinary token's id, a byte has no token, or a merge is there twice or of tokens that are not.
    """
    products = {left + right for left, right in pairs}
    bytes_of = _bytes_by_text(vocab, special_tokens, vocab_location)
    for text, token_id in special_tokens.items():
        token = bytes_of.get(text)
        if token is None:
            continue
        is_ordinary = len(text) == 1 or text in products
        if not is_ordinary:
            del bytes_of[text]
        elif token != text.encode():
            raise TokenizerFileError(
                f"{vocab_location}[{shown(text)}]: id {token_id} is both the bytes {token!r} and a special token"
            )
    tokens = {vocab[text]: token for text, token in bytes_of.items()}
    _check_special_ids(special_tokens, tokens, vocab_location)
    missing = missing_bytes(tokens.values())
    if missing is not None:
        raise TokenizerFileError(
            f"{vocab_location}: lacks {missing}",
            hint="Byte-level BPE needs a token for each byte; Hugging Face's trainer gives them with "
            "initial_alphabet=ByteLevel.alphabet().",
        )
    return tokens, _merges_as_bytes(pairs, products, bytes_of, merge_location)


def byte_level_vocab(
    spec: TokenizerSpec, tokens: Mapping[int, bytes], *, ignore_merges: bool
) -> dict[str, int]:
    """Ordinary and special tokens by spelling, in the order of the ids.

    Raises TokenizerError where a special token's text is the spelling of other bytes that are a token, or
    (with `ignore_merges`) that could be a pre-token, and where a token that is both ordinary and
    special is spelled otherwise than its text.
    """
    vocab = {bytes_to_text(token): token_id for token_id, token in tokens.items()}
    for text, token_id in spec.special_tokens.items():
        if token_id in tokens and vocab.get(text) != token_id:
            raise TokenizerError(
                f"special token {text!r} is the ordinary token with id {token_id} as well, which a file of this "
                f"format spells {bytes_to_text(tokens[token_id])!r}: it cannot say that the two are one"
            )
        if vocab.setdefault(text, token_id) != token_id:
            raise TokenizerError(
                f"special token {text!r} (id {token_id}) is spelled like the ordinary token with id "
                f"{vocab[text]}, and a file of this format can hold only one of the two"
            )
        if ignore_merges and _spells_other_bytes(text):
            raise TokenizerError(
                f"special token {text!r} is how a file of this format spells the bytes "
                f"{text_to_bytes(text)!r}, which would become this token where they are a whole pre-token"
            )
    return dict(sorted(vocab.items(), key=lambda item: item[1]))


def _spells_other_bytes(text: str) -> bool:
    return CHARACTER_TO_BYTE.keys() >= set(text) and text_to_bytes(text) != text.encode()


def _bytes_by_text(
    vocab: Mapping[str, int], special_tokens: Mapping[str, int], place: str
) -> dict[str, bytes]:
    """The bytes of every spelling; special tokens that spell nothing are left out."""
    texts = [text for text in vocab if text not in special_tokens]
    try:
        bytes_of = dict(zip(texts, [text_to_bytes(text) for text in texts], strict=True))
    except ValueError:
        text, character = next(
            (text, character) for text in texts if (character := first_foreign_character(text)) is not None
        )
        raise TokenizerFileError(
            f"{place}[{shown(text)}]: {character!r} is none of the 256 characters that stand for bytes",
            hint="bytemill reads byte-level BPE; a special token must be declared as one.",
        ) from None
    if "" in bytes_of:
        raise TokenizerFileError(f"{place}['']: a token is empty")
    for text in special_tokens:
        if text in vocab and first_foreign_character(text) is None:
            bytes_of[text] = text_to_bytes(text)
    return bytes_of


def _check_special_ids(special_tokens: Mapping[str, int], tokens: Mapping[int, bytes], place: str) -> None:
    by_id: dict[int, str] = {}
    for text, token_id in special_tokens.items():
        if by_id.setdefault(token_id, text) != text:
            raise TokenizerFileError(
                f"{place}: special tokens {shown(by_id[token_id])} and {shown(text)} have one id, {token_id}"
            )
        if tokens.get(token_id, text.encode()) != text.encode():
            raise TokenizerFileError(
                f"{place}: id {token_id} is both {shown(tokens[token_id])} and special token {shown(text)}"
            )


def _merges_as_bytes(
    pairs: Sequence[Sequence[str]],
    products: set[str],
    bytes_of: Mapping[str, bytes],
    merge_location: Callable[[int], str],
) -> list[tuple[bytes, bytes]]:
    # The same merge twice would be the same product twice, so equal numbers save the closer look.
    if len(products) != len(pairs):
        first_seen: dict[tuple[str, ...], int] = {}
        for index, pair in enumerate(pairs):
            before = first_seen.setdefault(tuple(pair), index)
            if before != index:
                raise TokenizerFileError(
                    f"{merge_location(index)}: {shown(tuple(pair))} is there already: {merge_location(before)}"
                )
    try:
        merges = [(bytes_of[left], bytes_of[right]) for left, right in pairs]
    except KeyError:
        merges = None
    if merges is not None and bytes_of.keys() >= products:
        return merges
    place, unknown = next(
        (merge_location(index), text)
        for index, (left, right) in enumerate(pairs)
        for text in (left, right, left + right)
        if text not in bytes_of
    )
    raise TokenizerFileError(f"{place}: {shown(unknown)} is not an ordinary token of the vocabulary")
