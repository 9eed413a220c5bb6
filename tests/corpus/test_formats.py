"""Every format yields the documents written to it, from every position."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bytemill import train, train_from_iterator
from bytemill.corpus import Corpus, DocumentBatch, Position
from bytemill.shards import TokenShards, encode_corpus

from .conftest import DOCUMENTS, END, read, texts_of, write_inputs


def without_progress(batches: list[DocumentBatch]) -> list[dict[str, Any]]:
    return [
        vars(batch) | {"ends": batch.ends.tolist(), "data": bytes(batch.data), "n_bytes_read": 0}
        for batch in batches
    ]


def as_found(name: str, texts: list[str]) -> list[str]:
    """Plain text keeps the separator in the document that it ends."""
    return [text + END for text in texts] if "separated" in name else texts


def test_every_format_gives_the_same_documents(tmp_path: Path) -> None:
    names = set()
    for name, options in write_inputs(tmp_path, DOCUMENTS):
        assert texts_of(read(Corpus(name, **options))) == as_found(name, DOCUMENTS), name
        names.add(Path(name).name)
    assert len(names) > 25


def test_every_format_gives_the_same_merges_and_ids(tmp_path: Path) -> None:
    texts = DOCUMENTS[:7]
    plain = train_from_iterator(texts, 300, [END])
    ids = [token for text in texts for token in [*plain.encode(text), plain.special_tokens[END]]]
    (tmp_path / "inputs").mkdir()
    for number, (name, options) in enumerate(write_inputs(tmp_path / "inputs", texts)):
        corpus = Corpus(name, **options)
        assert train(corpus, 300, [END]).merges == plain.merges, name
        folder = tmp_path / f"shards-{number}"
        encode_corpus(plain, corpus, folder, documents=END)
        assert TokenShards(folder)[:].tolist() == ids, name


ONE_OF_A_KIND = frozenset(
    [
        "separated.txt", "lines.jsonl", "lines.jsonl.zst", "pages.wet.gz", "text.parquet", "text.arrow",
        "stream.arrow",
    ]
)  # fmt: skip


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sample": 0.6, "seed": 3},
        {"limit_bytes": 1000},
        {"repeat_by_weight": True, "sample": 0.8, "limit_bytes": 3000},
    ],
    ids=["all", "sample", "limit", "weights"],
)
def test_reading_resumes_exactly_at_every_position(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "other.txt").write_text("Another source, which is read before and behind.\n" * 4)
    other = str(tmp_path / "other.txt")
    for name, given in write_inputs(tmp_path, DOCUMENTS[:7]):
        if options and Path(name).name not in ONE_OF_A_KIND:
            continue
        # An explicit format holds for all inputs.
        inputs = [name] if "format" in given else [other, name, other]
        weights: dict[str, Any] = {"weights": {name: 1.6}} if "repeat_by_weight" in options else {}
        corpus = Corpus(inputs, **given, **options, **weights)
        batches = read(corpus)
        whole = without_progress(batches)
        assert len(batches) > 1, name
        for place, batch in list(enumerate(batches))[len(name) % 3 :: 3]:
            kept = json.loads(json.dumps(batch.after.state))
            position = replace(batch.after, state=kept)
            again = Corpus(inputs, **given, **options, **weights)
            assert again.description == corpus.description
            assert without_progress(read(again, position)) == whole[place + 1 :], (name, place)
        end = batches[-1].after
        assert end.source == len(inputs)
        assert read(corpus, end) == []


@pytest.mark.usefixtures("tiny_batches")
def test_batches_are_small_whatever_the_documents_are(tmp_path: Path) -> None:
    long = ["日本語 " * 200, "short", "", "\U0001f600" * 100]
    for name, options in write_inputs(tmp_path, long):
        batches = read(Corpus(name, **options))
        assert texts_of(batches) == as_found(name, long), name
        assert max(len(batch.data) for batch in batches) <= 128, name
        assert any(batch.is_open for batch in batches), name


def test_files_of_every_kind_make_one_corpus(tmp_path: Path) -> None:
    inputs = [
        name for name, options in write_inputs(tmp_path, DOCUMENTS) if options in ({}, {"documents": END})
    ]
    corpus = Corpus(inputs, documents=END)
    batches = read(corpus)
    assert corpus.source_names == inputs
    assert list(dict.fromkeys(batch.source for batch in batches)) == list(range(len(inputs)))
    assert batches[-1].n_bytes_read == corpus.total_bytes
    assert batches[-1].after == Position(len(inputs), {}, batches[-1].after.counts)
    assert not corpus.is_plain


@pytest.mark.parametrize("number", [0, 1, 2])
def test_resuming_seeks_to_the_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Files that can seek are not read again from the beginning."""
    monkeypatch.setattr("bytemill.corpus.documents.BATCH_BYTES", 64)
    name = str(tmp_path / ("lines.jsonl", "lines.txt", "pages.wet")[number])
    for written, _ in write_inputs(tmp_path, DOCUMENTS):
        if written.endswith(".jsonl"):
            Path(name).write_bytes(Path(written).read_bytes())
    if number == 1:
        Path(name).write_text("\n".join(f"line {i}" for i in range(100)))
    if number == 2:
        from .conftest import wet

        Path(name).write_bytes(wet(DOCUMENTS))
    corpus = Corpus(name, documents="line")
    batches = read(corpus)
    middle = batches[len(batches) // 2].after
    offset = middle.state["reader"]["offset"]
    data = bytearray(Path(name).read_bytes())
    data[:offset] = b"\xff" * offset
    Path(name).write_bytes(data)
    corpus = Corpus(name, documents="line")  # the file that the first one has opened is another now
    # A byte order mark and the magic of a compression are looked for at the beginning, and are not there.
    rest = b"".join(bytes(batch.data) for batch in batches[len(batches) // 2 + 1 :])
    assert b"".join(bytes(batch.data) for batch in read(corpus, middle)) == rest
    assert sys.getsizeof(middle.state) < 1000


def test_parquet_is_read_without_pandas(tmp_path: Path) -> None:
    """The import of pandas takes 60 MB and a second."""
    (name,) = [name for name, _ in write_inputs(tmp_path, DOCUMENTS) if name.endswith("/text.parquet")]
    program = (
        "import sys; from bytemill.corpus import *; n = sum(len(b.ends) for b in Corpus(sys.argv[1]).read());"
        "print(n, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(DOCUMENTS)} False\n"
