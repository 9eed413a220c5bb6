"""The steps of classifiers and of evaluation items."""

import json
from pathlib import Path
from typing import Any

import pytest

from bytemill.corpus import Corpus
from bytemill.curation.classifier import QualityModel
from bytemill.curation.classifier_step import Classifier, ClassifierSettings
from bytemill.curation.contamination_step import Contamination, ContaminationSettings
from bytemill.curation.language import language_model
from bytemill.curation.recipe import Recipe
from bytemill.curation.run import curate, rethreshold
from bytemill.curation.steps import Page
from bytemill.data.executors.inline import InlineExecutor
from bytemill.errors import CurationError

ENGLISH = "The dog sleeps under the table and dreams of the big bones in the garden."
GERMAN = "Der Hund schläft unter dem Tisch und träumt von großen Knochen im Garten."
ITEM = "A farmer has seven sheep and buys five more at the market before he sells two of them to a friend"


def page(text: str) -> Page:
    return Page(text, "here", "0-0", len(text))


def test_documents_are_removed_by_the_score_of_a_model() -> None:
    settings = ClassifierSettings(model=str(language_model()), label="en", least=0.5)
    step, pages = Classifier(settings), [page(ENGLISH), page(GERMAN)]
    found = step.measure(pages)
    expected = QualityModel.load(language_model()).scores([ENGLISH, GERMAN])
    column = QualityModel.load(language_model()).column("en")
    assert [each.values["score"] for each in found] == [
        round(score, 6) for score in expected[:, column].tolist()
    ]
    assert [step.failed(each, one.values) for each, one in zip(pages, found, strict=True)] == [[], ["low"]]
    other = Classifier(ClassifierSettings(model=settings.model, label="en", most=0.5))
    assert other.failed(pages[0], found[0].values) == ["high"]


@pytest.fixture
def items(tmp_path: Path) -> str:
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"item": "sums:0", "text": ITEM}) + "\n")
    return str(path)


def test_documents_with_evaluation_items_are_removed_cut_or_marked(items: str) -> None:
    text = f"Read this.\n{ITEM.replace(' and ', chr(10) + 'and ')}, and more."
    for more, expected, removed in (
        ({}, None, ["evaluation_item"]),
        ({"on_match": "keep"}, None, []),
        ({"cut": True, "on_match": "keep"}, "Read this.\n, and more.", []),
    ):
        step = Contamination(ContaminationSettings(items=(items,), **more))  # type: ignore[arg-type]
        [found, other] = step.measure([page(text), page(ENGLISH)])
        assert (found.values["items"], found.values["matches"]) == (["sums:0"], 1)
        assert found.text == expected
        assert step.failed(page(text), found.values) == removed
        assert other.values == {"matches": 0, "words": 0, "items": []}
        assert step.failed(page(ENGLISH), other.values) == []


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            {"use": "classifier", "model": "missing.safetensors", "label": "good"},
            r"there is no classifier .*missing\.safetensors",
        ),
        ({"use": "classifier", "model": str(language_model()), "label": "good"}, "no label 'good'"),
        (
            {"use": "classifier", "model": "x", "label": "y", "least": 0.9, "most": 0.1},
            "least is 0.9 and most is 0.1",
        ),
        ({"use": "classifier", "model": "x"}, "label is missing"),
        ({"use": "contamination", "items": []}, "no files of items"),
    ],
)
def test_wrong_settings_are_refused_before_the_corpus_is_read(
    step: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(ENGLISH)
    with pytest.raises(CurationError, match=message):
        curate(
            InlineExecutor(), Recipe.from_dict({"step": [step]}), Corpus(tmp_path / "a.txt"), tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


def test_a_threshold_changes_without_the_model(tmp_path: Path) -> None:
    model = tmp_path / "own.ftz"
    model.write_bytes(language_model().read_bytes())
    (tmp_path / "a.txt").write_text(f"{ENGLISH}\n{GERMAN}\n")

    def recipe(least: float) -> Recipe:
        return Recipe.from_dict(
            {"step": [{"use": "classifier", "model": str(model), "label": "en", "least": least}]}
        )

    corpus = Corpus(tmp_path / "a.txt", documents="line")
    assert curate(InlineExecutor(), recipe(0.5), corpus, tmp_path / "out")["funnel"]["kept_documents"] == 1
    model.unlink()
    assert rethreshold(InlineExecutor(), recipe(0.0), tmp_path / "out")["funnel"]["kept_documents"] == 2
