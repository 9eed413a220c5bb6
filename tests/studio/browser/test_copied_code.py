"""What a view copies runs, and gives the numbers that the view shows."""

import contextlib
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import bytemill
from tests.studio.conftest import HOSTILE, id_of, until
from tests.studio.test_models import events

Open = Callable[..., Any]
TEXT = f"It's 5 o'clock: \"naïve\" 犬 $HOME `x` \\n\n{HOSTILE} The cat saw the dog.\n"


@pytest.fixture
def run(
    root: Path, commands_folder: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Copy what a page offers, run it in the folder of the studio, and return what it prints."""
    monkeypatch.chdir(root)
    files = sorted(root.rglob("*"))

    def copied(page: Any, button: str) -> str:
        page.wait_for_selector(f"button:has-text('{button}'):not([disabled])")
        page.get_by_role("button", name=button).click()
        page.wait_for_selector("[role=status]:has-text('Copied')")
        code = page.evaluate("navigator.clipboard.readText()")
        is_python = button == "Copy as Python"
        printed = run_python(code) if is_python else run_command(code, commands_folder, tmp_path / "code.sh")
        assert sorted(root.rglob("*")) == files, "copied code leaves no files behind"
        return printed

    return copied


def run_python(source: str) -> str:
    """Run it in this process, which has imported torch; return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(source, {})  # noqa: S102 - what is tested
    return printed.getvalue()


def run_command(lines: str, folder: Path | None, script: Path) -> str:
    """Run it in a shell, which finds `bytemill` in a folder; return what it prints."""
    python = shlex.join([sys.executable, "-m", "bytemill"] if folder is None else [str(folder / "bytemill")])
    script.write_text(f'bytemill() {{ {python} "$@"; }}\n{lines}\n', encoding="utf-8")
    command = ["bash", "-euo", "pipefail", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, f"{lines[:2000]}\n{result.stderr}"
    return result.stdout


def is_offered(page: Any, button: str) -> bool:
    return not page.get_by_role("button", name=button).is_disabled()


def figures(page: Any) -> dict[str, float]:
    """The figures of the view, by name."""
    names = page.locator("dl.figures dt").all_inner_texts()
    values = page.locator("dl.figures dd").all_inner_texts()
    return {name: float(value.replace(",", "")) for name, value in zip(names, values, strict=True)}


def check_tokens(page: Any, run: Callable[..., str]) -> None:
    shown = figures(page)
    n_tokens, n_bytes, ratio, n_distinct, n_vocabulary = map(
        float, run(page, "Copy as Python").split("\n")[0].split()
    )
    assert [n_tokens, n_bytes, round(ratio, 3), n_distinct, n_vocabulary] == list(shown.values())
    *_, totals = run(page, "Copy as command").strip().split("\n")
    assert totals.startswith(f"{n_tokens:,.0f} tokens, {n_bytes:,.0f} bytes, ")
    assert totals.endswith(f" {ratio:.2f} bytes/token")


def test_tokens(open_page: Open, client: httpx.Client, root: Path, run: Callable[..., str]):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    page = open_page(f"#tokens?tokenizer={id_of(client, 'tokenizer')}&text={quote(TEXT)}")
    box, slider = page.get_by_label("Text to tokenize"), page.get_by_label("Vocabulary size")

    def until_shown(n: int) -> None:
        until(page, f"document.querySelector('[data-testid=n-tokens]').textContent === '{n:,}'")

    until_shown(len(tokenizer.encode(TEXT)))
    check_tokens(page, run)
    slider.fill("270")
    page.get_by_label("Special tokens").uncheck()
    until_shown(len(tokenizer.truncate(270).encode(TEXT, allowed_special="none")))
    check_tokens(page, run)
    page.get_by_role("button", name="Replay the merges").click()
    until_shown(len(TEXT.encode()))
    page.get_by_label("Merges replayed").fill("5")
    until(
        page, "document.querySelector('[data-testid=n-tokens]').textContent !== " + f"'{len(TEXT.encode())}'"
    )
    assert float(run(page, "Copy as Python")) == figures(page)["tokens"]
    assert not is_offered(page, "Copy as command")
    page.get_by_role("button", name="End the replay").click()
    box.fill("-")
    until_shown(1)
    assert "1 token, 1 byte, " in run(page, "Copy as command")
    box.fill("")
    until(page, "document.querySelector('.tools button').disabled")


@pytest.mark.slow
def test_a_text_that_no_argument_of_a_process_can_hold(
    open_page: Open, client: httpx.Client, tmp_path: Path, run: Callable[..., str]
):
    text = f"{TEXT}\0\\0" * 3200
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    page = open_page(f"#tokens?tokenizer={id_of(client, 'tokenizer')}")
    page.get_by_label("File to open").set_input_files(tmp_path / "long.txt")
    page.wait_for_selector("text=too long to edit here")
    until(page, f"document.querySelector('dl.figures').textContent.includes('{len(text.encode()):,}')")
    check_tokens(page, run)


def test_vocabulary(open_page: Open, client: httpx.Client, run: Callable[..., str]):
    page = open_page(f"#vocabulary?tokenizer={id_of(client, 'tokenizer')}&text={quote(TEXT)}")

    def n_found() -> int:
        return int(page.get_by_test_id("n-found").inner_text().split()[0])

    assert int(run(page, "Copy as Python")) == n_found()
    assert f"{n_found()} tokens" in run(page, "Copy as command")
    search = page.get_by_label("Search the vocabulary")
    for mode, query in (("text", "at"), ("hex", "e7 8a")):
        page.get_by_label("How to search").select_option(mode)
        before = n_found()
        search.fill(query)
        until(
            page,
            f"!document.querySelector('[data-testid=n-found]').textContent.trim().startsWith('{before} ')",
        )
        assert int(run(page, "Copy as Python").split()[0]) == n_found()
        assert not is_offered(page, "Copy as command")
    page.get_by_label("How to search").select_option("regex")
    until(page, "document.querySelector('.tools button').disabled")
    page.get_by_label("How to search").select_option("text")
    search.fill("cat")
    page.locator(".vrow[role=option]").first.click()
    card = page.get_by_role("region", name="Token", exact=True)
    rows = dict(zip(card.locator("th").all_inner_texts(), card.locator("td").all_inner_texts(), strict=True))
    info, uses = run(page, "Copy as Python").strip().split("\n")
    assert f"id={rows['id']}," in info
    assert f"count={rows['pair in training'].split()[0]}" in info
    assert rows["in this text"] == f"{uses} time" + ("" if uses == "1" else "s")
    command = run(page, "Copy as command")
    assert f"bytes  {rows['bytes'].split(' (')[0]} (" in command
    assert f"{rows['pair in training']} in the training corpus" in command


def test_compare(open_page: Open, client: httpx.Client, run: Callable[..., str]):
    ids = [id_of(client, name) for name in ("tokenizer", "smaller")]
    text = "".join(f"The cat saw {i} dogs.\r\n\n{HOSTILE} naïve\n" for i in range(40))
    page = open_page(f"#compare?with={','.join(ids)}&special=no&text={quote(text)}")
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=trigram bits/byte")
    live, found = run(page, "Copy as Python").split("{", 1)
    shown = [page.get_by_test_id(f"tokens-{i}").inner_text().replace(",", "") for i in range(2)]
    assert [line.split()[-1] for line in live.strip().split("\n")] == shown
    values = json.loads("{" + found)
    table = run(page, "Copy as command")
    rows = page.locator("[aria-label=Figures] tbody tr").all()
    assert len(rows) == len(values["values"]["text"])
    for row, figure in zip(rows, values["values"]["text"].values(), strict=True):
        title, *cells = (cell.split("\n")[0] for cell in row.locator("td").all_inner_texts()[:3])
        title = title.rstrip(" ↑↓")
        numbers = [cell.removesuffix(" best").strip() for cell in cells]
        (line,) = (line for line in table.split("\n") if line.strip().startswith(f"{title}  "))
        assert line.strip().removeprefix(title).replace("* ", "").split() == " ".join(numbers).split()
        for number, value in zip(numbers, figure.values(), strict=True):
            assert (number == "–") == (value["value"] is None)
            if number != "–":
                digits = number.removesuffix("%").strip().replace(",", "")
                scale = 100 if "%" in number else 1
                half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
                assert float(digits) == pytest.approx(value["value"] * scale, abs=1.01 * half)
    cells = page.locator("[aria-label=Languages] tbody tr").nth(4).locator("td").all_inner_texts()[1:]
    premiums = [list(own.values())[4] for own in values["parallel"]["premiums"].values()]
    assert cells == [f"{value:.2f}" for value in premiums]


def test_generate(open_page: Open, client: httpx.Client, root: Path, run: Callable[..., str]):
    model = id_of(client, "runs/first", "models")
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    prompt = 'It\'s "a" naïve 犬'
    page = open_page(f"#generate?model={model}&checkpoint=4&prompt={quote(prompt)}")
    for label, value in (("Number of tokens", 25), ("Seed", 7), ("Top-k", 40), ("Top-p", 0.9), ("Min-p", 0.02),
                         ("Temperature", 1.3), ("Repetition penalty", 1.5)):  # fmt: skip
        page.get_by_label(label, exact=True).fill(str(value))

    def tokens_of(request: Any) -> list[dict[str, Any]]:
        """The tokens that the page has received."""
        page.wait_for_selector("text=Continue")
        answer = events(client, f"/models/{model}", json.loads(request.post_data))
        return [data for name, data in answer if name == "token"]

    with page.expect_request("**/generate") as request:
        page.get_by_role("button", name="Generate", exact=True).last.click()
    tokens = tokens_of(request.value)
    ordinary = [token["id"] for token in tokens if not token["special"]]
    text = prompt + tokenizer.decode(ordinary)
    assert page.locator(".gen:not(.prompt)").count() >= len(tokens)
    assert run(page, "Copy as Python") == text
    assert run(page, "Copy as command").removesuffix("\n") == text.removesuffix("\n")
    # A branch: its tail was generated after the tokens before it.
    page.locator(".gen").nth(len(tokenizer.encode(prompt)) + 3).click()
    with page.expect_request("**/generate") as request:
        page.locator("[aria-label=Alternatives] .alternative:not([disabled])").first.click()
    before = json.loads(request.value.post_data)["ids"]
    ids = [*before, *(token["id"] for token in tokens_of(request.value))]
    assert run(page, "Copy as Python").removesuffix("\n") == tokenizer.decode(ids)
    assert not is_offered(page, "Copy as command")
    page.locator(".leaf").first.click()
    assert run(page, "Copy as Python") == text


def test_surprisal(open_page: Open, client: httpx.Client, run: Callable[..., str]):
    model = id_of(client, "runs/first", "models")
    page = open_page(f"#generate?model={model}&generate.mode=surprisal&text=Another%20text")
    box = page.get_by_label("Text to score")
    box.fill('The cat\'s "naïve".\n')
    page.get_by_label("Second model", exact=True).select_option(model)
    page.get_by_label("Checkpoint of Second model").select_option("2")
    for is_evaluated, text in (
        (True, "The cat's 犬.\n"),
        (False, "The cat saw the naïve bird. " * 9),
        (False, "A<|endoftext|>"),
    ):
        box.fill(text)
        page.get_by_role("button", name="Compute the surprisal").click()
        page.wait_for_selector("text=Compute the surprisal")
        until(page, "!document.querySelector('main').textContent.includes('Computing')")
        until(page, f"document.querySelectorAll('.interlinear .line .tok').length > {len(text) // 8}")
        shown = [page.get_by_test_id(f"bits-{i}").inner_text() for i in range(2)]
        lines = run(page, "Copy as Python").strip().split("\n")
        assert [f"{float(line.split()[1]):.4f}" for line in lines] == shown
        assert is_offered(page, "Copy as command") == is_evaluated
        if is_evaluated:
            printed = run(page, "Copy as command")
            assert all(bits in printed for bits in shown)


def test_inside(open_page: Open, client: httpx.Client, run: Callable[..., str]):
    model = id_of(client, "runs/first", "models")
    text = 'It\'s a "naïve" 犬, and the cat saw the dog. The cat'
    page = open_page(f"#inside?model={model}&prompt={quote(text)}")
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector("[data-testid=window]")
    page.locator("[data-head='1-0']").click()
    page.locator(".lens th button").nth(12).click()
    page.wait_for_selector("h2:has-text('head')")
    until(page, "document.querySelectorAll('[aria-label=Head] td.n').length > 3")
    attention, norms, lens = run(page, "Copy as Python").strip().split("\n")
    shares = page.locator("[aria-label=Head] table").first.locator("td.n").all_inner_texts()
    expected = sorted(json.loads(attention), reverse=True)[: len(shares)]
    assert shares == [f"{100 * value:.1f} %" for value in expected]
    shown = page.locator("[aria-label='Residual stream'] td.n").all_inner_texts()
    assert shown == [f"{value:.2f}" for value in json.loads(norms)]
    titles = [
        page.locator(".lens tbody tr").nth(i).locator("td").nth(12).get_attribute("title") for i in range(3)
    ]
    best = json.loads(lens[lens.index("] [") + 2 :])
    assert [title.split("\n")[0].split()[-2] for title in titles] == [
        f"{100 * value:.1f}" for value in best[::-1]
    ]
    # The command shows the token after the text, as the last layer does at the last token.
    printed = run(page, "Copy as command").split("\n")[2:7]
    last = page.locator(".lens tbody tr").first.locator("td").last.get_attribute("title").split("\n")
    assert [float(line.split("%")[0].split()[-1]) for line in printed] == pytest.approx(
        [float(line.split()[-2]) for line in last], abs=0.051
    )


def test_runs(open_page: Open, run: Callable[..., str]):
    page = open_page("#runs")
    until(page, "document.querySelectorAll('.dot').length === 2")
    until(
        page, "[...document.querySelectorAll('[data-testid=step]')].every((cell) => cell.textContent !== '–')"
    )
    shown: dict[str, list[str]] = {}
    for row in page.locator("main tbody tr:has([data-testid=step])").all():
        name, step, bits, loss, *_ = (cell.strip() for cell in row.locator("td").all_inner_texts())
        shown[name] = [step, bits, loss]
    printed = run(page, "Copy as Python")
    records = [json.loads(line) for line in run(page, "Copy as command").strip().split("\n")]
    for name, (step, bits, loss) in shown.items():
        (own,) = (r for r in records if r["kind"] == "step" and f"{r['loss']:.3f}" == loss)
        assert step == f"{own['step']:,}"
        assert f"{name} [{{'kind': 'step', 'step': {own['step']}, 'loss': {own['loss']}" in printed
        if bits != "–":
            (own,) = (r for r in records if r["kind"] == "validation")
            assert f"{own['bits_per_byte']:.4f}" == bits
