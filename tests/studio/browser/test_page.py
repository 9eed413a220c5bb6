"""The page as a whole: keyboard, accessibility, widths, a live run, and a server that is started again."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from bytemill.studio.library import Library
from bytemill.studio.security import Access
from bytemill.studio.server import Address, listen, running
from tests.studio.browser.conftest import until
from tests.studio.conftest import id_of

Open = Callable[..., Any]
VIEWS = ["tokens", "vocabulary", "compare", "generate", "inside", "runs"]


def fill(page: Any, view: str) -> None:
    """Bring a view to where it shows most."""
    if view == "tokens":
        page.locator(".flow .tok").nth(2).click()
    elif view == "vocabulary":
        page.locator(".vrow[role=option]").nth(5).click()
    elif view == "compare":
        page.wait_for_selector(".segment")
        page.get_by_role("button", name="Compare", exact=True).last.click()
        page.wait_for_selector("text=trigram bits/byte")
    elif view == "generate":
        page.wait_for_selector("textarea[aria-label=Prompt]")
        page.get_by_role("button", name="Generate", exact=True).last.click()
        page.wait_for_selector("text=Continue")
        page.locator(".gen").last.click()
        page.get_by_role("button", name="Open", exact=True).click()
        page.wait_for_selector("text=bits of entropy")
    elif view == "inside":
        page.get_by_role("button", name="Look inside").click()
        page.wait_for_selector(".lens")
    else:
        page.wait_for_selector(".uplot canvas")
        page.get_by_role("button", name="study", exact=True).click()
        page.wait_for_selector("text=4 of 6 models")


@pytest.mark.parametrize("view", VIEWS)
def test_no_violation_of_accessibility(open_page: Open, view: str, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    page = open_page(f"#{view}?model={model}&prompt=The%20cat&text={quote('The cat saw 犬 here.')}")
    fill(page, view)
    page.mouse.move(0, 0)
    everything = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    for scheme, rules in (("light", everything), ("dark", ["color-contrast"])):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"runOnly": rules})
        assert not found.response["violations"], f"{scheme}: {found.generate_report()}"


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_every_view_fits_the_width(open_page: Open, width: int, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    long_word = "x" * 400
    page = open_page(
        f"#tokens?model={model}&prompt=The%20cat&text={quote('The cat ' + long_word)}",
        viewport={"width": width, "height": 800},
    )
    for view in VIEWS:
        page.evaluate(f"location.hash = location.hash.replace(/^#[a-z]+/, '#{view}')")
        page.wait_for_selector("main .panel:visible, main .empty:visible")
        fill(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_everything_by_keyboard_alone(open_page: Open):
    page = open_page("#tokens")
    keyboard = page.keyboard
    page.wait_for_selector(".flow .tok")
    keyboard.press("/")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    keyboard.press("Control+a")
    keyboard.type("1 cat, 2 cat?")
    until(page, "document.querySelector('.flow').textContent.includes('?')")
    for _ in range(20):
        keyboard.press("Tab")
        if page.evaluate("document.activeElement.className.includes('flow')"):
            break
    keyboard.press("Home")
    keyboard.press("ArrowRight")
    assert page.locator(".tok.selected").get_attribute("id") == "token-1"
    keyboard.press("n")
    keyboard.press("v")
    page.wait_for_selector(".vrow.selected")
    keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert "Alternatives" not in page.locator("dialog").inner_text()
    keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    for number, view in enumerate(VIEWS, 1):
        keyboard.press(str(number))
        until(page, f"location.hash.startsWith('#{view}')")


def test_a_view_left_before_its_next_frame_draws_nothing(open_page: Open):
    page = open_page("#tokens")
    page.wait_for_selector(".flow .tok")
    page.evaluate(
        "() => { window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 200);"
        " window.cancelAnimationFrame = clearTimeout; }"
    )
    for view in ("vocabulary", "tokens", "vocabulary", "runs"):
        page.evaluate("document.querySelector('.flow, .rows')?.dispatchEvent(new Event('scroll'))")
        page.evaluate("(view) => (location.hash = view)", view)
        page.wait_for_selector(
            {"vocabulary": ".vrow", "tokens": ".flow"}.get(view, "main .panel:visible, main .empty:visible")
        )
    page.wait_for_timeout(500)  # an error in a late frame fails the fixture


def test_a_url_that_changes_while_the_page_writes_its_own_is_followed(open_page: Open):
    page = open_page("#tokens")
    page.wait_for_selector(".flow .tok")
    page.evaluate(
        "() => { const later = window.setTimeout; window.setTimeout = (call, ms) =>"
        " ms === 150 ? ((window.writeUrl = call), 0) : later(call, ms); }"
    )
    page.keyboard.press("6")
    page.wait_for_function("() => window.writeUrl")
    page.evaluate("() => { location.hash = 'vocabulary'; window.writeUrl(); }")
    page.wait_for_selector("[aria-label='Tokens of the vocabulary'] .vrow")


def test_the_tour_has_six_steps(open_page: Open):
    page = open_page("#runs")
    page.get_by_role("button", name="Tour").click()
    for step in range(1, 7):
        page.wait_for_selector(f"text=Step {step} of 6")
        until(page, f"location.hash.startsWith('#{VIEWS[step - 1]}')")
        page.get_by_role("button", name="Next" if step < 6 else "Done").click()
    page.wait_for_selector(".tour", state="detached")


def test_the_first_visit_without_runs_says_what_to_do(open_page: Open, tmp_path: Path):
    with running(Library(tmp_path), listen(port=0)) as address:
        page = open_page("", address=address)
        page.wait_for_selector(".flow .tok")
        assert (
            page.get_by_label("Tokenizer", exact=True).locator("option").first.inner_text()
            == "python-docs-8k"
        )
        for view in ("Generate", "Inside", "Runs"):
            page.get_by_role("button", name=view, exact=True).click()
            page.wait_for_selector("text=bytemill quickstart >> visible=true")
        page.get_by_role("button", name="Compare", exact=True).first.click()
        page.wait_for_selector("main .panel:visible")


def test_a_run_is_watched_while_it_trains(open_page: Open, tmp_path: Path):
    run = tmp_path / "live"
    run.mkdir()
    (run / "config.toml").write_text("[model]\nd_model = 8\n")
    path = run / "metrics.jsonl"

    def line(step: int) -> str:
        values = {
            "loss": 5 - step / 50,
            "bits_per_byte": 2.0,
            "n_tokens": 10 * step,
            "tokens_per_second": 100.0,
        }
        return json.dumps({"kind": "step", "step": step, "flops_per_second": 1.0, **values}) + "\n"

    path.write_text("".join(line(step) for step in range(1, 4)))
    with running(Library(tmp_path), listen(port=0)) as address:
        page = open_page("#runs?runs.metric=loss", address=address)
        page.wait_for_selector("text=live")
        until(page, "document.querySelector('[data-testid=step]').textContent === '3'")
        with path.open("a") as file:
            for step in range(4, 31):
                file.write(line(step)[: 20 if step == 30 else None])
                file.flush()
        until(page, "document.querySelector('[data-testid=step]').textContent === '29'")
        # A resumed run starts from an earlier step, in a new file.
        other = run / "new"
        other.write_text("".join(line(step) for step in range(1, 13)))
        other.replace(path)
        until(page, "document.querySelector('[data-testid=step]').textContent === '12'")


def test_a_real_run_appears_while_it_trains(open_page: Open, root: Path, tmp_path: Path):
    from bytemill.lm.training.config import resolve
    from bytemill.lm.training.trainer import train
    from tests.lm.conftest import TINY

    values = {
        **TINY,
        "data.tokenizer": str(root / "tokenizer.json"),
        "data.train": str(root / "shards" / "train"),
        "training.steps": 60,
        "run.log_every": 1,
        "run.folder": str(tmp_path / "live"),
    }
    with running(Library(tmp_path), listen(port=0)) as address:
        page = open_page("#runs", address=address)
        page.wait_for_selector("text=There is no run")
        steps: list[int] = []
        pause = threading.Event()

        def record(own: dict[str, Any]) -> None:
            steps.append(own["step"])
            if own["step"] == 20:
                pause.wait(30)

        thread = threading.Thread(
            target=train, args=(resolve([("the test", values)], n_vocab=300),), kwargs={"on_record": record}
        )
        thread.start()
        until(page, "document.querySelector('[data-testid=step]')?.textContent === '20'", seconds=40)
        pause.set()
        until(page, "document.querySelector('[data-testid=step]')?.textContent === '60'")
        thread.join(30)
        assert steps[-1] == 60


def address_on(port: int) -> Address:
    """Listen on the port that an earlier server had."""
    end = time.monotonic() + 20
    while True:
        try:
            return listen(port=port)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_the_page_reconnects_when_the_server_is_started_again(open_page: Open, root: Path):
    address = listen(port=0)
    port = address.socket.getsockname()[1]
    with running(Library(root), address) as url:
        page = open_page("#generate?prompt=The", address=url, is_quiet=False)
        page.get_by_label("Temperature").fill("0")  # a loop of words, which no special token ends
        page.get_by_label("Number of tokens").fill("2048")
        page.get_by_role("button", name="Generate", exact=True).last.click()
        until(page, "document.querySelectorAll('.gen').length > 3")
    n_before = page.locator(".gen").count()
    page.wait_for_selector("text=The server does not answer")
    page.wait_for_selector("text=The text so far is kept")
    assert page.locator(".gen").count() >= n_before
    with running(Library(root), address_on(port)):
        page.wait_for_selector("text=Connected again. The server was started anew")
        page.get_by_role("button", name="Continue").click()
        until(page, f"document.querySelectorAll('.gen').length > {n_before}")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Tokens", exact=True).click()
        page.get_by_label("Text to tokenize").fill("after the restart")
        until(page, "document.querySelector('.flow')?.textContent.includes('after')")


def test_a_forgotten_text_is_sent_again(open_page: Open, client: httpx.Client):
    page = open_page("#tokens", is_quiet=False)
    page.wait_for_selector(".flow .tok")
    for i in range(70):
        client.post("/texts", json={"text": str(i)})
    page.get_by_label("Text to tokenize").fill("still here")
    until(page, "document.querySelector('.flow')?.textContent.replaceAll('·', ' ').includes('here')")


def test_with_a_token_the_page_opens_once_it_is_shown(open_page: Open, root: Path):
    own = listen("127.0.0.1", 0)
    access = Access(own.access.hosts, "a" * 32)
    with running(Library(root), Address(own.socket, own.url, access)) as url:
        page = open_page(f"?token={'a' * 32}", address=url)
        page.wait_for_selector(".flow .tok")
        assert "token=aaaa" not in page.url
        assert page.evaluate("document.cookie") == ""


def test_reduced_motion_is_respected(open_page: Open):
    page = open_page("#tokens", reduced_motion="reduce")
    duration = page.evaluate("getComputedStyle(document.querySelector('button')).transitionDuration")
    assert duration in ("0s", "")


def test_no_port_is_open_to_others(url: str):
    port = int(url.rstrip("/").rpartition(":")[2])
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1"}:
        if str(address).startswith("127."):
            continue
        with socket.socket() as own:
            own.settimeout(2)
            assert own.connect_ex((str(address), port)) != 0
