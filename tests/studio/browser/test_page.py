"""The page as a whole: keyboard, accessibility, widths, links, and views that one leaves and comes back to."""

import difflib
import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from bytemill.studio.library import Library
from bytemill.studio.server import listen
from tests.studio.conftest import id_of, running, until

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


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.smoke), 3840])
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


UNDER_WAY = re.compile("Opening…|Encoding…|Computing…|Comparing…|Loading|Looking")


def state_of(page: Any) -> tuple[str, list[str]]:
    """Wait until nothing is under way and the URL is written; return its fragment and what is in sight."""
    page.mouse.move(0, 0)
    before = None
    while True:
        now = (page.evaluate("location.hash"), seen(page))
        if now == before and not UNDER_WAY.search(now[1][0]):
            return now
        before = now
        page.wait_for_timeout(200)  # the URL is written after a pause of 150 ms


def wait_for_state(page: Any, state: tuple[str, list[str]]) -> None:
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
        again.evaluate("(fragment) => { location.hash = fragment; location.reload(); }", state_of(page)[0])
        again.wait_for_selector("main .panel:visible")
        if view == "generate":
            # Generated text is in no URL; its settings are.
            page.get_by_role("button", name="Clear…").click()
            page.get_by_role("button", name="Clear all").click()
        wait_for_state(again, state_of(page))


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
    states.append(state_of(page))
    n_before: int = page.evaluate("history.length")
    for step in steps:
        step()
        states.append(state_of(page))
    # What is typed, and sliders, rewrite the last entry.
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("Smoothing").fill("0.7")
    states[-1] = state_of(page)
    assert len({fragment for fragment, _ in states}) == len(states), [fragment for fragment, _ in states]
    assert page.evaluate("history.length") == n_before + len(steps)
    for move, expected in ((page.go_back, states[-2::-1]), (page.go_forward, states[1:])):
        for state in expected:
            move()
            wait_for_state(page, state)
    assert page.evaluate("history.length") == n_before + len(steps)


def test_back_restores_texts_that_are_in_no_url(open_page: Open, client: httpx.Client):
    page = open_page("#tokens")
    field = page.get_by_label("Text to tokenize")
    long_text = "The cat saw the dog. " * 200
    field.fill(long_text)
    state_of(page)
    page.get_by_label("Text", exact=True).select_option(id_of(client, "story.txt", "texts"))
    until(page, "location.hash.includes('source=')")
    story = field.input_value()
    field.fill("")
    state_of(page)
    for expected in (story, long_text):
        page.go_back()
        state_of(page)
        assert field.input_value() == expected
    page.go_forward()
    page.go_forward()
    state_of(page)
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
        fields = {entry.split(": ")[0]: entry.partition(": ")[2] for entry in state_of(page)[1][1:]}
        assert {name: fields[name] for name in shown} == shown, fragment
        assert page.locator(".error").locator("visible=true").count() == 0, fragment
        n_entries += 1
    # No correction is a step: Back would come to the wrong value again and again.
    assert page.evaluate("history.length") == n_entries
