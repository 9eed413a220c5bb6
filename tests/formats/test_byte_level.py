"""Byte-level text: the mapping is GPT-2's and a bijection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from bytemill.formats.byte_level import (
    ALPHABET,
    BYTE_TO_CHARACTER,
    CHARACTER_TO_BYTE,
    bytes_to_text,
    first_foreign_character,
    text_to_bytes,
)


def test_every_byte_has_one_character_and_back() -> None:
    assert len(set(ALPHABET)) == 256
    assert {character: byte for byte, character in BYTE_TO_CHARACTER.items()} == CHARACTER_TO_BYTE
    assert [BYTE_TO_CHARACTER[byte] for byte in range(256)] == list(ALPHABET)


def test_the_characters_are_those_of_hugging_face() -> None:
    assert set(ALPHABET) == set(ByteLevel.alphabet())


@given(st.text())
def test_byte_level_text_is_that_of_hugging_face(text: str) -> None:
    pieces = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert bytes_to_text(text.encode()) == "".join(piece for piece, _ in pieces)


@given(st.binary())
def test_bytes_survive_a_byte_level_round_trip(data: bytes) -> None:
    spelled = bytes_to_text(data)
    assert len(spelled) == len(data)
    assert spelled == "".join(BYTE_TO_CHARACTER[byte] for byte in data)
    assert text_to_bytes(spelled) == data


@pytest.mark.parametrize("foreign", [" ", "\n", "\x00", "\x7f", "\xa0", "\xad", "ń", "日", "😀", "\ud800"])
def test_foreign_characters_are_refused(foreign: str) -> None:
    assert first_foreign_character("ab" + foreign + " ") == foreign
    with pytest.raises(ValueError, match="character maps to"):
        text_to_bytes("ab" + foreign)


def test_byte_level_text_has_no_foreign_character() -> None:
    assert first_foreign_character(ALPHABET) is None
