"""What stays, rests and is computed anew while one looks at another view."""

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
from axe_playwright_python.sync_playwright import Axe

from tests.studio.browser.conftest import until
from tests.studio.conftest import id_of

Open = Callable[..., Any]
VIEWS = ["tokens", "vocabulary", "compare", "generate", "inside", "runs"]
TEXT = "The cat saw the dog. The child liked the cat."


def show(page: Any, view: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("button", name=view.capitalize()).click()


def seen(page: Any) -> list[str]:
    """What is in sight: all text, and the state of all controls."""
    found: list[str] = page.evaluate(
        """[document.querySelector('main').innerText, ...[...document.querySelectorAll('input, select, textarea')]
            .filter((field) => field.checkVisibility())
            .map((field) => `${field.ariaLabel}: ${field.type === 'checkbox' ? field.checked : field.value}`)]"""
    )
    return [re.sub(r"live|now|\d+ \w+ ago", "", each) for each in found]


def settled(page: Any) -> list[str]:
    """What is in sight once nothing is under way and nothing changes any more."""
    page.wait_for_load_state("networkidle")
    found, n_same = seen(page), 0
    while n_same < 5:
        page.wait_for_timeout(100)
        last, found = found, seen(page)
        n_same = n_same + 1 if found == last and "Computing…" not in found[0] else 0
    return found


def wait_for(page: Any, expected: list[str], view: str) -> None:
    """Wait until a view shows what it showed before."""
    end = time.monotonic() + 60
    while (found := seen(page)) != expected:
        assert time.monotonic() < end, (view, found, expected)
        page.wait_for_timeout(50)


def work_in_every_view(page: Any) -> None:
    """Compute, choose and set something in each view."""
    page.get_by_label("Vocabulary size").fill("280")
    until(page, "document.querySelector('.flow .tok')")
    page.locator(".flow .tok").nth(3).click()
    show(page, "vocabulary")
    page.get_by_label("Search the vocabulary").fill("at")
    page.get_by_label("Sort by").select_option("length")
    page.get_by_label("whole words").check()
    page.locator(".vrow[role=option]").nth(1).click()
    show(page, "compare")
    page.wait_for_selector(".segment")
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=trigram bits/byte")
    show(page, "generate")
    page.get_by_label("Number of tokens").fill("6")
    page.get_by_label("Temperature").fill("1.5")
    for seed in ("3", "4"):
        page.get_by_label("Seed").fill(seed)
        page.get_by_role("button", name="Generate", exact=True).last.click()
        page.wait_for_selector("button:has-text('Continue')")
    page.locator(".gen").nth(4).click()
    page.locator(".alternative:not([disabled])").first.click()
    until(page, "document.querySelectorAll('.leaf').length === 3")
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_selector("text=bits of entropy")
    page.get_by_role("button", name="Surprisal").click()
    page.get_by_role("button", name="Compute the surprisal").click()
    page.wait_for_selector("[data-testid=bits-0]")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    show(page, "inside")
    page.get_by_role("button", name="Look inside").click()
    page.locator("[data-head='1-1']").click()
    page.wait_for_selector("h2:has-text('Layer 1, head 1')")
    show(page, "runs")
    page.wait_for_selector(".uplot canvas")
    page.get_by_label("Metric").select_option("loss")
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("log y").check()


def test_no_work_is_lost_by_looking_elsewhere(open_page: Open, client: httpx.Client):
    page = open_page(
        f"#tokens?tokenizer={id_of(client, 'tokenizer')}&model={id_of(client, 'runs/first', 'models')}"
        f"&prompt=The%20cat&text={quote(TEXT)}"
    )
    work_in_every_view(page)
    page.mouse.move(0, 0)
    before: dict[str, list[str]] = {}
    for view in VIEWS:
        show(page, view)
        before[view] = settled(page)
    for view in ("inside", "runs", "generate", "tokens", "compare", "vocabulary", "generate", "inside"):
        show(page, view)
        wait_for(page, before[view], view)
    # The tour shows all views, and gives back the one that was there.
    page.keyboard.press("t")
    for _ in range(5):
        page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Done").click()
    until(page, "document.querySelector('nav [aria-current]').textContent === 'Inside'")
    for view in reversed(VIEWS):
        show(page, view)
        wait_for(page, before[view], view)
    # Texts are cleared only by somebody who means it.
    show(page, "generate")
    for button in ("Close", "Clear all"):
        page.get_by_role("button", name="Clear…").click()
        assert (
            not Axe()
            .run(page, options={"runOnly": ["wcag2a", "wcag2aa", "best-practice"]})
            .response["violations"]
        )
        page.keyboard.press("1")
        assert page.locator("dialog").is_visible()
        assert page.locator(".leaf").count() == 3
        page.locator("dialog").get_by_role("button", name=button).click()
        page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector("text=Nothing generated yet")


def test_a_hidden_view_asks_for_nothing(open_page: Open):
    page = open_page("#tokens")
    page.clock.install()
    show(page, "runs")
    page.wait_for_selector(".uplot canvas")
    page.get_by_role("button", name="study", exact=True).click()
    page.wait_for_selector("text=Two sizes")
    for view in ("vocabulary", "compare", "generate"):
        show(page, view)
        page.wait_for_selector(".vrow:visible, .segment:visible, textarea[aria-label=Prompt]:visible")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_selector("text=bits of entropy")
    show(page, "tokens")
    page.wait_for_load_state("networkidle")
    requests: list[Any] = []
    # The page itself asks for news, and how many jobs are before one that waits.
    of_page = re.compile(r"/api/v1/(?!status$|jobs/)")
    page.on("request", lambda request: requests.append(request) if of_page.search(request.url) else None)
    page.get_by_label("Text to tokenize").locator("visible=true").fill("one more text")
    until(page, "document.querySelector('.flow').textContent.includes('more')")
    page.locator(".flow .tok").nth(1).click()
    page.clock.run_for(30_000)
    assert {request.method for request in requests} == {"PATCH"}, [request.url for request in requests]
    assert all(len(request.post_data_json["views"]) <= 1 for request in requests)


def test_what_has_changed_meanwhile_is_computed_anew(open_page: Open, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    page = open_page(f"#inside?model={model}&prompt=The%20cat&text={quote(TEXT)}")
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector(".lens")
    show(page, "compare")
    page.wait_for_selector(".segment")
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=trigram bits/byte")
    show(page, "generate")
    page.get_by_role("button", name="Surprisal").click()
    page.get_by_role("button", name="Compute the surprisal").click()
    page.wait_for_selector("[data-testid=bits-0]")
    page.get_by_label("Checkpoint of Model").locator("visible=true").select_option("2")
    show(page, "tokens")
    page.get_by_label("Text to tokenize").locator("visible=true").fill("Another text.")
    with page.expect_request("**/inside") as looked:
        show(page, "inside")
    assert looked.value.post_data_json == {"text": "The cat", "checkpoint": 2}
    page.wait_for_selector(".lens")
    with page.expect_request("**/comparison"):
        show(page, "compare")
    page.wait_for_selector("text=trigram bits/byte")
    with page.expect_request("**/surprisal") as scored:
        show(page, "generate")
    assert scored.value.post_data_json == {"text": "Another text.", "checkpoint": 2}
    own = client.post(f"/models/{model}/surprisal", json=scored.value.post_data_json).json()
    until(
        page, f"document.querySelector('[data-testid=bits-0]').textContent === '{own['bits_per_byte']:.4f}'"
    )
