"""The main path of every view, in a browser."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import bytemill
from tests.studio.browser.conftest import until
from tests.studio.conftest import HOSTILE, id_of

Open = Callable[..., Any]


@pytest.fixture
def tokenizer_id(client: httpx.Client) -> str:
    return id_of(client, "tokenizer")


@pytest.fixture
def model_id(client: httpx.Client) -> str:
    return id_of(client, "runs/first", "models")


def texts(page: Any, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def wait_for_count(page: Any, n: int) -> None:
    until(page, f"document.querySelector('[data-testid=n-tokens]').textContent === '{n:,}'")


@pytest.mark.smoke
def test_tokens(open_page: Open, root: Path, tokenizer_id: str):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    page = open_page(f"#tokens?tokenizer={tokenizer_id}")
    text = "The cat saw the naïve bird.\nThe 犬 ate. "
    page.get_by_label("Text to tokenize").fill(text)
    ids = tokenizer.encode(text)
    wait_for_count(page, len(ids))
    shown = "".join(texts(page, ".flow .tok")).replace("·", " ").replace("↵", "\n")
    assert [part for part in shown if part in text] == [part for part in text if part in shown]
    page.get_by_label("Text to tokenize").press_sequentially("dog")
    wait_for_count(page, len(tokenizer.encode(text + "dog")))
    page.locator(".flow .tok").first.click()
    card = page.get_by_role("region", name="Token", exact=True)
    assert str(ids[0]) in card.inner_text()
    assert tokenizer.decode_single_token_bytes(ids[0]).hex(" ") in card.inner_text()
    page.locator(".flow .tok").first.hover()
    assert f"id {ids[0]}" in page.locator(".tip").inner_text()


def test_the_vocabulary_slider_truncates(open_page: Open, root: Path, tokenizer_id: str):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    text = "The cat saw the dog. The child liked the cat."
    page = open_page(f"#tokens?tokenizer={tokenizer_id}&text={quote(text)}")
    wait_for_count(page, len(tokenizer.encode(text)))
    for size in (270, 258, 300):
        page.get_by_label("Vocabulary size").fill(str(size))
        wait_for_count(page, len(tokenizer.truncate(size).encode(text)))


def test_merges_are_replayed(open_page: Open, root: Path, tokenizer_id: str):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    text = "The cat saw the dog."
    page = open_page(f"#tokens?tokenizer={tokenizer_id}&text={quote(text)}")
    wait_for_count(page, len(tokenizer.encode(text)))
    page.get_by_role("button", name="Replay the merges").click()
    wait_for_count(page, len(text))
    slider = page.get_by_label("Merges replayed")
    n_ranks = int(slider.get_attribute("max"))
    ranks = sorted({step.rank for part in tokenizer.explain(text) for step in part.steps})
    assert n_ranks == len(ranks)
    for position in (1, n_ranks // 2, n_ranks):
        slider.fill(str(position))
        wait_for_count(page, len(tokenizer.truncate(258 + ranks[position - 1] + 1).encode(text)))
    page.locator(".flow .tok").nth(1).click()
    history = page.get_by_role("region", name="Merges of the pre-token")
    assert history.locator("li").count() >= 2
    page.get_by_role("button", name="End the replay").click()
    wait_for_count(page, len(tokenizer.encode(text)))


def test_special_tokens_and_markup_are_inert(open_page: Open, tokenizer_id: str):
    page = open_page(f"#tokens?tokenizer={tokenizer_id}&text={quote(HOSTILE + '<b>x</b>')}")
    page.wait_for_selector(".tok.special")
    assert texts(page, ".tok.special") == [HOSTILE.replace(" ", "·")]
    page.get_by_label("Special tokens").uncheck()
    until(page, "!document.querySelector('.tok.special')")
    assert page.locator(".flow img, .flow b").count() == 0
    assert page.evaluate("window.hacked") is None
    page.get_by_role("button", name="Runs", exact=True).click()
    page.wait_for_selector("text=alert(1)")
    assert page.locator("main script, main img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_file_is_dropped(open_page: Open, tokenizer_id: str, root: Path):
    page = open_page(f"#tokens?tokenizer={tokenizer_id}")
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["dropped naïve text"], "dropped.txt", { type: "text/plain" }));
            document.querySelector(".drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }"""
    )
    until(page, "document.querySelector('textarea').value === 'dropped naïve text'")
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    wait_for_count(page, len(tokenizer.encode("dropped naïve text")))


def test_a_text_of_5_mb(open_page: Open, tokenizer_id: str, root: Path, tmp_path: Path):
    content = "The cat saw the naïve bird and 犬.\n" * 133_000
    path = tmp_path / "large.txt"
    path.write_text(content, encoding="utf-8")
    assert 4_900_000 < path.stat().st_size < 5_000_000
    page = open_page(f"#tokens?tokenizer={tokenizer_id}")
    page.get_by_label("File to open").set_input_files(path)
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    wait_for_count(page, len(tokenizer.encode(content)))
    assert page.locator(".flow .tok").count() < 5000
    flow = page.get_by_role("listbox", name="Tokens of the text")
    flow.press("End")
    until(page, "document.querySelector('.flow').scrollTop > 100000")
    assert page.locator(".tok.selected").inner_text() in ("↵", ".↵")
    too_large = tmp_path / "larger.txt"
    too_large.write_bytes(b"a" * 5_000_001)
    page.get_by_label("File to open").set_input_files(too_large)
    page.wait_for_selector("text=opens files of up to 5 MB")


def test_right_to_left_and_combining_text_keep_the_order_of_tokens(open_page: Open, tokenizer_id: str):
    text = "abc مرحبا بالعالم שלום e\u0301 xyz"
    page = open_page(f"#tokens?tokenizer=python-docs-8k&text={quote(text)}")
    page.wait_for_selector(".flow .tok")
    boxes = page.evaluate(
        """[...document.querySelectorAll('.flow .tok')].map((chip) => chip.getBoundingClientRect())
            .map((box) => [box.top, box.left])"""
    )
    # Chips go from left to right and from top to bottom, whatever is in them.
    assert boxes == sorted(boxes)
    arabic = page.locator(".flow .tok").filter(has_text="ا")
    assert arabic.count() == 0 or arabic.first.evaluate("(t) => getComputedStyle(t).unicodeBidi") == "isolate"


@pytest.mark.smoke
def test_the_vocabulary(open_page: Open, root: Path, tokenizer_id: str):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    vocab = tokenizer.vocab
    page = open_page(f"#vocabulary?tokenizer={tokenizer_id}&text={quote('The cat. ')}")

    def found(n: int) -> None:
        until(
            page, f"document.querySelector('[data-testid=n-found]').textContent.trim().startsWith('{n} of')"
        )

    search = page.get_by_label("Search the vocabulary")
    found(len(vocab))
    search.fill("at")
    found(sum(b"at" in token for token in vocab.values()))
    page.get_by_label("How to search").select_option("regex")
    search.fill("^ ?[a-z]{3}$")
    import re

    found(sum(re.fullmatch(rb" ?[a-z]{3}", token) is not None for token in vocab.values()))
    search.fill("(")
    page.wait_for_selector(".error")
    page.get_by_label("How to search").select_option("hex")
    search.fill("e7 8a")
    found(sum(b"\xe7\x8a" in token for token in vocab.values()))
    search.fill("")
    page.get_by_label("not valid UTF-8").check()
    broken = [i for i, token in vocab.items() if b"\xef\xbf\xbd" in token.decode(errors="replace").encode()]
    found(len(broken))
    page.get_by_label("not valid UTF-8").uncheck()
    page.get_by_label("Sort by").select_option("length")
    page.get_by_role("button", name="order").click()
    longest = max(vocab, key=lambda i: (len(vocab[i]), -i))
    assert page.locator(".vrow:not(.head) .n").first.inner_text() == str(longest)
    page.get_by_label("Sort by").select_option("id")
    page.get_by_role("button", name="order").click()
    search.fill("cat")
    page.get_by_label("How to search").select_option("text")
    page.locator(".vrow[role=option]").first.click()
    card = page.get_by_role("region", name="Token", exact=True)
    assert "How merges build it" in card.inner_text()
    assert card.locator("mark").count() >= 1


@pytest.mark.smoke
def test_compare(open_page: Open, root: Path, client: httpx.Client):
    ids = [id_of(client, name) for name in ("tokenizer", "smaller")]
    text = "The cat saw the naïve bird.\nThe dog ate.\n"
    page = open_page(f"#compare?with={','.join(ids)}&text={quote(text)}")
    for i, name in enumerate(("tokenizer", "smaller")):
        n = len(bytemill.Tokenizer.load(root / f"{name}.json").encode(text))
        until(page, f"document.querySelector('[data-testid=tokens-{i}]')?.textContent === '{n}'")
    rows = page.evaluate(
        """[...document.querySelectorAll('.segment')].map((s) =>
            [...s.children].map((line) => line.textContent.replaceAll('·', ' ').replaceAll('↵', '\\n')))"""
    )
    for row in rows:
        assert "�" not in row[0]
    assert sum(len(row[0]) for row in rows) >= len(text) - 4
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=trigram bits/byte")
    assert page.locator("td", has_text="Japanese").count() == 1
    page.get_by_role("button", name="Add a tokenizer").click()
    page.wait_for_selector("[data-testid=tokens-2]")
    page.wait_for_selector("text=have changed since")


@pytest.mark.smoke
def test_generate_branch_and_keep_both_tails(open_page: Open, model_id: str):
    page = open_page(f"#generate?model={model_id}&prompt=The")
    page.get_by_label("Number of tokens").fill("12")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.wait_for_selector("text=Continue")
    before = texts(page, ".gen")
    assert 2 <= len(before) <= 13
    output = page.get_by_role("listbox", name="Generated tokens")
    output.focus()
    output.press("ArrowRight")
    assert page.locator(".gen.selected").count() == 1
    alternatives = page.get_by_role("region", name="Alternatives")
    probabilities = [
        float(cell.rstrip(" %")) for cell in alternatives.locator("tbody td:nth-child(2)").all_inner_texts()
    ]
    assert probabilities == sorted(probabilities, reverse=True)
    alternatives.locator(".alternative:not([disabled])").first.click()
    until(page, "document.querySelectorAll('.leaf').length === 2")
    page.wait_for_selector("text=Continue")
    after = texts(page, ".gen")
    assert after != before
    # By keyboard to the first branch: its tail is as it was.
    output.focus()
    output.press("ArrowDown")
    until(page, f"[...document.querySelectorAll('.gen')].length === {len(before)}")
    assert texts(page, ".gen") == before
    page.locator(".leaf").nth(1).click()
    assert texts(page, ".gen") == after
    page.get_by_role("button", name="Continue").click()
    until(page, f"document.querySelectorAll('.gen').length > {len(after)}")


def test_the_same_seed_gives_the_same_text_and_stop_stops(open_page: Open, model_id: str):
    page = open_page(f"#generate?model={model_id}&prompt=The")
    page.get_by_label("Seed").fill("5")
    found: list[list[str]] = []
    for _ in range(2):
        page.get_by_role("button", name="Generate", exact=True).last.click()
        page.wait_for_selector("text=Continue")
        found.append(texts(page, ".gen"))
    assert found[0] == found[1]
    page.get_by_label("Number of tokens").fill("2048")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_selector("text=Continue")


def test_the_sampling_lab(open_page: Open, model_id: str):
    page = open_page(f"#generate?model={model_id}&prompt=The")
    page.get_by_label("Top-k").fill("5")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    page.wait_for_selector("text=Continue")
    lab = page.get_by_role("region", name="Sampling lab")
    lab.get_by_role("button", name="Open").click()
    lab.get_by_role("button", name="top-k").click()
    page.wait_for_selector("text=5 tokens left")
    assert lab.locator("tr.gone").count() == 10
    lab.get_by_role("button", name="model").click()
    page.wait_for_selector("text=300 tokens left")


@pytest.mark.smoke
def test_surprisal_of_two_models(open_page: Open, model_id: str, client: httpx.Client):
    text = "The cat saw the dog."
    page = open_page(f"#generate?model={model_id}&generate.mode=surprisal&text={quote(text)}")
    page.get_by_label("Text to score").fill(text)
    page.get_by_label("Second model", exact=True).select_option(model_id)
    page.get_by_label("Checkpoint of Second model").select_option("2")
    page.get_by_role("button", name="Compute the surprisal").click()
    for i, step in enumerate((None, 2)):
        own = client.post(f"/models/{model_id}/surprisal", json={"text": text, "checkpoint": step}).json()
        page.wait_for_selector(f"[data-testid=bits-{i}]")
        assert page.get_by_test_id(f"bits-{i}").inner_text() == f"{own['bits_per_byte']:.4f}"
    page.locator(".segment").nth(2).click()
    page.wait_for_selector("text=bits ·")


def test_over_all_checkpoints(open_page: Open, model_id: str):
    page = open_page(f"#generate?model={model_id}&prompt=The")
    page.get_by_role("button", name="Over all checkpoints").click()
    until(page, "document.querySelectorAll('[aria-label=\"Over checkpoints\"] tbody tr').length === 3")
    assert texts(page, "[aria-label='Over checkpoints'] tbody td.n") == ["2", "4", "6"]


@pytest.mark.smoke
def test_inside(open_page: Open, model_id: str):
    page = open_page(f"#inside?model={model_id}&prompt={quote('The cat saw the dog.')}")
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector("canvas")
    assert page.locator("[data-head]").count() == 4
    page.locator("[data-head='1-1']").click()
    page.wait_for_selector("h2:has-text('Layer 1, head 1')")
    page.locator("[data-head='1-1']").press("ArrowLeft")
    page.wait_for_selector("h2:has-text('Layer 1, head 0')")
    strip = page.get_by_role("group", name="Attention of layer 1, head 0")
    strip.focus()
    strip.press("Home")
    page.wait_for_selector("text=Token 1,")
    assert page.locator(".lens tbody tr").count() == 3
    page.wait_for_selector("[aria-label=Head] td.n:has-text('100.0 %')")


@pytest.mark.smoke
def test_runs_and_studies(open_page: Open, root: Path):
    page = open_page("#runs")
    page.wait_for_selector("text=runs/first")
    page.wait_for_selector(".uplot canvas")
    page.get_by_label("Metric").select_option("loss")
    for axis in ("tokens", "bytes", "flops", "seconds"):
        page.get_by_label("Axis").select_option(axis)
        page.wait_for_selector(".uplot canvas")
    page.get_by_label("log y").check()
    page.wait_for_selector(
        "[aria-label='Last validation by class of token'], [aria-label='Loss by class of token']"
    )
    page.wait_for_selector("[aria-label=Samples]")
    page.wait_for_selector("[aria-label=Settings] td:has-text('model.d_model')")
    page.get_by_role("button", name="study", exact=True).click()
    page.wait_for_selector("text=Two sizes")
    page.wait_for_selector("text=4 of 6 models")
    results = [json.loads(line) for line in (root / "study" / "results.jsonl").read_text().splitlines()]
    own = [result["bits_per_byte"]["x"] for result in results if result["tokenizer"] == "a"]
    page.wait_for_selector(f"text={sum(own) / len(own):.4f}")


def test_nothing_is_copied_before_its_arguments_are_known(open_page: Open, client: httpx.Client):
    page = open_page(f"#tokens?tokenizer={id_of(client, 'tokenizer')}")
    page.wait_for_selector("button:has-text('Copy as Python'):not([disabled])")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route(f"**/tokenizers/{id_of(client, 'smaller')}", hold)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("button:has-text('Copy as Python')[disabled]")
    until(page, "document.querySelectorAll('main .pick').length === 2")
    assert page.get_by_role("button", name="Copy as command").is_disabled()
    assert len(held) == 1
    held[0].continue_()
    page.wait_for_selector("button:has-text('Copy as Python'):not([disabled])")


@pytest.mark.smoke
def test_a_link_opens_the_same_view(open_page: Open, root: Path, tokenizer_id: str):
    text = "The cat & the dog #1?"
    page = open_page(f"#tokens?tokenizer={tokenizer_id}")
    page.get_by_label("Text to tokenize").fill(text)
    wait_for_count(page, len(bytemill.Tokenizer.load(root / "tokenizer.json").encode(text)))
    page.locator(".flow .tok").nth(4).click()
    until(page, "location.hash.includes('bytes=')")
    again = open_page(page.evaluate("location.hash"))
    again.wait_for_selector(".tok.selected")
    assert again.get_by_label("Text to tokenize").input_value() == text
    assert again.locator(".tok.selected").get_attribute("id") == "token-4"


@pytest.mark.parametrize(
    "fragment",
    [
        "#nothing",
        "#tokens?tokenizer=..%2F..",
        "#tokens?bytes=9-x&token=99999999",
        "#tokens?source=nothing",
        "#tokens?text=%3Cimg%20src%3Dx%20onerror%3D%22window.hacked%3D1%22%3E",
        "#compare?with=x,y,z",
        "#generate?model=x",
        "#runs?run=nothing",
        "#%",
    ],
)
def test_any_fragment_opens_the_page(open_page: Open, fragment: str):
    page = open_page(fragment, is_quiet=False)
    page.wait_for_selector("main .panel")
    assert page.evaluate("window.hacked") is None
