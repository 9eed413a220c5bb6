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
from tests.cluster.corpora import EOT, InlineExecutor, files_of, mixed_corpus, tokenizer


@pytest.fixture(scope="module")
def tok() -> bm.Tokenizer:
    return tokenizer()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return mixed_corpus(tmp_path_factory.mktemp("corpus"))


def check(tok: bm.Tokenizer, corpus: Corpus, folder: Path, unit_bytes: int, **options: Any) -> None:
    one, many = folder / "one", folder / "many"
    try:
        manifest = bm.encode_corpus(tok, corpus, one, overwrite=True, **options)
    except ShardError as error:
        assert "would be empty" in str(error)  # noqa: PT017 (several processes must raise it too)
        with InlineExecutor() as executor, pytest.raises(ShardError, match="would be empty"):
            encode_corpus(executor, tok, corpus, many, unit_bytes=unit_bytes, overwrite=True, **options)
        return
    with InlineExecutor() as executor:
        found = encode_corpus(executor, tok, corpus, many, unit_bytes=unit_bytes, overwrite=True, **options)
    assert found == manifest
    assert files_of(many) == files_of(one)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "split": {"validation_fraction": 0.4, "document_index": True},
    "framed": {"documents": EOT, "prepend": "<s>", "document_index": True},
    "framed and split": {
        "documents": EOT,
        "validation_fraction": 0.5,
        "split_seed": 3,
    },
    "literal": {"allowed_special": "none"},
}


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        pytest.param(
            layout, name, marks=() if layout == "npy" or name == "framed and split" else pytest.mark.slow
        )
        for layout in sorted(LAYOUTS)
        for name in OPTIONS
    ],
)
def test_every_layout(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path, layout: str, name: str) -> None:
    options = OPTIONS[name]
    for unit_bytes, shard_tokens in ((3000, 1000), (20_000, 777), (10**9, 10**6)):
        check(tok, Corpus(paths), tmp_path, unit_bytes, layout=layout, shard_tokens=shard_tokens, **options)


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
    options = {"documents": EOT, "prepend": "<s>"} if framed else {}
    check(
        tok,
        Corpus(names, documents=documents),
        tmp_path,
        unit_bytes,
        shard_tokens=shard_tokens,
        validation_fraction=fraction,
        document_index=True,
        **options,
    )


def test_malformed_text_is_replaced_or_left_out(tok: bm.Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"some good text \xff with \xc3 bad bytes 123\n" * 3000)
    for errors in ("replace", "skip"):
        for documents in ("file", "line"):
            check(tok, Corpus(path, errors=errors, documents=documents), tmp_path, 10_000, shard_tokens=5000)


def test_samples_and_weights(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path) -> None:
    check(tok, Corpus(paths, sample=0.5, seed=3), tmp_path, 5000)
    corpus = Corpus(paths, weights={str(paths[0]): 2.5, str(paths[3]): 2}, repeat_by_weight=True)
    check(tok, corpus, tmp_path, 5000, shard_tokens=3000)


def test_a_file_that_is_named_twice(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path) -> None:
    # What is drawn of a file depends on its number, so the two are different documents.
    check(tok, Corpus([paths[0], paths[0]], sample=0.5), tmp_path, 1000)
    check(tok, Corpus([paths[3], paths[0], paths[3]]), tmp_path, 1000, validation_fraction=0.5)


def test_an_interrupted_encoding_resumes(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path) -> None:
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one", shard_tokens=2000)
    folder = tmp_path / "many"
    seen: list[UnitProgress] = []

    def stop_later(event: UnitProgress) -> None:
        seen.append(event)
        if event.n_done == len(seen_before) + 3:
            raise KeyboardInterrupt

    n_runs = 0
    while True:
        seen_before, n_runs = list(range(seen[-1].n_done)) if seen else [], n_runs + 1
        try:
            with InlineExecutor() as executor:
                encode_corpus(
                    executor,
                    tok,
                    Corpus(paths),
                    folder,
                    unit_bytes=5000,
                    shard_tokens=2000,
                    progress=stop_later,
                )
            break
        except KeyboardInterrupt:
            assert (folder / PLAN_NAME).exists()
            assert not (folder / "manifest.json").exists()
            (folder / UNITS_NAME / "left by a killed task.123.ids").write_bytes(b"x")
    assert n_runs > 3
    assert max(event.n_bytes_before for event in seen) > 0
    assert files_of(folder) == files_of(tmp_path / "one")


@pytest.mark.parametrize(("what", "pattern"), [("unit", f"{UNITS_NAME}/*.ids"), ("shard", "shard_*.npy")])
def test_what_was_damaged_after_an_interruption_is_made_again(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path, what: str, pattern: str
) -> None:
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one", shard_tokens=2000)
    folder = tmp_path / "many"
    notes: list[str] = []

    def run(progress: Any = None) -> None:
        options: dict[str, Any] = {"unit_bytes": 5000, "shard_tokens": 2000, "note": notes.append}
        with InlineExecutor() as executor:
            encode_corpus(executor, tok, Corpus(paths), folder, progress=progress, **options)

    def stop_in_packing(event: UnitProgress) -> None:
        if event.stage == "pack" and event.n_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stop_in_packing)
    assert notes == []
    path = max(folder.glob(pattern), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    run()
    (note,) = notes
    assert note.startswith(f"damaged since the interruption, and made again: 1 {what} (")
    assert files_of(folder) == files_of(tmp_path / "one")


def test_an_unfinished_folder_of_other_settings_is_refused(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    def stop(event: UnitProgress) -> None:
        if event.n_done:
            raise KeyboardInterrupt

    with InlineExecutor() as executor, pytest.raises(KeyboardInterrupt):
        encode_corpus(executor, tok, Corpus(paths), tmp_path / "out", unit_bytes=5000, progress=stop)
    with (
        InlineExecutor() as executor,
        pytest.raises(ClusterError, match="unit_bytes was 5000, now it is 6000"),
    ):
        encode_corpus(executor, tok, Corpus(paths), tmp_path / "out", unit_bytes=6000)
    # One process starts over, and leaves nothing of the others.
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "out")
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")
    with InlineExecutor() as executor:
        encode_corpus(executor, tok, Corpus(paths), tmp_path / "out")
        with pytest.raises(ShardError, match="already contains other shards"):
            encode_corpus(executor, tok, Corpus(paths[:2]), tmp_path / "out")


def test_files_of_the_user_in_the_output_folder_are_kept(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    for name in ("plan.json", "progress.json", "notes.txt"):
        (tmp_path / name).write_text("mine")
    with InlineExecutor() as executor:
        encode_corpus(executor, tok, Corpus(paths), tmp_path, unit_bytes=5000)
    assert {name for name, content in files_of(tmp_path).items() if content == b"mine"} == {
        "plan.json",
        "progress.json",
        "notes.txt",
    }


def test_bad_input_is_named_and_the_rest_is_done(tok: bm.Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "good words"}'] * 2000
    lines[700] = "{bad"
    lines[1500] = '{"text": 5}'
    path.write_text("\n".join(lines))
    seen: list[UnitProgress] = []
    with InlineExecutor() as executor, pytest.raises(CorpusError, match=r"a\.jsonl:701: ") as caught:
        encode_corpus(executor, tok, Corpus(path), tmp_path / "out", unit_bytes=4000, progress=seen.append)
    assert "1 other units failed" in caught.value.__notes__[0]
    assert (seen[-1].n_done, seen[-1].n_failed) == (seen[-1].n_units - 2, 2)


def test_a_special_token_that_is_not_allowed_is_named_as_by_one_process(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(SpecialTokenError) as one:
        bm.encode_corpus(tok, Corpus(paths[3]), tmp_path / "one", allowed_special="none_raise")
    with InlineExecutor() as executor, pytest.raises(SpecialTokenError) as many:
        encode_corpus(
            executor, tok, Corpus(paths[3]), tmp_path / "many", unit_bytes=3000, allowed_special="none_raise"
        )
    assert str(many.value) == str(one.value)


def test_what_cannot_be_divided_is_refused(tok: bm.Tokenizer, tmp_path: Path) -> None:
    with InlineExecutor() as executor, pytest.raises(CorpusError, match="read only once"):
        encode_corpus(executor, tok, Corpus.from_texts(["a"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_local_processes(tok: bm.Tokenizer, paths: list[Path], tmp_path: Path) -> None:
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "one", shard_tokens=2000)
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(executor, tok, Corpus(paths), tmp_path / "many", unit_bytes=5000, shard_tokens=2000)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
