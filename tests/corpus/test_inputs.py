"""Folders, lists, URLs, pipes, and the description of a corpus."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

import bytemill
from bytemill.corpus import Corpus, resolve_inputs
from bytemill.errors import CorpusError
from bytemill.system.extras import install_hint

from .conftest import COMPRESSIONS, DOCUMENTS, END, json_lines, read, table, texts_of, wet


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `data` with two text files, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("data/b.txt", "data/deep/a.TXT.gz", "data/.hidden.txt", "data/.git/c.txt", "data/code.py"):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"a") if name.endswith("gz") else path.stem.encode())
    return tmp_path


def names(inputs: Any, **options: Any) -> list[str]:
    return [source.name for source in resolve_inputs(inputs, **options)]


def refusal(inputs: Any, **options: Any) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        Corpus(inputs, **options)
    return caught.value


@pytest.mark.usefixtures("folder")
class TestFolders:
    def test_a_folder_gives_its_files_of_known_formats_sorted_without_hidden_ones(self) -> None:
        assert names("data") == ["data/b.txt", "data/deep/a.TXT.gz"]
        assert names("./data/") == ["./data/b.txt", "./data/deep/a.TXT.gz"]
        assert texts_of(read(Corpus("data"))) == ["b", "a"]

    def test_the_text_format_reads_any_file(self) -> None:
        assert names("data", format="text") == ["data/b.txt", "data/code.py", "data/deep/a.TXT.gz"]

    def test_several_formats_are_refused_unless_one_is_named(self) -> None:
        Path("data/a.jsonl").write_text('{"text": "json"}')
        error = refusal("data")
        assert str(error) == "the folder data holds files of several formats: text (2), jsonl (1)"
        assert error.hint is not None
        assert "--format" in error.hint
        assert names("data", format="jsonl") == ["data/a.jsonl"]

    def test_what_datasets_write_beside_their_data_is_no_data(self) -> None:
        Path("saved").mkdir()
        for name in ("dataset_info.json", "state.json", "data-00000-of-00001.arrow"):
            (Path("saved") / name).write_text("{}")
        assert names("saved") == ["saved/data-00000-of-00001.arrow"]

    def test_a_folder_without_a_corpus_is_refused(self) -> None:
        Path("empty").mkdir()
        assert "the folder empty contains no corpus file" in str(refusal("empty"))
        assert "end with .parquet, .pq, or" in str(refusal("data", format="parquet").hint)


@pytest.mark.usefixtures("folder")
class TestLists:
    def test_the_names_in_a_list_are_inputs_of_every_kind(self) -> None:
        Path("list.txt").write_text("data/b.txt\r\n\n  data\ndata/*.txt\n")
        assert names("@list.txt") == ["data/b.txt", "data/b.txt", "data/deep/a.TXT.gz", "data/b.txt"]
        assert Corpus("@list.txt", weights={"@list.txt": 2, "data/b.txt": 3}).weights == [3.0, 3.0, 2.0, 3.0]

    def test_names_end_at_line_feeds_alone_and_a_byte_order_mark_is_dropped(self) -> None:
        Path("a\u2028b.txt").write_text("text")
        Path("list.txt").write_text("\ufeffdata/b.txt\na\u2028b.txt\n", encoding="utf-8")
        assert names("@list.txt") == ["data/b.txt", "a\u2028b.txt"]

    def test_a_list_comes_from_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"data/b.txt\n")))
        assert names("@-") == ["data/b.txt"]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"data/b.txt\n")))
        assert "only once" in str(refusal(["@-", "-"]))

    def test_a_file_of_that_name_is_a_file(self) -> None:
        Path("@odd").write_text("text")
        assert names("@odd") == ["@odd"]

    def test_lists_of_missing_files_are_refused(self) -> None:
        Path("none").write_text("\n\n")
        Path("binary").write_bytes(b"\xff\n")
        Path("wrong").write_text("data/b.txt\nmissing.txt\n")
        assert str(refusal("@none")) == "the list none is empty"
        assert "no such file: list" in str(refusal("@list"))
        assert "is not UTF-8 at byte 0" in str(refusal("@binary"))
        assert "no such file: missing.txt" in str(refusal("@wrong"))


@pytest.fixture
def memory() -> Any:
    """fsspec's file system in memory, empty before and after."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


class TestUrls:
    def test_files_globs_and_folders_of_a_file_system_in_memory(self, memory: Any) -> None:
        memory.pipe("/data/b.jsonl", json_lines(DOCUMENTS))
        memory.pipe("/data/deep/a.jsonl.gz", gzip.compress(json_lines(["other"])))
        memory.pipe("/data/.hidden.jsonl", b"nonsense")
        corpus = Corpus("memory://data/b.jsonl")
        assert corpus.source_names == ["memory:///data/b.jsonl"]
        assert texts_of(read(corpus)) == DOCUMENTS
        assert texts_of(read(Corpus("memory://data/**/*.gz"))) == ["other"]
        assert texts_of(read(Corpus("memory://data"))) == [*DOCUMENTS, "other"]
        assert corpus.can_resume
        before = corpus.description
        memory.pipe("/data/b.jsonl", json_lines(DOCUMENTS[::-1]))
        assert Corpus("memory://data/b.jsonl").description != before

    @pytest.mark.usefixtures("tiny_batches")
    def test_reading_resumes_at_every_position(self, memory: Any, tmp_path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        some = DOCUMENTS[:7]
        memory.pipe("/a.jsonl", json_lines(some))
        memory.pipe("/b.jsonl.xz", COMPRESSIONS["xz"](json_lines(some)))
        memory.pipe("/c.wet", wet(some))
        pq.write_table(pa.table({"text": some}), tmp_path / "d.parquet", row_group_size=3)
        memory.pipe("/d.parquet", (tmp_path / "d.parquet").read_bytes())
        memory.pipe("/e.parquet.gz", gzip.compress((tmp_path / "d.parquet").read_bytes()))
        names = ("a.jsonl", "b.jsonl.xz", "c.wet", "d.parquet", "e.parquet.gz")
        corpus = Corpus([f"memory://{name}" for name in names])
        batches = read(corpus)
        assert texts_of(batches) == some * 5
        for place, batch in list(enumerate(batches))[::3]:
            rest = b"".join(bytes(later.data) for later in batches[place + 1 :])
            assert b"".join(bytes(later.data) for later in read(corpus, batch.after)) == rest

    def test_local_files_have_urls_too(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text" + END + "more")
        url = f"file://{tmp_path}/a.txt"
        assert texts_of(read(Corpus(url, documents=END))) == ["text" + END, "more"]
        assert not Corpus(url).is_plain
        assert texts_of(read(Corpus(f"file://{tmp_path}/*.txt"))) == ["text" + END + "more"]

    @pytest.mark.usefixtures("memory")
    def test_urls_of_missing_files_are_refused(self) -> None:
        assert str(refusal("memory://nothing.txt")) == "no such file: memory://nothing.txt"
        assert str(refusal("memory://*.txt")) == "no file matches memory://*.txt"
        assert "cannot open nonsense://a.txt" in str(refusal("nonsense://a.txt"))

    @pytest.mark.parametrize(
        "environment",
        [
            {"HF_ENDPOINT": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"},
            pytest.param({"HF_HUB_OFFLINE": "1"}, marks=pytest.mark.slow),
        ],
    )
    def test_a_hub_out_of_reach_is_one_line_with_a_hint(self, environment: dict[str, str]) -> None:
        arguments = ["-m", "bytemill", "tokenizer", "train", "hf://datasets/a/b/c.txt", "-n", "300"]
        command = [sys.executable, *arguments]
        answer = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 1
        error, hint = answer.stderr.splitlines()
        assert error.startswith("error: cannot read hf://datasets/a/b/c.txt: ")
        assert hint.startswith("hint: check the connection and HF_HUB_OFFLINE")

    def test_a_library_that_is_missing_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setitem(sys.modules, "fsspec", None)
        monkeypatch.setitem(sys.modules, "zstandard", None)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setitem(sys.modules, "warcio.archiveiterator", None)
        assert (
            str(refusal("s3://bucket/a.txt")) == "s3://bucket/a.txt: URLs need fsspec, which is not installed"
        )
        (tmp_path / "a.txt.zst").write_bytes(COMPRESSIONS["zst"](b"text"))
        (tmp_path / "a.parquet").write_bytes(b"PAR1")
        (tmp_path / "a.wet").write_bytes(b"WARC/1.0")
        for name, package in (("a.txt.zst", "zstandard"), ("a.parquet", "pyarrow"), ("a.wet", "warcio")):
            with pytest.raises(CorpusError, match=f"need {package}, which is not installed") as caught:
                read(Corpus(tmp_path / name))
            assert caught.value.hint == install_hint("data")

    def test_a_protocol_without_its_library_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
        monkeypatch.setitem(sys.modules, "aiohttp", None)
        monkeypatch.setattr(sys.modules["fsspec.registry"], "_registry", {})  # forget earlier imports
        error = refusal("https://example.org/a.txt")
        assert "https://example.org/a.txt: " in str(error)
        assert error.hint == install_hint("data")


class TestPipes:
    @pytest.mark.parametrize(
        ("data", "options"),
        [
            (json_lines(DOCUMENTS), {"format": "jsonl"}),
            (gzip.compress(wet(DOCUMENTS)), {}),
            (COMPRESSIONS["zst"](table(DOCUMENTS, "\t")), {"format": "tsv"}),
        ],
    )
    def test_standard_input_may_be_of_any_format_and_compressed(self, data: bytes, options: Any) -> None:
        program = (
            "import sys; from bytemill.corpus import *; c = Corpus('-', **eval(sys.argv[1]));"
            "print(c.total_bytes, c.can_resume, c.is_plain, list(iter_texts(c)))"
        )
        command = [sys.executable, "-c", program, repr(options)]
        done = subprocess.run(command, input=data, capture_output=True, check=True)
        assert done.stdout.decode() == f"None False False {DOCUMENTS}\n"

    def test_parquet_comes_through_a_pipe(self, tmp_path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": DOCUMENTS}), tmp_path / "a.parquet")
        os.mkfifo(tmp_path / "pipe")
        data = (tmp_path / "a.parquet").read_bytes()
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
        writer.start()
        assert texts_of(read(Corpus(tmp_path / "pipe"))) == DOCUMENTS
        writer.join(10)

    def test_a_stream_without_a_descriptor_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("größer".encode())))
        assert texts_of(read(Corpus("-"))) == ["größer"]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
        with pytest.raises(CorpusError, match=r"<stdin>:1: byte offset 1 \(0xff\)"):
            read(Corpus("-"))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
        with pytest.raises(CorpusError, match="<stdin> can be read only once"):
            read(Corpus("-", on_error="skip"))
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(CorpusError, match="standard input is closed"):
            read(Corpus("-"))


class TestDescription:
    def test_the_description_holds_every_option_that_changes_the_documents(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("text")

        def described(**options: Any) -> str:
            return json.dumps(Corpus(path, **options).description, sort_keys=True)

        before = described()
        assert described() == before
        others: list[dict[str, Any]] = [
            *({"documents": "line"}, {"limit_bytes": 5}, {"sample": 0.5}, {"seed": 1}, {"field": "a"}),
            *({"errors": "skip"}, {"on_error": "skip"}, {"format": "text"}, {"max_document_bytes": 9}),
            *({"weights": {str(path): 2}}, {"repeat_by_weight": True}),
        ]
        assert len({described(**options) for options in others} | {before}) == len(others) + 1
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        assert described() != before

    def test_only_plain_text_files_are_read_by_the_core(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        (tmp_path / "notes").write_text("text")
        (tmp_path / "c.txt").write_bytes(gzip.compress(b"text"))
        (tmp_path / "lines").write_bytes(wet(["text"]))
        plain = [str(tmp_path / name) for name in ("a.txt", "notes")]
        assert Corpus(plain).is_plain
        assert Corpus(plain, weights={plain[0]: 2}, errors="replace").is_plain
        others: list[dict[str, Any]] = [
            *({"documents": "line"}, {"limit_bytes": 5}, {"sample": 0.5}, {"errors": "skip"}),
            *(
                {"on_error": "skip"},
                {"format": "jsonl"},
                {"weights": {plain[0]: 2}, "repeat_by_weight": True},
            ),
        ]
        assert not any(Corpus(plain, **options).is_plain for options in others)
        assert not any(Corpus(tmp_path / name).is_plain for name in ("c.txt", "lines"))


def test_the_corpus_is_public() -> None:
    assert bytemill.Corpus is Corpus
