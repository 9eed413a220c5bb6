"""What the page shows of generated text, beside what the server sent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

import bytemill
from tests.studio.browser.conftest import until
from tests.studio.conftest import id_of

Open = Callable[..., Any]


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
