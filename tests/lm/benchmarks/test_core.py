"""CORE equals a plain implementation of nanochat's definition, prompt by prompt and token by token."""

from __future__ import annotations

import csv
import json
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
import torch
import yaml

from bytemill.errors import CheckpointError, CorpusError
from bytemill.lm.benchmarks.core import core_score, evaluate_core, load_core
from bytemill.lm.generation.decoding import generate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.model import TransformerLM
    from tests.lm.conftest import Corpus

TEMPLATES = {
    "multiple_choice": (
        "{{ item.query }}{{ delimiter }}{{ item.choices[item.gold] }}",
        "{{ item.query }}{{ delimiter }}{{ choice }}",
    ),
    "schema": (
        "{{ item.context_options[item.gold] }}{{ delimiter }}{{ item.continuation }}",
        "{{ choice }}{{ delimiter }}{{ item.continuation }}",
    ),
    "language_modeling": (
        "{{ item.context | trim }}{{ delimiter }}{{ item.continuation }}",
        "{{ item.context | trim }}{{ delimiter }}{{ choice }}",
    ),
}
"""Of an example and of the item, by type of task."""


def write_bundle(
    folder: Path, greedy: Callable[[str], str] = lambda _: "the"
) -> dict[str, list[dict[str, Any]]]:
    chance = random.Random(5)
    words = ["the cat", "the 犬", "a naïve bird", "saw the dog", "liked", "ate"]

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.randint(1, 7)))

    rows: dict[str, list[dict[str, Any]]] = {
        "multiple_choice": [
            {"query": text(), "choices": [text() for _ in range(3)], "gold": chance.randrange(3)}
            for _ in range(9)
        ],
        "schema": [
            {"context_options": [text(), text()], "continuation": text(), "gold": n % 2} for n in range(8)
        ],
        "language_modeling": [{"context": f" {text()} "} for _ in range(12)],
    }
    for row in rows["language_modeling"]:
        row["continuation"] = greedy(row["context"].strip())
    rows["multiple_choice"][0]["choices"][:2] = ["ate", "ate the cat"]  # one begins another
    delimiters = {"multiple_choice": "\nAnswer: ", "language_modeling": ""}
    tasks: list[dict[str, Any]] = []
    (folder / "eval_data" / "some").mkdir(parents=True)
    for number, (kind, own) in enumerate(rows.items()):
        task: dict[str, Any] = {"label": f"{kind} task", "dataset_uri": f"some/{kind}.jsonl"}
        task |= {"num_fewshot": [number % 2, 10], "icl_task_type": kind}
        if kind in delimiters:
            task["continuation_delimiter"] = delimiters[kind]
        tasks.append(task)
        lines = "".join(json.dumps(row) + "\n" for row in own)
        (folder / "eval_data" / "some" / f"{kind}.jsonl").write_text(lines)
    (folder / "core.yaml").write_text(yaml.safe_dump({"icl_tasks": tasks}))
    with (folder / "eval_meta_data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Eval Task", "Task Category", "Random baseline"])
        writer.writerows([[f"{kind} task", "x", 10 * n] for n, kind in enumerate(rows)])
    return rows


def is_right(
    model: TransformerLM, corpus: Corpus, rows: list[dict[str, Any]], number: int, task: dict[str, Any]
) -> bool:
    """Render with jinja2 and score one prompt at a time, from all logits."""
    kind, item = task["icl_task_type"], rows[number]
    delimiter = task.get("continuation_delimiter", " ")
    others = [n for n in range(len(rows)) if n != number]
    drawn = random.Random(1234 + number).sample(others, task["num_fewshot"][0])
    example, last = (jinja2.Template(source) for source in TEMPLATES[kind])
    shown = "".join(example.render(item=rows[n], delimiter=delimiter) + "\n\n" for n in drawn)
    choices = item.get("choices") or item.get("context_options") or ["", item["continuation"]]
    prompts = [shown + last.render(item=item, delimiter=delimiter, choice=choice) for choice in choices]
    if kind == "language_modeling":
        prompts[0] = prompts[0].strip()
    tokenizer = corpus.tokenizer
    ids = [[tokenizer.eot_token, *tokenizer.encode_ordinary(prompt)] for prompt in prompts]
    least = min(map(len, ids))
    first = next((n for n in range(least) if len({row[n] for row in ids}) > 1), least)
    starts = [first for _ in ids]
    if kind == "language_modeling":
        ids, starts = ids[1:], starts[1:]
    if kind == "schema":
        same = next(n for n in range(1, least + 1) if len({row[-n] for row in ids}) > 1) - 1
        starts = [len(row) - same for row in ids]
    losses: list[float] = []
    is_greedy = False
    for whole, start in zip(ids, starts, strict=True):
        n_cut = max(0, len(whole) - model.config.context_length)
        row, start = whole[n_cut:], max(1, start - n_cut)  # noqa: PLW2901 - the part that fits
        with torch.inference_mode():
            chances = model(torch.tensor(row)).double().log_softmax(-1)
        own = [-float(chances[at - 1, row[at]]) for at in range(start, len(row))]
        is_greedy = all(int(chances[at - 1].argmax()) == row[at] for at in range(start, len(row)))
        losses.append(sum(own) / len(own) if own else float("nan"))
    return is_greedy if kind == "language_modeling" else losses.index(min(losses)) == item["gold"]


def test_core_is_that_of_a_plain_implementation(model: TransformerLM, corpus: Corpus, tmp_path: Path):
    def greedy(text: str) -> str:
        ids = [corpus.tokenizer.eot_token, *corpus.tokenizer.encode_ordinary(text)]
        (new,) = generate(model, ids[-24:], 1, temperature=0)
        return corpus.tokenizer.decode(new)

    all_rows = write_bundle(tmp_path, greedy)
    trained: Any = SimpleNamespace(model=model, tokenizer=corpus.tokenizer, bos_id=None)
    tasks = load_core(tmp_path)
    results = tmp_path / "results.jsonl"
    scores = evaluate_core(trained, tasks, results=results)
    described = yaml.safe_load((tmp_path / "core.yaml").read_text())["icl_tasks"]
    centred: list[float] = []
    for number, (task, score) in enumerate(zip(described, scores, strict=True)):
        rows = list(all_rows[task["icl_task_type"]])
        random.Random(1337).shuffle(rows)
        expected = [is_right(model, corpus, rows, at, task) for at in range(len(rows))]
        assert list(score.correct) == expected, task["label"]
        accuracy = sum(expected) / len(expected)
        centred.append((accuracy - 0.1 * number) / (1 - 0.1 * number))
    assert core_score(scores) == pytest.approx(sum(centred) / 3)
    assert all(0 < score.accuracy < 1 for score in scores)
    assert scores[1].n_cut > 0
    text = results.read_text()
    results.write_text("".join(text.splitlines(keepends=True)[:12]))
    assert evaluate_core(trained, tasks, results=results) == scores
    assert results.read_text() == text
    with pytest.raises(CheckpointError, match="not a results file"):
        evaluate_core(trained, load_core(tmp_path, limit=4), results=results)


def test_bundles_that_are_not_understood_are_refused(tmp_path: Path):
    write_bundle(tmp_path)
    with pytest.raises(CorpusError, match="too few for 1 examples"):
        load_core(tmp_path, limit=1)
    core = (tmp_path / "core.yaml").read_text()
    for file, content, message in (
        ("core.yaml", core.replace("icl_task_type: schema", "icl_task_type: cloze"), "unknown type 'cloze'"),
        ("core.yaml", "icl_tasks: 3", "not a list of tasks"),
        ("core.yaml", "icl_tasks: [", "not a list of tasks"),
        ("eval_meta_data.csv", "Eval Task,Random baseline\nschema task,50\n", "has no task multiple_choice"),
        ("eval_meta_data.csv", "Task\na\n", "it needs|Eval Task"),
        ("eval_data/some/schema.jsonl", '{"gold": 0, "continuation": "a"}', "has no 'context_options'"),
    ):
        before = (tmp_path / file).read_text()
        (tmp_path / file).write_text(content)
        with pytest.raises(CorpusError, match=message):
            load_core(tmp_path)
        (tmp_path / file).write_text(before)
    (tmp_path / "core.yaml").unlink()
    with pytest.raises(CorpusError, match="cannot read"):
        load_core(tmp_path)
