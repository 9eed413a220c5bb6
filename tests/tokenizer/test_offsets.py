"""Byte and character offsets of tokens in the encoded `str`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import SpecialTokenError
from bytemill.formats.spec import TokenFlags

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
SPECIAL = [END, "<|pad|>", "今😀", " é"]
SCRIPTS = [
    "the quick fox's 123 foxes", "  \r\n\n\t ", "Жизнь прожить", "今日は、世界。", "हिन्दी भाषा", "العربية ٣٤٥",
    "한국어 텍스트", "naïve café e\u0301t", "👩\u200d👩\u200d👧😀😀", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
]  # fmt: skip
TRAINED = bytemill.train_from_iterator(SCRIPTS * 2, vocab_size=340, special_tokens=SPECIAL)
TOKENIZERS = {
    "trained": TRAINED,
    "bytes": bytemill.Tokenizer(BYTES, [], [END]),
    "tokens of one character's end and the next one's beginning": bytemill.Tokenizer(
        BYTES | {256: b"\xa5\xe6", 257: b"\x80\xf0"},
        [(b"\xa5", b"\xe6"), (b"\x80", b"\xf0")],
        {END: 70_000},
        pattern=None,
    ),
    "no pattern": bytemill.train_from_iterator(
        SCRIPTS * 2, vocab_size=400, special_tokens=SPECIAL, pattern=None
    ),
    "ids over 16 bits": bytemill.Tokenizer(TRAINED.vocab, TRAINED.merges, {END: 70_000, "Ж": 70_001}),
}
SURROGATES = ["\ud83d", "\ude00", "\ud83d\ude00", "\udbff", "\udc00"]

texts = st.lists(
    st.sampled_from([*SCRIPTS, *SPECIAL, *SURROGATES, END[:-1]])
    | st.text(max_size=5)
    | st.text("日😀é\ud83d\ude00x ", max_size=5),
    max_size=10,
).map("".join)


def places(text: str) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes of a text, and for each of them where in the text the character stands that it belongs to."""
    utf8 = bytearray()
    owners: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        pair = text[at : at + 2].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if len(text[at : at + 2]) == 2 and len(pair) == 1:
            character, end = pair, at + 2
        else:
            character, end = "\ufffd" if "\ud800" <= text[at] <= "\udfff" else text[at], at + 1
        utf8 += character.encode()
        owners += [(at, end)] * len(character.encode())
        at = end
    return bytes(utf8), owners


def check(ours: bytemill.Tokenizer, text: str, allowed: Any, num_threads: int | None = None) -> None:
    """Compares all fields with a loop over the tokens."""
    encoded = ours.encode_with_offsets(text, allowed_special=allowed, num_threads=num_threads)
    ids = ours.encode(text, allowed_special=allowed)
    utf8, owners = places(text)
    assert encoded.ids.tolist() == ids
    assert encoded.ids.dtype == ours.core.dtype
    assert encoded.utf8 == utf8
    assert encoded.tokens == [ours.decode_single_token_bytes(token_id) for token_id in ids]
    assert len(encoded) == len(ids)
    by_bytes, by_characters = [], []
    end = 0
    for token in encoded.tokens:
        start, end = end, end + len(token)
        by_bytes.append([start, end])
        by_characters.append([owners[start][0], owners[end - 1][1]])
    assert end == len(utf8)
    assert encoded.byte_offsets.tolist() == by_bytes
    assert encoded.char_offsets.tolist() == by_characters
    for offsets in (encoded.byte_offsets, encoded.char_offsets):
        assert offsets.shape == (len(ids), 2)
        assert offsets.dtype == np.int64


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=texts)
@example("")
@example(END)
@example("\ud83d")
@example("日日日😀😀" + END + "é")
def test_offsets_are_those_of_the_reference(name: str, text: str) -> None:
    ours = TOKENIZERS[name]
    for allowed in ("all", "none", {END}):
        check(ours, text, allowed)


def test_offsets_of_long_texts_are_the_same_on_threads() -> None:
    text = "".join(f"{number}: {script}{END}" for number, script in enumerate(SCRIPTS * 2600))
    assert len(text.encode()) > 1 << 20
    one, several = (TRAINED.encode_with_offsets(text, num_threads=num_threads) for num_threads in (1, 3))
    assert b"".join(one.tokens) == text.encode()
    for name in ("ids", "byte_offsets", "char_offsets"):
        assert np.array_equal(getattr(one, name), getattr(several, name))
    start, end = one.char_offsets[len(one) // 2 :][:1000][[0, -1]].ravel()[[0, 3]]
    assert b"".join(one.tokens[len(one) // 2 :][:1000]) in text[start:end].encode()


def test_refused_tokens_are_errors() -> None:
    with pytest.raises(SpecialTokenError, match="byte 3"):
        TRAINED.encode_with_offsets("fox" + END, allowed_special="none_raise")
    assert TRAINED.encode_with_offsets("fox", allowed_special="none_raise").tokens == [b"fox"]


def test_white_space_absorbed_by_a_special_token_belongs_to_it() -> None:
    flags = {END: TokenFlags(lstrip=True, rstrip=True)}
    ours = bytemill.Tokenizer.from_spec(replace(TRAINED.to_spec(), flags=flags))
    encoded = ours.encode_with_offsets(f"é  {END}\n fox")
    place = encoded.ids.tolist().index(ours.special_tokens[END])
    assert encoded.char_offsets[place].tolist() == [1, 3 + len(END) + 2]
    assert encoded.byte_offsets[place].tolist() == [2, 4 + len(END) + 2]
    assert encoded.ids.tolist() == ours.encode(f"é  {END}\n fox")


def test_offsets_refer_to_the_text_before_a_normalizer_changes_it() -> None:
    ours = bytemill.Tokenizer.from_spec(replace(TRAINED.to_spec(), normalizer=(("NFC",),)))
    assert ours.encode_with_offsets("naïve fox").tokens == TRAINED.encode_with_offsets("naïve fox").tokens
    encoded = ours.encode_with_offsets("nai\u0308ve fox")
    assert ours.decode(encoded.ids) == "naïve fox"
    # As in Hugging Face's library, a composed character has the place of the first one it is composed of.
    assert all(end != 4 for _, end in encoded.char_offsets.tolist())
    assert encoded.char_offsets[-1].tolist()[1] == len("nai\u0308ve fox")


# Other libraries


@pytest.fixture(scope="module")
def in_hugging_face(tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    path = tmp_path_factory.mktemp("offsets") / "tokenizer.json"
    TRAINED.save(path)
    return tokenizers.Tokenizer.from_file(str(path))


@given(text=texts)
def test_hugging_face_has_the_same_offsets(in_hugging_face: tokenizers.Tokenizer, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    theirs = in_hugging_face.encode(text, add_special_tokens=False)
    encoded = TRAINED.encode_with_offsets(text)
    assert encoded.ids.tolist() == theirs.ids
    assert list(map(tuple, encoded.char_offsets.tolist())) == theirs.offsets


def test_token_starts_are_those_of_tiktoken(peer_of: Callable[[str], Any], shared_data: Path) -> None:
    peer = peer_of("o200k")
    files = [shared_data / "wagahai_ja.txt", *sorted((shared_data / "udhr").glob("*.txt"))]
    excerpts = [path.read_text(encoding="utf-8")[:800] + "😀😀👩\u200d👧" for path in files]
    for text in [*excerpts, *SCRIPTS, f"a{END}é{END}"]:
        encoded = peer.ours.encode_with_offsets(text)
        assert encoded.ids.tolist() == peer.encode(text)
        decoded, starts = peer.theirs.decode_with_offsets(encoded.ids.tolist())
        assert decoded == text
        assert encoded.char_offsets[:, 0].tolist() == starts
