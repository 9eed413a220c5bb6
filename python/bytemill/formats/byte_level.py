"""Byte-level text: vocabularies and merges as files store them, with one character per byte.

GPT-2's mapping: bytes that are visible Latin-1 characters map to themselves; the other 68 (controls, space, NBSP, soft
hyphen) map to the characters from U+0100 on, in byte order. So "Ġ" (U+0120) is the space.
"""

from __future__ import annotations

import codecs
from itertools import count
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import MAX_ID, check_id, is_object, object_at, shown
from bytemill.formats.spec import NEVER_IN_UTF8, first_duplicate, missing_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bytemill.formats.spec import TokenizerSpec


def _alphabet() -> str:
    unchanged = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    replacements = count(0x100)
    return "".join(chr(byte if byte in unchanged else next(replacements)) for byte in range(256))


ALPHABET: str = _alphabet()
"""The 256 characters: `ALPHABET[byte]` stands for `byte`."""

BYTE_TO_CHARACTER: dict[int, str] = dict(enumerate(ALPHABET))
CHARACTER_TO_BYTE: dict[str, int] = {character: byte for byte, character in enumerate(ALPHABET)}

# CPython's codec machinery maps a whole token in C: 0.2 µs per token, against 1 µs for a loop over its bytes.
_ENCODING_MAP = codecs.charmap_build(ALPHABET)


def bytes_to_text(token: bytes) -> str:
    """Return the byte-level text of `token`.

    >>> bytes_to_text(" é".encode())
    'ĠÃ©'
    """
    return codecs.charmap_decode(token, "strict", ALPHABET)[0]  # pyright: ignore[reportArgumentType]


def text_to_bytes(text: str) -> bytes:
    """Return the bytes of a byte-level text. Raises ValueError for any other character.

    >>> text_to_bytes("ĠÃ©")
    b' \\xc3\\xa9'
    """
    return codecs.charmap_encode(text, "strict", _ENCODING_MAP)[0]


def first_foreign_character(text: str) -> str | None:
    """Return the first character of `text` that stands for no byte, if any."""
    return next((character for character in text if character not in CHARACTER_TO_BYTE), None)


def is_vocabulary(document: Any) -> bool:
    """Return whether most values of a JSON object are ids. The reader reports those that are not."""
    if not is_object(document) or not document:
        return False
    return sum(type(value) is int for value in document.values()) * 2 > len(document)


def checked_vocab(vocab: Any, location: str) -> dict[str, int]:
    """Return a JSON value as byte-level text -> id.

    Raises:
        TokenizerFileError: It is not an object, it is empty, or an id is invalid or not unique.
    """
    vocab = object_at(vocab, location, "an object of tokens and ids")
    if not vocab:
        raise TokenizerFileError(f"{location} is empty")
    ids = vocab.values()
    if not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= MAX_ID):
        for text, token_id in vocab.items():
            check_id(token_id, f"{location}[{shown(text)}]")
    if (duplicate := first_duplicate(vocab)) is not None:
        first, second, token_id = duplicate
        raise TokenizerFileError(
            f"{location}: {shown(first)} and {shown(second)} have the same id {token_id}"
        )
    return vocab


def tokens_and_merges(
    vocab: Mapping[str, int],
    pairs: Sequence[Sequence[str]],
    special_tokens: Mapping[str, int],
    *,
    vocab_location: str,
    merge_location: Callable[[int], str],
    may_lack_bytes: bool = False,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Return the ordinary tokens by id and the merges, as bytes.

    A special token that is a single byte of UTF-8 or the product of a merge is also an ordinary token with the same id.

    Args:
        vocab: Byte-level text -> id; may contain the special tokens.
        pairs: The merges as byte-level text.
        special_tokens: Special tokens and their ids.
        vocab_location: Location of the vocabulary, for errors.
        merge_location: Location of a merge by index, for errors.
        may_lack_bytes: Whether bytes may have no token.

    Raises:
        TokenizerFileError: A token is not byte-level text, a special token has the id of another token, a byte has no
            token, or a merge appears twice or uses an unknown token.
    """
    products = {left + right for left, right in pairs}
    bytes_of = _bytes_by_text(vocab, special_tokens, vocab_location)
    for text, token_id in special_tokens.items():
        token = bytes_of.get(text)
        if token is None:
            continue
        is_ordinary = len(text) == 1 or text in products
        if not is_ordinary or (token in NEVER_IN_UTF8 and not any(text in pair for pair in pairs)):
            del bytes_of[text]
        elif token != text.encode():
            raise TokenizerFileError(
                f"{vocab_location}[{shown(text)}]: id {token_id} is both the bytes {token!r} and a special token"
            )
    tokens = {vocab[text]: token for text, token in bytes_of.items()}
    _check_special_ids(special_tokens, tokens, vocab_location)
    missing = missing_bytes(tokens.values())
    if missing is not None and not may_lack_bytes:
        raise TokenizerFileError(
            f"{vocab_location} lacks {missing}",
            hint="byte-level BPE needs a token for each byte; pass initial_alphabet=ByteLevel.alphabet() to "
            "Hugging Face's trainer",
        )
    return tokens, _merges_as_bytes(pairs, products, bytes_of, merge_location)


def byte_level_vocab(
    spec: TokenizerSpec, tokens: Mapping[int, bytes], *, ignore_merges: bool
) -> dict[str, int]:
    """Return ordinary and special tokens as byte-level text -> id, in id order.

    Args:
        spec: The tokenizer.
        tokens: Its ordinary tokens by id.
        ignore_merges: Whether the file looks up whole pre-tokens.

    Raises:
        TokenizerError: A special token's text is the byte-level text of another token, or (with `ignore_merges`) of
            bytes that could be a pre-token.
    """
    vocab = {bytes_to_text(token): token_id for token_id, token in tokens.items()}
    for text, token_id in spec.special_tokens.items():
        if token_id in tokens and vocab.get(text) != token_id:
            raise TokenizerError(
                f"special token {text!r} is also the ordinary token with id {token_id}, which this format writes as "
                f"{bytes_to_text(tokens[token_id])!r}: it cannot store both under one id"
            )
        if vocab.setdefault(text, token_id) != token_id:
            raise TokenizerError(
                f"special token {text!r} (id {token_id}) is written like the ordinary token with id "
                f"{vocab[text]}, and this format can store only one of the two"
            )
        if ignore_merges and is_text_of_other_bytes(text):
            raise TokenizerError(
                f"special token {text!r} is written like the bytes {text_to_bytes(text)!r}, so a pre-token of these "
                "bytes would become the special token"
            )
    return dict(sorted(vocab.items(), key=lambda item: item[1]))


def is_text_of_other_bytes(text: str) -> bool:
    """Return whether a text is also the byte-level text of bytes other than its own."""
    return CHARACTER_TO_BYTE.keys() >= set(text) and text_to_bytes(text) != text.encode()


def check_byte_level(vocab: Mapping[str, int], special_tokens: Mapping[str, int], location: str) -> None:
    """Raise TokenizerFileError for a token that is neither byte-level text nor special.

    Arguments are those of `tokens_and_merges`.
    """
    texts = [text for text in vocab if text not in special_tokens]
    if CHARACTER_TO_BYTE.keys() >= set("".join(texts)):
        return
    text, character = next(
        (text, character) for text in texts if (character := first_foreign_character(text)) is not None
    )
    raise TokenizerFileError(
        f"{location}[{shown(text)}]: {character!r} is not one of the 256 characters that stand for bytes",
        hint="bytemill reads byte-level BPE; special tokens must be declared",
    )


def _bytes_by_text(
    vocab: Mapping[str, int], special_tokens: Mapping[str, int], location: str
) -> dict[str, bytes]:
    """Return the bytes of every token, except special tokens that are not byte-level text."""
    texts = [text for text in vocab if text not in special_tokens]
    try:
        bytes_of = dict(zip(texts, [text_to_bytes(text) for text in texts], strict=True))
    except ValueError:
        check_byte_level(vocab, special_tokens, location)
        raise
    if "" in bytes_of:
        raise TokenizerFileError(f"{location}['']: a token is empty")
    for text in special_tokens:
        if text in vocab and first_foreign_character(text) is None:
            bytes_of[text] = text_to_bytes(text)
    return bytes_of


def _check_special_ids(special_tokens: Mapping[str, int], tokens: Mapping[int, bytes], location: str) -> None:
    if (duplicate := first_duplicate(special_tokens)) is not None:
        first, second, token_id = duplicate
        raise TokenizerFileError(
            f"{location}: special tokens {shown(first)} and {shown(second)} have the same id {token_id}"
        )
    for text, token_id in special_tokens.items():
        if tokens.get(token_id, text.encode()) != text.encode():
            raise TokenizerFileError(
                f"{location}: id {token_id} is both {shown(tokens[token_id])} and special token {shown(text)}"
            )


def _merges_as_bytes(
    pairs: Sequence[Sequence[str]],
    products: set[str],
    bytes_of: Mapping[str, bytes],
    merge_location: Callable[[int], str],
) -> list[tuple[bytes, bytes]]:
    # Duplicate merges have duplicate products, so the search is needed only if the numbers differ.
    if len(products) != len(pairs):
        duplicate = first_duplicate(dict(enumerate(map(tuple, pairs))))
        if duplicate is not None:
            first, second, pair = duplicate
            raise TokenizerFileError(
                f"{merge_location(second)}: {shown(pair)} repeats {merge_location(first)}"
            )
    try:
        merges = [(bytes_of[left], bytes_of[right]) for left, right in pairs]
    except KeyError:
        merges = None
    if merges is not None and bytes_of.keys() >= products:
        return merges
    location, unknown = next(
        (merge_location(index), text)
        for index, (left, right) in enumerate(pairs)
        for text in (left, right, left + right)
        if text not in bytes_of
    )
    raise TokenizerFileError(f"{location}: {shown(unknown)} is not an ordinary token of the vocabulary")
