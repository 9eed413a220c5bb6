"""The quickstart, on a small corpus."""

import functools
import gzip
import json
import math
import random
import re
import sys
import sysconfig
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import quickstart
from bytemill.cli.quickstart import write_quickstart
from bytemill.datasets import python_documents
from bytemill.errors import CorpusError, OutputError, ShardError, TokenizerError
from bytemill.quickstart import (
    END_OF_TEXT,
    TRAINING_STEP,
    QuickstartResult,
    file_documents,
    split,
)
from bytemill.quickstart import run as run_all
from bytemill.shards import TokenShards
from bytemill.system.extras import install_hint
from bytemill.system.units import format_seconds
from tests.report.page_script import without_script

run = functools.partial(run_all, model_steps=0)


def documents(n_documents: int) -> list[str]:
    """Deterministic texts of random words."""
    chance = random.Random(7)
    words = ["".join(chance.choices("aeioubdfgklmnprst" + "éø", k=chance.randint(2, 9))) for _ in range(300)]
    return [" ".join(chance.choices(words, k=120)) + f". Number {number}!\n" for number in range(n_documents)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of 40 documents."""
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text(END_OF_TEXT.join(documents(40)), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def finished(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> QuickstartResult:
    """A run without a model, which tests only read."""
    steps: list[str] = []
    folder = tmp_path_factory.mktemp("finished") / "out"
    result = run(folder, corpus=[corpus], vocab_size=600, on_step=steps.append)
    assert list(result.timings) == steps
    return result


class Outline(HTMLParser):
    """Headings, text and tab stops of a page. Checks that every element is closed."""

    VOID: ClassVar = {"meta", "input"}

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.text = ""
        self.n_tab_stops = 0
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.n_tab_stops += tag in {"a", "input", "button", "summary"} or ("tabindex", "0") in attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_a_run_leaves_a_tokenizer_shards_and_a_report(finished: QuickstartResult):
    folder = finished.folder
    tokenizer = bytemill.Tokenizer.load(folder / "tokenizer.json")
    assert tokenizer.n_vocab == finished.tokenizer.n_vocab == 600
    assert tokenizer.fingerprint == finished.tokenizer.fingerprint
    assert sum(part.n_documents for part in finished.shards.values()) == 40
    for name, part in finished.shards.items():
        text = (folder / f"{name}.txt").read_bytes()
        assert part.n_bytes == len(text)
        assert tokenizer.decode_bytes(TokenShards(folder / name)[:]) == text
        assert text.count(END_OF_TEXT.encode()) == part.n_documents
    saved = json.loads((folder / "quickstart.json").read_text())
    assert saved["fingerprint"] == tokenizer.fingerprint
    assert saved == json.loads(json.dumps({"complete": True, **finished.to_dict()}))


def test_the_first_merges_are_compared_on_text_that_was_set_aside(finished: QuickstartResult):
    parts = (finished.folder / f"{name}.txt" for name in ("validation", "train"))
    validation, training = (part.read_text(encoding="utf-8") for part in parts)
    assert not set(validation.split(END_OF_TEXT)[:-1]) & set(training.split(END_OF_TEXT))
    n_tokens = finished.tokenizer.count(validation, allowed_special="none")
    figures = finished.comparison.values["text"]["bytes_per_token"]
    assert figures["bytes"].value == 1
    assert finished.bytes_per_token == pytest.approx(len(validation.encode()) / n_tokens)
    about = finished.comparison.tokenizers
    assert list(about) == list(figures) == ["bytes", "512 tokens", "600 tokens"]
    for size, name in ((257, "bytes"), (512, "512 tokens"), (600, "600 tokens")):
        trained = bytemill.train([str(finished.folder / "train.txt")], size, [END_OF_TEXT])
        assert about[name]["fingerprint"] == trained.fingerprint


def test_the_report_is_complete_and_fetches_nothing(
    finished: QuickstartResult, capsys: pytest.CaptureFixture[str]
):
    document = (finished.folder / "report.html").read_text(encoding="utf-8")
    outline = Outline(document)
    assert outline.headings == [
        "What a larger vocabulary buys",
        "How a text splits",
        "What is in the vocabulary",
        "Where the time went",
        "Next steps",
    ]
    assert 5 <= outline.n_tab_stops < 20
    document = without_script(document)
    assert not re.search(r"\b(src|href)\s*=", document)
    assert not re.search(r"https?://|url\(|@import|<script", document)
    ids = re.findall(r'\bid="([^"]+)"', document)
    assert len(ids) == len(set(ids))
    labels = " ".join(re.findall(r'aria-labelledby="([^"]+)"', document)).split()
    assert set(labels) <= set(ids)
    # The report, the JSON and the terminal have one duration of the tokenizer's training.
    shown = format_seconds(finished.timings[TRAINING_STEP])
    assert f"to train the tokenizer{shown}" in outline.text
    assert f"{TRAINING_STEP}{shown}" in outline.text
    assert finished.to_dict()["timings"][TRAINING_STEP] == finished.timings[TRAINING_STEP]
    write_quickstart(finished)
    assert f"trained in {shown}:" in capsys.readouterr().out


def test_hostile_text_and_names_stay_text(tmp_path: Path):
    hostile = "</script><img src=x onerror=alert(1)> \x1b[31m & \"quotes\" 'and' <b>tags</b>\n"
    file = tmp_path / "<b>&'corpus.txt"
    file.write_text(END_OF_TEXT.join(hostile * 3 + text for text in documents(30)), encoding="utf-8")
    run(tmp_path / "o'ut <i>", corpus=[str(file)], vocab_size=400)
    document = without_script((tmp_path / "o'ut <i>/report.html").read_text(encoding="utf-8"))
    Outline(document)
    assert "<img" not in document
    assert "<script" not in document
    assert "\x1b" not in document
    assert "&lt;b&gt;&amp;&#39;corpus.txt" in document


def test_a_finished_and_an_interrupted_run_are_replaced(
    finished: QuickstartResult, corpus: str, tmp_path: Path
):
    def stop(step: str) -> None:
        if step.startswith("encoding"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", corpus=[corpus], vocab_size=600, on_step=stop)
    assert json.loads((tmp_path / "out/quickstart.json").read_text()) == {"complete": False}
    again = run(tmp_path / "out", corpus=[corpus], vocab_size=600)
    assert again.tokenizer.fingerprint == finished.tokenizer.fingerprint
    assert again.comparison.values == finished.comparison.values
    # A vocabulary without merges works too.
    smaller = run(tmp_path / "out", corpus=[corpus], vocab_size=257)
    assert (
        bytemill.Tokenizer.load(tmp_path / "out/tokenizer.json").n_vocab == smaller.tokenizer.n_vocab == 257
    )
    assert smaller.tokenizer.merges == []
    assert smaller.bytes_per_token == 1


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(corpus: str, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/tokenizer.json").write_text("precious")
    with pytest.raises(OutputError, match="holds files") as caught:
        run(tmp_path / "mine", corpus=[corpus], vocab_size=400)
    assert "another folder" in (caught.value.hint or "")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["tokenizer.json"]


def test_a_vocabulary_too_small_is_refused(corpus: str, tmp_path: Path):
    with pytest.raises(TokenizerError, match="too small"):
        run(tmp_path / "out", corpus=[corpus], vocab_size=256)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "the corpus is empty"), (" \n\n", "fewer than two lines"), ("one line", "fewer than two lines")],
)
def test_a_corpus_that_cannot_be_split_is_refused(tmp_path: Path, content: str, message: str):
    file = tmp_path / "corpus.txt"
    file.write_text(content)
    with pytest.raises(CorpusError, match=message):
        run(tmp_path / "out", corpus=[str(file)], vocab_size=300)
    assert not (tmp_path / "out").exists()


def test_a_corpus_too_large_for_memory_is_refused(corpus: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quickstart, "MAX_BYTES", 1000)
    with pytest.raises(CorpusError, match=r"takes at most 1\.00 kB") as caught:
        file_documents([corpus])
    assert "tokenizer train" in (caught.value.hint or "")


def test_files_are_cut_at_ends_of_text_and_few_long_ones_at_line_ends(tmp_path: Path):
    file = tmp_path / "corpus.txt"
    file.write_text(END_OF_TEXT.join(documents(30)))
    assert file_documents([str(file)]) == documents(30)
    text = "".join(f"line {number}\r\n" for number in range(1000))
    file.write_bytes(text.encode())
    parts = file_documents([str(file)])
    assert "".join(parts) == text
    assert 20 <= len(parts) <= 50
    assert all(part.endswith("\n") for part in parts)


@given(st.lists(st.text(max_size=3), min_size=2, max_size=60))
def test_splits_keep_order_lose_nothing_and_leave_neither_part_empty(texts: list[str]):
    training, validation = split(texts)
    assert training
    assert validation
    assert sorted(training + validation) == sorted(texts)
    assert training == [text for text in texts if text in set(training)][: len(training)] or len(
        set(texts)
    ) < len(texts)
    assert split(texts) == (training, validation)


def test_a_tenth_is_set_aside_whatever_the_order():
    texts = [f"document {number}" for number in range(2_000)]
    _, validation = split(texts)
    assert len(validation) == 200
    _, of_reversed = split(texts[::-1])
    assert of_reversed == validation[::-1]


def test_the_documentation_of_this_python_is_the_default_corpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    library = tmp_path / "lib"
    (library / "test").mkdir(parents=True)
    (library / "site-packages").mkdir()
    module = '''"""Module."""
import nothing_like_this
def f():
    """Function."""
class C:
    def g(self):
        """Method \\ud800."""
'''
    (library / "b.py").write_text(module)
    (library / "a.py").write_text('"""First."""')
    (library / "none.py").write_text("x = 1")
    (library / "broken.py").write_bytes(b"def (\n\xff")
    for skipped in ("test/t.py", "site-packages/s.py"):
        (library / skipped).write_text('"""Skipped."""')
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", SimpleNamespace(topics={"b": "topic ", "a": " "}))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(library))
    assert python_documents() == ["topic\n", "First.\n", "Module.\n\nFunction.\n\nMethod ?.\n"]
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "nowhere"))
    assert python_documents() == []


@pytest.mark.slow
def test_the_default_corpus_of_this_python_is_a_few_megabytes(tmp_path: Path):
    result = run(tmp_path / "out")
    assert result.shards["train"].n_bytes > 1_000_000
    assert result.bytes_per_token > 3


def test_a_model_learns_and_is_in_the_report(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import torch

    monkeypatch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
    torch.set_num_threads(1)
    records: list[dict[str, object]] = []
    result = run_all(
        tmp_path / "out", corpus=[corpus], vocab_size=400, model_steps=10, on_model=records.append
    )
    model = result.model
    assert model is not None
    assert model.n_steps == 10
    assert [step for step, _ in model.curve] == [10]
    assert [step for step, _ in model.validation_curve] == list(range(1, 11))
    (loss, bits), (unigram_loss, _) = model.scores["the model"], model.scores["unigram"]
    assert max(loss, unigram_loss) < math.log(400)
    assert len(model.samples) == 3
    assert {"start", "step", "validation", "end"} <= {record["kind"] for record in records}
    document = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "What a small model learns" in Outline(document).headings
    ids = re.findall(r'\bid="([^"]+)"', document)
    assert len(ids) == len(set(ids))
    saved = json.loads((tmp_path / "out/quickstart.json").read_text())
    assert saved["model"]["scores"]["the model"] == [loss, bits]
    assert list(saved["timings"])[-1] == "training a language model"
    assert any("lm generate" in command for _, command in result.commands)
    file = tmp_path / "tiny.txt"
    file.write_text("one line\nanother line\n")
    with pytest.warns(bytemill.TrainingStoppedEarly):
        again = run_all(tmp_path / "out", corpus=[str(file)], model_steps=2)  # replaces the first
    assert again.model is not None
    assert again.model.n_steps == 2
    assert all(part.n_documents >= 1 for part in again.shards.values())


def test_without_torch_there_is_a_report_without_a_model(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bytemill.quickstart.find_spec", lambda _: None)
    result = run_all(tmp_path / "out", corpus=[corpus], vocab_size=400)
    assert result.model is None
    assert install_hint("lm") in (result.model_note or "")
    document = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "torch is not installed" in document
    Outline(document)


def test_the_text_of_compressed_files_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bytemill.quickstart.MAX_BYTES", 1000)
    file = tmp_path / "corpus.txt.gz"
    file.write_bytes(gzip.compress(b"the same line\n" * 200))
    assert file.stat().st_size < 1000
    with pytest.raises(CorpusError, match=r"quickstart takes at most 1\.00 kB"):
        file_documents([str(file)])


def test_a_folder_that_cannot_be_read_is_an_error_of_the_output(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "out").mkdir()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(OutputError, match="out"):
        run(tmp_path / "out", corpus=[corpus], vocab_size=300)


def test_shards_that_do_not_decode_to_the_text_are_an_error(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bytemill.Tokenizer, "decode_bytes", lambda *_: b"other")
    with pytest.raises(ShardError, match="does not decode to the bytes of"):
        run(tmp_path / "out", corpus=[corpus], vocab_size=300)
