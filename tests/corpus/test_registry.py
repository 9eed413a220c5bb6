"""The registry of corpus formats, registered ones, and the page of the documentation about them."""

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bytemill import Corpus, CorpusError, train, train_from_iterator
from bytemill.corpus import CorpusFormat, register_corpus_format
from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import COMPRESSIONS, FORMATS
from bytemill.corpus.options import CorpusOptions
from bytemill.corpus.streams import OpenFile

from .conftest import read, texts_of


def read_paragraphs(file: OpenFile, _: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """A toy format: a first line "PARAGRAPHS", then paragraphs separated by empty lines."""
    offset = state.get("offset", len("PARAGRAPHS\n"))
    with file.stream(offset) as stream:
        block, is_last = stream.block(1 << 20)
        assert is_last
        for paragraph in block.split(b"\n\n"):
            offset += len(paragraph) + 2
            yield Chunk(
                paragraph,
                np.array([len(paragraph)], np.int64),
                False,
                stream.n_bytes_read,
                {"offset": offset},
            )


@pytest.fixture
def toy_format() -> Iterator[None]:
    register_corpus_format(CorpusFormat("paragraphs", (".par",), read_paragraphs, magic=(b"PARAGRAPHS\n",)))
    yield
    del FORMATS["paragraphs"]


@pytest.mark.usefixtures("toy_format")
def test_it_is_read_by_suffix_by_magic_and_by_name(tmp_path: Path) -> None:
    data = b"PARAGRAPHS\nfirst one\n\nsecond\none\n\nthird"
    texts = ["first one", "second\none", "third"]
    for name, format_name in (("a.par", "auto"), ("unnamed", "auto"), ("b.txt", "paragraphs")):
        (tmp_path / name).write_bytes(data)
        corpus = Corpus(tmp_path / name, format=format_name)
        batches = read(corpus)
        assert texts_of(batches) == texts
        assert texts_of(read(corpus, batches[0].after)) == texts[1:]
        assert train(corpus, 260).merges == train_from_iterator(texts, 260).merges
    assert texts_of(read(Corpus(tmp_path, format="paragraphs"))) == texts


@pytest.mark.usefixtures("toy_format")
def test_the_magic_bytes_of_a_registered_format_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.par").write_text("just text")
    with pytest.raises(CorpusError, match="is not paragraphs data but plain text"):
        read(Corpus(tmp_path / "a.par"))


@pytest.mark.usefixtures("toy_format")
def test_names_and_suffixes_are_unique() -> None:
    with pytest.raises(ValueError, match=r"the format 'text' already has the suffix '\.txt'"):
        register_corpus_format(CorpusFormat("other", (".txt",), read_paragraphs))
    with pytest.raises(ValueError, match="auto"):
        register_corpus_format(CorpusFormat("auto", (".auto",), read_paragraphs))
    register_corpus_format(CorpusFormat("paragraphs", (".par", ".paragraphs"), read_paragraphs))


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "corpora.md").read_text(encoding="utf-8")


def test_every_suffix_is_on_the_page() -> None:
    for each in FORMATS.values():
        (row,) = re.findall(rf"^\| `{each.name}` \|.*$", PAGE, flags=re.MULTILINE)
        for suffix in each.suffixes:
            assert f"`{suffix}`" in row
    assert set(COMPRESSIONS.values()) == {"gzip", "zstd", "xz", "bzip2"}
    assert "gzip, zstd, xz and bzip2" in PAGE
