"""Models behind the API, against the functions of the package."""

import base64
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import bytemill
from bytemill.comparison.figures import FIGURES, Counted, Figure, Value
from bytemill.datasets import DECLARATION
from bytemill.errors import CheckpointError
from bytemill.lm.generation.decoding import (
    SamplingParameters,
    next_log_probabilities,
    next_tokens,
    window_start,
)
from bytemill.lm.inspection import surprisal, trace
from bytemill.lm.training.saved_model import TrainedModel, load_trained
from bytemill.studio.library import Library
from bytemill.studio.models import MAX_LOADED, LoadedModel, Models
from bytemill.studio.routes import models
from bytemill.studio.schemas import Sampling
from tests.studio.conftest import client_of, id_of

CONTEXT = 16
LENGTHS = (3, 16, 17, 18, 25, 26, 34, 38)
"""Numbers of ids around those where the window moves."""


@pytest.fixture(scope="module")
def trained(root: Path) -> TrainedModel:
    return load_trained(root / "runs" / "first", "cpu")


@pytest.fixture
def path(client: httpx.Client) -> str:
    return f"/models/{id_of(client, 'runs/first', 'models')}"


def post(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    answer = client.post(path, json=body)
    while answer.status_code == 429:  # a quick machine sends more than the studio allows
        time.sleep(float(answer.headers["Retry-After"]))
        answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    with client.stream("POST", f"{path}/generate", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = answer.read().decode().strip().split("\n\n")
    found: list[tuple[str, dict[str, Any]]] = []
    for block in blocks:
        name, data = block.split("\n", 1)
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return [event for event in found if event[0] != "model"]


def test_generated_tokens_are_those_of_the_package(client: httpx.Client, path: str, trained: TrainedModel):
    ids = post(client, f"{path}/prompt", {"text": "The cat"})["ids"]
    assert ids == trained.tokenizer.encode("The cat")
    sampling = {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "min_p": 0.01}
    body = {"ids": ids, "sampling": sampling, "max_tokens": 12, "seed": 3, "n_alternatives": 4}
    *tokens, (last, _) = events(client, path, body)
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


def test_an_empty_prompt_starts_a_document(client: httpx.Client, path: str, trained: TrainedModel):
    assert post(client, f"{path}/prompt", {"text": ""})["ids"] == [trained.tokenizer.eot_token]
    assert events(client, path, {"ids": [], "max_tokens": 1, "seed": 1})[-1][0] == "done"


def test_the_token_that_began_training_documents_is_put_first(
    client: httpx.Client, path: str, trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
):
    own = replace(trained, bos_id=7)
    monkeypatch.setattr(models, "_load", lambda *_: LoadedModel(own, 6, ""))
    ids = [7, *trained.tokenizer.encode("The cat")]
    assert post(client, f"{path}/prompt", {"text": ""})["ids"] == [7]
    assert post(client, f"{path}/prompt", {"text": "The cat"})["ids"] == ids
    inside = post(client, f"{path}/inside", {"text": "The cat"})
    assert (inside["ids"], inside["first_byte"]) == (ids, -len(own.tokenizer.decode_single_token_bytes(7)))
    found = post(client, f"{path}/surprisal", {"text": "The cat"})
    expected = surprisal(own.model, own.tokenizer, "The cat", bos_id=7)
    assert found["bits"] == pytest.approx(expected.bits.tolist(), rel=1e-4)


def test_an_id_that_the_model_lacks_is_an_error(client: httpx.Client, path: str):
    (name, data), *_ = events(client, path, {"ids": [10**6], "max_tokens": 1})
    assert name == "failed"
    assert "1000000" in data["message"]
    assert client.post(f"{path}/sampling", json={"ids": [10**6]}).status_code == 422


def test_stages_of_sampling(client: httpx.Client, path: str, trained: TrainedModel):
    ids = trained.tokenizer.encode("The cat saw")
    sampling = {"temperature": 0.5, "top_k": 10, "min_p": 0.05}
    found = post(client, f"{path}/sampling", {"ids": ids, "sampling": sampling, "n_tokens": 12})
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
    *tokens, (last, _) = events(client, path, body)
    assert last == "done"
    shown = {each["id"] for _, data in tokens for each in (data, *data["alternatives"])}
    found = post(client, f"{path}/sampling", {"ids": [72], "n_tokens": 64})
    shown |= {token["id"] for token in found["tokens"]}
    assert found["stages"][0]["n_kept"] == 257
    inside = post(client, f"{path}/inside", {"text": "The cat"})
    shown |= {token["id"] for layer in inside["lens"] for best in layer for token in best}
    assert shown <= gaps.vocab.keys()


def test_surprisal_and_checkpoints(client: httpx.Client, path: str, root: Path):
    text = "The naïve bird saw the 犬. " * 5
    for step in (2, 6):
        own = load_trained(root / "runs" / "first" / "checkpoints" / f"step_{step:08d}", "cpu")
        expected = surprisal(own.model, own.tokenizer, text)
        found = post(client, f"{path}/surprisal", {"text": text, "checkpoint": step})
        assert found["bits"] == pytest.approx(expected.bits.tolist(), rel=1e-4)
        assert found["bits_per_byte"] == pytest.approx(expected.bits_per_byte, rel=1e-4)
        assert bytes.fromhex("".join(found["tokens"])).decode() == text
        assert not found["is_evaluated"]  # it has several windows
    assert post(client, f"{path}/surprisal", {"text": "The cat"})["is_evaluated"]
    assert not post(client, f"{path}/surprisal", {"text": "The cat<|endoftext|>"})["is_evaluated"]
    assert client.post(f"{path}/surprisal", json={"text": text, "checkpoint": 3}).status_code == 404


def test_inside(client: httpx.Client, path: str, trained: TrainedModel):
    text = "The cat saw the dog."
    found = post(client, f"{path}/inside", {"text": text})
    ids = trained.tokenizer.encode(text)
    expected = trace(trained.model, ids)
    assert (found["ids"], found["n_before"], found["is_cut"]) == (ids, 0, False)
    assert found["norms"] == [pytest.approx(row, rel=1e-4) for row in expected.residual_norms.tolist()]
    n = found["thumbnail_size"]
    images = np.frombuffer(base64.b64decode(found["thumbnails"]), np.uint8).reshape(2, 2, n, n)
    assert images.max(-1).min() == 255  # each row is relative to its largest value
    head = post(client, "/inside/head", {"key": found["key"], "layer": 1, "head": 1})
    weights = np.frombuffer(base64.b64decode(head["weights"]), "<f4").reshape(len(ids), len(ids))
    assert np.allclose(weights, expected.attention[1][1].numpy(), atol=1e-5)
    for change in ({"key": "no"}, {"layer": 9}, {"head": 9}):
        body = {"key": found["key"], "layer": 0, "head": 0, **change}
        assert client.post("/inside/head", json=body).status_code == 404


def test_a_comparison_is_that_of_the_package(
    client: httpx.Client, root: Path, monkeypatch: pytest.MonkeyPatch
):
    def n_ids(counted: Counted) -> Value:
        return Value(float((counted.histogram > 0).sum()))

    # A figure that was registered is compared too.
    monkeypatch.setitem(FIGURES, "n_ids", Figure("n_ids", "ids", "distinct ids that occur", "", n_ids))
    text = "\n".join(f"The cat saw {i} dogs in the garden." for i in range(50))
    names = ["tokenizer", "smaller"]
    body = {"text": "", "tokenizers": [id_of(client, name) for name in names]}
    found = post(client, "/comparison", body | {"text": post(client, "/texts", {"text": text})["id"]})
    tokenizers = {name: bytemill.Tokenizer.load(root / f"{name}.json") for name in names}
    expected = bytemill.compare(
        tokenizers, bytemill.Corpus.from_texts(text.split("\n")), parallel=DECLARATION
    )
    assert found["names"] == names
    for row in found["figures"]:
        own = expected.values["text"][row["name"]]
        assert [value["value"] for value in row["values"]] == [own[name].value for name in names]
    row = found["figures"][-1]
    assert (row["name"], row["title"], row["formula"]) == ("n_ids", "ids", "distinct ids that occur")
    assert [value["shown"] for value in row["values"]] == [f"{value['value']:.3f}" for value in row["values"]]
    assert expected.parallel is not None
    assert found["languages"]["gini"] == [expected.parallel.gini[name] for name in names]
    assert len(found["languages"]["languages"]) == 23
    answer = client.post("/comparison", json=body | {"text": post(client, "/texts", {"text": "\n\n"})["id"]})
    assert (answer.status_code, answer.json()["detail"]) == (422, "the text is empty")
    assert answer.json()["hint"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", ["1e-300", "0.009", "-1", "100.1", "NaN", "Infinity", "1e999"]),
        ("top_p", ["0", "-0.1", "1.1", "NaN", "Infinity"]),
        ("min_p", ["-1", "1.1", "NaN"]),
        ("repetition_penalty", ["0", "1e-300", "-1", "11", "NaN", "Infinity"]),
        ("top_k", ["-1", "1.5", "NaN", "1e30", "99999999999999999999"]),
        ("no_repeat_ngram", ["-1", "65"]),
        ("seed", ["-1", "1.5", "NaN", "4611686018427387904"]),
        ("max_tokens", ["0", "NaN", "2049"]),
        ("n_alternatives", ["-1", "51"]),
        ("ids", ["[-1]", f"[{'0, ' * 16_384}0]"]),
        ("extra", ["1"]),
    ],
)
def test_values_out_of_range_are_refused_by_name(
    client: httpx.Client, path: str, name: str, values: list[str]
):
    is_sampling = name in Sampling.model_fields
    for value in values:
        change = f'"sampling": {{"{name}": {value}}}' if is_sampling else f'"{name}": {value}'
        for route in ("generate", "sampling") if is_sampling else ("generate",):
            body, headers = f'{{"ids": [1], {change}}}', {"content-type": "application/json"}
            answer = client.post(f"{path}/{route}", content=body, headers=headers)
            assert answer.status_code == 422, (route, name, value)
            assert answer.json()["detail"].startswith("sampling." * is_sampling + name), answer.text
            assert "Value error" not in answer.json()["detail"]


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.01}, {"temperature": 0}, {"temperature": 100}, {"top_p": 1e-300}, {"min_p": 1e-300},
        {"min_p": 1}, {"repetition_penalty": 0.01}, {"repetition_penalty": 10}, {"top_k": 1},
        {"temperature": 0.01, "top_p": 1e-300, "min_p": 1, "repetition_penalty": 10, "no_repeat_ngram": 1},
    ],
)  # fmt: skip
def test_values_at_the_ends_of_their_ranges_give_probabilities(
    client: httpx.Client, path: str, sampling: dict[str, float]
):
    ids = post(client, f"{path}/prompt", {"text": "The cat saw the dog."})["ids"]
    body = {"ids": ids, "sampling": sampling, "n_tokens": 50}
    found = post(client, f"{path}/sampling", body)
    for stage in found["stages"]:
        assert stage["n_kept"] >= 1
        assert 0 <= stage["entropy_bits"] < 10
        assert all(0 <= p <= 1 for p in stage["probabilities"])
    body = {"ids": ids, "sampling": sampling, "max_tokens": 3, "seed": 1}
    (_, token), *rest = events(client, path, body)
    assert "NaN" not in repr(rest)
    assert token["sampled"] > 0
    if sampling.get("temperature") == 0:
        assert token["id"] == found["tokens"][0]["id"]


def generated(client: httpx.Client, path: str, ids: list[int], n: int) -> list[dict[str, Any]]:
    body = {"ids": ids, "max_tokens": n, "sampling": {"temperature": 0}, "stop_at_special": False}
    return [data for name, data in events(client, path, body) if name == "token"]


def test_a_text_that_is_continued_has_the_probabilities_of_one_that_is_generated_at_once(
    client: httpx.Client, path: str, trained: TrainedModel
):
    assert trained.model.config.context_length == CONTEXT
    start = post(client, f"{path}/prompt", {"text": "The cat"})["ids"]
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
        lab = post(client, f"{path}/sampling", {"ids": ids[:n], "n_tokens": 1})["tokens"][0]
        assert lab["probability"] == pytest.approx(token["probability"], rel=1e-4)


def test_a_penalty_of_the_lab_counts_all_ids_as_generation_does(client: httpx.Client, path: str):
    ids = post(client, f"{path}/prompt", {"text": "The cat saw the dog. " * 4})["ids"]
    assert set(ids) - set(ids[window_start(len(ids), CONTEXT) :])
    sampling = {"repetition_penalty": 3.0}
    body = {"ids": ids, "sampling": sampling, "max_tokens": 1, "n_alternatives": 50, "seed": 0}
    (_, token), *_ = events(client, path, body)
    lab = post(client, f"{path}/sampling", {"ids": ids, "sampling": sampling, "n_tokens": 50})
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

    found = post(client, f"{path}/surprisal", {"text": text})
    assert bytes.fromhex(found["start"]) == b"<|endoftext|>"
    assert found["bits"] == pytest.approx(
        [-np.log2(p[i]) for p, i in zip(expected, ids[1:], strict=False)], rel=1e-4
    )
    assert found["window_starts"] == [window_start(n, CONTEXT) - 1 for n in range(1, len(ids))]

    is_checked = np.zeros(len(ids), bool)
    for n in LENGTHS:
        prompt = f"<|endoftext|>{trained.tokenizer.decode(ids[1:n])}"
        inside = post(client, f"{path}/inside", {"text": prompt})
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


# Files that change.


@pytest.fixture
def changing(own: Path) -> Iterator[tuple[httpx.Client, str]]:
    """A client of a studio whose run changes, and the path of its model."""
    with client_of(Library(own)) as client:
        yield client, f"/models/{id_of(client, 'run', 'models')}"


MODEL_ROUTES: dict[str, dict[str, Any]] = {
    "prompt": {"text": "The cat"},
    "sampling": {"ids": [72]},
    "surprisal": {"text": "The cat", "checkpoint": 6},
    "inside": {"text": "The cat"},
}


def replace_run(folder: Path, step: int) -> None:
    """Put a new run in its place, as training with `--overwrite` does; its newest weights are those of a step."""
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    checkpoints = other / "checkpoints"
    shutil.rmtree(checkpoints / "step_00000006")
    shutil.copytree(checkpoints / f"step_{step:08d}", checkpoints / "step_00000006")
    shutil.rmtree(folder)
    other.rename(folder)


def test_weights_that_were_trained_anew_are_used_at_once_by_every_route(
    changing: tuple[httpx.Client, str], own: Path
):
    client, path = changing

    def answers() -> dict[str, Any]:
        found = {name: post(client, f"{path}/{name}", body) for name, body in MODEL_ROUTES.items()}
        (line,) = client.post(f"{path}/generate", json={"ids": [72], "max_tokens": 1}).text.splitlines()[1:2]
        found["generate"] = json.loads(line.removeprefix("data: "))
        (found["list"],) = client.get("/models").json()["models"]
        return found

    def stamps(found: dict[str, Any]) -> set[str]:
        listed = found["list"]["stamps"]
        assert found["list"]["checkpoints"] == [2, 4, 6]
        assert list(listed) == ["6"]  # the others were not loaded
        assert {each["checkpoint"] for each in found.values() if "checkpoint" in each} == {6}
        return {listed["6"], *(each["stamp"] for each in found.values() if "stamp" in each)}

    before = answers()
    seen = client.get("/status").json()["library"]
    replace_run(own / "run", step=2)
    assert client.get("/status").json()["library"] != seen
    after = answers()
    assert len(stamps(before)) == len(stamps(after)) == 1
    assert stamps(before) != stamps(after)
    trained = load_trained(own / "run", "cpu")
    expected = surprisal(trained.model, trained.tokenizer, "The cat")
    assert after["surprisal"]["bits"] == pytest.approx(expected.bits.tolist(), rel=1e-4)
    assert after["inside"]["key"] != before["inside"]["key"]
    assert after["inside"]["norms"] != before["inside"]["norms"]
    # Ids of the earlier model are not continued with the later one.
    old = {"ids": [72], "stamp": before["prompt"]["stamp"]}
    refused = client.post(f"{path}/sampling", json=old)
    assert (refused.status_code, refused.json()["detail"]) == (
        409, "run has changed on disk since these tokens were made",
    )  # fmt: skip
    ((name, data),) = events(client, path, old)
    assert (name, data["message"]) == ("failed", refused.json()["detail"])


def test_a_model_that_was_replaced_takes_no_memory(own: Path):
    library = Library(own)
    entry = next(iter(library.shelf()["runs"].values()))
    kept = Models(library.stamps, "cpu")
    first = kept.load(entry, 6)
    replace_run(own / "run", step=2)
    second = kept.load(entry, None)
    assert first.stamp != second.stamp
    assert list(kept._loaded.values()) == [second]  # pyright: ignore[reportPrivateUsage]
    for folder in ("second", "third", "fourth"):
        shutil.copytree(own / "run", own / folder)
        kept.load(replace(entry, path=own / folder))
    assert len(kept._loaded) == MAX_LOADED  # pyright: ignore[reportPrivateUsage]


def test_a_half_replaced_folder_is_an_error_until_it_is_whole(changing: tuple[httpx.Client, str], own: Path):
    client, path = changing[0], f"{changing[1]}/surprisal"
    body = MODEL_ROUTES["surprisal"]
    first = client.post(path, json=body).json()
    weights = own / "run" / "checkpoints" / "step_00000006" / "model.safetensors"
    whole = weights.read_bytes()
    for half in (whole[: len(whole) // 2], whole[:-4] + b"\0\0\0\0", b""):
        weights.write_bytes(half)
        answer = client.post(path, json=body)
        assert answer.status_code == 422
        assert "model.safetensors is damaged" in answer.json()["detail"]
        assert "try again" in answer.json()["hint"]
        # The run has an older checkpoint, which is named by its step.
        assert client.post(path, json={"text": "The cat"}).json()["checkpoint"] == 4
    weights.write_bytes(whole)
    assert client.post(path, json=body).json() == first


def test_a_checkpoint_that_is_removed_while_it_is_read_is_not_there(
    changing: tuple[httpx.Client, str], own: Path, monkeypatch: pytest.MonkeyPatch
):
    client, path = changing[0], f"{changing[1]}/prompt"
    folder = own / "run" / "checkpoints" / "step_00000006"

    def load(path: Path, _: str) -> Any:
        if path == folder:
            shutil.rmtree(folder, ignore_errors=True)
            raise CheckpointError("model.safetensors: no such file")
        return load_trained(path, "cpu")

    monkeypatch.setattr("bytemill.lm.training.saved_model.load_trained", load)
    answer = client.post(path, json={"text": "a", "checkpoint": 6})
    assert (answer.status_code, answer.json()["detail"]) == (404, "run has no checkpoint of step 6")
    assert client.post(path, json={"text": "a"}).json()["checkpoint"] == 4
