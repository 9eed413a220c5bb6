"""The page of a curation: its figures are those of the files, samples show what decided, and all text is inert."""

import json
import random
import re
from pathlib import Path

import pytest

import bytemill
from bytemill.corpus import Corpus
from bytemill.curation import train_classifier
from bytemill.curation.classifier import Features
from bytemill.curation.evidence import evidence
from bytemill.curation.parts import read_records
from bytemill.curation.recipe import Recipe
from bytemill.curation.report import CurationReport, curation_page
from bytemill.curation.run import curate
from bytemill.data.executors.inline import InlineExecutor
from bytemill.errors import CurationError

HOSTILE = "<script>alert(1)</script>"
WORDS = [f"word{n}" for n in range(300)]


def sentences(draw: random.Random, n: int = 12) -> str:
    return "\n".join(" ".join(draw.choices(WORDS, k=9)).capitalize() + "." for _ in range(n))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a curation with a rule, a classifier, evaluation items and near duplicates."""
    base = tmp_path_factory.mktemp("report")
    draw = random.Random(7)
    question = (
        "Which of the seven spiders has more legs than the eight beetles that live under the same old oak?"
    )
    (base / "items.jsonl").write_text(json.dumps({"item": "quiz:0", "text": question}) + "\n")
    good = [sentences(draw) for _ in range(250)]
    bad = [f"casino {sentences(draw, 3)} jackpot" for _ in range(250)]
    model, _ = train_classifier({"good": good, "bad": bad}, Features(1, 12))
    model.save(base / "quality.safetensors")
    pages = [sentences(draw) for _ in range(30)]
    pages += [f"{HOSTILE} too short"] * 1
    pages += [f"casino {sentences(draw, 3)} jackpot" for _ in range(25)]
    pages += [f"{sentences(draw)}\n{question.replace(' ', chr(10))}"]
    pages += [f"{pages[0]} {HOSTILE}"]
    text = "".join(json.dumps({"text": page}) + "\n" for page in pages)
    (base / "crawl.jsonl").write_text(text)
    steps = [
        {"use": "rules", "remove": {"few_words": "words < 10", "brackets": "words < 10 and hash_ratio < 1"}},
        {"use": "contamination", "items": [str(base / "items.jsonl")]},
        {"use": "classifier", "model": str(base / "quality.safetensors"), "label": "good", "least": 0.5},
        {"use": "near"},
    ]
    corpus = Corpus([str(base / "crawl.jsonl")])
    curate(InlineExecutor(), Recipe.from_dict({"step": steps}), corpus, base / "out")
    return base / "out"


def test_figures_are_those_of_the_files(folder: Path) -> None:
    found = CurationReport(folder)
    records = {
        name: [record for path in sorted((folder / name).iterdir()) for record in read_records(path)]
        for name in ("kept", "removed")
    }
    assert len(records["kept"]) + len(records["removed"]) == found.funnel["documents"] == 58
    rows = {row[0]: row for row in found.funnel_table().rows}
    assert rows["rules"][1:4] == ["58", "57", "1"]
    assert rows["contamination"][3] == "1"
    assert rows["classifier"][3] == "25"
    assert rows["near"][1:4] == ["31", "30", "1"]
    rules = {row[1]: row for row in found.rules_table().rows}
    assert rules["few_words"][2] == "1"
    assert rules["few_words"][4] == "0"  # the other rule removes it too
    assert rules["low"][2::2] == ["25", "25"]
    assert sum(own.documents for own in found.lengths.values()) == 58
    assert sum(own.kept_documents for own in found.domains.values()) == 30


def test_samples_show_what_decided(folder: Path) -> None:
    found = CurationReport(folder)
    low = found.samples("classifier", "low")
    assert len(low) == 20
    marked = {text for sample in low for text, is_marked in sample.parts if is_marked}
    assert {"casino", "jackpot"} <= marked or "casino" in marked
    (item,) = found.samples("contamination", "evaluation_item")
    assert item.reason == "19 words of quiz:0"
    (span,) = [text for text, is_marked in item.parts if is_marked]
    assert span.startswith("Which\nof\nthe")
    (near,) = found.samples("near", "near_duplicate")
    assert "similarity 0.9" in near.reason
    assert "".join(text for text, is_marked in near.parts if is_marked)
    (short,) = found.samples("rules", "few_words")
    assert short.reason == "words < 10: words is 6"
    assert len(found.kept_samples()) == 20


def test_samples_depend_on_the_documents_alone(folder: Path) -> None:
    assert curation_page(folder) == curation_page(folder)


def test_the_page_is_self_contained_and_texts_are_inert(folder: Path) -> None:
    page = curation_page(folder)
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.findall(r"(?:src|href)=", page)
    assert page.count("<details") >= 5
    assert "casino</mark>" in page


def test_tokens_are_counted_where_a_tokenizer_is_named(folder: Path) -> None:
    tokenizer = bytemill.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    found = CurationReport(folder, tokenizer)
    kept = sum(len(record["text"]) for path in (folder / "kept").iterdir() for record in read_records(path))
    assert found.n_tokens[""] == kept
    rows = found.funnel_table().rows
    assert rows[-1][-1] == f"{kept:,}"
    assert rows[0][-2] == f"{sum(found.n_tokens.values()):,}"


@pytest.mark.parametrize(
    ("rule", "text", "marked"),
    [
        ("repeated_lines > 0", "a b\nc\na b\na b", ["a b", "a b"]),
        ("repeated_paragraphs > 0", "a b\nc\n\nd\n\na b\nc", ["a b\nc"]),
        ("top_2_gram > 0", "x y. x y z x y", ["x y", "x y", "x y"]),
        ("hash_ratio > 0", "one # two #", ["#", "#"]),
        ("ellipsis_lines > 0", "more ...\nless ... x\nend…", ["...", "…"]),
        ("bullet_lines > 0", "- a\n b\n  • c", ["-", "  •"]),
        ("lorem_ipsum", "x Lorem Ipsum y", ["Lorem Ipsum"]),
        ("words < 50", "few words", []),
    ],
)
def test_rules_mark_what_they_count(rule: str, text: str, marked: list[str]) -> None:
    sets = ["gopher", "gopher_repetition", "c4"]
    (spec,) = Recipe.from_dict({"step": [{"use": "rules", "sets": sets, "remove": {"own": rule}}]}).steps
    found = evidence(spec, "own", text, {"rules": {rule.split(maxsplit=1)[0]: 0.25}})
    assert [text[start:end] for start, end in found.spans] == marked
    assert found.reason == f"{rule}: {rule.split(maxsplit=1)[0]} is 0.25"


def test_other_folders_and_damaged_ones_are_errors(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CurationError, match="not the output of a curation"):
        CurationReport(tmp_path)
    (tmp_path / "curation.json").write_text("{")
    with pytest.raises(CurationError, match="is damaged"):
        CurationReport(tmp_path)
    (tmp_path / "curation.json").write_bytes((folder / "curation.json").read_bytes())
    with pytest.raises(CurationError, match=r"part-00000\.jsonl\.zst is missing"):
        CurationReport(tmp_path)
    for path in (*(folder / "kept").iterdir(), *(folder / "removed").iterdir()):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CurationError, match="is damaged"):
        CurationReport(tmp_path)
