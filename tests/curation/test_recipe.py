"""Recipes: wrong ones are refused with a line that says what is right."""

from pathlib import Path
from typing import Any

import pytest

from bytemill.curation.recipe import Recipe
from bytemill.curation.steps import STEPS
from bytemill.errors import CurationError


def test_a_recipe_has_the_settings_of_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        'measure = "all"\n[[step]]\nuse = "mask"\nurls = true\n[[step]]\nuse = "near"\nname = "copies"\nthreshold = 1\n'
    )
    recipe = Recipe.load(path)
    assert recipe.measures_all
    assert [(step.name, step.use) for step in recipe.steps] == [("mask", "mask"), ("copies", "near")]
    assert recipe.steps[0].settings.urls
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ({}, "has no steps", "step"),
        ({"step": []}, "has no steps", "step"),
        ({"steps": []}, "unknown setting 'steps'", "step, measure"),
        ({"step": [{}]}, "step 1 has no use", ", ".join(STEPS)),
        ({"step": [{"use": "rule"}]}, "step 1: there is no step 'rule'", "rules"),
        (
            {"step": [{"use": "mask", "mail": True}]},
            r"step 1 \(mask\): unknown setting 'mail'",
            "emails, phone_numbers",
        ),
        ({"step": [{"use": "mask", "urls": "yes"}]}, r"step 1 \(mask\): urls is 'yes'; it must be", None),
        ({"step": [{"use": "near", "threshold": 2.0}]}, r"step 1 \(near\): the threshold is 2.0", "try 0.8"),
        (
            {"step": [{"use": "near", "bands": 2, "rows": 60}]},
            "2 bands of 60 rows find",
            "18 bands of 7 rows",
        ),
        ({"step": [{"use": "rules", "sets": ["c5"]}]}, "sets", None),
        ({"step": [{"use": "rules", "remove": {"a": "word < 3"}}]}, "rule a of rules names word,", "words"),
        (
            {"step": [{"use": "rules", "remove": {"a": "language.label == 'x'"}}]},
            "names language.label",
            "words",
        ),
        (
            {"step": [{"use": "rules", "remove": {"a": "words <"}}]},
            r"step 1 \(rules\): rule a: 'words <' is not",
            None,
        ),
        ({"step": [{"use": "language", "threshold": 2.0}]}, r"\(language\): threshold is 2.0", None),
        ({"step": [{"use": "language", "line_share": 0.5}]}, "needs by_line", None),
        ({"step": [{"use": "mask"}, {"use": "mask"}]}, "several steps 'mask'", "name"),
        ({"step": [{"use": "mask", "name": "a b"}]}, "the name is 'a b'", None),
        ({"step": [{"use": "mask"}, {"use": "extract"}]}, "first step", None),
        ({"step": [{"use": "mask"}], "measure": "some"}, "measure is 'some'", "reached"),
    ],
)
def test_wrong_recipes_are_refused(table: dict[str, Any], message: str, hint: str | None) -> None:
    with pytest.raises(CurationError, match=message) as error:
        Recipe.from_dict(table)
    if hint is not None:
        assert hint in str(error.value.hint)


def test_a_file_that_is_no_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(CurationError, match=r"cannot read .*missing\.toml"):
        Recipe.load(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("[[step]\n")
    with pytest.raises(CurationError, match=r"bad\.toml is not TOML"):
        Recipe.load(tmp_path / "bad.toml")


@pytest.mark.parametrize("name", STEPS)
def test_every_step_says_what_it_measures_and_which_settings_are_thresholds(name: str) -> None:
    kind = STEPS[name]
    step = kind.load()
    fields = set(step.Settings.__dataclass_fields__)
    assert step.thresholds <= fields
    assert step.measures
    assert step.__doc__
    assert hasattr(step, "decide") is kind.is_for_corpus
