"""What the page says of its server: restarted, busy, under another name, with files that it cannot read."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from bytemill.studio import library
from bytemill.studio.library import Library
from bytemill.studio.security import Access
from bytemill.studio.server import Address, listen, running
from tests.studio.browser.conftest import CHROMIUM, until
from tests.studio.browser.test_page import address_on
from tests.studio.conftest import id_of

Open = Callable[..., Any]


def for_others(own: Address, *allowed: str) -> Address:
    """Return the address of a studio that asks for a token."""
    access = Access.of("0.0.0.0", own.socket.getsockname()[1], allowed)  # noqa: S104 - nothing listens there
    return Address(own.socket, own.url, access)


def test_a_page_of_an_older_server_says_so_and_comes_back(open_page: Open, tmp_path: Path):
    first = for_others(listen(port=0))
    port = first.socket.getsockname()[1]
    with running(Library(tmp_path), first) as url:
        page = open_page(f"?token={first.access.token}", address=url, is_quiet=False)
        page.wait_for_selector(".flow .tok")
    requests: list[str] = []
    second = for_others(address_on(port))
    with running(Library(tmp_path), second):
        page.get_by_label("Text to tokenize").fill("before the restart")
        page.wait_for_selector("text=This studio was restarted: open the address it printed")
        page.on("request", lambda request: requests.append(request.url) if "/api/" in request.url else None)
        page.wait_for_timeout(1500)  # it would have tried again
        assert requests == []
        assert not Axe().run(page).response["violations"]
        other = page.context.new_page()
        other.goto(f"{url}?token={second.access.token}")
        other.wait_for_selector(".flow .tok")
        page.evaluate("window.dispatchEvent(new Event('focus'))")
        page.wait_for_selector("text=Connected again")
        until(page, "document.querySelector('.flow')?.textContent.includes('before')")


@contextmanager
def busy(client: httpx.Client, model: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold all workers, and let three jobs wait for them, until the event is set."""
    from bytemill.lm import inspection

    release, n_held = threading.Event(), threading.Semaphore(0)
    surprisal = inspection.surprisal

    def held(*arguments: Any, **options: Any) -> Any:
        n_held.release()
        assert release.wait(60)
        return surprisal(*arguments, **options)

    def ask(name: str) -> None:
        client.post(f"/models/{model}/surprisal", json={"text": "The"}, headers={"x-job": name})

    monkeypatch.setattr(inspection, "surprisal", held)
    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcdefg"]
    try:
        for i, thread in enumerate(threads):
            thread.start()
            if i < 4:
                assert n_held.acquire(timeout=60)
        while any(client.get(f"/jobs/{name}").json()["before"] is None for name in "efg"):
            pass
        yield release
    finally:
        release.set()
        for thread in threads:
            thread.join(60)


def test_work_that_waits_for_a_worker_says_how_many_are_before_it(
    open_page: Open, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    model = id_of(client, "runs/first", "models")
    page = open_page(f"#inside?model={model}&prompt=The&text=The%20cat")
    for view, button, result in (("inside", "Look inside", ".lens"), ("generate", "Generate", ".gen")):
        page.evaluate(f"location.hash = '#{view}?model={model}&prompt=The&text=The%20cat'")
        start = page.locator("main .primary:visible", has_text=button)
        start.wait_for()
        with busy(client, model, monkeypatch) as release:
            n_before = page.locator(result).count()  # a link to Inside computes it
            start.click()
            page.wait_for_selector("text=queued, 3 before you")
            assert page.locator(result).count() == n_before
            release.set()
            page.wait_for_selector(result)
        until(page, "!document.body.textContent.includes('before you')")


@pytest.mark.skipif(sys.platform != "linux", reason="platform: named pipes")
def test_files_that_cannot_be_read_are_listed_on_the_page(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(library, "_SECONDS", -1.0)  # the folder is searched for every request
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    os.mkfifo(tmp_path / "tokenizer.json")
    with running(Library(tmp_path), listen(port=0)) as address:
        page = open_page("", address=address, viewport={"width": 390, "height": 800})
        page.wait_for_selector(".flow .tok")
        page.get_by_text("2 files left out").click()
        assert page.get_by_text("loop.txt: it is a link that leads to itself").is_visible()
        assert page.get_by_text("tokenizer.json: it is not a regular file").is_visible()
        assert not Axe().run(page).response["violations"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        (tmp_path / "loop.txt").unlink()
        (tmp_path / "tokenizer.json").unlink()
        page.get_by_role("button", name="Runs", exact=True).click()
        page.wait_for_selector("text=files left out", state="detached")


def test_the_page_works_under_an_allowed_name_without_encryption(browser: Any, tmp_path: Path):
    address = for_others(listen(port=0), "studio.example")
    port = address.socket.getsockname()[1]
    own = browser.browser_type.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--host-resolver-rules=MAP studio.example 127.0.0.1"],
    )
    with running(Library(tmp_path), address):
        url = f"http://studio.example:{port}/"
        page = own.new_page()
        page.set_default_timeout(60_000)
        for link in (f"{url}?token={address.access.token}", url):
            page.goto("about:blank")
            page.set_content(f"<a href='{link}'>the studio</a>")
            page.get_by_text("the studio").click()  # as from a message of another site
            page.wait_for_selector(".flow .tok")
        assert page.url.partition("#")[0] == url
        assert page.evaluate("window.isSecureContext") is False
        page.get_by_label("Text to tokenize").fill("")
        page.get_by_role("button", name="Copy link").click()
        page.get_by_label("Text to tokenize").press("Control+v")
        assert page.get_by_label("Text to tokenize").input_value().startswith(f"{url}#tokens?")
    own.close()
