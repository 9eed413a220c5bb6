"""Lists of ids share their ints and otherwise behave like any list."""

import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import UnknownTokenError

BYTES = {i: bytes([i]) for i in range(256)}
# Ids above those of which CPython keeps the ints itself.
HIGH = {1000 + i: token for i, token in BYTES.items()}


@pytest.fixture
def high() -> bytemill.Tokenizer:
    """A tokenizer of its own for a test: bytes with ids from 1000 on, a long token, gaps."""
    return bytemill.Tokenizer(HIGH | {5000: b"x" * 40}, [], {"<s>": 70_000})


WAYS: dict[str, Callable[[bytemill.Tokenizer, str], list[int]]] = {
    "encode": lambda tok, text: tok.encode(text),
    "one thread": lambda tok, text: tok.encode(text, num_threads=1),
    "two threads": lambda tok, text: tok.encode(text, num_threads=2),
    "ordinary": lambda tok, text: tok.encode_ordinary(text),
    "bytes": lambda tok, text: tok.core.encode_bytes(text.encode()),
    "batch": lambda tok, text: tok.encode_batch([text], num_threads=1)[0],
    "batch on threads": lambda tok, text: tok.encode_batch(["b", text, "c"] * 3, num_threads=3)[4],
}


def test_lists_hold_and_release_references_to_shared_ints(high: bytemill.Tokenizer) -> None:
    one = high.encode("a")[0]
    assert one == 1097
    # This list, the variable, the table, and the argument of the call.
    before = sys.getrefcount(one)
    for way, encode in WAYS.items():
        for n in (1, 10, 30_000):
            ids = encode(high, "a" * n)
            assert ids == [1097] * n
            assert ids[0] is one
            assert sys.getrefcount(one) == before + n, way
            del ids
            assert sys.getrefcount(one) == before, way
        for _ in range(200):
            encode(high, "abc")
    gc.collect()
    assert sys.getrefcount(one) == before


def test_the_shared_ints_are_freed_with_the_tokenizer(high: bytemill.Tokenizer) -> None:
    tokenizer = bytemill.Tokenizer(HIGH, [])
    one = tokenizer.encode("a")[0]
    held = sys.getrefcount(one)
    del tokenizer
    gc.collect()
    assert sys.getrefcount(one) == held - 1
    assert one == 1097
    assert high.encode("a")[0] is not one


def test_lists_are_independent(high: bytemill.Tokenizer) -> None:
    first, second = high.encode("aab"), high.encode("aab")
    first[0] = -1
    first.append(7)
    first[1] += 1
    assert second == high.encode("aab") == [1097, 1097, 1098]
    assert first == [-1, 1098, 1098, 7]
    one, other = high.encode_batch(["ab", "ab"])
    one.clear()
    assert other == [1097, 1098]


def test_lists_are_tracked_by_the_collector(high: bytemill.Tokenizer) -> None:
    ids: list[object] = [*high.encode("ab")]
    assert gc.is_tracked(high.encode("ab"))
    ids.append(ids)
    del ids
    assert gc.collect() >= 1


def test_threads_that_create_shared_ints_concurrently_get_the_same_ids(high: bytemill.Tokenizer) -> None:
    text = bytes(range(128)).decode() * 400
    expected = [1000 + byte for byte in text.encode()]
    results: list[bool] = []

    def work() -> None:
        results.extend(high.encode(text) == expected for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40


@pytest.mark.parametrize("num_threads", [None, 1, 2, 5])
def test_a_long_text_has_the_same_ids_on_threads(num_threads: int | None, small: bytemill.Tokenizer) -> None:
    text = "The quick brown fox, они не here 123 <|endoftext|>\n\n" * 25_000
    assert len(text) > 1 << 20
    expected = small.encode_to_numpy(text, num_threads=1).tolist()
    assert small.encode(text, num_threads=num_threads) == expected
    assert small.count(text) == len(expected)
    assert small.encode_batch([text, "", text[:100]], num_threads=num_threads)[0] == expected
    plain = small.encode_to_numpy(text, num_threads=1, allowed_special="none").tolist()
    assert small.encode_ordinary(text, num_threads=num_threads) == plain


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_a_list_that_does_not_fit_into_memory_is_a_memory_error() -> None:
    script = """
        import resource, bytemill
        tok = bytemill.Tokenizer({1000 + i: bytes([i]) for i in range(256)}, [])
        text = "ab cd " * 500_000
        def in_use():
            return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        tok.encode(text[:100_000], num_threads=1)
        # The ids take 12 MB while they are found, at times twice that; the list 24.
        refused = 0
        for limit in (33_000_000, 35_000_000, 36_000_000):
            resource.setrlimit(resource.RLIMIT_AS, (in_use() + limit, -1))
            try:
                tok.encode(text, num_threads=1)
            except MemoryError:
                refused += 1
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert tok.encode(text, num_threads=1) == [1000 + byte for byte in text.encode()]
        print(refused)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= 1


DECODING = bytemill.Tokenizer(HIGH | {5000: b"x" * 40, 5001: b"y" * 15, 5002: b"z" * 16}, [], {"<s>": 70_000})
KNOWN = st.one_of(st.sampled_from([*HIGH, 5000, 5001, 5002, 70_000]), st.integers(1000, 1255))
UNKNOWN = st.sampled_from([0, 999, 1256, 4999, 69_999, 70_001, 1 << 20, 1 << 31, (1 << 32) - 1])
DTYPES = ["u4", "u8", "i4", "i8"]


@given(ids=st.lists(KNOWN, max_size=400), dtype=st.sampled_from(DTYPES))
def test_decoding_joins_the_bytes_of_the_ids(ids: list[int], dtype: str) -> None:
    vocab = DECODING.vocab
    expected = b"".join(vocab[i] for i in ids)
    for explicit_ids in (ids, np.array(ids, dtype)):
        assert DECODING.decode_bytes(explicit_ids) == expected
        for errors in ("replace", "ignore", "backslashreplace"):
            assert DECODING.decode(explicit_ids, errors=errors) == expected.decode("utf-8", errors)


@given(before=st.lists(KNOWN, max_size=200), unknown=UNKNOWN, after=st.lists(KNOWN | UNKNOWN, max_size=200))
def test_the_first_unknown_id_is_named(before: list[int], unknown: int, after: list[int]) -> None:
    ids = [*before, unknown, *after]
    for explicit_ids in (ids, np.array(ids, "u4"), np.array(ids, "i8"), np.array(ids, "u8")):
        for decode in (DECODING.decode_bytes, DECODING.decode):
            with pytest.raises(UnknownTokenError) as caught:
                decode(explicit_ids)
            assert caught.value.token_id == unknown


class Evil:
    """An id that changes the list which it is in while it is read."""

    def __init__(self, ids: list[object]) -> None:
        self.ids = ids

    def __index__(self) -> int:
        del self.ids[1:]
        return 1097


def test_a_list_that_changes_while_it_is_decoded_is_safe() -> None:
    ids: list[object] = []
    ids += [Evil(ids), *range(1000, 1256)]
    assert DECODING.decode(ids) == "a"  # type: ignore[arg-type]


class Int(int):
    """Not quite an int."""


def test_integer_like_objects_are_accepted_as_ids(high: bytemill.Tokenizer) -> None:
    ids = [1097, np.int64(1098), Int(1099), np.uint16(1100), 1101]
    assert high.decode(ids) == "abcde"
