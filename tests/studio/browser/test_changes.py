"""What the page says when files change, and of its server: restarted, busy, under another name."""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

import bytemill
from bytemill.studio import library
from bytemill.studio.library import Library
from bytemill.studio.security import Access
from bytemill.studio.server import Address, listen
from tests.studio.conftest import CHROMIUM, id_of, running, train_run, train_tokenizer, until

Open = Callable[..., Any]


@pytest.fixture
def address(own: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("bytemill.studio.library._SECONDS", 0.0)
    with running(Library(own), listen(port=0)) as url:
        yield url


@pytest.fixture
def own_client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}api/v1", timeout=60, trust_env=False) as own:
        yield own


def show(page: Any, view: str) -> None:
    page.get_by_role("navigation").get_by_role("button", name=view, exact=True).click()


def notice(page: Any, selector: str, state: str = "visible") -> None:
    """Wait for what the page shows once it has asked the server again, as it does when it becomes visible."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector(selector, state=state)


def shown(tokenizer: bytemill.Tokenizer, text: str) -> list[str]:
    """How the page shows the tokens of a text in ASCII."""
    return [
        token.decode().replace(" ", "·") for token in tokenizer.decode_tokens_bytes(tokenizer.encode(text))
    ]


def wait_for_chips(page: Any, expected: list[str]) -> None:
    until(
        page,
        "JSON.stringify([...document.querySelectorAll('.flow .tok')].map((chip) => chip.textContent))"
        f" === JSON.stringify({json.dumps(expected)})",
    )


def test_a_retrained_tokenizer_and_an_edited_text(
    open_page: Open, own: Path, address: str, own_client: httpx.Client
):
    tokenizer_id, text_id = id_of(own_client, "own"), id_of(own_client, "story.txt", "texts")
    tokenizer, text = bytemill.Tokenizer.load(own / "own.json"), "The cat saw the dog."
    page = open_page(
        f"#tokens?tokenizer={tokenizer_id}&source={text_id}&with={tokenizer_id},python-docs-8k",
        address=address,
    )
    for visit in range(2):
        wait_for_chips(page, shown(tokenizer, text))
        show(page, "Vocabulary")
        page.get_by_label("Text whose uses are counted").select_option(text_id)
        page.get_by_label("Search the vocabulary").fill(tokenizer.decode([290]))
        page.locator(".vrow[role=option]").first.click()
        show(page, "Compare")
        page.wait_for_selector(".segment")
        page.get_by_role("button", name="Compare", exact=True).last.click()
        page.wait_for_selector("text=trigram bits/byte")
        # Both change while the page shows what stems from them.
        tokenizer = train_tokenizer(own / "own.json") if visit == 0 else own_first(own)
        text = f"THE CAT SAW {visit} DOGS."
        (own / "story.txt").write_text(text)
        notice(page, "text=The text or the tokenizers have changed since.")
        until(page, "document.querySelector('.banner').textContent.includes('own')")
        until(page, "document.querySelector('.banner').textContent.includes('changed on disk, reloaded.')")
        field = "[...document.querySelectorAll('[aria-label=\"Text to tokenize\"]')]"
        until(page, f"{field}.every((each) => each.value === {json.dumps(text)})")
        until(
            page,
            f"document.querySelector('[data-testid=tokens-0]').textContent === '{len(tokenizer.encode(text))}'",
        )
        show(page, "Vocabulary")
        page.get_by_label("Search the vocabulary").fill(tokenizer.decode([290]))
        page.wait_for_selector(".vrow[role=option]:has-text('290')")
        show(page, "Tokens")
    wait_for_chips(page, shown(tokenizer, text))
    # What one has typed is not replaced by a file.
    page.get_by_role("textbox", name="Text to tokenize").fill("typed")
    (own / "story.txt").write_text("from the file")
    shutil.copy(own / "own.json", own / "new.json")
    notice(page, "option:has-text('new')", "attached")
    assert page.get_by_role("textbox", name="Text to tokenize").input_value() == "typed"


def own_first(own: Path) -> bytemill.Tokenizer:
    tokenizer = bytemill.Tokenizer.load(own / "run" / "tokenizer.json")
    tokenizer.save(own / "own.json")
    return tokenizer


def test_lists_follow_the_folder_and_what_is_gone_is_said(
    open_page: Open, own: Path, address: str, own_client: httpx.Client
):
    tokenizer_id, text_id = id_of(own_client, "own"), id_of(own_client, "story.txt", "texts")
    page = open_page(f"#tokens?tokenizer={tokenizer_id}&source={text_id}", address=address, is_quiet=False)
    page.wait_for_selector(".flow .tok")
    (own / "other.txt").write_text("another text")
    page.wait_for_selector("option:has-text('other.txt')", state="attached")  # without being asked
    kept = (own / "own.json").read_bytes()
    for name in ("own.json", "story.txt"):
        (own / name).unlink()
    notice(page, "option:has-text('own (gone)')", "attached")
    notice(page, "option:has-text('story.txt (gone)')", "attached")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.get_by_label("Text to tokenize").press_sequentially("x")
    page.wait_for_selector(".error:has-text('own is not there any more. Choose another tokenizer.')")
    assert len([each for each in requests if each.endswith("/texts")]) == 0
    show(page, "Runs")
    show(page, "Tokens")
    page.wait_for_selector(".error:has-text('own is not there any more. Choose another tokenizer.')")
    (own / "own.json").write_bytes(kept)  # it is back, and so are its tokens
    notice(page, "option:has-text('own (gone)')", "detached")
    wait_for_chips(page, shown(bytemill.Tokenizer.load(own / "own.json"), "The cat saw the dog.x"))
    page.wait_for_selector(".error", state="detached")
    shutil.copytree(own / "run", own / "second")
    show(page, "Generate")
    page.get_by_label("Model", exact=True).wait_for()
    notice(page, "option:has-text('second')", "attached")
    page.get_by_label("Model", exact=True).select_option(label="second")
    page.get_by_label("Checkpoint of Model").select_option("2")
    shutil.rmtree(own / "second" / "checkpoints" / "step_00000002")
    notice(page, "option:has-text('step 2 (gone)')", "attached")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.wait_for_selector(".error:has-text('second has no checkpoint of step 2. Choose another one')")
    shutil.rmtree(own / "second")
    notice(page, "option:has-text('second (gone)')", "attached")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.wait_for_selector(".error:has-text('not there any more. Choose another model.')")


def generated(client: httpx.Client, model: str) -> list[str]:
    """The bytes of the prompt and of six greedy tokens after it, in hexadecimal."""
    prompt = client.post(f"/models/{model}/prompt", json={"text": "The"}).json()
    body = {"ids": prompt["ids"], "max_tokens": 6, "sampling": {"temperature": 0}}
    lines = client.post(f"/models/{model}/generate", json=body).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return [*prompt["tokens"], *(each["bytes"] for each in events if "bytes" in each)]


def test_a_model_that_is_trained_anew(
    open_page: Open, own: Path, address: str, own_client: httpx.Client, root: Path
):
    model = id_of(own_client, "run", "models")
    text = "The cat saw the dog."
    # Generated text stays, but nothing of the later model comes into it.
    page = open_page(
        f"#generate?model={model}&prompt=The&text={quote(text)}", address=address, is_quiet=False
    )
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Number of tokens").fill("6")
    for seed in (2, 3):
        page.get_by_role("button", name="Generate", exact=True).last.click()
        tokens = generated(own_client, model)
        until(page, f"document.querySelectorAll('.gen').length === {len(tokens)}")
        page.wait_for_selector("button:has-text('Continue'):not([disabled])")
        page.locator(".gen").last.click()
        lab = page.get_by_role("region", name="Sampling lab")
        if seed == 2:
            lab.get_by_role("button", name="Open").click()
        page.wait_for_selector("text=bits of entropy")
        n_before = page.locator(".gen").count()
        train_run(root, own / "run", seed)
        notice(page, "text=run, step 6, changed on disk. This is from its earlier version.")
        page.wait_for_selector("button:has-text('Continue')[disabled]")
        assert page.locator(".alternative:not([disabled])").count() == 0
        page.wait_for_selector("text=run has changed on disk since these tokens were made")
        assert page.locator(".gen").count() == n_before
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.wait_for_selector(".outdated", state="detached")
    page.wait_for_selector("button:has-text('Continue'):not([disabled])")
    # What is computed without choices is computed again.
    page.get_by_role("button", name="Surprisal", exact=True).click()
    page.get_by_label("Text to score").fill(text)
    page.get_by_role("button", name="Compute the surprisal").click()
    for seed in (4, 0):
        bits = own_client.post(f"/models/{model}/surprisal", json={"text": text}).json()["bits_per_byte"]
        notice(page, f"[data-testid=bits-0]:has-text('{bits:.4f}')")
        if seed:
            train_run(root, own / "run", seed)
            notice(page, "text=run changed on disk, reloaded.")
    show(page, "Inside")
    page.get_by_label("Text to look at").fill(text)
    page.get_by_role("button", name="Look inside").click()
    for seed in (5, 0):
        norms = own_client.post(f"/models/{model}/inside", json={"text": text}).json()["norms"]
        notice(page, f"[aria-label='Residual stream'] td:has-text('{norms[2][-1]:.2f}')")
        if seed:
            train_run(root, own / "run", seed)
    notice(page, ".outdated:visible", "detached")
    # The newest checkpoint is damaged: the one before is used, said, and asked for once.
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    (own / "run" / "checkpoints" / "step_00000006" / "model.safetensors").write_bytes(b"")
    notice(page, "text=This is from run, step 4, and the run has a newer checkpoint.")
    until(page, "document.querySelectorAll('.lens').length === 1")
    page.wait_for_timeout(500)
    assert 1 <= len([each for each in requests if each.endswith("/inside")]) <= 2
    # A run that starts over has no checkpoint for a while.
    shutil.rmtree(own / "run" / "checkpoints")
    notice(page, "text=run, step 4, is not there any more. This was computed before.")
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector(".error:has-text('run has no weights at the moment')")
    assert page.locator(".lens").count() == 1


@pytest.mark.slow  # the view reads its lists every five seconds
def test_a_study_and_a_run_that_start_over(
    open_page: Open, own: Path, address: str, own_client: httpx.Client, root: Path
):
    shutil.copytree(root / "study", own / "study")
    study, run = id_of(own_client, "study", "studies"), id_of(own_client, "run", "runs")
    page = open_page(f"#runs?run={run}&runs.study={study}&runs.metric=loss", address=address)
    results = own / "study" / "results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    for n in (4, 3, 4):
        results.write_text("".join(lines[:n]))
        page.wait_for_selector(f"text={n} of 6 models")
    for seed in (2, 3):
        train_run(root, own / "run", seed)
        records = [json.loads(line) for line in (own / "run" / "metrics.jsonl").read_text().splitlines()]
        loss = [record["loss"] for record in records if record["kind"] == "step"][-1]
        page.wait_for_selector(f"td:has-text('{loss:.3f}')")


def address_on(port: int) -> Address:
    """Listen on the port that an earlier server had."""
    end = time.monotonic() + 20
    while True:
        try:
            return listen(port=port)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


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
        assert "token=" not in page.url
        assert page.evaluate("document.cookie") == ""
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


def test_the_page_reconnects_when_the_server_is_started_again(
    open_page: Open, root: Path, monkeypatch: pytest.MonkeyPatch
):
    from bytemill.lm.generation import decoding

    draw = decoding.draw

    def slow_draw(*arguments: Any) -> int:
        time.sleep(0.01)  # the text must not end before the server does, however busy the machine is
        return draw(*arguments)

    monkeypatch.setattr(decoding, "draw", slow_draw)
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
        page.keyboard.press("Escape")  # the text may have ended meanwhile
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
        page.close()  # before its server ends


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
