"""Learned merges, compared with the reference implementation and Hugging Face's trainer."""

import codecs
import io
import random
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.oracles import huggingface_merges, huggingface_tokenizer
from tests.support.patterns import as_pattern

import bytemill
from bytemill import TrainingStoppedEarly, reference
from bytemill._core import PretokenCounter, PretokenCounts

END = "<|endoftext|>"
BOTH_TIES = pytest.mark.parametrize("ties", ["bytes", "huggingface"])

# Special tokens that contain, begin and overlap each other.
SPECIAL = ["<s>", "<s><e>", "s><", "é<", "\n\n"]

# Expressions that mean the same to every engine: matches, gaps between them, empty matches, look-around.
CUSTOM = [
    r"\S+", r"[a-z]+", "a*", "(?<=a)b", "b??|a", "(?s:.)", r"\p{L}+(?= )", "^", r" ?[^\s]+|\s+(?!\S)|\s+",
]  # fmt: skip

runs = st.lists(st.tuples(st.sampled_from("ab\x00é世 "), st.integers(1, 40)), max_size=8).map(
    lambda parts: "".join(character * n for character, n in parts)
)
few_letters = st.text("ab ", max_size=60)
words = st.lists(
    st.sampled_from(["low", "lower", "newest", "widest'll", "12345", "\n", "\t", "é\u0301", ""]), max_size=30
).map(" ".join)
# Code points that all tables in play agree upon; U+0295 has changed its category.
any_script = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cn"], exclude_characters="\u0295"), max_size=40
)
odd_characters = st.text(
    "\x00\x7f\x80\xad\ufeff\ufffd\uffff\U0010ffff\u200d\u0301'ſ½Ⅷ٣\r\n\u3000", max_size=30
)
with_special = st.lists(st.sampled_from([*SPECIAL, "<", "s", ">", "e", "é", " a", "\n"]), max_size=30).map(
    "".join
)
texts = runs | few_letters | words | any_script | odd_characters | with_special
documents = st.lists(texts, max_size=6)
patterns = st.sampled_from(["gpt2", "cl100k", "o200k", "llama3", None, *CUSTOM])


def counted(
    documents: Iterable[str], special_tokens: Sequence[str] = (), pattern: str | None = "gpt2"
) -> Counter[bytes]:
    """Pre-token counts of the reference implementation."""
    return Counter(reference.corpus_pretokens(documents, special_tokens, pattern))


@given(
    documents=documents,
    n_merges=st.integers(0, 60),
    special_tokens=st.sampled_from([[], [END], SPECIAL]),
    pattern=patterns,
    ties=st.sampled_from(["bytes", "huggingface"]),
    min_frequency=st.integers(1, 5),
    num_threads=st.sampled_from([None, 1, 2, 3]),
    chunk_bytes=st.none() | st.integers(1, 64),
)
def test_merges_and_their_counts_equal_those_of_the_reference(
    *, documents, n_merges, special_tokens, pattern, ties, min_frequency, num_threads, chunk_bytes
) -> None:
    counts = counted(documents, special_tokens, pattern)
    expected = reference.learn_merges(counts, n_merges, ties, min_frequency)
    if not any(documents):
        documents = [*documents, "x"]  # an empty corpus is an error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingStoppedEarly)
        tokenizer = bytemill.train_from_iterator(
            documents,
            256 + n_merges + len(special_tokens),
            special_tokens,
            pattern=as_pattern(pattern),
            ties=ties,
            min_frequency=min_frequency,
            num_threads=num_threads,
            chunk_bytes=chunk_bytes,
        )
    assert (tokenizer.merges, tokenizer.merge_counts) == expected
    assert list(tokenizer.vocab.values()) == list(
        reference.build_vocab(tokenizer.merges, special_tokens).values()
    )


class _Trickle(io.RawIOBase):
    """A stream that returns a few bytes at a time."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        super().__init__()
        self._left = data
        self._sizes = iter(sizes)

    def read(self, size: int = -1, /) -> bytes:
        n = min(size, next(self._sizes, 5))
        piece, self._left = self._left[:n], self._left[n:]
        return piece


def _trickle(data: bytes, sizes: list[int]) -> BinaryIO:
    return cast("BinaryIO", _Trickle(data, sizes))


@given(
    documents=documents,
    special_tokens=st.sampled_from([[], SPECIAL, ["a", "ab", "bab"]]),
    pattern=patterns,
    sizes=st.lists(st.integers(1, 9), max_size=20),
    num_threads=st.integers(1, 3),
    chunk_bytes=st.integers(1, 40),
)
def test_a_stream_counts_the_same_however_it_arrives_and_is_cut(
    *, documents, special_tokens, pattern, sizes, num_threads, chunk_bytes
) -> None:
    counter = PretokenCounter(pattern, special_tokens, num_threads, chunk_bytes)
    for document in documents:
        counter.add_stream(_trickle(document.encode(), sizes), "strict", None)
    counts = counter.finish()
    expected = counted(documents, special_tokens, pattern)
    assert dict(counts.items()) == expected
    assert counts.n_pretokens == expected.total()
    assert counts.n_unique == len(expected)
    assert counts.n_bytes == sum(len(document.encode()) for document in documents)
    assert counts.n_special == sum(
        is_special
        for document in documents
        for _, is_special in reference.split_at_special_tokens(document, special_tokens)
    )


@given(
    data=st.lists(
        st.sampled_from([b"ab ", "é".encode(), "世".encode(), "😀".encode()])
        | st.sampled_from(
            [b"\xff", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f", b"\xe4"]
        ),
        max_size=30,
    ).map(b"".join),
    sizes=st.lists(st.integers(1, 5), max_size=20),
)
def test_malformed_bytes_are_read_and_counted_as_python_reads_them(data: bytes, sizes: list[int]) -> None:
    n_replaced = 0

    def replace(error: UnicodeError) -> tuple[str, int]:
        nonlocal n_replaced
        assert isinstance(error, UnicodeDecodeError)
        n_replaced += 1
        return "\ufffd", error.end

    codecs.register_error("test-replace", replace)
    text = data.decode("utf-8", "test-replace")
    counter = PretokenCounter("gpt2", [], 2, 1)
    counter.add_stream(_trickle(data, sizes), "replace", None)
    counts = counter.finish()
    assert dict(counts.items()) == counted([text])
    assert counts.n_replaced == n_replaced
    assert counts.n_bytes == len(data)


# Counts given directly


@given(
    items=st.lists(
        st.tuples(
            st.text("ab", min_size=1, max_size=12).map(str.encode) | st.binary(max_size=20),
            st.integers(0, 5) | st.integers(2**32 - 2, 2**32 + 2) | st.integers(2**53 - 2, 2**53 + 2),
        ),
        max_size=20,
    ),
    ties=st.sampled_from(["bytes", "huggingface"]),
    min_frequency=st.sampled_from([1, 2, 5, 2**33, 2**54]),
    n_merges=st.integers(0, 40),
)
def test_merges_of_given_counts_equal_those_of_the_reference_for_counts_beyond_32_bits(
    items, ties, min_frequency, n_merges
) -> None:
    summed: Counter[bytes] = Counter()
    for pretoken, count in items:
        summed[pretoken] += count
    counts = PretokenCounts.from_items(items)
    assert dict(counts.items()) == {
        pretoken: count for pretoken, count in summed.items() if pretoken and count
    }
    assert counts.n_pretokens == sum(count for pretoken, count in summed.items() if pretoken)
    assert counts.learn_merges(n_merges, ties, min_frequency, None, None) == reference.learn_merges(
        summed, n_merges, ties, min_frequency
    )


def random_words(seed: int, alphabet: bytes, longest: int, n_bytes: int) -> dict[bytes, int]:
    """Unique words with more bytes together than those that are tracked in full, and counts far apart."""
    rng = random.Random(seed)
    words: dict[bytes, int] = {}
    size = 0
    while size < n_bytes:
        n = rng.randint(1, longest)
        word = (
            rng.choice(alphabet).to_bytes() * n if rng.random() < 0.1 else bytes(rng.choices(alphabet, k=n))
        )
        size += 0 if word in words else n
        words[word] = rng.choice([1] * 50 + [2] * 20 + [7] * 5 + [300, 2**20, 2**40])
    return words


@pytest.mark.parametrize(
    ("alphabet", "longest", "n_bytes", "n_merges", "ties"),
    [
        (b"ab", 24, 30_000, 1500, "huggingface"),
        pytest.param(b"abcde", 12, 60_000, 3000, "bytes", marks=pytest.mark.slow),
        (bytes(range(256)), 12, 20_000, 2000, "bytes"),
        (b"abcdefghij", 100, 20_000, 300, "huggingface"),
    ],
)
def test_pairs_that_were_too_rare_to_be_tracked_are_found_when_their_turn_comes(
    ties: Literal["bytes", "huggingface"], alphabet: bytes, longest: int, n_bytes: int, n_merges: int
) -> None:
    words = random_words(len(alphabet), alphabet, longest, n_bytes)
    assert sum(len(word) for word in words) > 1 << 14, "of so few bytes all pairs are tracked"
    merges, merge_counts = PretokenCounts.from_items(words.items()).learn_merges(
        n_merges, ties, 1, None, None
    )
    assert len(merges) == n_merges
    assert (merges, merge_counts) == reference.learn_merges(words, n_merges, ties)
    assert merge_counts == sorted(merge_counts, reverse=True)
    assert merge_counts[0] > 64 * merge_counts[-1], "the counts do not fall as far as the thresholds do"


@pytest.mark.parametrize("min_frequency", [2, 3, 301])
def test_min_frequency_is_exact_at_the_thresholds(min_frequency: int) -> None:
    words = random_words(1, b"abcd", 10, 20_000)
    learnt = PretokenCounts.from_items(words.items()).learn_merges(
        1 << 20, "bytes", min_frequency, None, None
    )
    assert learnt == reference.learn_merges(words, 1 << 20, "bytes", min_frequency)
    assert learnt[1][-1] >= min_frequency


# Real texts


def standard_library() -> Iterator[str]:
    """Modules of the running Python, at most 1.5 MB of them."""
    n_characters = 0
    for path in sorted(Path(io.__file__).parent.glob("*.py")):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        yield text
        n_characters += len(text)
        if n_characters > 1_500_000:
            return


def real_documents(shared_data: Path, name: str) -> list[str]:
    match name:
        case "stories":
            return [(shared_data / "tinystories.txt").read_text("utf-8")]
        case "languages":
            return ["".join(path.read_text("utf-8") for path in sorted(shared_data.glob("udhr/*.txt")))]
        case "japanese":
            return [(shared_data / "wagahai_ja.txt").read_text("utf-8")]
        case _:
            return list(standard_library())


REAL = pytest.mark.parametrize(
    ("name", "vocab_size"), [("stories", 3000), ("languages", 6000), ("japanese", 3000), ("code", 3000)]
)
# The reference scans entire pre-tokens at each merge, and the Japanese ones are sentences.
REAL_FOR_THE_REFERENCE = pytest.mark.parametrize(
    ("name", "vocab_size"),
    [
        ("stories", 2000),
        pytest.param("code", 1500, marks=pytest.mark.slow),
        pytest.param("languages", 700, marks=pytest.mark.slow),
        pytest.param("stories", 6000, marks=pytest.mark.slow),
        pytest.param("code", 3000, marks=pytest.mark.slow),
        pytest.param("languages", 6000, marks=pytest.mark.slow),
        pytest.param("japanese", 1000, marks=pytest.mark.slow),
    ],
)


@lru_cache
def real_counts(shared_data: Path, name: str, pattern: str) -> Counter[bytes]:
    """Counts of the reference implementation, which takes a second."""
    return counted(real_documents(shared_data, name), [END], pattern)


@REAL_FOR_THE_REFERENCE
@BOTH_TIES
def test_merges_of_real_text_equal_those_of_the_reference(
    shared_data: Path, name: str, vocab_size: int, ties
) -> None:
    documents = real_documents(shared_data, name)
    tokenizer = bytemill.train_from_iterator(iter(documents), vocab_size, [END], ties=ties)
    expected = reference.learn_merges(real_counts(shared_data, name, "gpt2"), vocab_size - 257, ties)
    assert (tokenizer.merges, tokenizer.merge_counts) == expected
    assert len(tokenizer.merges) == vocab_size - 257


@REAL
def test_merges_of_real_text_equal_those_of_hugging_face(
    shared_data: Path, name: str, vocab_size: int
) -> None:
    # Their trainer does not look for special tokens in the text.
    documents = [part for text in real_documents(shared_data, name) for part in text.split(END)]
    theirs = huggingface_merges(huggingface_tokenizer(documents, vocab_size, [END]))
    ours = bytemill.train_from_iterator(iter(documents), vocab_size, [END], ties="huggingface").merges
    first_difference = next(
        (rank for rank, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None
    )
    assert first_difference is None
    assert len(ours) == len(theirs) == vocab_size - 257


@pytest.mark.parametrize("vocab_size", [400, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pattern", ["cl100k", "o200k", "llama3", r"\p{L}+|\p{N}|\s+"])
def test_merges_of_many_languages_equal_those_of_the_reference_with_every_pattern(
    shared_data: Path, pattern: str, vocab_size: int
) -> None:
    documents = [text[: 150 * vocab_size] for text in real_documents(shared_data, "languages")]
    options = {"pattern": as_pattern(pattern), "num_threads": 2, "chunk_bytes": 10_000}
    tokenizer = bytemill.train_from_iterator(iter(documents), vocab_size, [END], **options)
    expected = reference.learn_merges(counted(documents, [END], pattern), vocab_size - 257)
    assert (tokenizer.merges, tokenizer.merge_counts) == expected
