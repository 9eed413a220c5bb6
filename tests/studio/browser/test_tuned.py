"""Chat, and what the runs view shows of tuned runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bytemill.lm.training.metrics_log import read_metrics
from bytemill.shards import TokenShards
from bytemill.studio.library import Library
from bytemill.studio.server import listen
from tests.studio.browser.test_copied_code import run_command, run_python
from tests.studio.browser.test_views import check_accessibility
from tests.studio.conftest import id_of, running, until

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tuned: Path) -> Iterator[str]:
    with running(Library(tuned), listen(port=0)) as url:
        yield url


def model_of(address: str, name: str) -> str:
    with httpx.Client(base_url=f"{address}api/v1", trust_env=False) as client:
        return id_of(client, name, "runs")


def say(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")
    until(page, "document.querySelector('.composer .primary').textContent === 'Send'")


def copied(page: Any, button: str) -> str:
    page.get_by_role("button", name=button).click()
    page.wait_for_selector("[role=status]:has-text('Copied')")
    return page.evaluate("navigator.clipboard.readText()")


def test_a_chat(
    open_page: Open, address: str, tuned: Path, tmp_path: Path, commands_folder: Path | None,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.chdir(tuned)
    fragment = "generate.mode=chat&generate.temperature=0&generate.tokens=4"
    page = open_page(
        f"#generate?model={model_of(address, 'sft')}&{fragment}", address=address, is_quiet=False
    )
    contents = page.locator("article .content")
    say(page, "3")
    assert contents.all_inner_texts() == ["3", "3!"]
    assert "ended by <|endoftext|>" in page.locator("article.assistant").inner_text()
    say(page, "7")
    page.get_by_role("button", name="As tokens").last.click()
    shown = page.get_by_role("group", name="What the model reads")
    read = "Q3<|endoftext|>A3!<|endoftext|>Q7<|endoftext|>A"
    assert shown.locator(".strip").first.inner_text().strip() == read
    assert shown.locator(".strip").first.locator(".special").count() == 3
    check_accessibility(page)
    answers = page.locator("article.assistant .content").all_inner_texts()
    assert run_python(copied(page, "Copy as Python")) == answers[1]
    command = copied(page, "Copy as command")
    assert run_command(command, commands_folder, tmp_path / "code.sh").split("\n") == [*answers, ""]
    # An edited turn removes what followed. Nothing is lost if its answer fails.
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Edited message").fill("x" * 30)
    page.get_by_role("button", name="Answer again").click()
    page.wait_for_selector("[role=alert]:has-text('exceeds the context')")
    assert contents.all_inner_texts() == ["3", "3!", "7", answers[1]]
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Edited message").fill("5")
    page.get_by_role("button", name="Answer again").click()
    page.wait_for_selector("article:nth-child(2):last-child:has-text('ended by')")
    assert contents.all_inner_texts() == ["5", "5!"]
    page.get_by_role("button", name="Retry").click()
    page.wait_for_selector("article:has-text('seed 1')")
    page.get_by_label("Model", exact=True).select_option(label="plain")
    page.wait_for_selector("text=plain has no chat template")


def test_a_run_tuned_by_rewards(open_page: Open, address: str, tuned: Path):
    records = read_metrics(str(tuned / "grpo" / "metrics.jsonl"), "rollout")
    page = open_page(f"#runs?run={model_of(address, 'grpo')}", address=address)
    charts = page.get_by_role("region", name="Rewards").locator("figcaption")
    page.wait_for_selector("[data-testid=group-step]")
    titles = charts.all_inner_texts()
    assert "reward, ± standard error" in titles
    assert {"entropy (nats per token)", "tokens of an answer", "length"} <= set(titles)
    slider = page.get_by_label("Step of the answers")
    for position, step in enumerate((2, 4)):
        slider.fill(str(position))
        until(page, f"document.querySelector('[data-testid=group-step]').textContent === '{step}'")
        answers = records[step - 1]["group"]["answers"]
        cells = [
            row.split("\t")
            for row in page.get_by_role("group", name="Group of answers")
            .locator("tbody tr")
            .all_inner_texts()
        ]
        assert [float(row[0].replace("−", "-").replace("±", "")) for row in cells] == [
            pytest.approx(each["advantage"], abs=0.006) for each in answers
        ]
        assert [float(row[2]) for row in cells] == [each["reward"] for each in answers]
        is_equal = len({each["reward"] for each in answers}) == 1
        assert page.locator("[data-testid=no-signal]").count() == int(is_equal)
    check_accessibility(page)


def test_training_conversations_of_pairs(open_page: Open, address: str, tuned: Path):
    page = open_page(f"#runs?run={model_of(address, 'dpo')}", address=address)
    page.wait_for_selector("figcaption:has-text('margin')")
    page.get_by_role("region", name="Training conversations of dpo").get_by_role("button").click()
    page.wait_for_selector(".example")
    for side in ("chosen", "rejected"):
        shards = TokenShards(tuned / "pairs" / side)
        end = int(shards.document_ends()[0])  # pyright: ignore[reportOptionalSubscript]
        targets = [
            i for i, mark in zip(shards.read(0, end).tolist(), shards.mask(0, end), strict=True) if mark
        ]
        shown = page.get_by_role("group", name=f"{side} 1").locator(".target").all_inner_texts()
        assert [text.strip() for text in shown] == [chr(i) if i < 256 else "<|endoftext|>" for i in targets]
    check_accessibility(page)
