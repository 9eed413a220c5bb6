"""What separates documents by default, and which folders and parts of a corpus are refused."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bytemill import Corpus, Tokenizer
from bytemill.data.convert import convert_shards
from bytemill.data.manifest import parts_of
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.shards import TokenShards, encode_corpus, read_manifest
from tests.cluster.corpora import encode_by_units
from tests.support.s3_server import S3Server

from .packed_documents import files_of

END = "<|endoftext|>"
LINES = "".join(f"line {number}\n" for number in range(40))


def tokenizer_with(*special: str) -> Tokenizer:
    return Tokenizer({i: bytes([i]) for i in range(256)}, [], list(special), pattern=None)


def text_in(tokenizer: Tokenizer, folder: Path) -> str:
    return tokenizer.decode(TokenShards(folder)[:].tolist())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(LINES)
    return path


@pytest.mark.parametrize(
    ("special", "options", "end"),
    [
        ([END, "</s>"], {}, END),
        (["<s>", "</s>"], {}, "</s>"),
        (["<s>", "</s>"], {"documents": "<s>"}, "<s>"),
        ([END, "</s>"], {"documents": "</s>"}, "</s>"),
        ([END], {"separators": False}, ""),
        (["<x>"], {}, ""),
        ([], {}, ""),
    ],
)
def test_every_document_ends_with_the_usual_token_of_the_tokenizer(
    tmp_path: Path, special: list[str], options: dict[str, Any], end: str
) -> None:
    tokenizer = tokenizer_with(*special)
    manifest = encode_corpus(tokenizer, Corpus.from_texts(["a", f"b{end}", ""]), tmp_path / "out", **options)
    assert text_in(tokenizer, tmp_path / "out") == f"a{end}b{end}"
    assert manifest.settings.document_separator == (end or None)
    assert manifest.settings.append_separator is bool(end)
    assert manifest.separator_id == tokenizer.special_tokens.get(end)


def test_documents_divide_text_files_and_a_corpus_has_its_own_option(tmp_path: Path, text: Path) -> None:
    tokenizer = tokenizer_with(END)
    expected = LINES.replace("\n", END)
    encode_corpus(tokenizer, text, tmp_path / "lines", documents="line")
    assert text_in(tokenizer, tmp_path / "lines") == expected
    encode_corpus(tokenizer, Corpus(text, documents="line"), tmp_path / "corpus")
    assert text_in(tokenizer, tmp_path / "corpus") == expected
    (tmp_path / "ends.txt").write_text(expected.removesuffix(END))
    for number, inputs in enumerate((tmp_path / "ends.txt", Corpus(tmp_path / "ends.txt", documents=END))):
        manifest = encode_corpus(tokenizer, inputs, tmp_path / f"{number}", documents=END)
        assert (manifest.n_documents, text_in(tokenizer, tmp_path / f"{number}")) == (40, expected)
    with pytest.raises(ShardError, match="documents is an option of the Corpus"):
        encode_corpus(tokenizer, Corpus(text), tmp_path / "out", documents="line")


def test_what_ends_documents_is_a_special_token(tmp_path: Path, text: Path) -> None:
    tokenizer, out = tokenizer_with("<s>", END), tmp_path / "out"
    for encode in (encode_corpus, encode_by_units):
        with pytest.raises(SpecialTokenError, match="which is not a special token") as caught:
            encode(tokenizer, text, out, documents="<|endoftxt|>")
        assert "did you mean <|endoftext|>? documents are" in str(caught.value.hint)
        with pytest.raises(SpecialTokenError, match="which is not a special token") as caught:
            encode(tokenizer, Corpus(text, documents="!"), out)
        assert str(caught.value.hint).endswith("one of the special tokens: <s>, <|endoftext|>")
    assert not out.exists()
    encode_corpus(tokenizer, Corpus(text, documents="9\n"), out, documents=END)  # the caller knows the text
    assert text_in(tokenizer, out) == LINES.replace("9\n", f"9\n{END}")


def test_a_part_without_documents_is_an_error(tmp_path: Path, text: Path) -> None:
    tokenizer = tokenizer_with(END)
    out, lines = tmp_path / "out", {"documents": "line"}
    with pytest.raises(ShardError, match="validation would be empty: the corpus has 1 document") as caught:
        encode_corpus(tokenizer, text, out, validation_fraction=0.1)
    assert "--documents line" in str(caught.value.hint)
    for fraction, part in ((1e-9, "validation"), (1 - 1e-9, "train")):
        message = f"the part {part} would be empty: the corpus has 40 documents"
        with pytest.raises(ShardError, match=message):
            # A checkpoint after every line: an interrupted run would resume, and fail again.
            encode_corpus(tokenizer, text, out, validation_fraction=fraction, checkpoint_bytes=1, **lines)
        assert not (out / "progress.json").exists()
        assert not (out / "train" / "manifest.json").exists()
        with pytest.raises(ShardError, match=f"the part {part} would be empty"):
            encode_by_units(tokenizer, text, tmp_path / "units", validation_fraction=fraction, **lines)
        assert not (tmp_path / "units").exists()
    encode_corpus(tokenizer, text, out, validation_fraction=0.5, **lines)
    n_documents = [read_manifest(part).n_documents for part in parts_of(out)]
    assert min(n_documents) > 0
    assert sum(n_documents) == 40


@pytest.mark.parametrize("function", [encode_corpus, encode_by_units])
def test_a_folder_holds_a_corpus_that_is_split_or_one_that_is_not(
    tmp_path: Path, text: Path, function: Callable[..., Any]
) -> None:
    out = tmp_path / "out"
    encode = functools.partial(function, tokenizer_with(END), text, out, documents="line")
    encode(validation_fraction=0.5)
    before = sorted(files_of(out))
    with pytest.raises(ShardError, match="already contains shards in train"):
        encode()
    assert sorted(files_of(out)) == before
    encode(overwrite=True)
    assert sorted(files_of(out)) == ["manifest.json", "shard_00000.npy"]
    with pytest.raises(ShardError, match=r"already contains a manifest\.json"):
        encode(validation_fraction=0.5)
    encode(validation_fraction=0.5, overwrite=True)
    assert sorted(files_of(out)) == before


def test_shards_of_their_own_in_a_folder_named_train_are_kept(tmp_path: Path, text: Path) -> None:
    tokenizer, out = tokenizer_with(END), tmp_path / "out"
    encode_corpus(tokenizer, text, out / "train")
    encode_corpus(tokenizer, text, tmp_path / "other")
    for overwrite in (False, True):
        with pytest.raises(ShardError, match="already contains shards in train"):
            encode_corpus(tokenizer, text, out, overwrite=overwrite)
        with pytest.raises(ShardError, match="already contains shards in train"):
            convert_shards(tmp_path / "other", out, layout="bin", overwrite=overwrite)
    assert read_manifest(out / "train").n_documents == 1


def test_a_store_holds_a_corpus_that_is_split_or_one_that_is_not(
    tmp_path: Path, text: Path, s3: S3Server
) -> None:
    tokenizer, url = tokenizer_with(END), f"{s3.bucket()}/shards"
    split: dict[str, Any] = {"documents": "line", "validation_fraction": 0.5}
    encode_corpus(tokenizer, text, url, **split)
    with pytest.raises(ShardError, match="/train already contains shards"):
        encode_corpus(tokenizer, text, url)
    encode_corpus(tokenizer, text, url, overwrite=True)
    assert [str(part) for part in parts_of(Path(url))] == [str(Path(url))]
    with pytest.raises(ShardError, match="/shards already contains shards"):
        encode_corpus(tokenizer, text, url, **split)
    encode_corpus(tokenizer, text, url, overwrite=True, **split)
    assert len(parts_of(Path(url))) == 2
