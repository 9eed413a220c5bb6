"""Beyond the context, every route predicts a token from the window from which generation predicts it."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from bytemill.lm.generation.decoding import next_tokens, window_start
from bytemill.lm.training.saved_model import TrainedModel, load_trained
from tests.studio.conftest import id_of
from tests.studio.test_models import events

CONTEXT = 16
LENGTHS = (3, 16, 17, 18, 25, 26, 34, 38)
"""Numbers of ids around those where the window moves."""


@pytest.fixture(scope="module")
def trained(root: Path) -> TrainedModel:
    return load_trained(root / "runs" / "first", "cpu")


@pytest.fixture
def path(client: httpx.Client) -> str:
    return f"/models/{id_of(client, 'runs/first', 'models')}"


def generated(client: httpx.Client, path: str, ids: list[int], n: int) -> list[dict[str, Any]]:
    body = {"ids": ids, "max_tokens": n, "sampling": {"temperature": 0}, "stop_at_special": False}
    return [data for name, data in events(client, f"{path}/generate", body) if name == "token"]


def test_a_text_that_is_continued_has_the_probabilities_of_one_that_is_generated_at_once(
    client: httpx.Client, path: str, trained: TrainedModel
):
    assert trained.model.config.context_length == CONTEXT
    start = client.post(f"{path}/prompt", json={"text": "The cat"}).json()["ids"]
    tokens = generated(client, path, start, 40)
    ids = [*start, *(token["id"] for token in tokens)]
    assert [token["window_start"] for token in tokens] == [
        window_start(n, CONTEXT) for n in range(len(start), len(ids))
    ]
    for n in LENGTHS[1:]:
        token = tokens[n - len(start)]
        (continued,) = generated(client, path, ids[:n], 1)
        assert continued["id"] == token["id"]
        assert continued["probability"] == pytest.approx(token["probability"], rel=1e-4)
        lab = client.post(f"{path}/sampling", json={"ids": ids[:n], "n_tokens": 1}).json()["tokens"][0]
        assert lab["probability"] == pytest.approx(token["probability"], rel=1e-4)


def test_a_penalty_of_the_lab_counts_all_ids_as_generation_does(client: httpx.Client, path: str):
    ids = client.post(f"{path}/prompt", json={"text": "The cat saw the dog. " * 4}).json()["ids"]
    assert set(ids) - set(ids[window_start(len(ids), CONTEXT) :])
    sampling = {"repetition_penalty": 3.0}
    body = {"ids": ids, "sampling": sampling, "max_tokens": 1, "n_alternatives": 50, "seed": 0}
    (_, token), *_ = events(client, f"{path}/generate", body)
    lab = client.post(f"{path}/sampling", json={"ids": ids, "sampling": sampling, "n_tokens": 50}).json()
    expected = {each["id"]: each["sampled"] for each in token["alternatives"]}
    assert {each["id"]: each["sampled"] for each in lab["tokens"]} == pytest.approx(expected, rel=1e-4)


def test_surprisal_and_the_lens_are_those_of_generation(
    client: httpx.Client, path: str, trained: TrainedModel
):
    text = "The naïve bird saw the 犬. " * 8
    ids = [trained.tokenizer.eot_token, *trained.tokenizer.encode(text)]
    assert len(ids) > 3 * CONTEXT
    expected: list[np.ndarray[Any, Any]] = []
    for n in range(1, len(ids) + 1):
        (token,) = next_tokens(trained.model, ids[:n], 1)
        expected.append(torch.softmax(token.logits.double(), 0).numpy())

    found = client.post(f"{path}/surprisal", json={"text": text}).json()
    assert bytes.fromhex(found["start"]) == b"<|endoftext|>"
    assert found["bits"] == pytest.approx(
        [-np.log2(p[i]) for p, i in zip(expected, ids[1:], strict=False)], rel=1e-4
    )
    assert found["window_starts"] == [window_start(n, CONTEXT) - 1 for n in range(1, len(ids))]

    is_checked = np.zeros(len(ids), bool)
    for n in LENGTHS:
        prompt = f"<|endoftext|>{trained.tokenizer.decode(ids[1:n])}"
        inside = client.post(f"{path}/inside", json={"text": prompt}).json()
        start = inside["n_before"]
        assert (inside["ids"], start) == (ids[start:n], window_start(n, CONTEXT))
        assert inside["first_byte"] == len(trained.tokenizer.decode_bytes(ids[:start]))
        assert inside["special"] == [i == trained.tokenizer.eot_token for i in ids[start:n]]
        assert inside["lens"][-1][-1], "the token after the text is predicted from this window"
        for i, best in enumerate(inside["lens"][-1], start):
            assert [each["probability"] for each in best] == pytest.approx(
                [expected[i][each["id"]] for each in best], rel=1e-4
            )
            is_checked[i] |= len(best) == 5
    assert is_checked[:38].all()
