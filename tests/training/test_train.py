"""Training on every kind of input, and its results."""

import gzip
import os
import random
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern

import bytemill
from bytemill import Pattern, TrainingStoppedEarly, reference, train, train_bpe, train_from_iterator

END = "<|endoftext|>"
TEXTS = [
    f"low low lower newest newest{END}widest  It's 12345 o'clock\n",
    "naïve Straße 今日は、世界。 low lower\n\n\n",
    f"{END}{END}newest widest lowest, low!",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the three texts in files."""
    for name, text in zip(("a.txt", "b.txt", "c.txt"), TEXTS, strict=True):
        (tmp_path / name).write_text(text, "utf-8", newline="")
    (tmp_path / "joined.txt").write_text("".join(TEXTS), "utf-8", newline="")
    (tmp_path / "empty.txt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reference_merges(
    documents: Iterable[str], vocab_size: int, special_tokens: list[str], pattern: str | None = "gpt2"
) -> list:
    return reference.train(documents, vocab_size, special_tokens, pattern)[1]


# Where the corpus comes from


@pytest.mark.parametrize(
    "inputs",
    [
        ("a.txt", Path("b.txt"), "./c.txt"),
        ["c.txt", "empty.txt", "a.txt", "b.txt"],
        ["[ab].txt", Path("**/c.*")],
    ],
)
def test_files_and_globs_give_the_same_merges(folder: Path, inputs: Any) -> None:
    tokenizer = train(inputs, 285, [END], pattern="gpt2")
    assert tokenizer.merges == reference_merges(TEXTS, 285, [END])
    assert len(tokenizer.merges) == 285 - 257


@pytest.mark.parametrize("make", [list, iter, reversed, dict.fromkeys, lambda texts: {*texts, ""}])
def test_every_iterable_of_texts_gives_the_same_merges(make: Callable[[list[str]], Iterable[str]]) -> None:
    expected = reference_merges(TEXTS, 285, [END])
    assert train_from_iterator(make(TEXTS), 285, [END]).merges == expected
    assert train(bytemill.Corpus.from_texts(make(TEXTS)), 285, [END]).merges == expected


def test_one_file_is_one_document(folder: Path) -> None:
    assert train("j*.txt", 330, [END], pattern=None).merges == reference_merges(
        ["".join(TEXTS)], 330, [END], None
    )


def test_standard_input_is_one_document() -> None:
    code = f"import bytemill; print(bytemill.train('-', 280, [{END!r}]).merges)"
    data = "".join(TEXTS).encode()
    run = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, timeout=60, check=False
    )
    assert run.stderr == b""
    assert run.stdout.decode().strip() == repr(reference_merges(["".join(TEXTS)], 280, [END]))


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=("".join(TEXTS).encode(),))
    writer.start()
    assert train(pipe, 280, [END]).merges == reference_merges(["".join(TEXTS)], 280, [END])
    writer.join()


def test_the_lines_of_an_open_file_are_texts(folder: Path) -> None:
    with Path("joined.txt").open(encoding="utf-8", newline="") as lines:
        tokenizer = train_from_iterator(lines, 270, [END])
    assert tokenizer.merges == reference_merges("".join(TEXTS).splitlines(keepends=True), 270, [END])


def test_no_pretoken_reaches_across_documents_and_special_tokens() -> None:
    with pytest.warns(TrainingStoppedEarly):
        tokenizer = train_from_iterator(["ab", "ca", f"ab{END}ab"], 300, [END], pattern=None)
    assert tokenizer.merges == [(b"a", b"b"), (b"c", b"a")]
    assert tokenizer.merge_counts == [3, 1]


def test_a_file_named_twice_counts_twice(folder: Path) -> None:
    once, twice = train("a.txt", 270), train(["a.txt", "a.txt"], 270)
    assert twice.merges == once.merges
    assert twice.merge_counts == [2 * count for count in once.merge_counts or []]


@pytest.mark.parametrize("kind", ["file", "gzip", "line", "pipe", "bad"])
def test_a_byte_order_mark_is_dropped_and_noted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bom.txt"
    data = "\ufeffab\ufeffab".encode()
    corpus: Any = path
    if kind == "pipe":
        os.mkfifo(path)
        threading.Thread(target=path.write_bytes, args=(data,)).start()
    elif kind == "bad":
        path.write_bytes(data + b"\xff")
        with pytest.raises(bytemill.CorpusError, match=rf"byte offset {len(data)} "):
            train(path, 258, special_tokens=[])
        return
    else:
        path.write_bytes(gzip.compress(data) if kind == "gzip" else data)
        corpus = bytemill.Corpus(path, documents="line" if kind == "line" else "file")
    tokenizer = train(corpus, 258, special_tokens=[])
    assert tokenizer.merges == reference_merges(["ab\ufeffab"], 258, [])
    assert tokenizer.training_report is not None
    assert tokenizer.training_report.n_bytes == len(data) - 3
    assert tokenizer.training_report.notes == ["a UTF-8 byte-order mark was dropped from the start of 1 file"]


def test_surrogates_in_a_text_are_joined_or_read_as_replacement_characters() -> None:
    tokenizer = train_from_iterator(["\ud83d\ude00 a\ud800b"], 260, pattern=None, special_tokens=[])
    assert tokenizer.merges == reference_merges(["\U0001f600 a\ufffdb"], 260, [], None)


def test_texts_of_all_sizes_are_counted() -> None:
    texts = ["low ", "", "lower " * 50_000, "newest", *["widest"] * 20_000, " low" * 300_000, "é" * 9, ""]
    texts += [("abc" * 90)[:n] for n in (254, 255, 256)]  # where a length takes more than a byte
    expected = Counter(reference.corpus_pretokens(texts, [], "gpt2"))
    for num_threads, chunk_bytes in [(1, None), (2, 1000), (3, 1 << 20)]:
        tokenizer = train_from_iterator(
            texts, 265, num_threads=num_threads, chunk_bytes=chunk_bytes, special_tokens=[]
        )
        report = tokenizer.training_report
        assert report is not None
        assert report.n_bytes == sum(len(text.encode()) for text in texts)
        assert report.n_pretokens == expected.total()
        assert (tokenizer.merges, tokenizer.merge_counts) == reference.learn_merges(expected, 9)


# The result depends on neither threads nor chunks


@pytest.fixture(scope="module")
def one_word() -> tuple[str, tuple[list[tuple[bytes, bytes]], list[int]]]:
    """A single pre-token of 100 kB, and its first merges."""
    text = "".join(random.Random(5).choices(["a", "b", "ab", "é", "世"], k=60_000))
    return text, reference.learn_merges({text.encode(): 1}, 4)


@pytest.mark.parametrize("pattern", [None, "gpt2", "o200k", Pattern.regex(r"\S+")])
def test_a_corpus_without_separators_trains_the_same_whatever_the_threads_and_chunks(
    tmp_path: Path, one_word: tuple[str, Any], pattern: str | Pattern | None
) -> None:
    text, expected = one_word
    path = tmp_path / "one-word.txt"
    path.write_text(text, "utf-8")
    for num_threads in (1, 3):
        for chunk_bytes in (1 << 12, 1 << 16, 1 << 30):
            options = {"pattern": pattern, "num_threads": num_threads, "chunk_bytes": chunk_bytes}
            for tokenizer in (
                train(path, 260, **options, special_tokens=[]),
                train_from_iterator([text], 260, **options, special_tokens=[]),
            ):
                assert (tokenizer.merges, tokenizer.merge_counts) == expected, options


@given(
    text=st.text("ab", max_size=300) | st.text("aé世", max_size=200),
    pattern=st.sampled_from([None, "gpt2", "cl100k", "a+b"]),
    num_threads=st.integers(1, 3),
    chunk_bytes=st.integers(1, 50),
)
def test_one_long_word_trains_the_same_whatever_the_threads_and_chunks(
    text: str, pattern: str | None, num_threads: int, chunk_bytes: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingStoppedEarly)
        tokenizer = train_from_iterator(
            ["x" + text], 300, pattern=as_pattern(pattern), num_threads=num_threads, chunk_bytes=chunk_bytes
        )
    assert tokenizer.merges == reference_merges(["x" + text], 300, [], pattern)


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", r"\w+|\W"])
def test_files_of_several_blocks_count_the_same_whatever_the_threads_and_chunks(
    shared_data: Path, pattern: str
) -> None:
    path = shared_data / "udhr"
    files = [shared_data / "tinystories.txt", *sorted(path.glob("*.txt"))]
    texts = [file.read_text("utf-8") for file in files]
    expected = train_from_iterator(
        texts, 1000, [END, "<|"], pattern=as_pattern(pattern), num_threads=1, chunk_bytes=1 << 30
    )
    for num_threads, chunk_bytes in [(1, 1), (2, 70_001), (3, None)]:
        options = {"pattern": as_pattern(pattern), "num_threads": num_threads, "chunk_bytes": chunk_bytes}
        tokenizer = train(files, 1000, [END, "<|"], **options)
        assert tokenizer.merges == expected.merges
        assert tokenizer.merge_counts == expected.merge_counts
        assert tokenizer.training_report is not None
        assert expected.training_report is not None
        for fact in ("n_bytes", "n_pretokens", "n_unique_pretokens", "n_special_tokens", "longest_tokens"):
            assert getattr(tokenizer.training_report, fact) == getattr(expected.training_report, fact)


def test_trainings_in_several_threads_do_not_disturb_each_other() -> None:
    texts = [f"{word} {word}s " * 2000 for word in ("low", "new", "wide", "old")]
    results: list[list[tuple[bytes, bytes]]] = [[] for _ in texts]

    def run(place: int) -> None:
        results[place] = train_from_iterator([texts[place]], 258, num_threads=2, special_tokens=[]).merges

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [reference_merges([text], 258, []) for text in texts]


# What comes out


def test_train_bpe_gives_the_vocabulary_and_the_merges_of_cs336(shared_data: Path) -> None:
    path = shared_data / "tinystories.txt"
    vocab, merges = train_bpe(path, 500, [END])
    assert (vocab, merges) == reference.train(path.read_text("utf-8"), 500, [END])
    assert train_bpe(input_path=str(path), vocab_size=500, special_tokens=[END]) == (vocab, merges)
    assert list(vocab) == list(range(500))
    assert [vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    assert [vocab[256 + rank] for rank in range(len(merges))] == [left + right for left, right in merges]
    assert vocab[499] == END.encode()
    assert not any(b"<|" in left + right or b"|>" in left + right for left, right in merges)
    assert len(set(vocab.values())) == 500


def test_train_bpe_without_special_tokens_and_without_room_for_merges(folder: Path) -> None:
    assert train_bpe("a.txt", 256, []) == ({i: bytes([i]) for i in range(256)}, [])
    vocab, merges = train_bpe("a.txt", 258, [END, "<|pad|>"], pattern=None, num_threads=1)
    assert merges == []
    assert [vocab[256], vocab[257]] == [END.encode(), b"<|pad|>"]


def test_special_ids_first_puts_special_tokens_in_front(folder: Path) -> None:
    first = train("a.txt", 265, [END, "<|pad|>"], special_ids="first")
    last = train("a.txt", 265, [END, "<|pad|>"])
    assert first.merges == last.merges
    assert first.special_tokens == {END: 0, "<|pad|>": 1}
    assert last.special_tokens == {END: 263, "<|pad|>": 264}
    assert [first.vocab[i] for i in range(2, 258)] == [bytes([i]) for i in range(256)]
    assert first.n_vocab == last.n_vocab == len(first.vocab) == 265
    text = TEXTS[0]
    shifted = {265 - 2: 0, 265 - 1: 1}
    assert first.encode(text) == [shifted.get(i, i + 2) for i in last.encode(text)]


def test_a_special_token_that_is_a_single_byte_is_no_contradiction() -> None:
    tokenizer = train_from_iterator(["ab|ab|ab"], 258, ["|"], pattern=None)
    assert tokenizer.merges == [(b"a", b"b")]
    assert tokenizer.encode("ab|") == [256, 257]
    assert tokenizer.decode([256, 257]) == "ab|"


def test_the_rule_for_ties_is_recorded() -> None:
    texts = ["ab cd"]
    assert train_from_iterator(texts, 257, special_tokens=[]).merges == [(b"c", b"d")]
    tokenizer = train_from_iterator(texts, 257, ties="huggingface", special_tokens=[])
    assert tokenizer.merges == [(b"a", b"b")]
    assert tokenizer.ties == "huggingface"
    assert train_from_iterator(texts, 257, special_tokens=[]).ties == "bytes"
