"""Take the pictures of the documentation: every view, light and dark.

    python -m tests.studio.browser.screenshots FOLDER

The models are those of a quickstart and of two runs on a play, which take about two minutes to train.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from bytemill.studio.library import Library
from bytemill.studio.server import listen
from tests.conftest import DATA
from tests.studio.conftest import CHROMIUM, running, until

SIZE: Any = {"width": 1280, "height": 860}
TEXT = (
    "Tokens are what a language model reads.\n\nIt's 2026: naïve café, 日本語, مرحبا, 👩‍💻 and 3.14159.\n\n"
    'def main(argv):\n    """Indented code."""\n    return [x ** 2 for x in range(10)]\n'
)


def bytemill(*arguments: str, folder: Path) -> None:
    """Run a command."""
    subprocess.run(
        [sys.executable, "-m", "bytemill", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )


def prepare(folder: Path) -> None:
    """Make what the studio shows."""
    play = folder / "play.txt"
    play.write_bytes((DATA / "tinyshakespeare.txt").read_bytes())
    bytemill("quickstart", "quickstart", "--no-open", "-q", folder=folder)
    bytemill("tokenizer", "train", "play.txt", "-n", "2048", "-o", "plays.json", "-q", folder=folder)
    bytemill("data", "encode", "plays.json", "play.txt", "-o", "shards", "-q", folder=folder)
    data = "--data.tokenizer plays.json --data.train shards --data.validation shards -q"
    shape = "--model.context-length 128 --model.d-model 96 --model.num-layers 3 --model.num-heads 4 --model.d-ff 256"
    run = "--run.validate-every 20 --run.checkpoint-every 40 --run.keep-checkpoints 4 --run.sample-every 40"
    steps = "--training.batch-size 16 --training.steps 160"
    for rate in ("0.001", "0.004"):
        own = ["--optimizer.learning-rate", rate, "--run.folder", f"runs/rate-{rate}"]
        prompt = ["--run.sample-prompt", "First Citizen:"]
        bytemill("lm", "train", *f"{data} {shape} {run} {steps}".split(), *own, *prompt, folder=folder)


def tokens(page: Any) -> None:
    """Choose a word, so that its merges are shown."""
    page.locator(".flow .tok").filter(has_text="language").click()


def replay(page: Any) -> None:
    """Replay half of the merges."""
    page.get_by_role("button", name="Replay the merges").click()
    slider = page.get_by_label("Merges replayed")
    slider.fill(str(int(slider.get_attribute("max")) // 2))
    page.locator(".flow .tok").filter(has_text="ode").first.click()  # of "model", which is not whole yet


def vocabulary(page: Any) -> None:
    """Search, and choose a token."""
    page.get_by_label("Search the vocabulary").fill("tion")
    page.locator(".vrow[role=option]").nth(4).click()


def compare(page: Any) -> None:
    """Compute all figures."""
    page.wait_for_selector(".segment")
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=trigram bits/byte")


def generate(page: Any) -> None:
    """Generate, and branch once."""
    page.wait_for_selector("textarea[aria-label=Prompt]")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.wait_for_selector("text=Continue")
    page.locator(".gen").nth(12).click()
    page.locator(".alternative:not([disabled])").first.click()
    until(page, "document.querySelectorAll('.leaf').length === 2")
    page.wait_for_selector("text=Continue")


def surprisal(page: Any) -> None:
    """Score the text with two models."""
    page.get_by_label("Second model", exact=True).select_option(index=2)
    page.get_by_role("button", name="Compute the surprisal").click()
    page.wait_for_selector("[data-testid=bits-1]")
    page.locator(".segment").nth(4).click()


def inside(page: Any) -> None:
    """Trace the prompt."""
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector(".lens")
    page.locator("[data-head='2-1']").click()


def runs(page: Any) -> None:
    """Show all runs on one axis."""
    page.wait_for_selector(".uplot canvas")
    page.get_by_label("Axis").select_option("bytes")
    page.wait_for_timeout(1500)


PICTURES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "tokens": ("#tokens?", tokens),
    "replay": ("#tokens?", replay),
    "vocabulary": ("#vocabulary?", vocabulary),
    "compare": ("#compare?", compare),
    "generate": (f"#generate?prompt={quote('The function returns')}&", generate),
    "surprisal": ("#generate?generate.mode=surprisal&", surprisal),
    "inside": (f"#inside?prompt={quote('The function returns a list of the names.')}&", inside),
    "runs": ("#runs?", runs),
}


def main(target: Path) -> None:
    """Take all pictures."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary) / "studies"
        folder.mkdir()
        prepare(folder)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with running(Library(folder), listen(port=0)) as url:
            for scheme in ("light", "dark"):
                for name, (fragment, show) in PICTURES.items():
                    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
                    page = context.new_page()
                    page.goto(f"{url}{fragment}text={quote(TEXT)}")
                    page.wait_for_selector("main .panel")
                    page.wait_for_timeout(700)
                    show(page)
                    page.mouse.move(0, 0)
                    page.wait_for_timeout(500)
                    page.screenshot(path=target / f"studio-{name}-{scheme}.png")
                    context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
