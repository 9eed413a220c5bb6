"""Models behind the API, against the functions of the package."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import bytemill
from bytemill.comparison.figures import FIGURES, Counted, Figure, Value
from bytemill.lm.generation.decoding import SamplingParameters, next_log_probabilities, next_tokens
from bytemill.lm.inspection import surprisal, trace
from bytemill.lm.training.saved_model import TrainedModel, load_trained
from bytemill.studio.models import LoadedModel
from bytemill.studio.routes import models
from tests.studio.conftest import id_of


@pytest.fixture(scope="module")
def trained(root: Path) -> TrainedModel:
    return load_trained(root / "runs" / "first", "cpu")


@pytest.fixture
def path(client: httpx.Client) -> str:
    return f"/models/{id_of(client, 'runs/first', 'models')}"


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = answer.read().decode().strip().split("\n\n")
    found: list[tuple[str, dict[str, Any]]] = []
    for block in blocks:
        name, data = block.split("\n", 1)
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return [event for event in found if event[0] != "model"]


def test_generated_tokens_are_those_of_the_package(client: httpx.Client, path: str, trained: TrainedModel):
    ids = client.post(f"{path}/prompt", json={"text": "The cat"}).json()["ids"]
    assert ids == trained.tokenizer.encode("The cat")
    sampling = {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "min_p": 0.01}
    body = {"ids": ids, "sampling": sampling, "max_tokens": 12, "seed": 3, "n_alternatives": 4}
    *tokens, (last, _) = events(client, f"{path}/generate", body)
    own = list(
        next_tokens(
            trained.model,
            ids,
            12,
            SamplingParameters(**sampling),
            seed=3,
            stop_ids=trained.tokenizer.special_tokens.values(),
        )
    )
    assert [data["id"] for _, data in tokens] == [token.id for token in own]
    assert last == "done"
    for (_, data), token in zip(tokens, own, strict=True):
        p = torch.softmax(token.logits.double(), 0)
        assert data["probability"] == pytest.approx(float(p[token.id]), rel=1e-4)
        assert len(data["alternatives"]) == 4
        assert data["alternatives"][0]["probability"] == pytest.approx(float(p.max()), rel=1e-4)


def test_a_branch_continues_as_its_prefix_says(client: httpx.Client, path: str):
    ids = client.post(f"{path}/prompt", json={"text": "The"}).json()["ids"]
    body = {"ids": ids, "sampling": {"temperature": 0}, "max_tokens": 6}
    first = [data["id"] for name, data in events(client, f"{path}/generate", body) if name == "token"]
    rest = events(client, f"{path}/generate", {**body, "ids": [*ids, *first[:3]], "max_tokens": 3})
    assert [data["id"] for name, data in rest if name == "token"] == first[3:]


def test_an_empty_prompt_starts_a_document(client: httpx.Client, path: str, trained: TrainedModel):
    assert client.post(f"{path}/prompt", json={"text": ""}).json()["ids"] == [trained.tokenizer.eot_token]
    assert events(client, f"{path}/generate", {"ids": [], "max_tokens": 1, "seed": 1})[-1][0] == "done"


def test_the_token_that_began_training_documents_is_put_first(
    client: httpx.Client, path: str, trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
):
    own = replace(trained, bos_id=7)
    monkeypatch.setattr(models, "_load", lambda *_: LoadedModel(own, 6, ""))
    ids = [7, *trained.tokenizer.encode("The cat")]
    assert client.post(f"{path}/prompt", json={"text": ""}).json()["ids"] == [7]
    assert client.post(f"{path}/prompt", json={"text": "The cat"}).json()["ids"] == ids
    inside = client.post(f"{path}/inside", json={"text": "The cat"}).json()
    assert (inside["ids"], inside["first_byte"]) == (ids, -len(own.tokenizer.decode_single_token_bytes(7)))
    found = client.post(f"{path}/surprisal", json={"text": "The cat"}).json()
    expected = surprisal(own.model, own.tokenizer, "The cat", bos_id=7)
    assert found["bits"] == pytest.approx(expected.bits.tolist(), rel=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 0}, {"max_tokens": 10**9}, {"sampling": {"temperature": -1}}, {"ids": [-1]},
        {"sampling": {"top_p": 0}}, {"n_alternatives": 10**6}, {"ids": [0] * 20_000}, {"extra": 1},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(client: httpx.Client, path: str, change: dict[str, Any]):
    answer = client.post(f"{path}/generate", json={"ids": [1], "max_tokens": 1, **change})
    assert answer.status_code == 422


def test_an_id_that_the_model_lacks_is_an_error(client: httpx.Client, path: str):
    (name, data), *_ = events(client, f"{path}/generate", {"ids": [10**6], "max_tokens": 1})
    assert name == "failed"
    assert "1000000" in data["message"]
    assert client.post(f"{path}/sampling", json={"ids": [10**6]}).status_code == 422


def test_stages_of_sampling(client: httpx.Client, path: str, trained: TrainedModel):
    ids = trained.tokenizer.encode("The cat saw")
    sampling = {"temperature": 0.5, "top_k": 10, "min_p": 0.05}
    found = client.post(f"{path}/sampling", json={"ids": ids, "sampling": sampling, "n_tokens": 12}).json()
    with torch.inference_mode():
        logits = trained.model(torch.tensor([ids]), last_only=True)[0, -1, : trained.tokenizer.n_vocab]
    last = next_log_probabilities(logits, SamplingParameters(**sampling), ids).exp()
    assert found["stages"][-1]["probabilities"] == pytest.approx(
        [float(last[token["id"]]) for token in found["tokens"]], abs=1e-6
    )
    assert [stage["name"] for stage in found["stages"] if stage["is_active"]] == [
        "model", "temperature", "top_k", "min_p",
    ]  # fmt: skip


def test_ids_without_a_token_are_never_shown(
    client: httpx.Client, path: str, trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
):
    n_ids = trained.model.config.vocab_size
    gaps = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], {"<|endoftext|>": n_ids - 2})
    own = LoadedModel(replace(trained, tokenizer=gaps), 6, "")
    monkeypatch.setattr(models, "_load", lambda *_: own)
    body = {"ids": [72], "max_tokens": 12, "seed": 1, "n_alternatives": 20, "stop_at_special": False}
    *tokens, (last, _) = events(client, f"{path}/generate", body)
    assert last == "done"
    shown = {each["id"] for _, data in tokens for each in (data, *data["alternatives"])}
    found = client.post(f"{path}/sampling", json={"ids": [72], "n_tokens": 64}).json()
    shown |= {token["id"] for token in found["tokens"]}
    assert found["stages"][0]["n_kept"] == 257
    inside = client.post(f"{path}/inside", json={"text": "The cat"}).json()
    shown |= {token["id"] for layer in inside["lens"] for best in layer for token in best}
    assert shown <= gaps.vocab.keys()


def test_surprisal_and_checkpoints(client: httpx.Client, path: str, root: Path):
    text = "The naïve bird saw the 犬. " * 5
    for step in (2, 6):
        own = load_trained(root / "runs" / "first" / "checkpoints" / f"step_{step:08d}", "cpu")
        expected = surprisal(own.model, own.tokenizer, text)
        found = client.post(f"{path}/surprisal", json={"text": text, "checkpoint": step}).json()
        assert found["bits"] == pytest.approx(expected.bits.tolist(), rel=1e-4)
        assert found["bits_per_byte"] == pytest.approx(expected.bits_per_byte, rel=1e-4)
        assert bytes.fromhex("".join(found["tokens"])).decode() == text
    assert client.post(f"{path}/surprisal", json={"text": text, "checkpoint": 3}).status_code == 404


def test_inside(client: httpx.Client, path: str, trained: TrainedModel):
    text = "The cat saw the dog."
    found = client.post(f"{path}/inside", json={"text": text}).json()
    ids = trained.tokenizer.encode(text)
    expected = trace(trained.model, ids)
    assert (found["ids"], found["n_before"], found["is_cut"]) == (ids, 0, False)
    assert found["norms"] == [pytest.approx(row, rel=1e-4) for row in expected.residual_norms.tolist()]
    n = found["thumbnail_size"]
    images = np.frombuffer(base64.b64decode(found["thumbnails"]), np.uint8).reshape(2, 2, n, n)
    assert images.max(-1).min() == 255  # each row is relative to its largest value
    head = client.post("/inside/head", json={"key": found["key"], "layer": 1, "head": 1}).json()
    weights = np.frombuffer(base64.b64decode(head["weights"]), "<f4").reshape(len(ids), len(ids))
    assert np.allclose(weights, expected.attention[1][1].numpy(), atol=1e-5)
    for change in ({"key": "no"}, {"layer": 9}, {"head": 9}):
        body = {"key": found["key"], "layer": 0, "head": 0, **change}
        assert client.post("/inside/head", json=body).status_code == 404


def test_a_comparison_is_that_of_the_package(client: httpx.Client, root: Path):
    import bytemill
    from bytemill.datasets import DECLARATION

    text = "\n".join(f"The cat saw {i} dogs in the garden." for i in range(50))
    names = ["tokenizer", "smaller"]
    opened = client.post("/texts", json={"text": text}).json()
    found = client.post(
        "/comparison", json={"text": opened["id"], "tokenizers": [id_of(client, name) for name in names]}
    ).json()
    tokenizers = {name: bytemill.Tokenizer.load(root / f"{name}.json") for name in names}
    expected = bytemill.compare(
        tokenizers, bytemill.Corpus.from_texts(text.split("\n")), parallel=DECLARATION
    )
    assert found["names"] == names
    for row in found["figures"]:
        own = expected.values["text"][row["name"]]
        assert [value["value"] for value in row["values"]] == [own[name].value for name in names]
    assert expected.parallel is not None
    assert found["languages"]["gini"] == [expected.parallel.gini[name] for name in names]
    assert len(found["languages"]["languages"]) == 23


def test_a_registered_figure_is_compared(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    def n_ids(counted: Counted) -> Value:
        return Value(float((counted.histogram > 0).sum()))

    monkeypatch.setitem(FIGURES, "n_ids", Figure("n_ids", "ids", "distinct ids that occur", "", n_ids))
    opened = client.post("/texts", json={"text": "The cat saw the cat.\nTwo lines."}).json()
    body = {"text": opened["id"], "tokenizers": [id_of(client, "tokenizer"), id_of(client, "smaller")]}
    row = client.post("/comparison", json=body).json()["figures"][-1]
    assert (row["name"], row["title"], row["formula"]) == ("n_ids", "ids", "distinct ids that occur")
    assert [value["shown"] for value in row["values"]] == [f"{value['value']:.3f}" for value in row["values"]]
    assert all(value["value"] > 5 for value in row["values"])


def test_a_comparison_without_text_says_so(client: httpx.Client):
    opened = client.post("/texts", json={"text": "\n\n"}).json()
    body = {"text": opened["id"], "tokenizers": [id_of(client, "tokenizer"), id_of(client, "smaller")]}
    answer = client.post("/comparison", json=body)
    assert answer.status_code == 422
    assert answer.json()["hint"]
