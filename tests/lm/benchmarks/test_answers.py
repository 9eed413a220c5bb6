"""Answers are the model's own, ended where asked; scores are those of lm-evaluation-harness and of Chen et al."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import CheckpointError, RunConfigError
from bytemill.lm.benchmarks.answers import (
    GSM8K_FORMS,
    LETTER_FORMS,
    AnswerItem,
    AnswerOptions,
    answer_score,
    evaluate_answers,
    pass_at,
)
from bytemill.lm.generation.decoding import generate
from tests.lm.conftest import Corpus

SOLUTION = "9 * 2 = $<<9*2=18>>18.\n#### 1,018"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("#### 1018", {"strict", "flexible", "number"}),
        ("#### 1,018.", {"strict", "flexible", "number"}),
        ("#### $1018", {"flexible", "number"}),
        ("It is 1018", {"flexible", "number"}),
        ("#### 1018 and not 7", {"strict"}),
        ("#### 7 #### 1018", {"flexible", "number"}),
        ("It is 1018.00", {"number"}),
        ("It is", set[str]()),
    ],
)
def test_numbers_are_found_in_each_form(text: str, right: set[str]):
    item = AnswerItem("Question", SOLUTION)
    line = {"answers": [text], "n_tokens": 1, "n_cut": 0, "n_unfinished": 0}
    score = answer_score([item], {0: line}, GSM8K_FORMS)
    assert {name for name, (value,) in score.correct.items() if value} == right


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(n: int, data: st.DataObject):
    n_right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(combinations(range(n), k))
    assert pass_at(n, n_right, k) == pytest.approx(sum(min(own) < n_right for own in subsets) / len(subsets))


def test_several_samples_have_a_majority():
    answers = ["is B", "answer: A", "The answer is A", "answer is B", "none"]
    line = {"answers": answers, "n_tokens": 9, "n_cut": 0, "n_unfinished": 0}
    by_answer = {
        answer: answer_score([AnswerItem("", answer)], {0: line}, LETTER_FORMS).accuracy for answer in "AB"
    }
    assert by_answer["A"] == {
        "letter": 0.4, "letter pass@2": pytest.approx(0.7), "letter pass@4": 1, "letter pass@5": 1,
        "letter majority": 1,
    }  # fmt: skip
    assert by_answer["B"]["letter majority"] == 0


def test_answers_are_the_greedy_continuations_up_to_a_stop(model: Any, corpus: Corpus, tmp_path: Path):
    tokenizer = corpus.tokenizer
    contexts = ["The cat", "The dog saw", "The naïve bird liked", "The cat ate the 犬. " * 9]
    items = [AnswerItem(context, "1") for context in contexts * 2]
    options = AnswerOptions(max_tokens=6, stop=("e",))
    results = tmp_path / "results.jsonl"
    common: dict[str, Any] = {"task": "test", "results": results, "batch_size": 2}
    score = evaluate_answers(model, tokenizer, items, LETTER_FORMS, options, **common)
    lines = {own["item"]: own for own in map(json.loads, results.read_text().splitlines()) if "item" in own}
    special = set(tokenizer.special_tokens.values())
    for number, item in enumerate(items):
        prompt = tokenizer.encode(item.context)[-(model.config.context_length - 6) :]
        (ids,) = generate(model, prompt, 6, temperature=0, stop_ids=special)
        text = tokenizer.decode([i for i in ids if i not in special]).split("e")[0]
        assert lines[number]["answers"] == [text]
        assert lines[number]["n_cut"] == (len(prompt) < len(tokenizer.encode(item.context)))
    assert score.n_cut == 2
    assert evaluate_answers(model, tokenizer, items, LETTER_FORMS, options, **common) == score
    with pytest.raises(CheckpointError):
        evaluate_answers(model, tokenizer, items, LETTER_FORMS, AnswerOptions(max_tokens=5), **common)
    sampled = AnswerOptions(max_tokens=6, n_samples=3, temperature=1.0)
    texts = [
        evaluate_answers(
            model, tokenizer, items, LETTER_FORMS, sampled, results=tmp_path / f"{size}", batch_size=size
        )
        and sorted((tmp_path / f"{size}").read_text().splitlines()[1:])
        for size in (1, 9)
    ]
    assert texts[0] == texts[1]  # answers depend on the seed alone


def test_options_that_cannot_be_met_are_refused(model: Any, corpus: Corpus):
    items = [AnswerItem("The cat", "1")]
    for options, message in (
        (AnswerOptions(max_tokens=24), "no room for a prompt"),
        (AnswerOptions(max_tokens=4, n_samples=2), "all the same"),
        (AnswerOptions(max_tokens=4, chat=True), "no chat template"),
    ):
        with pytest.raises(RunConfigError, match=message):
            evaluate_answers(model, corpus.tokenizer, items, LETTER_FORMS, options)
