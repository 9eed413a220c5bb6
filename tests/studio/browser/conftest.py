"""A real browser: Debian's Chromium, driven by Playwright."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-web` runs: all tests here but those marked `smoke`.

    They are skipped without a browser, unless $BYTEMILL_BROWSER is "required".
    """
    skip = pytest.mark.skip(reason="platform: no Chromium (apt-get install chromium)")
    is_skipped = CHROMIUM is None and os.environ.get("BYTEMILL_BROWSER") != "required"
    for item in items:
        if "studio/browser" not in item.path.as_posix():
            continue
        if item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.browser)
        if is_skipped:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser. A loop of Playwright runs while it is open, so no other test of the process may use asyncio.run."""
    assert CHROMIUM is not None, "there is no Chromium: apt-get install chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--force-prefers-reduced-motion"]
        )
        yield own
        own.close()


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Open the studio at a fragment; errors of the page and requests elsewhere fail the test."""
    contexts: list[Any] = []
    problems: list[str] = []

    def opened(fragment: str = "", *, address: str = url, is_quiet: bool = True, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address.rstrip("/"))
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(f"error: {error.stack}"))
        page.on("request", lambda request: note(request.url))
        if is_quiet:
            page.on("console", lambda message: note_error(message.text) if message.type == "error" else None)

        def note_error(text: str) -> None:
            # The page asks for news every three seconds, also when a test has just ended its server.
            if "net::ERR_CONNECTION_REFUSED" not in text:
                problems.append(text)

        def note(target: str) -> None:
            if not target.startswith((address, "data:", "blob:")):
                problems.append(f"request to {target}")

        page.goto(address + fragment)
        page.wait_for_selector("main .panel, main .empty")
        until(page, "!document.querySelector('main').textContent.startsWith('Opening')")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems, problems


def until(page: Any, expression: str, seconds: float = 60) -> None:
    """Wait until an expression of JavaScript is true. Playwright's own function needs eval, which the page forbids."""
    end = time.monotonic() + seconds
    # What is not there yet is not an error.
    safe = f"(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()"
    while not page.evaluate(safe):
        assert time.monotonic() < end, f"still false after {seconds} seconds: {expression}"
        page.wait_for_timeout(25)
