"""Evaluation: each token is scored once, sums do not depend on batches, HellaSwag scores are the published ones."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import CheckpointError, CorpusError, NotFiniteError, RunConfigError
from bytemill.lm import preset
from bytemill.lm.batches import spread_starts
from bytemill.lm.evaluate import (
    HellaSwagItem,
    evaluate_hellaswag,
    evaluate_text,
    evaluate_windows,
    read_items,
)
from bytemill.lm.generation.decoding import generate
from bytemill.lm.inspection import surprisal, trace
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.model import TransformerLM
from bytemill.lm.multiple_choice import _batches  # pyright: ignore[reportPrivateUsage]
from tests.support.examples import few

from .conftest import Corpus


def slow_losses(model: TransformerLM, ids: np.ndarray, length: int, stride: int) -> list[float]:
    """Reference: the loss of each token but the first, one by one, with the context of its window."""
    losses: list[float] = []
    n_targets = len(ids) - 1
    for target in range(1, n_targets + 1):
        # The first window with this target ends at `end`.
        end = (
            min(length, n_targets)
            if target <= length
            else length + math.ceil((target - length) / stride) * stride
        )
        end = min(end, n_targets)
        start = max(0, end - length)
        with torch.inference_mode():
            logits = model(torch.from_numpy(ids[start:target].astype(np.int64)))[-1]
        losses.append(-float(logits.double().log_softmax(-1)[int(ids[target])]))
    return losses


@few
@given(data=st.data())
def test_every_token_is_scored_once_with_the_context_of_its_window(
    model: TransformerLM, corpus: Corpus, data: st.DataObject
):
    ids = corpus.tokenizer.encode_to_numpy(corpus.text)[: data.draw(st.integers(2, 90))]
    length = data.draw(st.integers(1, 24))
    stride = data.draw(st.integers(1, length))
    counts = token_byte_counts(corpus.tokenizer)
    score = evaluate_text(
        model, ids, counts, stride=stride, context_length=length, batch_size=data.draw(st.integers(1, 5))
    )
    losses = slow_losses(model, ids, length, stride)
    assert score.n_tokens == len(losses)
    assert score.nats == pytest.approx(sum(losses), rel=1e-4)
    special = set(corpus.tokenizer.special_tokens.values())
    of_text = [(loss, int(i)) for loss, i in zip(losses, ids[1:], strict=True) if int(i) not in special]
    assert score.n_bytes == len(corpus.tokenizer.decode_bytes([i for _, i in of_text]))
    assert score.text_nats == pytest.approx(sum(loss for loss, _ in of_text), rel=1e-4)
    if of_text:
        assert score.bits_per_byte == pytest.approx(score.text_nats / math.log(2) / score.n_bytes)


def test_windows_and_text_give_equal_scores(model: TransformerLM, corpus: Corpus):
    ids = corpus.tokenizer.encode_to_numpy(corpus.text)[: 24 * 10 + 1]
    counts = token_byte_counts(corpus.tokenizer)
    whole = evaluate_text(model, ids, counts)
    windows = evaluate_windows(model, ids, spread_starts(len(ids), 24, 99), counts, batch_size=3)
    assert windows.n_tokens == whole.n_tokens == 240
    assert windows.nats == pytest.approx(whole.nats, rel=1e-6)
    assert windows.to_dict()["perplexity"] == pytest.approx(math.exp(whole.loss))


def test_strides_and_contexts_out_of_range_are_refused(model: TransformerLM, corpus: Corpus):
    counts = token_byte_counts(corpus.tokenizer)
    with pytest.raises(CorpusError, match="fewer than two"):
        evaluate_text(model, np.array([1]), counts)
    impossible: list[dict[str, Any]] = [
        {"stride": 25},
        {"context_length": 25},
        {"context_length": 4, "stride": 5},
    ]
    for options in impossible:
        with pytest.raises(ValueError, match="must be from 1"):
            evaluate_text(model, np.arange(50), counts, **options)
    reported: list[tuple[int, int]] = []
    evaluate_text(model, np.arange(60), counts, progress=lambda done, total: reported.append((done, total)))
    assert reported[-1] == (59, 59)


ITEM = {
    "ind": 24,
    "activity_label": "Roof shingle removal",
    "ctx_a": "A man is sitting on a roof.",
    "ctx_b": "he",
    "ctx": "A man is sitting on a roof. he",
    "label": 3,
    "endings": [
        "is using wrap.",
        "is ripping  tiles [substeps] off.",
        "is holding a cube.",
        "pulls. [title] Next.",
    ],
}


def test_both_forms_of_items_are_read(tmp_path: Path):
    (tmp_path / "items.jsonl").write_text(
        json.dumps(ITEM) + "\n\n" + json.dumps({**ITEM, "label": "0"}) + "\n"
    )
    first, second = read_items(tmp_path / "items.jsonl")
    assert first.context == "Roof shingle removal: A man is sitting on a roof. He"
    assert first.endings == ("is using wrap.", "is ripping tiles off.", "is holding a cube.", "pulls.. Next.")
    assert (first.label, second.label) == (3, 0)
    (tmp_path / "items.txt").write_text("A cat: It sat. it\n2\na\nb\nc\nd\n")
    (item,) = read_items(tmp_path / "items.txt")
    assert (item.context, item.endings, item.label) == ("A cat: It sat. it", ("a", "b", "c", "d"), 2)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_items_end_at_line_feeds_alone_and_a_byte_order_mark_is_dropped(tmp_path: Path, end: str):
    odd = "a\u2028b\x85c\x0cd"
    item = {**ITEM, "endings": [odd, "b", "c", "d"], "label": 0}
    lines = [json.dumps(item, ensure_ascii=False)] * 2
    (tmp_path / "items.jsonl").write_bytes(("\ufeff" + end.join(lines) + end).encode())
    first, second = read_items(tmp_path / "items.jsonl")
    assert first == second
    assert first.endings[0] == odd
    six = [odd, "1", "a", odd, "c", "d"]
    (tmp_path / "items.txt").write_bytes(("\ufeff" + end.join(six) + end).encode())
    assert read_items(tmp_path / "items.txt") == [HellaSwagItem(odd, ("a", odd, "c", "d"), 1)]


def test_every_six_lines_of_hellaswag_are_an_item(shared_data: Path):
    path = shared_data / "hellaswag_val.txt"
    items = read_items(path)
    assert len(items) == 300
    lines = [line for item in items for line in (item.context, str(item.label), *item.endings)]
    assert lines == path.read_text(encoding="utf-8").splitlines()
    assert {item.label for item in items} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n7\nb\nc\nd\ne\n", r":2: the label is '7'"),
        ("a\n1\nb\n", "not a multiple of six"),
        ("", "no items"),
        ('{"ctx": "a"}\n', r":1 is not a HellaSwag item"),
        ('{"ctx": "a", "endings": ["b"], "label": 0}', "4 endings and a label from 0 to 3, not 1 and 0"),
        ("{broken", ":1 is not a HellaSwag item"),
    ],
)
def test_files_without_items_are_refused(tmp_path: Path, content: str, message: str):
    (tmp_path / "f").write_text(content)
    with pytest.raises(CorpusError, match=message):
        read_items(tmp_path / "f")


@pytest.fixture
def items(tmp_path: Path) -> Path:
    lines: list[str] = []
    for number in range(9):
        lines += [f"The cat saw {number} dogs. The dog", str(number % 4)]
        lines += ["ate the 犬.", "saw the naïve bird and liked it " * 4, f"x{number}", "liked the child."]
    (tmp_path / "items.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "items.txt"


def test_scores_equal_those_of_single_endings(model: TransformerLM, corpus: Corpus, items: Path):
    read = read_items(items)
    score = evaluate_hellaswag(model, corpus.tokenizer, read, batch_size=16)
    right = dict.fromkeys(score.accuracy, 0)
    n_cut = 0
    for item in read:
        sums: list[float] = []
        lengths: dict[str, list[int]] = {"sum": [], "tokens": [], "characters": [], "bytes": []}
        for ending in item.endings:
            end = corpus.tokenizer.encode(" " + ending)
            context = corpus.tokenizer.encode(item.context)
            end = end[:24]
            both = [*context, *end][-25:]
            n_cut += len(both) < len(context) + len(end)
            with torch.inference_mode():
                chances = model(torch.tensor(both[:-1])).double().log_softmax(-1)
            first = len(both) - len(end)
            sums.append(sum(float(chances[first + i - 1, token]) for i, token in enumerate(end)))
            own_lengths = (1, len(end), len(ending), len(ending.encode()))
            for name, n in zip(lengths, own_lengths, strict=True):
                lengths[name].append(n)
        for name, own in lengths.items():
            values = [s / n for s, n in zip(sums, own, strict=True)]
            right[name] += values.index(max(values)) == item.label
    assert score.accuracy == {name: n / 9 for name, n in right.items()}
    assert score.n_cut == n_cut > 0
    assert len(set(score.accuracy.values())) > 1  # otherwise the normalizations are equal


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers.1.ffn.w2.weight", math.nan, "the weights are not finite: layers.1.ffn.w2.weight has NaN"),
        ("lm_head.weight", math.inf, "the weights are not finite: lm_head.weight has NaN or infinite values"),
        ("lm_head.weight", 3e38, "the logits are not finite, although all weights are"),
    ],
)
def test_a_model_that_is_not_finite_is_an_error_wherever_it_is_used(
    model: TransformerLM, corpus: Corpus, name: str, value: float, message: str
):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.get_parameter(name)[3] = value
    tokenizer = corpus.tokenizer
    uses = [
        lambda: generate(broken, [1, 2], 3, temperature=0),
        lambda: generate(broken, [1, 2], 3, n_samples=2, use_cache=False),
        lambda: evaluate_text(broken, np.arange(9), token_byte_counts(tokenizer)),
        lambda: evaluate_hellaswag(broken, tokenizer, [HellaSwagItem("A", ("b", "c", "d", "e"), 0)]),
        lambda: surprisal(broken, tokenizer, "The cat"),
        lambda: trace(broken, [1, 2, 3]),
    ]
    for use in uses:
        with pytest.raises(NotFiniteError, match=message):
            use()


def test_an_interrupted_evaluation_resumes(
    model: TransformerLM, corpus: Corpus, items: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    read, results = read_items(items), tmp_path / "results.jsonl"
    whole = evaluate_hellaswag(model, corpus.tokenizer, read)

    def stop(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_hellaswag(model, corpus.tokenizer, read, batch_size=9, results=results, progress=stop)
    with results.open("a") as file:
        file.write('{"item": 8, "log_li')
    reported: list[int] = []
    again = evaluate_hellaswag(
        model,
        corpus.tokenizer,
        read,
        batch_size=9,
        results=results,
        progress=lambda done, _: reported.append(done),
    )
    assert again == whole
    assert reported == [6, 8, 9]
    assert evaluate_hellaswag(model, corpus.tokenizer, read, results=results) == whole
    other = TransformerLM(model.config, seed=9)
    with pytest.raises(CheckpointError, match="not a results file of this model"):
        evaluate_hellaswag(other, corpus.tokenizer, read, results=results)
    with pytest.raises(CheckpointError, match="not a results file of this model"):
        evaluate_hellaswag(model, corpus.tokenizer, read[:5], results=results)


def test_spaces_before_an_ending_belong_to_it_and_empty_contexts_are_documents(
    model: TransformerLM, corpus: Corpus, tmp_path: Path
):
    endings = ("the 犬.", "naïve", "x", "cat cat")
    contexts = ("The cat  ", "", "  ", "The cat")
    items = [HellaSwagItem(context, endings, 0) for context in contexts]
    encode = corpus.tokenizer.encode_ordinary
    score = evaluate_hellaswag(model, corpus.tokenizer, items, results=tmp_path / "results.jsonl")
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()[1:]]
    lines = {record["item"]: record for record in records}
    n_unaligned = 0
    for number, context in enumerate(contexts):
        for ending, found in zip(endings, lines[number]["log_likelihoods"], strict=True):
            whole = encode(f"{context} {ending}")
            before = encode(context.rstrip())
            if not before:
                before = [corpus.tokenizer.eot_token]
                whole = [*before, *whole]
            n_unaligned += whole[: len(before)] != before
            with torch.inference_mode():
                chances = model(torch.tensor(whole[:-1])).double().log_softmax(-1)
            expected = sum(float(chances[at - 1, whole[at]]) for at in range(len(before), len(whole)))
            assert found == pytest.approx(expected, rel=1e-5)
    assert score.n_unaligned == n_unaligned
    plain = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], [])
    with pytest.raises(RunConfigError, match="to start a document with"):
        evaluate_hellaswag(model, plain, items)


def test_endings_that_share_a_token_with_their_context_are_counted():
    tokenizer = bytemill.Tokenizer(
        {i: bytes([i]) for i in range(256)} | {256: b"d "}, [(b"d", b" ")], [], pattern=None
    )
    model = TransformerLM(preset("tiny", vocab_size=257), seed=0)
    items = [
        HellaSwagItem("a bird", ("a", "b", "c", "d"), 0),
        HellaSwagItem("a cat", ("a", "b", "c", "d"), 0),
    ]
    assert evaluate_hellaswag(model, tokenizer, items).n_unaligned == 4


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 90))
def test_batches_hold_all_items_in_order_and_no_more_than_the_limit(lengths: list[int], limit: int):
    lengths.sort()
    batches = list(_batches(range(len(lengths)), lambda item: 4 * lengths[item], limit))
    assert [item for batch in batches for item in batch] == list(range(len(lengths)))
    for batch, after in zip(batches, [*batches[1:], []], strict=True):
        assert len(batch) == 1 or len(batch) * 4 * lengths[batch[-1]] <= limit
        if after:
            assert (len(batch) + 1) * 4 * lengths[after[0]] > limit


@pytest.mark.slow
def test_scores_equal_those_of_a_harness_that_asks_transformers(
    tmp_path: Path, shared_data: Path, transformers: Any
):
    """Score 12 items as lm-evaluation-harness defines them, with the logits of transformers."""

    from bytemill.lm.interchange.import_model import import_model
    from bytemill.lm.training.saved_model import load_trained

    torch.manual_seed(1)
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=50257, n_positions=256, n_embd=32, n_layer=2, n_head=4)
    ).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer = bytemill.Tokenizer.load(shared_data / "r50k_base.tiktoken")
    tokenizer.save(tmp_path / "theirs" / "tokenizer.json")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    trained = load_trained(tmp_path / "ours", "cpu")
    items = read_items(shared_data / "hellaswag_val.txt")[:12]
    right = {"sum": 0, "characters": 0}
    likelihoods: list[list[float]] = []
    for item in items:
        scores: dict[str, list[float]] = {name: [] for name in right}
        for ending in item.endings:
            context = tokenizer.encode(item.context)
            ids = tokenizer.encode(item.context + " " + ending)
            with torch.inference_mode():
                logits = theirs(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            total = sum(float(logits[at - 1, ids[at]]) for at in range(len(context), len(ids)))
            scores["sum"].append(total)
            scores["characters"].append(total / len(ending))
        likelihoods.append(scores["sum"])
        for name, own in scores.items():
            right[name] += own.index(max(own)) == item.label
    results = tmp_path / "results.jsonl"
    ours = evaluate_hellaswag(trained.model, trained.tokenizer, items, results=results)
    lines = [json.loads(line) for line in results.read_text().splitlines()[1:]]
    for line in lines:
        assert line["log_likelihoods"] == pytest.approx(likelihoods[line["item"]], abs=1e-3)
    for name, n in right.items():
        assert ours.accuracy[name] == pytest.approx(n / len(items))
