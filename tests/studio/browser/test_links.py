"""What the URL holds, and what Back and Forward restore."""

import difflib
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.studio.browser.conftest import until
from tests.studio.browser.test_looking_elsewhere import TEXT, VIEWS, seen, show, work_in_every_view
from tests.studio.conftest import id_of

Open = Callable[..., Any]
UNDER_WAY = re.compile("Opening…|Encoding…|Computing…|Comparing…|Loading|Looking")


def settled(page: Any) -> tuple[str, list[str]]:
    """Wait until nothing is under way and the URL is written; return its fragment and what is in sight."""
    page.mouse.move(0, 0)
    before = None
    while True:
        now = (page.evaluate("location.hash"), seen(page))
        if now == before and not UNDER_WAY.search(now[1][0]):
            return now
        before = now
        page.wait_for_timeout(200)  # the URL is written after a pause of 150 ms


def wait_for(page: Any, state: tuple[str, list[str]]) -> None:
    """Wait until a fragment and what is in sight are those of a state."""
    end = time.monotonic() + 30
    while (now := (page.evaluate("location.hash"), seen(page))) != state:
        assert time.monotonic() < end, list(difflib.unified_diff(state[1], now[1], state[0], now[0]))
        page.wait_for_timeout(25)


def start(client: httpx.Client) -> str:
    return (
        f"#tokens?tokenizer={id_of(client, 'tokenizer')}&model={id_of(client, 'runs/first', 'models')}"
        f"&prompt=The%20cat&text={quote(TEXT)}"
    )


@pytest.mark.slow
def test_a_link_shows_the_same_in_another_page(open_page: Open, client: httpx.Client):
    page = open_page(start(client))
    work_in_every_view(page)
    again = open_page("#tokens")
    for view in [*VIEWS, "surprisal"]:
        show(page, "generate" if view == "surprisal" else view)
        if view == "surprisal":
            page.get_by_role("button", name="Surprisal").click()
            page.get_by_label("Second model", exact=True).select_option(index=1)
            page.get_by_role("button", name="Compute the surprisal").click()
            page.wait_for_selector("[data-testid=bits-1]")
        again.evaluate("(fragment) => { location.hash = fragment; location.reload(); }", settled(page)[0])
        again.wait_for_selector("main .panel:visible")
        if view == "generate":
            # Generated text is in no URL; its settings are.
            page.get_by_role("button", name="Clear…").click()
            page.get_by_role("button", name="Clear all").click()
        wait_for(again, settled(page))


def test_a_link_to_inside_computes_it(open_page: Open, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    page = open_page(
        f"#inside?model={model}&checkpoint=4&prompt=The%20cat&inside.layer=1&inside.head=1&inside.token=0"
    )
    page.wait_for_selector(".lens")
    page.wait_for_selector("h2:has-text('Layer 1, head 1')")
    page.wait_for_selector("h3:has-text('Token 1,')")
    assert page.get_by_label("Checkpoint of Model").input_value() == "4"


def test_back_and_forward_go_to_the_state_before(open_page: Open, client: httpx.Client):
    page = open_page(start(client))
    states: list[tuple[str, list[str]]] = []

    steps: list[Callable[[], Any]] = [
        lambda: page.locator(".flow .tok").nth(3).click(),
        lambda: page.get_by_label("Special tokens").uncheck(),
        lambda: show(page, "vocabulary"),
        lambda: page.get_by_label("Sort by").select_option("length"),
        lambda: show(page, "compare"),
        lambda: page.get_by_role("button", name="Add a tokenizer").click(),
        lambda: show(page, "inside"),
        lambda: show(page, "runs"),
        lambda: page.get_by_label("Axis").select_option("tokens"),
    ]
    states.append(settled(page))
    n_before: int = page.evaluate("history.length")
    for step in steps:
        step()
        states.append(settled(page))
    # What is typed, and sliders, rewrite the last entry.
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("Smoothing").fill("0.7")
    states[-1] = settled(page)
    assert len({fragment for fragment, _ in states}) == len(states), [fragment for fragment, _ in states]
    assert page.evaluate("history.length") == n_before + len(steps)
    for move, expected in ((page.go_back, states[-2::-1]), (page.go_forward, states[1:])):
        for state in expected:
            move()
            wait_for(page, state)
    assert page.evaluate("history.length") == n_before + len(steps)


def test_back_restores_texts_that_are_in_no_url(open_page: Open, client: httpx.Client):
    page = open_page("#tokens")
    field = page.get_by_label("Text to tokenize")
    long_text = "The cat saw the dog. " * 200
    field.fill(long_text)
    settled(page)
    page.get_by_label("Text", exact=True).select_option(id_of(client, "story.txt", "texts"))
    until(page, "location.hash.includes('source=')")
    story = field.input_value()
    field.fill("")
    settled(page)
    for expected in (story, long_text):
        page.go_back()
        settled(page)
        assert field.input_value() == expected
    page.go_forward()
    page.go_forward()
    settled(page)
    assert field.input_value() == ""


def test_wrong_values_in_a_link_are_ignored_or_bounded(open_page: Open, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    page = open_page("#tokens")
    n_entries = page.evaluate("history.length")
    for fragment, shown in {
        "#tokens?tokens.size=3&bytes=9-2": {},
        "#tokens?tokens.size=999999999999999999&bytes=99999-100000": {},
        f"#tokens?tokenizer={id_of(client, 'tokenizer')}&tokens.size=3&text=a": {"Vocabulary size": "258"},
        "#vocabulary?token=99999999&vocabulary.sort=x&vocabulary.filters=x,digits&vocabulary.mode=y": {
            "Sort by": "id",
            "How to search": "text",
        },
        "#compare?with=x,y,z&compare.figures=maybe": {},
        f"#generate?model={model}&generate.temperature=99&generate.top-k=-5&generate.top-p=NaN&generate.tokens=0"
        "&generate.seed=1e9&generate.second=x&generate.mode=z": {
            "Temperature": "2",
            "Top-k": "0",
            "Top-p": "1",
            "Number of tokens": "1",
            "Seed": "0",
        },
        f"#inside?model={model}&prompt=The%20cat&inside.layer=99&inside.head=-1&inside.token=123456": {},
        "#runs?run=x,y&runs.metric=toString&runs.axis=constructor&runs.smoothing=7&runs.study=x": {
            "Metric": "validation",
            "Axis": "step",
            "Smoothing": "0.99",
        },
        "#runs?runs.metric=class%20nonsense": {"Metric": "validation"},
        "#%?%&=&&": {},
    }.items():
        page.evaluate("(fragment) => (location.hash = fragment)", fragment)
        if fragment.startswith("#inside"):
            page.wait_for_selector(".lens:visible")
        fields = {entry.split(": ")[0]: entry.partition(": ")[2] for entry in settled(page)[1][1:]}
        assert {name: fields[name] for name in shown} == shown, fragment
        assert page.locator(".error").locator("visible=true").count() == 0, fragment
        n_entries += 1
    # No correction is a step: Back would come to the wrong value again and again.
    assert page.evaluate("history.length") == n_entries
