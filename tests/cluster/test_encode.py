"""Shards that several processes write are those of one process, byte for byte."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill as bm
from bytemill.cluster import UnitProgress, encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.layouts import LAYOUTS
from bytemill.data.unfinished import PLAN_NAME, UNITS_NAME
from bytemill.errors import ClusterError, CorpusError, ShardError, SpecialTokenError
from tests.cluster.corpora import EOT, encode_by_units, files_of


def check(tok: bm.Tokenizer, corpus: Corpus, folder: Path, unit_bytes: int, **options: Any) -> None:
    one, many = folder / "one", folder / "many"
    try:
        manifest = bm.encode_corpus(tok, corpus, one, overwrite=True, **options)
    except ShardError as error:
        assert "would be empty" in str(error)  # noqa: PT017 (several processes must raise it too)
        with pytest.raises(ShardError, match="would be empty"):
            encode_by_units(tok, corpus, many, unit_bytes=unit_bytes, overwrite=True, **options)
        return
    found = encode_by_units(tok, corpus, many, unit_bytes=unit_bytes, overwrite=True, **options)
    assert found == manifest
    assert files_of(many) == files_of(one)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "split": {"validation_fraction": 0.4, "document_index": True},
    "framed": {"documents": EOT, "prepend": "<s>", "document_index": True},
    "framed and split": {"documents": EOT, "validation_fraction": 0.5, "split_seed": 3},
    "literal": {"allowed_special": "none"},
}


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        pytest.param(
            layout,
            name,
            marks=()
            if layout == "npy" or (name == "framed and split" and layout in ("llmc", "megatron"))
            else pytest.mark.slow,
        )
        for layout in sorted(LAYOUTS)
        for name in OPTIONS
    ],
)
def test_every_layout(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path, layout: str, name: str) -> None:
    for unit_bytes, shard_tokens in ((3000, 777), (10**9, 10**6)):
        options = {"layout": layout, "shard_tokens": shard_tokens, **OPTIONS[name]}
        check(tok, Corpus(paths), tmp_path, unit_bytes, **options)


words = st.sampled_from(
    ["low ", "lower", "\n", " ", "é", "日本語", EOT, "<s>", "12345", "it's ", "x" * 30, "a\u0301 b"]
)


@given(
    contents=st.lists(st.lists(words, max_size=400).map("".join), min_size=1, max_size=4),
    documents=st.sampled_from(["file", "line", EOT]),
    unit_bytes=st.integers(50, 3000),
    shard_tokens=st.integers(20, 500),
    fraction=st.sampled_from([0.0, 0.5]),
    framed=st.booleans(),
)
def test_any_text(
    tok: bm.Tokenizer,
    tmp_path: Path,
    contents: list[str],
    documents: str,
    unit_bytes: int,
    shard_tokens: int,
    fraction: float,
    framed: bool,
) -> None:
    names = [tmp_path / f"{number}.txt" for number in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        name.write_text(content + " end", encoding="utf-8", newline="")
    options: dict[str, Any] = {"documents": EOT, "prepend": "<s>"} if framed else {}
    options |= {"shard_tokens": shard_tokens, "validation_fraction": fraction, "document_index": True}
    check(tok, Corpus(names, documents=documents), tmp_path, unit_bytes, **options)


def test_malformed_text_samples_weights_and_files_that_are_named_twice(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "a.txt"
    bad.write_bytes(b"some good text \xff with \xc3 bad bytes 123\n" * 1000)
    options: list[dict[str, Any]] = [
        {"errors": "replace"},
        {"errors": "skip"},
        {"errors": "skip", "documents": "line"},
    ]
    for each in options:
        corpus = Corpus(bad, **each)
        check(tok, corpus, tmp_path, 10_000, shard_tokens=5000)
    check(tok, Corpus(paths, sample=0.5, seed=3), tmp_path, 5000)
    corpus = Corpus(paths, weights={str(paths[0]): 2.5, str(paths[3]): 2}, repeat_by_weight=True)
    check(tok, corpus, tmp_path, 5000, shard_tokens=3000)
    # What is drawn of a file depends on its number, so the two are different documents.
    check(tok, Corpus([paths[0], paths[0]], sample=0.5), tmp_path, 1000)
    check(tok, Corpus([paths[3], paths[0], paths[3]]), tmp_path, 1000, validation_fraction=0.5)


def test_an_interrupted_encoding_resumes(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path) -> None:
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one", shard_tokens=2000)
    folder = tmp_path / "many"
    seen: list[UnitProgress] = []

    def stop_later(event: UnitProgress) -> None:
        seen.append(event)
        if event.n_done == n_before + 5:
            raise KeyboardInterrupt

    n_runs, options = 0, {"unit_bytes": 5000, "shard_tokens": 2000, "progress": stop_later}
    while True:
        n_before, n_runs = seen[-1].n_done if seen else 0, n_runs + 1
        try:
            encode_by_units(tok, Corpus(paths), folder, **options)
            break
        except KeyboardInterrupt:
            assert (folder / PLAN_NAME).exists()
            assert not (folder / "manifest.json").exists()
            (folder / UNITS_NAME / "left by a killed task.123.ids").write_bytes(b"x")
    assert n_runs > 2
    assert max(event.n_bytes_before for event in seen) > 0
    assert files_of(folder) == files_of(tmp_path / "one")


@pytest.mark.parametrize(("what", "pattern"), [("unit", f"{UNITS_NAME}/*.ids"), ("shard", "shard_*.npy")])
def test_what_was_damaged_after_an_interruption_is_made_again(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path, what: str, pattern: str
) -> None:
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one", shard_tokens=2000)
    folder = tmp_path / "many"
    notes: list[str] = []
    options: dict[str, Any] = {"unit_bytes": 5000, "shard_tokens": 2000, "note": notes.append}

    def stop_in_packing(event: UnitProgress) -> None:
        if event.stage == "pack" and event.n_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_by_units(tok, Corpus(paths), folder, progress=stop_in_packing, **options)
    assert notes == []
    path = max(folder.glob(pattern), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    encode_by_units(tok, Corpus(paths), folder, **options)
    (note,) = notes
    assert note.startswith(f"damaged since the interruption, and made again: 1 {what} (")
    assert files_of(folder) == files_of(tmp_path / "one")


def test_an_unfinished_folder_of_other_settings_is_refused(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    def stop(event: UnitProgress) -> None:
        if event.n_done:
            raise KeyboardInterrupt

    out, corpus = tmp_path / "out", Corpus(paths)
    with pytest.raises(KeyboardInterrupt):
        encode_by_units(tok, corpus, out, unit_bytes=5000, progress=stop)
    with pytest.raises(ClusterError, match="unit_bytes was 5000, now it is 6000"):
        encode_by_units(tok, corpus, out, unit_bytes=6000)
    # One process starts over, and leaves nothing of the others.
    bm.encode_corpus(tok, corpus, out)
    bm.encode_corpus(tok, corpus, tmp_path / "one")
    assert files_of(out) == files_of(tmp_path / "one")
    encode_by_units(tok, corpus, out)
    with pytest.raises(ShardError, match="already contains other shards"):
        encode_by_units(tok, Corpus(paths[:2]), out)


def test_files_of_the_user_in_the_output_folder_are_kept(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    names = {"plan.json", "progress.json", "notes.txt"}
    for name in names:
        (tmp_path / name).write_text("mine")
    encode_by_units(tok, Corpus(paths), tmp_path, unit_bytes=5000)
    assert {name for name, content in files_of(tmp_path).items() if content == b"mine"} == names


def test_bad_input_is_named_and_the_rest_is_done(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "good words"}'] * 2000
    lines[700] = "{bad"
    lines[1500] = '{"text": 5}'
    path.write_text("\n".join(lines))
    seen: list[UnitProgress] = []
    with pytest.raises(CorpusError, match=r"a\.jsonl:701: ") as caught:
        encode_by_units(tok, Corpus(path), tmp_path / "out", unit_bytes=4000, progress=seen.append)
    assert "1 other units failed" in caught.value.__notes__[0]
    assert (seen[-1].n_done, seen[-1].n_failed) == (seen[-1].n_units - 2, 2)
    # A special token that is not allowed is named as by one process.
    options: dict[str, Any] = {"allowed_special": "none_raise"}
    with pytest.raises(SpecialTokenError) as one:
        bm.encode_corpus(tok, Corpus(paths[3]), tmp_path / "one", **options)
    with pytest.raises(SpecialTokenError) as many:
        encode_by_units(tok, Corpus(paths[3]), tmp_path / "many", unit_bytes=3000, **options)
    assert str(many.value) == str(one.value)


def test_what_cannot_be_divided_is_refused(tok: bm.Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="read only once"):
        encode_by_units(tok, Corpus.from_texts(["a"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_local_processes(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path) -> None:
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one", shard_tokens=2000)
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(executor, tok, Corpus(paths), tmp_path / "many", unit_bytes=5000, shard_tokens=2000)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
