"""A figure has one definition on every page, and none is shown before it is known."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import bytemill
from bytemill.studio.library import Library
from bytemill.studio.server import listen, running
from tests.lm.conftest import END, sentences
from tests.studio.browser.conftest import until
from tests.studio.conftest import id_of

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio with a tokenizer whose ids have gaps."""
    root = tmp_path_factory.mktemp("gaps")
    bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], {END: 300}).save(root / "gaps.json")
    bytemill.train_from_iterator([sentences(1, 100)], 280, [END]).save(root / "whole.json")
    with running(Library(root), listen(port=0)) as url:
        yield url


def test_figures_agree_between_views(open_page: Open, address: str):
    with httpx.Client(base_url=f"{address}api/v1", trust_env=False) as client:
        ids = [id_of(client, name) for name in ("gaps", "whole")]
    text = "The cat.\n" * 20
    page = open_page(f"#tokens?tokenizer={ids[0]}&with={','.join(ids)}&text={quote(text)}", address=address)
    until(page, "document.querySelector('[data-testid=n-tokens]').textContent === '180'")
    assert page.locator("dl.figures dd").last.inner_text() == "257"
    page.get_by_role("button", name="Vocabulary", exact=True).click()
    page.wait_for_selector("[data-testid=n-found]:has-text('257 of 257 tokens')")
    page.get_by_role("button", name="Compare", exact=True).first.click()
    page.wait_for_selector("[data-testid=tokens-1]")
    rows = [row.locator("td").all_inner_texts() for row in page.locator("main tbody tr:visible").all()]
    assert [row[1] for row in rows] == ["257", "280"]
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=Gini")
    titles = page.locator("main th:visible, [aria-label=Figures] td:first-child").all_inner_texts()
    assert [title.rstrip(" ↑↓") for title in titles].count("bytes/token") == 1
    assert "less than 10 KB" in page.locator("main [role=note]").inner_text()
    languages = page.locator("[aria-label=Languages] tbody td:first-child").all_inner_texts()
    assert {"Japanese", "English", "Swahili", "Traditional Chinese"} < set(languages)
    page.wait_for_selector("h3:has-text('relative to English')")
    page.wait_for_selector("text=a ratio of sums")
    page.get_by_role("textbox", name="Text to tokenize").fill("The cat saw the dog. \n" * 500)
    until(page, "document.querySelector('main').textContent.includes('have changed since')")
    page.get_by_role("button", name="Compare again").click()
    until(page, "!document.querySelector('main [role=note]')")


def test_no_figure_is_shown_before_it_is_known(open_page: Open, address: str):
    with httpx.Client(base_url=f"{address}api/v1", trust_env=False) as client:
        ids = [id_of(client, name) for name in ("whole", "gaps")]
    page = open_page(f"#tokens?tokenizer={ids[0]}&text={quote('The cat')}", address=address)
    shown = "[...document.querySelectorAll('dl.figures dd')].map((each) => each.textContent)"
    until(page, f"{shown}.every((each) => /^[0-9.,]+$/.test(each))")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/vocabulary", hold)
    page.get_by_label("Tokenizer", exact=True).select_option(ids[1])
    until(page, f"{shown}.every((each) => each === '…')")
    page.wait_for_timeout(300)
    assert page.evaluate(shown) == ["…"] * 5
    held[0].continue_()
    until(page, f"{shown}.join(' ') === '7 7 1.000 7 257'")


def test_what_people_see_as_one_character_is_of_one_kind(open_page: Open, address: str):
    text = "🇩🇪👍🏽👩‍💻1️⃣❤️ e\u0301© "
    page = open_page(f"#tokens?tokenizer=python-docs-8k&text={quote(text)}", address=address)
    page.wait_for_selector("[aria-label='By kind of text'] tbody tr")
    rows = {
        cells[0]: int(cells[1])
        for row in page.locator("[aria-label='By kind of text'] tbody tr").all()
        if (cells := row.locator("td").all_inner_texts())
    }
    assert rows == {"emoji": 2 + 2 + 3 + 3 + 2, "Latin": 2, "white space": 2, "punctuation and symbols": 1}


def test_a_finished_run_says_so(open_page: Open):
    page = open_page("#runs")
    row = page.locator("tr:has([data-testid=step])", has_text="runs/first")
    row.wait_for()
    assert "finished" in row.inner_text()
    assert "live" not in row.inner_text()
    assert (
        page.locator("tr:has([data-testid=step])", has_text="alert(1)").get_by_text("finished").count() == 0
    )
