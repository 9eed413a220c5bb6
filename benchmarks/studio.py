"""The studio in headless Chromium: the case `studio`."""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
from playwright.sync_api import sync_playwright
from tests.studio.conftest import CHROMIUM, until

from benchmarks import harness
from benchmarks.harness import option

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

FRAMES = """async ([selector, step, n]) => {
    const box = document.querySelector(selector);
    const times = [];
    let last = await new Promise(requestAnimationFrame);
    for (let i = 0; i < n; i++) {
        box.scrollTop += step;
        const now = await new Promise(requestAnimationFrame);
        times.push(now - last);
        last = now;
    }
    return times;
}"""
TYPING = """async (text) => {
    const field = document.querySelector("textarea");
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
    const times = [];
    for (const character of text) {
        const flow = document.querySelector(".inner");
        const start = performance.now();
        const seen = new Promise((resolve) => {
            const observer = new MutationObserver(() => { observer.disconnect(); requestAnimationFrame(resolve); });
            observer.observe(flow, { childList: true, subtree: true });
        });
        document.execCommand("insertText", false, character);
        await seen;
        times.push(performance.now() - start);
        await new Promise((resolve) => setTimeout(resolve, 60));
    }
    return times;
}"""

DRAWING = """async (axis) => {
    const select = document.querySelector("[aria-label=Axis]");
    const start = performance.now();
    select.value = axis;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    return performance.now() - start;
}"""


@harness.case(
    option("tokenizers", nargs="*", help="tokenizers to offer first"),
    option("--soak", type=float, metavar="SECONDS", help="only the soak"),
)
def studio(options: argparse.Namespace) -> None:
    """Measure speed and memory of the studio in headless Chromium, each beside its bound; and a soak.

        python -m benchmarks studio [TOKENIZER ...]
        python -m benchmarks studio --soak 600

    The server is a process of its own, with a folder that holds a text of 5 MB and a run of 100,000 records. Frames are
    measured by requestAnimationFrame while the page scrolls. The soak lets 8 clients edit texts, read vocabularies and
    metrics and compare tokenizers, and watches the memory of the server.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_folder(folder)
        with server(folder, options.tokenizers) as (url, process):
            if options.soak:
                soak(url, process, options.soak)
            else:
                measure(url, process, folder)


def make_folder(folder: Path) -> None:
    """Write a text of 5 MB, a run of 100,000 records, and small texts."""
    chance = random.Random(1)  # noqa: S311
    words = "the cat saw a naïve bird in 1984 def return 犬 привет, and so on; unbelievable".split()  # noqa: SIM905
    lines = (" ".join(chance.choices(words, k=12)) for _ in range(1 << 20))
    parts: list[str] = []
    n_bytes = 0
    for line in lines:
        n_bytes += len(line.encode()) + 1
        if n_bytes > 4_990_000:
            break
        parts.append(line)
    (folder / "large.txt").write_text("\n".join(parts), encoding="utf-8")
    run = folder / "run"
    run.mkdir()
    (run / "config.toml").write_text("[model]\nd_model = 8\n")
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, 100_001):
            loss = 3 + 5 / step**0.3 + chance.gauss(0, 0.05)
            record = {
                "kind": "step", "step": step, "loss": loss, "bits_per_byte": loss / 2.7, "grad_norm": 1.0,
                "learning_rate": 1e-3, "n_tokens": 512 * step, "epoch": 0, "tokens_per_second": 1e4,
                "flops_per_second": 1e9, "flop_utilization": 0.3, "data_wait": 0.0, "memory_bytes": 10**8,
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")


@contextmanager
def server(folder: Path, tokenizers: list[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Run `bytemill studio`."""
    command = [sys.executable, "-m", "bytemill", "studio", *tokenizers]
    command += ["--root", str(folder), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    try:
        yield found[0], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def row(what: str, found: float, bound: float, unit: str, digits: int = 0) -> None:
    verdict = "ok" if found <= bound else "MISSED"
    print(f"{what:58} {found:9.{digits}f} {unit:3} {bound:9.{digits}f} {unit:3}  {verdict}")


def measure(url: str, process: psutil.Process, folder: Path) -> None:
    """Print a table of what was measured and its bounds."""
    print(f"{'':58} {'measured':>13} {'bound':>13}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def opened(fragment: str) -> Any:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(url + fragment)
            return page

        times: list[float] = []
        for _ in range(5):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            started = time.perf_counter()
            page.goto(url)
            page.wait_for_selector(".flow .tok")
            times.append(time.perf_counter() - started)
            page.close()
        row("first view interactive, median of 5", statistics.median(times), 1, "s", 2)

        page = opened("#tokens")
        page.wait_for_selector(".flow .tok")
        text = ("The cat saw the naïve bird, 犬 and 1984 others.\n" * 2100)[:98_000]
        page.locator("textarea").fill(text)
        page.wait_for_timeout(1000)
        page.get_by_role("listbox", name="Tokens of the text").press("End")
        page.wait_for_timeout(300)
        own = sorted(page.evaluate(TYPING, "The quick brown fox jumps over the lazy dog, naïvely. " * 3))
        row("typing at the end of 100 KB to tokens, median", statistics.median(own), 50, "ms")
        row("  95 %", own[int(0.95 * len(own))], 100, "ms")
        page.close()

        page = opened("#tokens")
        page.wait_for_selector(".flow .tok")
        before = page.get_by_test_id("n-tokens").inner_text()
        started = time.perf_counter()
        page.get_by_label("File to open").set_input_files(folder / "large.txt")
        until(page, f"document.querySelector('[data-testid=n-tokens]').innerText !== {json.dumps(before)}"
                    " && document.querySelectorAll('.flow .tok').length > 50")  # fmt: skip
        row("opening a text of 5 MB", time.perf_counter() - started, 1.5, "s", 2)
        page.wait_for_timeout(1500)
        frames = page.evaluate(FRAMES, [".flow", 120, 240])
        row("longest frame while its tokens scroll", max(frames), 33.4, "ms", 1)
        page.close()

        for fragment in ("#vocabulary", "#vocabulary?tokenizer=o200k_base"):
            page = opened(fragment)
            page.wait_for_selector(".vrow[role=option]")
            page.wait_for_timeout(800)
            n = page.get_by_test_id("n-found").inner_text().split()[0]
            frames = page.evaluate(FRAMES, [".rows", 180, 240])
            row(f"longest frame while {n} tokens of a vocabulary scroll", max(frames), 33.4, "ms", 1)
            page.close()

        page = opened("#runs?runs.metric=loss")
        page.wait_for_selector(".uplot canvas")
        page.wait_for_timeout(1500)
        drawn = [page.evaluate(DRAWING, axis) for axis in ("tokens", "bytes", "flops", "seconds", "step")]
        row("drawing a run of 100,000 records, median of 5 axes", statistics.median(drawn), 300, "ms")
        page.close()
        browser.close()
    row("memory of the server, no model loaded", process.memory_info().rss / 1e6, 250, "MB")


def soak(url: str, process: psutil.Process, seconds: float) -> None:
    """Let 8 clients work, and print what the server's memory did."""
    end = time.monotonic() + seconds
    lost: list[str] = []
    n_done = [0] * 8

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311
        with httpx.Client(base_url=f"{url}api/v1", timeout=120, trust_env=False) as client:
            tokenizer = "python-docs-8k"
            view = {"tokenizer": tokenizer, "special": True, "vocab_size": None}
            run = client.get("/runs").json()["runs"][0]["id"]
            opened = client.post("/texts", json={"text": "The cat. " * 2000}).json()
            version = 0
            while time.monotonic() < end:
                kind = chance.random()
                if kind < 0.9:
                    edit = {
                        "start": chance.randrange(10_000),
                        "end": 10_000,
                        "text": "naïve " * chance.randrange(1600),
                    }
                    body = {"version": version, "edits": [edit], "views": [view]}
                    answer = client.patch(f"/texts/{opened['id']}", json=body)
                    if answer.status_code in (404, 422):  # made room for others; or the text became shorter
                        opened, version = client.post("/texts", json={"text": "The cat. " * 2000}).json(), -1
                        answer = client.get("/status")
                    version += 1
                elif kind < 0.94:
                    answer = client.get(f"/tokenizers/{tokenizer}/vocabulary")
                elif kind < 0.97:
                    answer = client.get(f"/runs/{run}/metrics")
                else:
                    body = {"text": opened["id"], "tokenizers": [tokenizer, tokenizer]}
                    answer = client.post("/comparison", json=body)
                    if answer.status_code == 422:
                        answer = client.get(
                            "/status"
                        )  # one tokenizer twice is refused, after the text was read
                if answer.status_code != 200:
                    lost.append(f"{answer.status_code}: {answer.text[:200]}")
                n_done[number] += 1
                time.sleep(0.02)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    memory: list[float] = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(5.0, seconds / 20))
        memory.append(process.memory_info().rss / 1e6)
    for thread in threads:
        thread.join()
    # After the first fifth, in which tokenizers are opened and pools of memory fill.
    settled = memory[len(memory) // 5 :]
    third = max(1, len(settled) // 3)
    first, last = statistics.median(settled[:third]), statistics.median(settled[-third:])
    print(f"{sum(n_done):,} requests of 8 clients in {seconds:.0f} s; lost: {len(lost)}")
    for message in lost[:5]:
        print(f"  {message}")
    growth = f"×{last / first:.3f}; bound ×1.1"
    print(f"memory: {first:.0f} MB early, {last:.0f} MB late ({growth}), at most {max(memory):.0f} MB")
