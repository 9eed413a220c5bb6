"""Damaged and hostile GGUF files are refused quickly, in little memory, with the key and offset."""

import random
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bytemill import BytemillError, Tokenizer
from bytemill.errors import PreTokenizerWarning, TokenizerFileError
from bytemill.formats import gguf, gguf_metadata, registry
from bytemill.formats.byte_level import bytes_to_text
from bytemill.formats.spec import TokenizerSpec

UINT8, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 5, 6, 7, 8, 9, 10
TOKENS = [*(bytes_to_text(bytes([byte])) for byte in range(256)), "ab", "<|endoftext|>"]
HUGE = 2**62


def string(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind: int, elements: list[bytes], count: int | None = None) -> bytes:
    return struct.pack("<IQ", kind, len(elements) if count is None else count) + b"".join(elements)


def strings(texts: list[str]) -> tuple[int, bytes]:
    return ARRAY, array(STRING, [string(text) for text in texts])


def integers(numbers: list[int]) -> tuple[int, bytes]:
    return ARRAY, array(INT32, [struct.pack("<i", number) for number in numbers])


KEYS: dict[str, tuple[int, bytes]] = {
    "general.architecture": (STRING, string("gpt2")),
    "tokenizer.ggml.model": (STRING, string("gpt2")),
    "tokenizer.ggml.pre": (STRING, string("gpt-2")),
    "tokenizer.ggml.scores": (ARRAY, array(FLOAT32, [bytes(4)] * 258)),
    "tokenizer.ggml.tokens": strings(TOKENS),
    "tokenizer.ggml.token_type": integers([1] * 257 + [3]),
    "tokenizer.ggml.merges": strings(["a b"]),
    "tokenizer.ggml.eos_token_id": (4, struct.pack("<I", 257)),
    "tokenizer.ggml.add_bos_token": (BOOL, b"\0"),
    "other.strings": strings(["x", "yy"]),
}


def head(n_keys: int, n_tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys)


def gguf_file(**changes: tuple[int, bytes] | None) -> bytes:
    """A file with `KEYS`, of which keywords (with _ for .) replace some, add some, and (None) take some away."""
    keys: dict[str, tuple[int, bytes] | None] = dict(KEYS)
    for name, value in changes.items():
        known = next((key for key in KEYS if key.replace(".", "_") == name), name)
        keys[known] = value
    pairs = [(key, value) for key, value in keys.items() if value is not None]
    return head(len(pairs)) + b"".join(
        string(key) + struct.pack("<I", kind) + data for key, (kind, data) in pairs
    )


def test_the_whole_file_is_read() -> None:
    spec = registry.from_bytes(gguf_file(), "f")
    assert spec.merges == [(b"a", b"b")]
    assert spec.special_tokens == {"<|endoftext|>": 257}


def test_a_file_truncated_at_any_byte_is_refused() -> None:
    data = gguf_file()
    ends = {*range(4, 400), *range(len(data) - 400, len(data)), *range(400, len(data), 37)}
    for end in sorted(ends):
        with pytest.raises(TokenizerFileError, match=r"f: .+ at offset \d+ needs \d+ bytes"):
            registry.from_bytes(data[:end], "f")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (head(HUGE), f"the list of {HUGE} keys at offset 24 needs"),
        (head(2**32) + bytes(1000), "the list of 4294967296 keys at offset 24"),
        (head(70_000) + bytes(1_000_000), "70000 keys, but at most 65536 are supported"),
        (head(1) + struct.pack("<Q", 2**32) + bytes(100), "key 0 at offset 32 needs 4294967296"),
        (head(1) + struct.pack("<Q", 2**16) + bytes(2**17), "key 0 at offset 32 has 65536 bytes, too many"),
        (head(1) + string(b"\xff\xfe") + bytes(8), "key 0 is not UTF-8"),
        (head(2) + 2 * (string("a") + struct.pack("<IB", UINT8, 0)), "key 'a' appears twice"),
        (head(1) + string("a") + struct.pack("<I", 13) + bytes(20), "a: unknown type 13 at offset 33"),
        (gguf_file(b=(ARRAY, struct.pack("<I", 99) + bytes(20))), "b: unknown type 99"),
    ],
)
def test_an_impossible_head_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(TokenizerFileError, match=f"^f: {said}"):
        registry.from_bytes(data, "f")


@pytest.mark.parametrize("key", ["tokenizer.ggml.tokens", "other.strings"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ((ARRAY, array(STRING, [], 2**32)), "an array of 4294967296 elements at offset"),
        ((ARRAY, array(STRING, [], HUGE)), f"an array of {HUGE} elements at offset"),
        ((ARRAY, array(INT32, [], 2**32)), "an array of 4294967296 elements"),
        ((ARRAY, array(UINT64, [], HUGE)), f"an array of {HUGE} elements"),
        ((ARRAY, array(STRING, [struct.pack("<Q", 2**32), b"ab" * 9])), "needs 4294967296 bytes"),
        ((ARRAY, array(STRING, [struct.pack("<Q", HUGE), b"ab" * 9])), "needs"),
        ((ARRAY, array(ARRAY, [array(INT32, [])])), "nested arrays"),
        ((STRING, struct.pack("<Q", 2**32)), "needs 4294967296 bytes"),
        ((ARRAY, array(STRING, [bytes(8)] * (2**21 + 1))), "at most 2097152"),
    ],
)
def test_impossible_lengths_are_refused_before_reading(key: str, value: tuple[int, bytes], said: str) -> None:
    data = gguf_file(**{key.replace(".", "_"): value})
    tracemalloc.start()
    try:
        with pytest.raises(TokenizerFileError, match=f"^f: {key}.*{said}"):
            registry.from_bytes(data, "f")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokenizer_ggml_model": (UINT8, b"\1")}, "tokenizer.ggml.model is 1; only"),
        ({"tokenizer_ggml_model": strings(["gpt2"])}, "tokenizer.ggml.model is an array; only"),
        ({"tokenizer_ggml_model": (STRING, string(b"\xff"))}, "tokenizer.ggml.model is not UTF-8 at byte 0"),
        ({"tokenizer_ggml_pre": (BOOL, b"\1")}, "tokenizer.ggml.pre is not a string"),
        ({"tokenizer_ggml_tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer_ggml_tokens": integers([1, 2])}, "tokenizer.ggml.tokens is not an array of strings"),
        (
            {"tokenizer_ggml_tokens": (STRING, string("a"))},
            "tokenizer.ggml.tokens is not an array of strings",
        ),
        (
            {"tokenizer_ggml_tokens": (ARRAY, array(STRING, [string("a"), string(b"a\xff")]))},
            r"tokenizer.ggml.tokens\[1\] is not UTF-8 at byte 1",
        ),
        ({"tokenizer_ggml_tokens": strings([*TOKENS[:-2], "a", "b"])}, "97 and 256 are the same token 'a'"),
        ({"tokenizer_ggml_tokens": strings([]), "tokenizer_ggml_token_type": integers([])}, "tokenizer.ggml"),
        ({"tokenizer_ggml_tokens": strings([])}, "tokenizer.ggml.token_type has 258 types for 0 tokens"),
        ({"tokenizer_ggml_token_type": integers([1] * 257)}, "token_type has 257 types for 258 tokens"),
        ({"tokenizer_ggml_token_type": integers([1] * 257 + [6])}, r"token_type\[257\] is 6 \(a byte"),
        ({"tokenizer_ggml_token_type": integers([-1] * 258)}, r"token_type\[0\] is -1"),
        ({"tokenizer_ggml_token_type": strings(["1"] * 258)}, "token_type is not an array of integers"),
        (
            {"tokenizer_ggml_token_type": (ARRAY, array(FLOAT32, [bytes(4)] * 258))},
            "token_type is not an array of integers",
        ),
        ({"tokenizer_ggml_merges": None}, "tokenizer.ggml.merges is missing"),
        ({"tokenizer_ggml_merges": strings(["a b", "a q"])}, r"tokenizer.ggml.merges\[1\]: .*'aq'"),
        ({"tokenizer_ggml_merges": strings(["ab abab"])}, r"tokenizer.ggml.merges\[0\]: .*'abab'"),
        ({"tokenizer_ggml_merges": strings(["a b", "a b"])}, r"tokenizer.ggml.merges\[1\]"),
        ({"tokenizer_ggml_merges": strings(["ab"])}, r"merges\[0\] is 'ab', not two tokens"),
        ({"tokenizer_ggml_merges": strings(["a b c"])}, r"merges\[0\] is 'a b c', not two tokens"),
        ({"tokenizer_ggml_merges": strings([" b"])}, r"merges\[0\] is ' b', not two tokens"),
        ({"tokenizer_ggml_merges": integers([1])}, "tokenizer.ggml.merges is not an array of strings"),
        ({"tokenizer_ggml_eos_token_id": (STRING, string("257"))}, "eos_token_id is not an id"),
        ({"tokenizer_ggml_eos_token_id": (BOOL, b"\1")}, "eos_token_id is not an id"),
        ({"tokenizer.ggml.bos_token_id": (BOOL, b"\2")}, "bos_token_id is 2, not true or false"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    changes: dict[str, tuple[int, bytes] | None], said: str
) -> None:
    with pytest.raises(TokenizerFileError, match=f"^f: .*{said}"):
        registry.from_bytes(gguf_file(**changes), "f")


def test_an_empty_merge_array_of_any_type_is_accepted() -> None:
    assert registry.from_bytes(gguf_file(tokenizer_ggml_merges=strings([])), "f").merges == []


def test_only_the_head_of_a_large_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    monkeypatch.setattr(gguf_metadata, "_BLOCK", 4096)
    with path.open("wb") as file:
        file.write(gguf_file(other_blob=(ARRAY, array(UINT8, [bytes(10**6)], 10**6))))
        file.truncate(100 * 2**30)  # a hole: it takes no space
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read as a whole"))
    tracemalloc.start()
    try:
        tokenizer = Tokenizer.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert tokenizer.encode("ab<|endoftext|>") == [256, 257]


def test_strings_longer_than_a_block_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = registry.from_bytes(gguf_file(), "f")
    for block in (1, 7, 8, 9, 64, 1000):
        monkeypatch.setattr(gguf_metadata, "_BLOCK", block)
        assert registry.from_bytes(gguf_file(), "f") == expected
        long = gguf_file(other_strings=strings(["x" * 5000, "", "y" * 300]))
        assert registry.from_bytes(long, "f") == expected


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerFileError, match="nowhere: cannot be read"):
        gguf.read_file(tmp_path / "nowhere")
    with pytest.raises(TokenizerFileError, match="f: not a GGUF file"):
        gguf.from_bytes(b"GGML" + bytes(100), "f")


def test_files_with_random_damage_are_read_or_refused(
    make_spec: Callable[..., TokenizerSpec], tmp_path: Path
) -> None:
    gguf.write(make_spec(ties="bytes", merge_counts=[5, 4, 3, 2, 1]), tmp_path / "t")
    original = (tmp_path / "t").read_bytes()
    # The tokens of single bytes are most of the file, and damage to one is like damage to another.
    start, stop = original.index(string("!")), original.index(string("ab"))
    places = [*range(start + 200), *range(stop - 100, len(original))]
    n_read = 0
    for seed in range(600):
        chance = random.Random(seed)
        data = bytearray(original)
        for _ in range(chance.randint(1, 2)):
            at = chance.choice(places)
            match chance.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([chance.choice(b"\x00\x01\x05\x08\x09\x7f\x80\xff ab")])
                case 1:
                    del data[at : at + chance.randint(1, 16)]
                case 2:
                    data[at:at] = data[at : at + chance.randint(1, 16)]
                case _:
                    data[at : at + 8] = struct.pack(
                        "<Q", chance.choice([0, 1, 2**31, 2**32, HUGE, 2**64 - 1])
                    )
        n_read += read_or_refused(bytes(data), seed)
    assert 0 < n_read < 600


def read_or_refused(data: bytes, seed: Any) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PreTokenizerWarning)
            tokenizer = Tokenizer.from_spec(registry.from_bytes(data, "f"))
        text = "abab é ab\n<|endoftext|>"
        assert tokenizer.decode(tokenizer.encode(text)) == text
    except BytemillError:
        return False
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return True
