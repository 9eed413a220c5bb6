"""Resolution of input names to sources, and reading of sources."""

import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill import train
from bytemill.corpus import Corpus, Source, iter_texts, not_utf8, read_blocks, resolve_inputs
from bytemill.corpus.readers import checked_texts
from bytemill.errors import CorpusError


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a few files."""
    for name, text in {
        "b.txt": "zwei",
        "a.txt": "eins",
        "notes.md": "drei",
        "sub/c.txt": "vier",
        "sub/deep/d.txt": "fünf",
        "odd[1].txt": "sechs",
        "empty.txt": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error_of(inputs: object) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        resolve_inputs(inputs)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["b.txt", Path("a.txt"), "b.txt", "empty.txt"], ["b.txt", "a.txt", "b.txt", "empty.txt"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "empty.txt", "odd[1].txt", "sub/c.txt", "sub/deep/d.txt"]),
        ("./[ab].*", ["./a.txt", "./b.txt"]),
        ("*", ["a.txt", "b.txt", "empty.txt", "notes.md", "odd[1].txt"]),
        ("odd[1].txt", ["odd[1].txt"]),
        (["sub/*", "a.txt"], ["sub/c.txt", "a.txt"]),
        (Path("sub/**/d.*"), ["sub/deep/d.txt"]),
    ],
)
def test_files_and_globs_give_sources_in_order(corpus: Path, inputs: object, expected: list[str]) -> None:
    sources = resolve_inputs(inputs)  # type: ignore[arg-type]
    assert [source.name for source in sources] == expected
    assert [source.n_bytes for source in sources] == [len((corpus / name).read_bytes()) for name in expected]
    assert resolve_inputs(corpus / "a.txt")[0].path == corpus / "a.txt"


@pytest.mark.parametrize(
    ("inputs", "message", "hint"),
    [
        ("a.text", "no such file: a.text", "did you mean a.txt or b.txt?"),
        ("note.md", "no such file: note.md", "did you mean notes.md?"),
        ("NOTES.MD", "no such file: NOTES.MD", "did you mean notes.md?"),
        ("sub/cc.txt", "no such file: sub/cc.txt", "did you mean sub/c.txt?"),
        ("sub/zzzzzz", "no such file: sub/zzzzzz", "no file in sub has a similar name"),
        ("sub/deeep/d.txt", "no such file: sub/deeep/d.txt", "the folder sub/deeep does not exist"),
        ("a.txt/b.txt", "no such file: a.txt/b.txt", "the folder a.txt does not exist"),
        ("link.txt", "link.txt is a link to gone.txt, which does not exist", "restore its target"),
        (["a.txt", "*.json"], "no file matches *.json", "'**' descends"),
        ("su*", "su* matches only folders", "'sub/*.txt'"),
        ("", "the input name is empty: ''", "name a file"),
        (" ", "the input name is empty: ' '", "name a file"),
        ("a\0b", "'a\\x00b' is not a file name: it contains a zero byte", "pass a file name"),
        ([], "there is no input", "name a file"),
        (["-", "a.txt", "-"], "'-' occurs twice, but standard input can be read only once", "save it"),
        ("empty.txt", "the corpus is empty: empty.txt holds 0 bytes", "contains text"),
        (["empty.txt"] * 2, "each of the 2 inputs (empty.txt, …) holds 0 bytes", "contains text"),
    ],
)
def test_inputs_that_lead_to_nothing_are_named(corpus: Path, inputs: object, message: str, hint: str) -> None:
    (corpus / "link.txt").symlink_to("gone.txt")
    error = error_of(inputs)
    assert str(error).endswith(message)
    assert hint in str(error.hint)


def test_close_names_are_at_most_three_and_only_files(corpus: Path) -> None:
    for name in ("part1.txt", "part2.txt", "part3.txt", "part4.txt"):
        (corpus / name).write_bytes(b"x")
    (corpus / "part5.txt").mkdir()
    hint = error_of("part5_.txt").hint
    assert hint is not None
    assert hint.count("part") == 3
    assert "part5" not in hint


def test_texts_passed_as_paths_are_recognised(corpus: Path) -> None:
    # The last one is also a pattern of thousands of folders, which nobody must look for.
    for text in ("Once upon a time.\nThere was", "word " * 100, "Why? " * 100, "either/or * [1]\n" * 2_000):
        error = error_of(text)
        assert error.hint is not None
        assert "from_texts([text])" in error.hint
        assert len(str(error)) < 150


@pytest.mark.parametrize("inputs", [b"a.txt", 5, None, ["a.txt", b"b.txt"], [["a.txt"]], iter(["a.txt"])])
def test_inputs_of_other_types_are_type_errors(corpus: Path, inputs: object) -> None:
    with pytest.raises(TypeError, match="expected"):
        resolve_inputs(inputs)  # type: ignore[arg-type]


def test_a_file_without_permission_is_refused_up_front(corpus: Path) -> None:
    (corpus / "a.txt").chmod(0)
    if os.access("a.txt", os.R_OK):
        pytest.skip("platform: this user reads every file")
    assert str(error_of("a.txt")) == "cannot read a.txt: permission denied"


@given(data=st.binary(min_size=1, max_size=300), block_bytes=st.integers(1, 50))
def test_blocks_joined_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, block_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "blocks.bin"
    path.write_bytes(data)
    (source,) = resolve_inputs(path)
    blocks = list(read_blocks(source, block_bytes))
    assert b"".join(blocks) == data
    assert all(len(block) == block_bytes for block in blocks[:-1])
    assert blocks[-1]


def test_reading_takes_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    (source,) = resolve_inputs(path)
    tracemalloc.start()
    n_bytes = sum(map(len, read_blocks(source, 1 << 20)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_bytes == 16 << 20
    assert peak < 4 << 20


def test_standard_input_is_read_to_its_end() -> None:
    script = (
        "from bytemill.corpus import *; s, = resolve_inputs('-'); print(s);"
        "print([len(b) for b in read_blocks(s, 4)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=b"0123456789", capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines() == [
        "Source(name='<stdin>', n_bytes=None, path=None)",
        "[4, 4, 2]",
    ]


def test_a_pipe_has_no_size_and_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (source,) = resolve_inputs(pipe)
    assert source.n_bytes is None
    writer = threading.Thread(target=lambda: pipe.write_bytes(bytes(300_000)))
    writer.start()
    blocks = list(read_blocks(source, 30_000))
    assert b"".join(blocks) == bytes(300_000)
    assert all(0 < len(block) <= 30_000 for block in blocks)
    writer.join(10)


def test_texts_are_the_files(corpus: Path) -> None:
    (corpus / "crlf.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r")
    assert list(iter_texts(["a.txt", "empty.txt", "sub/deep/d.txt"])) == ["eins", "", "fünf"]
    assert list(iter_texts("crlf.txt")) == ["one\r\ntwo\r"]


def test_texts_are_drawn_one_by_one() -> None:
    drawn: list[int] = []

    def texts() -> Iterator[str]:
        for number in range(3):
            drawn.append(number)
            yield str(number)

    first = next(checked_texts(texts()))
    assert (first, drawn) == ("0", [0])


@pytest.mark.parametrize(
    ("encoding", "options"),
    [("utf-16", {}), ("utf-16-be", {"documents": "line"}), ("utf-32", {"errors": "replace"})],
)
def test_other_encodings_are_named(corpus: Path, encoding: str, options: dict[str, Any]) -> None:
    text = "text" if encoding in ("utf-16", "utf-32") else "\ufefftext"
    (corpus / "data.txt").write_bytes(text.encode(encoding))
    name = encoding[:6].upper()
    for read in (lambda c: list(iter_texts(c)), lambda c: train(c, 257)):
        with pytest.raises(CorpusError, match=rf"data.txt is {name} text, not UTF-8") as caught:
            read(Corpus("data.txt", **options))
        assert caught.value.hint == f"convert it first: iconv -f {name} -t UTF-8 data.txt > utf8.txt"


def test_the_offset_is_named_without_reading_a_pipe_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    error = UnicodeDecodeError("utf-8", b"\xff", 70_000, 70_001, "invalid start byte")
    assert (
        str(not_utf8(Source("<stdin>", None, None), error)) == "<stdin>: byte offset 70000 is not valid UTF-8"
    )
    assert str(not_utf8(Source("p", None, pipe), error)) == "p: byte offset 70000 is not valid UTF-8"
