"""The guide describes every step with its settings, and every published rule set with what it measures."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from bytemill.curation.rules import Rules, RulesSettings
from bytemill.curation.steps import STEPS, Page

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "curating-text.md").read_text(
    encoding="utf-8"
)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_in_the_table_with_its_settings(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, flags=re.MULTILINE)
    step = STEPS[name].load()
    for field in fields(step.Settings):
        mark = "*" if field.name in step.thresholds else ""
        assert f"{mark}`{field.name}`{mark}" in row


@pytest.mark.parametrize("name", ["gopher", "gopher_repetition", "fineweb", "c4"])
def test_every_rule_set_is_in_the_table_with_its_measurements(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    rules = Rules(RulesSettings(sets=(name,)))  # type: ignore[arg-type]
    [measured] = rules.measure([Page("A text. Another one.", "here", "0-0", 20)])
    for each in measured.values:
        # A range of numbers is named by its first and last.
        if not re.search(r"_[36789]_gram|cut_(?!unpunctuated)", each):
            assert f"`{each}`" in row
