"""`encode_files` gives the ids of the texts, and errors name the file."""

import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern

import bytemill
from bytemill import Tokenizer
from bytemill.errors import SpecialTokenError, TokenizerFileError
from bytemill.tokenizer import open_tokenizer

END = "<|endoftext|>"
THREADS = [1, 2, 5, None]
MIB = 1 << 20
SCRIPTS = "The quick fox's 123 \r\n\n  Жизнь прожить 今日は、世界 e\u0301 हिन्दी 😀\u3000字 12 字 "

TEXTS = st.lists(
    st.text(max_size=40) | st.sampled_from(["", END, SCRIPTS, "\ufeffmark", "a" * 100, "\r\n\r\n", "\0"]),
    max_size=8,
).map("".join)


def written(folder: Path, texts: list[str]) -> list[Path]:
    """A file for each text."""
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    return paths


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for ids, others in zip(found, expected, strict=True):
        assert ids.dtype == others.dtype
        assert ids.ndim == 1
        assert ids.flags.writeable
        assert np.array_equal(ids, others)


@given(texts=st.lists(TEXTS, max_size=5))
def test_files_have_the_ids_of_their_texts(small: bytemill.Tokenizer, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = written(Path(folder), texts)
        for allowed in ("all", "none", {END}):
            expected = [small.encode_to_numpy(text, allowed_special=allowed) for text in texts]
            for num_threads in THREADS:
                found = small.encode_files(paths, allowed_special=allowed, num_threads=num_threads)
                assert_same(found, expected)


def test_small_and_large_files_keep_their_order(small: bytemill.Tokenizer, tmp_path: Path) -> None:
    chance = random.Random(3)
    words = [*SCRIPTS.split(" "), END, "x" * 70, "\n"]
    sizes = [0, 10, 200_000, 0, 3_000, 90_000, 1, 120_000, *[50] * 20]
    texts = [" ".join(chance.choices(words, k=size)) for size in sizes]
    paths = written(tmp_path, texts)
    assert max(path.stat().st_size for path in paths) > MIB
    expected = [small.encode_to_numpy(text, num_threads=1) for text in texts]
    for num_threads in (1, 2, 40):
        assert_same(small.encode_files(paths, num_threads=num_threads), expected)
    assert_same(small.encode_files([paths[2]] * 3, num_threads=2), [expected[2]] * 3)


@pytest.mark.parametrize("pattern", [None, r"\w+|\W"])
def test_custom_patterns_read_a_file_up_to_the_next_special_token(
    pattern: str | None, tmp_path: Path
) -> None:
    byte_vocab = {byte: bytes([byte]) for byte in range(256)}
    ours = bytemill.Tokenizer(byte_vocab, [], [END], pattern=as_pattern(pattern))
    texts = ["word 1x " * 50_000 + END + "é" * 150_000 + END, "a b" * 100_000]
    expected = [ours.encode_to_numpy(text, num_threads=1) for text in texts]
    for num_threads in (1, 3):
        assert_same(ours.encode_files(written(tmp_path, texts), num_threads=num_threads), expected)


def test_paths_may_be_str_bytes_or_path_like(small: bytemill.Tokenizer, tmp_path: Path) -> None:
    paths = written(tmp_path, ["fox", "Жизнь"])
    # Names on macOS are UTF-8; elsewhere they are any bytes.
    odd = tmp_path / ("наш файл" if sys.platform == "darwin" else "наш файл \udcff")
    odd.write_bytes(b"odd")
    expected = [small.encode_to_numpy(text) for text in ("fox", "Жизнь", "odd")]
    with os.scandir(tmp_path) as entries:
        by_name = {entry.name: entry for entry in entries}
    for given_paths in (
        [*paths, odd],
        [str(path) for path in [*paths, odd]],
        iter([*paths, odd]),
        (by_name[path.name] for path in [*paths, odd]),
    ):
        assert_same(small.encode_files(given_paths), expected)
    for nothing in ([], (), iter(())):
        assert small.encode_files(nothing) == []


def test_a_file_that_cannot_be_read_is_named(small: bytemill.Tokenizer, tmp_path: Path) -> None:
    good = written(tmp_path, ["fox"])[0]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    unreadable: list[tuple[Path, type[OSError]]] = [
        (tmp_path / "missing", FileNotFoundError),
        (tmp_path, IsADirectoryError),
        (good / "below", NotADirectoryError),
        (pipe, OSError),
    ]
    for path, kind in unreadable:
        for num_threads in (1, 2):
            with pytest.raises(kind) as caught:
                small.encode_files([good, path], num_threads=num_threads)
            assert str(path) in str(caught.value)
            if path != pipe:
                assert caught.value.filename == str(path)


def test_invalid_utf8_is_reported_with_its_offset(small: bytemill.Tokenizer, tmp_path: Path) -> None:
    before = (SCRIPTS * 12_000).encode()
    assert len(before) > MIB
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(before)
    for malformed, behind, n_malformed in (
        (b"\xff", b" fox", 1),
        (b"\xe4\xb8", b"fox", 2),
        (b"\xf0\x9f", b"", 2),
    ):
        for n_before in (0, 7, len(before)):
            bad.write_bytes(before[:n_before] + malformed + behind)
            for num_threads in (1, 3):
                with pytest.raises(UnicodeDecodeError) as caught:
                    small.encode_files([good, bad, good], num_threads=num_threads)
                assert (caught.value.start, caught.value.end) == (n_before, n_before + n_malformed)
                assert str(bad) in str(caught.value)


def test_a_disallowed_token_is_named_with_file_and_offset(small: bytemill.Tokenizer, tmp_path: Path) -> None:
    text = SCRIPTS * 12_000
    paths = written(tmp_path, [text, text + END + text + END])
    for num_threads in (1, 2, 5):
        with pytest.raises(SpecialTokenError) as caught:
            small.encode_files(paths, allowed_special="none_raise", num_threads=num_threads)
        assert str(caught.value) == f'{paths[1]}: special token "{END}" at byte {len(text.encode())}'
    found = small.encode_files(paths[:1], allowed_special="none_raise")
    assert_same(found, [small.encode_to_numpy(text)])
    with pytest.raises(SpecialTokenError, match="not a special token"):
        small.encode_files(paths, allowed_special={"<unknown>"})


def test_arrays_have_the_narrowest_dtype(tmp_path: Path) -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)}
    paths = written(tmp_path, ["a<s>", ""])
    for highest, dtype in [(65_535, np.uint16), (65_536, np.uint32)]:
        found = bytemill.Tokenizer(vocab, [], {"<s>": highest}).encode_files(paths)
        assert [ids.tolist() for ids in found] == [[97, highest], []]
        assert {ids.dtype for ids in found} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    ("wrong", "meant"), [("gtp2", "gpt2"), ("cl100k", "cl100k_base"), ("lama3", "llama3")]
)
def test_a_mistyped_published_name_is_an_error_with_a_suggestion(wrong: str, meant: str) -> None:
    with pytest.raises(TokenizerFileError, match=f"{wrong}: no such file") as caught:
        open_tokenizer(wrong)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"use {meant}, ")


def test_a_missing_file_gets_no_suggestion() -> None:
    with pytest.raises(TokenizerFileError, match="no such file") as caught:
        open_tokenizer("folder/missing.json")
    assert caught.value.hint == "check the path"


def test_an_existing_path_takes_precedence_over_a_similar_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save("gpt-2", format="huggingface")
    assert open_tokenizer("gpt-2").n_vocab == 256
