"""Errors of training and their messages."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import (
    BytemillError,
    CorpusError,
    Pattern,
    TokenizerError,
    reference,
    train,
    train_from_iterator,
)
from bytemill._core import PretokenCounter, PretokenCounts, pretoken_spans

READ_BYTES = 1 << 18
"""Size of the core's read calls."""


def untouched() -> Iterator[str]:
    """A corpus that must not be read, because options are validated first."""
    pytest.fail("the corpus was read")
    yield ""


def refused(call: Callable[[], object], error: type[Exception], message: str, hint: str | None) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    if hint is not None:
        assert isinstance(caught.value, BytemillError)
        assert hint.replace("\\", "") in str(caught.value.hint)


# Options


@pytest.mark.parametrize(
    ("options", "error", "message", "hint"),
    [
        (
            {"vocab_size": 256},
            TokenizerError,
            "256 is too small: 256 bytes and 1 special token make 257",
            "257",
        ),
        ({"vocab_size": 257, "special_tokens": ["a", "b"]}, TokenizerError, "special tokens make 258", "258"),
        ({"vocab_size": -1}, TokenizerError, "vocab_size -1 is too small", "257"),
        ({"vocab_size": 2**40}, TokenizerError, "vocab_size 1099511627776 is too large", "at most 2097152"),
        ({"vocab_size": 2**70}, TokenizerError, "is too large", "2097152"),
        ({"vocab_size": "300"}, TypeError, "vocab_size must be an int, not str", None),
        ({"vocab_size": 300.0}, TypeError, "vocab_size must be an int, not float", None),
        ({"vocab_size": None}, TypeError, "vocab_size must be an int, not NoneType", None),
        ({"special_tokens": "<s>"}, TokenizerError, "special_tokens is a str", r"special_tokens=\['<s>'\]"),
        ({"special_tokens": [""]}, TokenizerError, "a special token is empty", "remove it"),
        ({"special_tokens": ["<s>", "<t>", "<s>"]}, TokenizerError, "'<s>' occurs twice", "once"),
        ({"special_tokens": ["<s>", "\ud800"]}, TokenizerError, r"'\\ud800' contains a lone surrogate", None),
        ({"special_tokens": None}, TypeError, "special_tokens must be a list of str, not None", None),
        ({"special_tokens": b"<s>"}, TypeError, "special_tokens must be a list of str, not b'<s>'", None),
        ({"special_tokens": ["<s>", 5]}, TypeError, r"must be a list of str, not \['<s>', 5\]", None),
        ({"special_tokens": [["<s>"]]}, TypeError, "must be a list of str", None),
        ({"pattern": "gpt-2"}, TokenizerError, "unknown pattern 'gpt-2'", "use 'gpt2'"),
        ({"pattern": 5}, TypeError, "pattern must be a str, a Pattern or None, not int", None),
        ({"ties": "first"}, TokenizerError, "ties is 'first'", "use 'bytes' or 'huggingface'"),
        ({"special_ids": "middle"}, TokenizerError, "special_ids is 'middle'", "use 'last' or 'first'"),
        ({"min_frequency": 0}, TokenizerError, "min_frequency is 0", "at least 1"),
        ({"min_frequency": -5}, TokenizerError, "min_frequency is -5", "at least 1"),
        ({"min_frequency": 1.5}, TypeError, "min_frequency must be an int, not float", None),
        ({"min_frequency": 2**64}, TokenizerError, "min_frequency is", "at most"),
        ({"num_threads": 0}, TokenizerError, "num_threads is 0", "at least 1"),
        ({"num_threads": -1}, TokenizerError, "num_threads is -1", "at least 1"),
        ({"num_threads": 2**62}, TokenizerError, "num_threads is 4611686018427387904", "at most 4096"),
        ({"num_threads": "2"}, TypeError, "num_threads must be an int, not str", None),
        ({"chunk_bytes": 0}, TokenizerError, "chunk_bytes is 0", "at least 1"),
        ({"chunk_bytes": -1}, TokenizerError, "chunk_bytes is -1", "at least 1"),
        ({"chunk_bytes": 2**45}, TokenizerError, "chunk_bytes is 35184372088832", "at most 1073741824"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_read(
    options: dict[str, Any], error: type[Exception], message: str, hint: str | None
) -> None:
    vocab_size = options.pop("vocab_size", 300)
    refused(lambda: train_from_iterator(untouched(), vocab_size, **options), error, message, hint)
    refused(lambda: train("no-such-file.txt", vocab_size, **options), error, message, hint)


def test_errors_is_checked() -> None:
    use: Any = {"errors": "ignore"}
    refused(
        lambda: train("corpus.txt", 300, **use), TokenizerError, "errors is 'ignore'", "'strict' or 'replace'"
    )


# Corpora


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "corpus.txt").write_text("low lower newest")
    (tmp_path / "empty.txt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("texts", "error", "message", "hint"),
    [
        ([], CorpusError, "the corpus is empty: its texts contain no characters", "pass texts"),
        (["", ""], CorpusError, "the corpus is empty: its texts contain no characters", "pass texts"),
        (["low", b"lower"], CorpusError, r"item 1 of the corpus is not a str: b'lower'", "str"),
        (iter(["low", None]), CorpusError, "item 1 of the corpus is not a str: None", "str"),
        ([Path("corpus.txt")], CorpusError, "item 0 of the corpus is not a str", "as a list"),
        ([{"text": "low"}], CorpusError, "item 0 of the corpus is not a str", "Corpus.from_rows"),
        ("low lower", TypeError, "not a single str", None),
        (b"low lower", TypeError, "not a single bytes", None),
        (5, TypeError, "not iterable", None),
    ],
)
def test_texts_that_are_none_are_refused(
    texts: Any, error: type[Exception], message: str, hint: str | None
) -> None:
    refused(lambda: train_from_iterator(texts, 300), error, message, hint)


# Bytes that are not UTF-8


@pytest.mark.parametrize(
    ("before", "malformed", "after"),
    [
        (0, b"\xff", 10), (7, b"\x80", 10), (7, b"\xe4\xb8", 0), (READ_BYTES - 1, b"\xff", 1000),
        (READ_BYTES, b"\xff", 1000), (READ_BYTES + 1, b"\xc0\xaf", READ_BYTES),
        (READ_BYTES - 1, b"\xf0\x9f\x98", 1000), (READ_BYTES - 2, b"\xf0\x9f\x98", 1000),
        (READ_BYTES - 3, b"\xf0\x9f\x98", 1000), (READ_BYTES - 1, b"\xe4", 0),
        (READ_BYTES - 2, b"\xe4\xb8", 0), (READ_BYTES - 1, b"\xed\xa0\x80", 5),
        (3 * READ_BYTES - 2, b"\xe4\xb8", 3 * READ_BYTES),
    ],
)  # fmt: skip
def test_malformed_bytes_are_named_by_their_offset_wherever_blocks_end(
    tmp_path: Path, before: int, malformed: bytes, after: int
) -> None:
    text = ("low é " * (before // 7 + 1)).encode()[:before]
    text = text.decode("utf-8", "ignore").encode().ljust(before)
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("low lower newest " * 5)
    bad.write_bytes(text + malformed + b"x" * after)
    for inputs, chunk_bytes in ((bad, None), ([good, bad], 1), (bad, 1000)):
        with pytest.raises(CorpusError) as caught:
            train(inputs, 300, chunk_bytes=chunk_bytes)
        place = f"byte offset {before} (0x{malformed[0]:02x})"
        line = text[:before].count(b"\n") + 1
        assert str(caught.value) == f"{bad}:{line:,}: {place} is not valid UTF-8"
        assert 'errors="replace"' in str(caught.value.hint)


@given(
    text=st.text("ab é世😀\n", max_size=60),
    place=st.integers(0, 60),
    malformed=st.sampled_from(
        [b"\xff", b"\x80", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc0", b"\xf8", b"\xed\xbf\xbf"]
    ),
)
def test_the_offset_named_is_the_one_that_python_names(
    tmp_path_factory: pytest.TempPathFactory, text: str, place: int, malformed: bytes
) -> None:
    data = text[:place].encode() + malformed + text[place:].encode()
    path = tmp_path_factory.getbasetemp() / "offset.txt"
    path.write_bytes(data)
    with pytest.raises(UnicodeDecodeError) as by_python:
        data.decode()
    with pytest.raises(CorpusError, match=rf"byte offset {by_python.value.start} \(") as by_train:
        train(path, 300)
    assert isinstance(by_train.value.__cause__, UnicodeDecodeError)
    assert by_train.value.__cause__.start == by_python.value.start


def test_with_replacement_training_continues_and_counts_replacements(tmp_path: Path) -> None:
    paths = [tmp_path / "one.txt", tmp_path / "two.txt"]
    contents = [b"low \xff\xff lower \xe4\xb8", b"x" * (READ_BYTES - 2) + b"\xf0\x9f\x98 low lower"]
    contents[0] += " \ufffd".encode()  # which is not replaced
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    tokenizer = train(paths, 262, errors="replace", special_tokens=[])
    texts = [content.decode("utf-8", "replace") for content in contents]
    assert tokenizer.merges == reference.train(texts, 262)[1]
    report = tokenizer.training_report
    assert report is not None
    assert report.n_replaced == sum(text.count("\ufffd") for text in texts) - 1 == 4
    assert report.n_bytes == sum(map(len, contents))


def test_a_pipe_that_is_not_utf8_is_named_and_not_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'wb').write(b'low \\xff')"])
    with pytest.raises(CorpusError, match="pipe: byte offset 4 is not valid UTF-8"):
        train(pipe, 300)
    assert writer.wait(timeout=60) == 0


# A pattern that gives up


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_pattern_that_backtracks_without_end_is_an_error_and_no_hang(num_threads: int) -> None:
    pattern = r"(?:(?=(a+))a|aa)*c"
    with pytest.raises(TokenizerError, match="failed at byte 0 of a text") as caught:
        train_from_iterator(
            ["low lower ", "a" * 200], 300, pattern=Pattern.regex(pattern), num_threads=num_threads
        )
    assert pattern in str(caught.value)


# The core, called directly


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: PretokenCounter("(", [], None, None), TokenizerError),
        (lambda: PretokenCounter("gpt2", [""], None, None), TokenizerError),
        (lambda: PretokenCounter("gpt2", ["a", "a"], None, None), TokenizerError),
        (lambda: PretokenCounter("gpt2", [], 0, None), ValueError),
        (lambda: PretokenCounts.from_items([(b"ab", -1)]), OverflowError),
        (lambda: PretokenCounts.from_items([(b"ab", 2**64)]), OverflowError),
        (lambda: PretokenCounts.from_items([("ab", 1)]), TypeError),  # type: ignore[list-item]
        (lambda: PretokenCounts.from_items([(b"ab",)]), (TypeError, ValueError)),  # type: ignore[list-item]
        (lambda: PretokenCounts.from_items(None), TypeError),  # type: ignore[arg-type]
        (lambda: counts().learn_merges(5, "first", 1, None, None), ValueError),  # type: ignore[arg-type]
        (lambda: counts().learn_merges(-1, "bytes", 1, None, None), OverflowError),
        (lambda: counts().learn_merges(5, "bytes", -1, None, None), OverflowError),
        (lambda: counts().learn_merges(5, "bytes", 1, 0, None), ValueError),
        # Sizes beyond its limits.
        (lambda: PretokenCounter("gpt2", [], 2**62, None), (ValueError, OverflowError)),
        (lambda: PretokenCounts.from_items([(b"ab", 2**64 - 1), (b"ab", 1)]), (ValueError, OverflowError)),
        (lambda: PretokenCounts.from_items([(b"ab", 2**63), (b"xab", 2**63)]), (ValueError, OverflowError)),
        (lambda: pretoken_spans(" Aé éaA bA\n", r"(?:(\1|.)\S)+"), ValueError),
    ],
)
def test_the_core_refuses_with_exceptions_of_python(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call()


def counts() -> PretokenCounts:
    return PretokenCounts.from_items([(b"low", 1)])


def test_a_counter_is_of_no_use_after_it_is_finished_or_has_failed(folder: Path) -> None:
    counter = PretokenCounter("gpt2", [], 2, None)
    counter.add_texts(["low"])
    assert counter.finish().items() == [(b"low", 1)]
    for use in (counter.finish, lambda: counter.add_texts(["low"])):
        with pytest.raises(ValueError, match="finished, or failed earlier"):
            use()
    counter = PretokenCounter("gpt2", [], 2, None)
    with pytest.raises(FileNotFoundError):
        counter.add_file("nowhere.txt", "strict", None)
    with pytest.raises(ValueError, match="finished, or failed earlier"):
        counter.add_file("corpus.txt", "strict", None)


def test_a_stream_that_is_none_is_refused(folder: Path) -> None:
    class Greedy:
        def read(self, size: int) -> bytes:
            return b"x" * (size + 1)

    class Wordy:
        def read(self, size: int) -> str:
            return "x"[:size]

    class Late:
        def read(self, _: int) -> None:
            return None

    for stream, error in (
        (Greedy(), OSError),
        (Wordy(), TypeError),
        (Late(), TypeError),
        (5, AttributeError),
    ):
        counter = PretokenCounter("gpt2", [], 1, None)
        with pytest.raises(error):
            counter.add_stream(stream, "strict", None)  # type: ignore[arg-type]


def test_chunks_larger_than_memory_do_not_end_the_process(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("low lower")
    code = (
        "from bytemill._core import PretokenCounter\n"
        "counter = PretokenCounter('gpt2', [], 1, 1 << 45)\n"
        f"counter.add_file({str(tmp_path / 'corpus.txt')!r}, 'strict', None)\n"
        "print(counter.finish().n_pretokens)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert run.stdout == b"2\n" or b"ValueError" in run.stderr or b"OverflowError" in run.stderr
