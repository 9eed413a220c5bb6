"""Published rules, compared with those of datatrove on the same texts and words."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.curation.rules import Rules, RulesSettings, gopher_rules
from bytemill.curation.steps import Page
from bytemill.curation.text_measures import c4_lines, count_sentences, split_words
from bytemill.errors import CurationError

FILTERS = "datatrove.pipeline.filters"
GOPHER = {
    "gopher_short_doc": "few_words",
    "gopher_long_doc": "many_words",
    "gopher_below_avg_threshold": "short_words",
    "gopher_above_avg_threshold": "long_words",
    "gopher_too_many_hashes": "hashes",
    "gopher_too_many_ellipsis": "ellipses",
    "gopher_too_many_bullets": "bullets",
    "gopher_too_many_end_ellipsis": "ellipsis_lines",
    "gopher_below_alpha_threshold": "not_alphabetic",
    "gopher_enough_stop_words": "few_stop_words",
}
REPETITION = {
    "dup_para_frac": "repeated_paragraphs",
    "dup_para_char_frac": "repeated_paragraph_characters",
    "dup_line_frac": "repeated_lines",
    "dup_line_char_frac": "repeated_line_characters",
    **{f"top_{n}_gram": f"top_{n}_gram" for n in range(2, 5)},
    **{f"duplicated_{n}_n_grams": f"repeated_{n}_grams" for n in range(5, 11)},
}
FINEWEB = {
    "empty": "unpunctuated_lines",
    "line_punct_ratio": "unpunctuated_lines",
    "short_line_ratio": "short_lines",
    "char_dup_ratio": "repeated_lines",
    "list_ratio": "line_breaks",
}
C4 = {"lorem_ipsum": "lorem_ipsum", "curly_bracket": "curly_bracket", "too_few_sentences": "few_sentences"}


@pytest.fixture(scope="module")
def datatrove() -> Iterator[dict[str, Any]]:
    """The filters of datatrove with the words of bytemill, by the name of the set."""
    names = {
        "gopher": ("gopher_quality_filter", "GopherQualityFilter"),
        "gopher_repetition": ("gopher_repetition_filter", "GopherRepetitionFilter"),
        "fineweb": ("fineweb_quality_filter", "FineWebQualityFilter"),
        "c4": ("c4_filters", "C4QualityFilter"),
    }
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, (module_name, class_name) in names.items():
            module = importlib.import_module(f"{FILTERS}.{module_name}")
            if name == "c4":
                patch.setattr(module, "split_into_sentences", lambda text, _: [""] * count_sentences(text))
            else:
                patch.setattr(module, "split_into_words", lambda text, _: split_words(text))
            found[name] = getattr(module, class_name)()
        yield found


def documents(data: Path) -> list[str]:
    """Real texts, and texts that each rule removes."""
    texts = (data / "tinystories.txt").read_text().split("<|endoftext|>")[:150]
    play = (data / "tinyshakespeare.txt").read_text()
    texts += [play[start : start + 3000] for start in range(0, 120_000, 3000)]
    texts += [path.read_text()[:4000] for path in sorted((data / "udhr").glob("*.txt"))[:40]]
    sentence = "The quick brown fox and the dog have to be with that friend of the house today. "
    return [
        *(text for text in texts if text.strip()),
        "# " * 40 + sentence * 10,
        "... wait … " * 20 + sentence * 5,
        "\n".join(f"- the item and a thing of number {n}" for n in range(30)),
        "\n".join(
            [f"The line {n} is one that ends like this with the rest…" for n in range(30)] + [sentence] * 3
        ),
        "12 34 56 the and " * 40,
        "extraordinarily internationalization the and " * 40,
        "a b c d to the " * 30,
        (sentence + "\n") * 20,
        (sentence + "\n\n") * 20,
        "\n".join(f"line {n}" for n in range(60)),
        sentence * 10 + "{ braces }. " + sentence,
        "\n".join([f"{sentence.strip()} Number {n}." for n in range(6)] + ["Lorem ipsum dolor sit amet."]),
        "\n".join(
            [f"{sentence.strip()} Number {n}." for n in range(6)]
            + ["We use cookies on this site.", "Enable JavaScript now."]
        ),
        f"{'x' * 1200} is long.\n" + "\n".join(f"{sentence.strip()} Number {n}.[1]" for n in range(6)),
    ]


@pytest.mark.parametrize(
    ("name", "rules"),
    [("gopher", GOPHER), ("gopher_repetition", REPETITION), ("fineweb", FINEWEB)],
)
def test_rules_remove_what_datatrove_removes(
    name: Any, rules: dict[str, str], datatrove: dict[str, Any], shared_data: Path
) -> None:
    data = importlib.import_module("datatrove.data")
    ours, seen = Rules(RulesSettings(sets=(name,))), set[str]()
    prefix = "fineweb" if name == "fineweb" else "gopher"
    for text in documents(shared_data):
        expected = datatrove[name].filter(data.Document(text, "0"))
        removed = ours.removed_by(text)
        if expected is True:
            assert removed == []
        else:
            # datatrove names the first rule.
            assert f"{prefix}.{rules[expected[1]]}" in removed
            seen.add(expected[1])
    assert len(seen) >= len(rules) // 2


def test_c4_cuts_and_removes_what_datatrove_cuts_and_removes(
    datatrove: dict[str, Any], shared_data: Path
) -> None:
    data = importlib.import_module("datatrove.data")
    ours, seen = Rules(RulesSettings(sets=("c4",))), set[str]()
    for text in documents(shared_data):
        document = data.Document(text, "0")
        expected = datatrove["c4"].filter(document)
        removed = ours.removed_by(text)
        if expected is True:
            assert removed == []
            assert c4_lines(text)[1] == document.text
        else:
            assert f"c4.{C4[expected[1]]}" in removed
            seen.add(expected[1])
    assert seen == set(C4)


WORDS = st.lists(
    st.sampled_from(["the", "and", "fox", "dog", "of", "a", "jumps", ".", "\n", "\n\n"]), max_size=120
)


@given(WORDS)
def test_repetition_is_that_of_datatrove_for_any_words(words: list[str]) -> None:
    module = importlib.import_module(f"{FILTERS}.gopher_repetition_filter")
    from bytemill.curation.text_measures import gopher_repetition

    text = " ".join(words)
    if not text:
        return
    split = split_words(text)
    found = gopher_repetition(text, split)
    for n in (2, 3, 4):
        grams = module.get_n_grams(split, n)
        expected = module.find_top_duplicate(grams) / len(text) if grams else 0
        assert found[f"top_{n}_gram"] == pytest.approx(expected, abs=1e-6)
    for n in range(5, 11):
        expected = module.find_all_duplicate(split, n) / len(text)
        assert found[f"repeated_{n}_grams"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        ("The string you are reading is a short snippet of text.", True),
        ("The string you are reading is a long snippet of text." * 100, False),
        ("The string you are reading is too long of a text. " * 50_000, True),
        ("the be " * 100, True),
        ("the with " * 100, False),
        ("the and " + "extraordinarily extraordinarily extraordinarily longesest " * 100, True),
        ("the and this is fine " * 100, False),
        ("The line ends with an ellipsis...\n" * 70 + "This is a normal line.\n" * 30, True),
        ("", True),
    ],
)
def test_the_rules_of_gopher_have_their_limits(text: str, removed: bool) -> None:
    assert bool(gopher_rules(text)) is removed


def test_a_rule_of_a_set_is_replaced_or_switched_off_by_its_name() -> None:
    text = "The dog and the fox have to be here."
    assert gopher_rules(text) == ["gopher.few_words"]
    for rule, expected in (("words < 5", []), ("words < 10", ["gopher.few_words"]), ("", [])):
        settings = RulesSettings(sets=("gopher",), remove={"gopher.few_words": rule})
        assert Rules(settings).removed_by(text) == expected


def test_own_rules_see_measurements_of_earlier_steps() -> None:
    rules = Rules(RulesSettings(remove={"german": "language.label == 'de' and words < 100"}))
    page = Page("kurz", "here", "0-0", 4, measurements={"language": {"label": "de"}})
    [measured] = rules.measure([page])
    assert rules.failed(page, measured.values) == ["german"]


def test_a_wrong_expression_names_its_rule() -> None:
    with pytest.raises(CurationError, match="rule short: 'words <' is not an expression"):
        RulesSettings(remove={"short": "words <"})
