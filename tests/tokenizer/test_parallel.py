"""Batches, arrays and threads give the ids of `encode`; the garbage collector does not scan lists while they grow."""

import gc
import os
import random
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern

import bytemill
from bytemill.errors import SpecialTokenError

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
THREADS = [1, 2, 5, None]

# A thread takes parts of a MiB, so something must happen at the multiples of it.
PART = 1 << 20

FILLER = "the quick brown fox, 123 foxes;\n internationalization  of a word's end. "
OTHER_FILLER = "Жизнь 今日は、 é e\u0301t 12 \u3000字 a😀 b "

# They overlap, begin alike, and hold blanks and characters of several bytes: there is much inside them that
# looks like a place to cut.
SPECIAL = [END, "the end of the end", "end of", "of the end of", "字 12 字", " fox", "x 1", END + END]


def tokenizer(pattern: str | None, special: list[str]) -> bytemill.Tokenizer:
    trained = bytemill.train_from_iterator(
        iter([(FILLER + OTHER_FILLER) * 3]), vocab_size=315, pattern=as_pattern(pattern)
    )
    return bytemill.Tokenizer(trained.vocab, trained.merges, special, pattern=as_pattern(pattern))


def text_with_borders(filler: str, at_borders: list[tuple[str, int]]) -> str:
    """A text with the given pieces at the multiples of a MiB, the border so many bytes behind their start."""
    parts: list[bytes] = []
    n_bytes = 0
    for number, (piece, behind_start) in enumerate(at_borders, 1):
        n_fill = number * PART - behind_start - n_bytes
        fill = (filler.encode() * (n_fill // len(filler.encode()) + 1))[:n_fill]
        # A character cut in two is replaced by blanks, so that the number of bytes stays.
        fill = fill.decode("utf-8", "ignore").encode()
        parts += [fill, b" " * (n_fill - len(fill)), piece.encode()]
        n_bytes += n_fill + len(piece.encode())
    parts.append(filler.encode())
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("pattern", "filler"), [("gpt2", FILLER), ("o200k", OTHER_FILLER), ("cl100k", OTHER_FILLER)]
)
def test_special_tokens_across_thread_borders_are_recognized(pattern: str, filler: str) -> None:
    ours = tokenizer(pattern, SPECIAL)
    chance = random.Random(pattern + filler)
    pieces = [*SPECIAL, "the end of the end of the end", END * 3, "end of the end of", "字 12 字 12 字"]
    borders = [(piece, chance.randint(0, len(piece.encode()))) for piece in chance.sample(pieces, 3)]
    text = text_with_borders(filler, borders)
    assert len(text.encode()) > 3 * PART
    for allowed in ("all", "none", {END, "of the end of", "字 12 字"}):
        expected = np.array(ours.encode(text, allowed_special=allowed))
        ids = ours.encode_to_numpy(text, num_threads=3, allowed_special=allowed)
        assert np.array_equal(ids, expected), borders


@pytest.mark.parametrize("pattern", ["gpt2", "o200k"])
def test_special_tokens_at_every_offset_to_a_border_are_recognized(pattern: str) -> None:
    ours = tokenizer(pattern, SPECIAL)
    piece = "the end of the end of the end"
    offsets = range(-1, len(piece) + 2)
    text = text_with_borders("a word ", [(piece, offset) for offset in offsets])
    expected = ours.encode_to_numpy(text, num_threads=1)
    assert (ours.decode(expected) == text) is True
    # The array on one thread is not cut; its ids at the borders are those of the neighbourhood alone.
    assert np.count_nonzero(expected == ours.special_tokens["the end of the end"]) == len(offsets)
    assert np.array_equal(ours.encode_to_numpy(text, num_threads=2), expected)


@pytest.mark.parametrize(
    ("special", "unit"),
    [("a a a", "a "), ("一 一", "一 "), ("\n\n", "\n"), ("b a b", "b a ")],
)
def test_the_leftmost_of_many_overlapping_special_tokens_wins(special: str, unit: str) -> None:
    ours = tokenizer("cl100k", [special])
    text = "x" + unit * (PART // len(unit.encode()) + PART // 7)
    expected = ours.encode_to_numpy(text, num_threads=1)
    assert np.count_nonzero(expected == ours.special_tokens[special]) == text.count(special)
    assert np.array_equal(ours.encode_to_numpy(text, num_threads=3), expected)


@pytest.mark.parametrize("pattern", [None, r"\w+|\W", r"(?<=\d)x|\S+"])
def test_custom_patterns_are_split_for_threads_at_special_tokens_only(pattern: str | None) -> None:
    ours = tokenizer(pattern, [END, END + END, "ab"])
    chance = random.Random(5)
    documents = ["word 1x ".join(chance.choices("abcd ", k=30_000)) for _ in range(6)]
    text = "".join(doc + chance.choice([END, END * 2, END * 3, "<|end"]) for doc in documents)
    assert len(text) > PART
    expected = ours.encode_to_numpy(text, num_threads=1)
    assert (ours.decode(expected) == text) is True
    for num_threads in (2, 5):
        assert np.array_equal(ours.encode_to_numpy(text, num_threads=num_threads), expected)


@pytest.mark.parametrize(
    "text",
    ["a" * 2 * PART, " " * 2 * PART, "字" * PART],
    ids=["letters", "blanks", "ideographs"],
)
def test_texts_that_cannot_be_split_are_encoded(small: bytemill.Tokenizer, text: str) -> None:
    expected = small.encode_to_numpy(text, num_threads=1)
    assert np.array_equal(small.encode_to_numpy(text, num_threads=4), expected)
    assert (small.decode(expected) == text) is True


def test_disallowed_tokens_are_found_at_any_position(small: bytemill.Tokenizer) -> None:
    text = text_with_borders(FILLER, [("", 0), (END, 5)])
    with pytest.raises(SpecialTokenError, match=f"byte {2 * PART - 5}"):
        small.encode_to_numpy(text, num_threads=4, allowed_special="none_raise")
    harmless = text.replace(END, "")
    assert np.array_equal(
        small.encode_to_numpy(harmless, num_threads=4, allowed_special="none_raise"), small.encode(harmless)
    )


def rows(ids: Any, offsets: Any) -> list[list[int]]:
    """The ids of each text of a batch as one array."""
    assert offsets.dtype == np.int64
    assert (offsets[0], offsets[-1]) == (0, len(ids))
    return [ids[start:end].tolist() for start, end in pairwise(offsets.tolist())]


@given(texts=st.lists(st.text(max_size=30) | st.sampled_from(["", END, FILLER, "a" * 100]), max_size=12))
def test_batches_have_the_ids_of_their_texts(small: bytemill.Tokenizer, texts: list[str]) -> None:
    for num_threads in THREADS:
        for allowed in ("all", "none", {END}):
            options: Any = {"num_threads": num_threads, "allowed_special": allowed}
            expected = [small.encode(text, allowed_special=allowed) for text in texts]
            assert small.encode_batch(texts, **options) == expected
            ids, offsets = small.encode_batch_to_numpy(texts, **options)
            assert ids.dtype == small.encode_to_numpy("").dtype
            assert rows(ids, offsets) == expected
        assert small.encode_ordinary_batch(texts, num_threads=num_threads) == [
            small.encode_ordinary(text) for text in texts
        ]
    ordinary = small.encode_batch(texts, disallowed_special=())
    assert rows(*small.encode_batch_to_numpy(texts, disallowed_special=())) == ordinary
    for text in texts:
        ids = small.encode(text)
        assert (small.encode_to_numpy(text).tolist(), small.count(text)) == (ids, len(ids))


def test_batches_of_unequal_texts_keep_their_order(small: bytemill.Tokenizer) -> None:
    chance = random.Random(6)
    texts = [FILLER[: chance.randint(0, 60)] * chance.choice([0, 1, 1, 200, 40_000]) for _ in range(18)]
    assert sum(len(text.encode()) > 1 << 20 for text in texts) > 1
    expected = [small.encode(text) for text in texts]
    for num_threads in (1, 2, 100):
        assert small.encode_batch(texts, num_threads=num_threads) == expected
        assert rows(*small.encode_batch_to_numpy(texts, num_threads=num_threads)) == expected


@pytest.mark.parametrize("long", [False, True])
def test_a_disallowed_token_in_one_text_fails_the_batch(small: bytemill.Tokenizer, long: bool) -> None:
    texts = ["fox"] * 500 + [FILLER * (40_000 if long else 1) + END] + ["fox"] * 500
    for num_threads in (1, 4):
        for encode in (small.encode_batch, small.encode_batch_to_numpy):
            with pytest.raises(SpecialTokenError, match=f"byte {len(texts[500].encode()) - len(END)}"):
                encode(texts, num_threads=num_threads, allowed_special="none_raise")


@pytest.mark.parametrize(("enabled", "num_threads"), [(True, 1), (False, 3)])
def test_the_state_of_the_garbage_collector_is_restored(
    small: bytemill.Tokenizer, enabled: bool, num_threads: int
) -> None:
    texts = [FILLER[:20]] * 4_000
    was_enabled = gc.isenabled()
    runs: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        runs.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        (gc.enable if enabled else gc.disable)()
        lists = small.encode_batch(texts, num_threads=num_threads)
        n_runs = len(runs)
        assert gc.isenabled() is enabled
        with pytest.raises(SpecialTokenError):
            small.encode_batch([*texts, END], num_threads=num_threads, allowed_special="none_raise")
        assert gc.isenabled() is enabled
    finally:
        gc.callbacks.remove(note)
        (gc.enable if was_enabled else gc.disable)()
    # Without care it runs once for every 700 lists.
    assert n_runs <= 4
    assert all(gc.is_tracked(ids) for ids in lists)
    assert gc.is_tracked(lists)


@pytest.mark.parametrize(("highest", "dtype"), [(65_535, np.uint16), (65_536, np.uint32), (300, np.uint16)])
def test_arrays_have_the_narrowest_dtype(highest: int, dtype: Any) -> None:
    ours = bytemill.Tokenizer(BYTES, [], {"<s>": highest})
    assert ours.n_vocab == highest + 1
    assert ours.core.dtype == np.dtype(dtype).name
    for text in ("a<s>", "", "a<s>" * (PART // 2)):
        ids = ours.encode_to_numpy(text)
        assert ids.dtype == dtype
        assert ids.ndim == 1
        assert ids.flags.c_contiguous
        assert ids.flags.writeable
        assert ids[:2].tolist() == [97, highest][: len(ids)]
    stream = ours.core.stream("all", "strict", None)
    assert stream.feed("<s>").dtype == stream.finish().dtype == dtype


def test_without_new_threads_the_calling_thread_does_the_work() -> None:
    script = """
import bytemill
tok = bytemill.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
text = "some text " * 150_000
print(tok.encode_to_numpy(text, num_threads=4).tobytes() == text.encode("utf-16-le"))
print(tok.encode_batch([text[:100]] * 1000, num_threads=4) == [list(text[:100].encode())] * 1000)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"RUST_MIN_STACK": str(1 << 46)},  # more than there can be
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "True\nTrue\n", done.stderr[-500:]
