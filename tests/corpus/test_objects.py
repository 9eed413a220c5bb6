"""Documents that are Python objects: texts, rows, and Hugging Face datasets."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bytemill.corpus import Corpus, documents
from bytemill.errors import CorpusError

from .conftest import DOCUMENTS, read, texts_of

ROWS: list[dict[str, Any]] = [
    {"id": i, "text": text, "meta": {"text": text + "!"}, "a.b": "dotted"} for i, text in enumerate(DOCUMENTS)
]


@pytest.fixture(scope="module")
def datasets() -> Any:
    """The package `datasets`, without torch, whose import takes seconds."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("USE_TORCH", "0")
        import datasets
    return datasets


def test_texts_and_rows_of_every_kind_of_iterable() -> None:
    assert texts_of(read(Corpus.from_texts(iter(DOCUMENTS)))) == DOCUMENTS
    assert texts_of(read(Corpus.from_texts(text for text in DOCUMENTS))) == DOCUMENTS
    assert texts_of(read(Corpus.from_rows(ROWS))) == DOCUMENTS
    assert texts_of(read(Corpus.from_rows(iter(ROWS), field="meta.text"))) == [
        text + "!" for text in DOCUMENTS
    ]
    assert texts_of(read(Corpus.from_rows(tuple(ROWS), field="a.b"))) == ["dotted"] * len(ROWS)


@pytest.mark.usefixtures("tiny_batches")
def test_reading_resumes_if_the_items_are_repeated() -> None:
    corpus = Corpus.from_rows(ROWS)
    batches = read(corpus)
    assert not corpus.can_resume
    for place, batch in enumerate(batches):
        rest = b"".join(bytes(later.data) for later in batches[place + 1 :])
        assert (
            b"".join(bytes(later.data) for later in read(Corpus.from_rows(iter(ROWS)), batch.after)) == rest
        )


def test_texts_are_drawn_only_as_far_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 10)
    drawn: list[int] = []

    def texts() -> Iterator[str]:
        for number in range(1000):
            drawn.append(number)
            yield "1234567890"

    batches = Corpus.from_texts(texts(), limit_bytes=500).read()
    next(batches)
    assert len(drawn) <= 3
    assert len(list(batches)) == 49
    assert len(drawn) <= 52


def test_items_that_are_no_documents_are_named_or_left_out() -> None:
    items: list[Any] = [
        {"text": "a"},
        {"txt": "b"},
        {"text": None},
        {"text": 5},
        {"text": "c\ud800"},
        {"text": "d"},
    ]
    for place, message in [
        (1, "item 0 of the corpus: field 'text' is missing"),
        (2, "item 0 of the corpus: field 'text' is missing"),
        (3, "item 0 of the corpus: field 'text' is not a str: 5"),
        (4, "item 0 of the corpus holds a lone surrogate at character 1"),
    ]:
        with pytest.raises(CorpusError) as caught:
            read(Corpus.from_rows(items[place:]))
        assert str(caught.value) == message
        assert caught.value.hint is not None
    batches = read(Corpus.from_rows(items, on_error="skip"))
    assert texts_of(batches) == ["a", "d"]
    assert batches[-1].after.counts.n_broken == 4
    batches = read(Corpus.from_rows(items, on_error="skip", errors="replace"))
    assert texts_of(batches) == ["a", "c\ufffd", "d"]
    assert (batches[-1].after.counts.n_broken, batches[-1].after.counts.n_replaced) == (3, 1)
    assert texts_of(read(Corpus.from_texts(["\ud83d\ude00"]))) == ["😀"]
    with pytest.raises(CorpusError, match="item 1 of the corpus is not a str: 5"):
        read(Corpus.from_texts(["a", 5]))  # type: ignore[list-item]


def test_objects_are_never_guessed_to_be_names_or_texts() -> None:
    for inputs in (iter(["a"]), {"a": 1}, ROWS[:1], (text for text in ["a"])):
        with pytest.raises(TypeError, match="expected"):
            Corpus(inputs)  # type: ignore[arg-type]
    for text in ("a text", b"bytes"):
        with pytest.raises(TypeError, match="a single"):
            Corpus.from_texts(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rows"):
        Corpus.from_rows("a text")  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="item 0 of the corpus is not a str") as caught:
        read(Corpus.from_texts(ROWS))  # type: ignore[arg-type]
    assert "Corpus.from_rows" in str(caught.value.hint)
    with pytest.raises(CorpusError, match="item 0 of the corpus is a str, not a row") as caught:
        read(Corpus.from_rows(DOCUMENTS))  # type: ignore[arg-type]
    assert "Corpus.from_texts" in str(caught.value.hint)


def test_items_larger_than_the_bound_are_broken() -> None:
    texts = ["short", "é" * 6, "end"]
    with pytest.raises(CorpusError, match=r"item 1 of the corpus is larger than max_document_bytes \(10\)"):
        read(Corpus.from_texts(texts, max_document_bytes=10))
    batches = read(Corpus.from_texts(texts, max_document_bytes=10, on_error="skip"))
    assert (texts_of(batches), batches[-1].after.counts.n_broken) == (["short", "end"], 1)
    assert texts_of(read(Corpus.from_texts(texts, max_document_bytes=12))) == texts


def test_an_iterable_without_items_is_refused() -> None:
    with pytest.raises(CorpusError, match="the corpus is empty: <texts> holds no document"):
        read(Corpus.from_texts([]))
    with pytest.raises(CorpusError, match="there is no input"):
        Corpus([])


class TestDatasets:
    def test_a_dataset_is_read_in_its_own_order(self, datasets: Any) -> None:
        dataset = datasets.Dataset.from_list(ROWS)
        corpus = Corpus.from_rows(dataset)
        assert texts_of(read(corpus)) == DOCUMENTS
        assert corpus.can_resume
        assert texts_of(read(Corpus.from_rows(dataset, field="meta.text"))) == [
            text + "!" for text in DOCUMENTS
        ]
        assert texts_of(read(Corpus.from_rows(dataset, field="a.b"))) == ["dotted"] * len(ROWS)
        shuffled = dataset.shuffle(seed=1).select(range(10))
        assert texts_of(read(Corpus.from_rows(shuffled))) == shuffled["text"]
        assert Corpus.from_rows(shuffled).description != corpus.description
        # What a dataset is formatted for does not matter.
        assert texts_of(read(Corpus.from_rows(dataset.with_format("numpy")))) == DOCUMENTS

    def test_reading_resumes_at_every_position(self, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(documents, "BATCH_BYTES", 64)
        dataset = datasets.Dataset.from_list(ROWS)
        batches = read(Corpus.from_rows(dataset, sample=0.9))
        for place, batch in list(enumerate(batches))[::4]:
            rest = [bytes(later.data) for later in batches[place + 1 :]]
            assert [
                bytes(later.data) for later in read(Corpus.from_rows(dataset, sample=0.9), batch.after)
            ] == rest

    def test_a_streaming_dataset_is_an_iterable_of_rows(self, datasets: Any) -> None:
        dataset = datasets.Dataset.from_list(ROWS).to_iterable_dataset()
        corpus = Corpus.from_rows(dataset)
        assert texts_of(read(corpus)) == DOCUMENTS
        assert not corpus.can_resume
        assert texts_of(read(Corpus.from_rows(dataset.filter(lambda row: row["id"] < 3)))) == DOCUMENTS[:3]

    def test_missing_texts_and_columns_are_named(self, datasets: Any) -> None:
        dataset = datasets.Dataset.from_dict({"text": ["a", None, "b"], "n": [1, 2, 3]})
        with pytest.raises(CorpusError, match="<dataset>: row 2: column 'text' is missing"):
            read(Corpus.from_rows(dataset))
        batches = read(Corpus.from_rows(dataset, on_error="skip"))
        assert texts_of(batches) == ["a", "b"]
        assert batches[-1].after.counts.n_broken == 1
        with pytest.raises(CorpusError, match="<dataset>: there is no column 'body'") as caught:
            read(Corpus.from_rows(dataset, field="body"))
        assert caught.value.hint is not None
        assert caught.value.hint.endswith(": text")
        with pytest.raises(CorpusError, match="column 'n' holds int64, not strings"):
            read(Corpus.from_rows(dataset, field="n"))

    def test_a_dictionary_of_datasets_is_no_dataset(self, datasets: Any) -> None:
        splits = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
        with pytest.raises(CorpusError, match="this is a dictionary of datasets: 'train'"):
            Corpus.from_rows(splits)

    def test_a_saved_dataset_is_a_folder(self, datasets: Any, tmp_path: Path) -> None:
        datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"), num_shards=2)
        assert texts_of(read(Corpus(tmp_path / "saved"))) == DOCUMENTS
