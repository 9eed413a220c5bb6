"""The page says from which tokens a token is predicted, and shows one probability for it."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from bytemill.lm.generation.decoding import window_start
from tests.studio.browser.conftest import until
from tests.studio.conftest import id_of

Open = Callable[..., Any]


def check_accessibility(page: Any) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "best-practice"]})
        assert not found.response["violations"], f"{scheme}: {found.generate_report()}"


@pytest.fixture
def model_id(client: httpx.Client) -> str:
    return id_of(client, "runs/first", "models")


def test_the_lab_shows_the_probabilities_of_generation_beyond_the_context(open_page: Open, model_id: str):
    page = open_page(f"#generate?model={model_id}&prompt=")
    page.get_by_label("Prompt").fill("")
    page.get_by_label("Number of tokens").fill("30")
    for seed in ("3", "4"):
        page.get_by_label("Seed").fill(seed)
        page.get_by_role("button", name="Generate", exact=True).last.click()
        page.wait_for_selector("text=Continue")
        # The token that begins a document is there to be seen.
        assert page.locator(".gen.unread, .gen.special").first.inner_text() == "<|endoftext|>"
        n_tokens = page.locator(".gen").count()
        assert n_tokens > 20
        output = page.get_by_role("listbox", name="Generated tokens")
        output.focus()
        for n, key in ((n_tokens - 1, "End"), (17, None), (16, "ArrowLeft")):
            if key is None:
                page.locator(".gen").nth(n).click()
            else:
                output.press(key)
            start = window_start(n, 16)
            marked = page.evaluate("[...document.querySelectorAll('.gen')].map((c) => c.matches('.window'))")
            assert [i for i, is_marked in enumerate(marked) if is_marked] == ([start] if start else [])
            assert page.locator(".gen.unread").count() == start
            assert page.get_by_test_id("window").count() == (1 if start else 0)
            if start:
                assert (
                    f"the {n - start} tokens from the mark on" in page.get_by_test_id("window").inner_text()
                )
            lab = page.get_by_role("region", name="Sampling lab")
            if lab.get_by_role("button", name="Open").count():
                lab.get_by_role("button", name="Open").click()
                lab.get_by_role("button", name="model").click()
            shown = page.locator("[aria-label=Alternatives] tbody td:nth-child(2)").all_inner_texts()
            assert len(shown) == 12
            wanted = "".join(shown)
            until(
                page,
                "[...document.querySelectorAll('[aria-label=\"Sampling lab\"] tbody td.n')].slice(0, 12)"
                f".map((cell) => cell.textContent).join('') === {wanted!r}",
            )
    page.locator(".gen").nth(18).click()
    check_accessibility(page)


def test_surprisal_and_inside_mark_the_window(open_page: Open, model_id: str, client: httpx.Client):
    text = "The naïve bird saw the 犬. " * 8
    page = open_page(f"#generate?model={model_id}&generate.mode=surprisal&text={quote(text)}")
    page.get_by_label("Text to score").fill(text)
    # The link has begun the computation, and its button says "Stop" until it has ended.
    again = page.get_by_role("button", name="Compute the surprisal")
    again.wait_for()
    assert page.locator("[data-testid=start] .tok.special").inner_text() == "<|endoftext|>"
    page.locator(".segment").nth(40).click()
    starts = client.post(f"/models/{model_id}/surprisal", json={"text": text}).json()["window_starts"]
    until(page, "document.querySelectorAll('.tok.window').length === 1")
    again.click()
    again.wait_for()
    until(page, "!document.querySelector('main').textContent.includes('Computing…')")
    assert page.locator(".tok.window").get_attribute("data-token") == f"0-{starts[40]}"
    assert f"has read {40 - starts[40]} tokens" in page.get_by_test_id("window").inner_text()
    check_accessibility(page)
    page.locator(".segment").nth(3).click()
    until(page, "document.querySelectorAll('.tok.window').length === 0")

    inside = client.post(f"/models/{model_id}/inside", json={"text": text}).json()
    page.get_by_role("button", name="Inside", exact=True).click()
    page.get_by_label("Text to look at").fill(text)
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector("[data-testid=window]")
    assert f"the {inside['n_before']} tokens before" in page.get_by_test_id("window").inner_text()
    last = inside["n_before"] + len(inside["ids"])
    page.wait_for_selector(f"h2:has-text('residual stream at token {last}')")
    cells = page.locator(".lens tbody tr").first.locator("td").all_inner_texts()
    assert [cell == "–" for cell in cells] == [not best for best in inside["lens"][-1]]
    check_accessibility(page)
