"""Every view in a browser: its main path, and that it shows what the server sent."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

import bytemill
from bytemill.lm.generation.window import window_start
from bytemill.studio.library import Library
from bytemill.studio.server import listen
from tests.lm.conftest import END, sentences
from tests.studio.conftest import HOSTILE, id_of, running, until

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


def test_over_all_checkpoints(open_page: Open, model_id: str):
    page = open_page(f"#generate?model={model_id}&prompt=The")
    page.get_by_role("button", name="Over all checkpoints").click()
    until(page, "document.querySelectorAll('[aria-label=\"Over checkpoints\"] tbody tr').length === 3")
    assert texts(page, "[aria-label='Over checkpoints'] tbody td.n") == ["2", "4", "6"]


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


def percent(share: float, digits: int) -> str:
    """A share as the page writes it."""
    text = f"{100 * share:.{digits}f}"
    return f"<{10**-digits:.{digits}f} %" if share > 0 and float(text) == 0 else f"{text} %"


def shown(token: str) -> str:
    """A token in hexadecimal as a chip shows it, for bytes that are whole characters."""
    marks = {" ": "·", "\n": "↵", "\t": "⇥", "\x7f": "U+007F"}
    return "".join(
        marks.get(c) or (chr(0x2400 + ord(c)) if c < " " else c) for c in bytes.fromhex(token).decode()
    )


def is_text(token: str) -> bool:
    try:
        bytes.fromhex(token).decode()
    except UnicodeDecodeError:
        return False
    return True


def events_of(stream: str) -> list[dict[str, Any]]:
    """The tokens of a stream of server-sent events."""
    blocks = [
        dict(line.split(": ", 1) for line in block.splitlines()) for block in stream.split("\n\n") if block
    ]
    return [json.loads(block["data"]) for block in blocks if block["event"] == "token"]


def test_every_text_of_a_visit_is_the_one_that_the_server_sent(open_page: Open, client: httpx.Client):
    model = id_of(client, "runs/first", "models")
    page = open_page(f"#generate?model={model}&prompt=The")
    page.get_by_label("Number of tokens").fill("10")
    for prompt, seed, temperature, checkpoint in [
        ("The", "1", "0.8", "6"),
        ("A dog saw", "2", "0.8", "6"),
        ("A dog saw", "2", "0.8", "2"),
        ("A dog saw", "3", "2", "2"),
        ("The", "1", "0.8", "6"),
    ]:
        page.get_by_label("Prompt").fill(prompt)
        page.get_by_label("Seed").fill(seed)
        page.get_by_label("Temperature").fill(temperature)
        page.get_by_label("Checkpoint of Model").select_option(checkpoint)
        with (
            page.expect_request("**/prompt") as encoded,
            page.expect_request("**/generate") as generated,
        ):
            page.get_by_role("button", name="Generate", exact=True).last.click()
        # The same request has the same answer, as it has a seed.
        sent = events_of(client.post(generated.value.url, json=generated.value.post_data_json).text)
        start = client.post(encoded.value.url, json=encoded.value.post_data_json).json()["tokens"]
        tokens = start + [token["bytes"] for token in sent]
        page.wait_for_selector("text=Continue")
        until(page, f"document.querySelectorAll('.gen').length === {len(tokens)}")
        chips = page.locator(".gen").evaluate_all(
            "(all) => all.map((chip) => [chip.textContent, chip.title])"
        )
        for token, (text, _) in zip(tokens, chips, strict=True):
            assert not is_text(token) or text == shown(token)
        for token, (_, title) in zip(sent, chips[-len(sent) :], strict=True):
            assert title == f"id {token['id']} · probability {percent(token['probability'], 1)}"
        page.locator(".gen").nth(len(tokens) - 2).click()
        rows = page.get_by_role("region", name="Alternatives").locator("tbody tr")
        for row, each in zip(rows.all_inner_texts(), sent[-2]["alternatives"], strict=True):
            assert row.split("\t")[1:] == [
                percent(each["probability"], 2),
                percent(each["sampled"], 2) if each["sampled"] > 0 else "cut off",
            ]
            assert not is_text(each["bytes"]) or row.split("\t")[0].strip() == shown(each["bytes"])


def test_every_token_of_a_changed_text_is_drawn_anew(open_page: Open, root: Path, client: httpx.Client):
    tokenizer = bytemill.Tokenizer.load(root / "tokenizer.json")
    page = open_page(f"#tokens?tokenizer={id_of(client, 'tokenizer')}")
    for text in ("a~", "b_"):
        # As many tokens, which differ by (1, -31).
        assert [chr(id_ - tokenizer.encode("a")[0] + ord("a")) for id_ in tokenizer.encode(text)] == list(
            text
        )
        page.get_by_label("Text to tokenize").fill(text)
        until(page, f"document.querySelector('.flow').textContent === '{text}'", seconds=20)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio with a tokenizer whose ids have gaps."""
    root = tmp_path_factory.mktemp("gaps")
    bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], {END: 300}).save(root / "gaps.json")
    bytemill.train_from_iterator([sentences(1, 100)], 280, [END]).save(root / "whole.json")
    with running(Library(root), listen(port=0)) as url:
        yield url


def test_figures_agree_between_views(open_page: Open, address: str):
    with httpx.Client(base_url=f"{address}api/v1", trust_env=False) as client:
        ids = [id_of(client, name) for name in ("gaps", "whole")]
    text = "The cat.\n" * 20
    page = open_page(f"#tokens?tokenizer={ids[0]}&with={','.join(ids)}&text={quote(text)}", address=address)
    until(page, "document.querySelector('[data-testid=n-tokens]').textContent === '180'")
    assert page.locator("dl.figures dd").last.inner_text() == "257"
    page.get_by_role("button", name="Vocabulary", exact=True).click()
    page.wait_for_selector("[data-testid=n-found]:has-text('257 of 257 tokens')")
    page.get_by_role("button", name="Compare", exact=True).first.click()
    page.wait_for_selector("[data-testid=tokens-1]")
    rows = [row.locator("td").all_inner_texts() for row in page.locator("main tbody tr:visible").all()]
    assert [row[1] for row in rows] == ["257", "280"]
    page.get_by_role("button", name="Compare", exact=True).last.click()
    page.wait_for_selector("text=Gini")
    titles = page.locator("main th:visible, [aria-label=Figures] td:first-child").all_inner_texts()
    assert [title.rstrip(" ↑↓") for title in titles].count("bytes/token") == 1
    assert "less than 10 KB" in page.locator("main [role=note]").inner_text()
    languages = page.locator("[aria-label=Languages] tbody td:first-child").all_inner_texts()
    assert {"Japanese", "English", "Swahili", "Traditional Chinese"} < set(languages)
    page.wait_for_selector("h3:has-text('relative to English')")
    page.wait_for_selector("text=a ratio of sums")
    page.get_by_role("textbox", name="Text to tokenize").fill("The cat saw the dog. \n" * 500)
    until(page, "document.querySelector('main').textContent.includes('have changed since')")
    page.get_by_role("button", name="Compare again").click()
    until(page, "!document.querySelector('main [role=note]')")


def test_no_figure_is_shown_before_it_is_known(open_page: Open, address: str):
    with httpx.Client(base_url=f"{address}api/v1", trust_env=False) as client:
        ids = [id_of(client, name) for name in ("whole", "gaps")]
    page = open_page(f"#tokens?tokenizer={ids[0]}&text={quote('The cat')}", address=address)
    shown = "[...document.querySelectorAll('dl.figures dd')].map((each) => each.textContent)"
    until(page, f"{shown}.every((each) => /^[0-9.,]+$/.test(each))")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/vocabulary", hold)
    page.get_by_label("Tokenizer", exact=True).select_option(ids[1])
    until(page, f"{shown}.every((each) => each === '…')")
    page.wait_for_timeout(300)
    assert page.evaluate(shown) == ["…"] * 5
    held[0].continue_()
    until(page, f"{shown}.join(' ') === '7 7 1.000 7 257'")


def test_what_people_see_as_one_character_is_of_one_kind(open_page: Open, address: str):
    text = "🇩🇪👍🏽👩‍💻1️⃣❤️ e\u0301© "
    page = open_page(f"#tokens?tokenizer=python-docs-8k&text={quote(text)}", address=address)
    page.wait_for_selector("[aria-label='By kind of text'] tbody tr")
    rows = {
        cells[0]: int(cells[1])
        for row in page.locator("[aria-label='By kind of text'] tbody tr").all()
        if (cells := row.locator("td").all_inner_texts())
    }
    assert rows == {"emoji": 2 + 2 + 3 + 3 + 2, "Latin": 2, "white space": 2, "punctuation and symbols": 1}


def test_a_finished_run_says_so(open_page: Open):
    page = open_page("#runs")
    row = page.locator("tr:has([data-testid=step])", has_text="runs/first")
    row.wait_for()
    assert "finished" in row.inner_text()
    assert "live" not in row.inner_text()
    assert (
        page.locator("tr:has([data-testid=step])", has_text="alert(1)").get_by_text("finished").count() == 0
    )


def check_accessibility(page: Any) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "best-practice"]})
        assert not found.response["violations"], f"{scheme}: {found.generate_report()}"


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
