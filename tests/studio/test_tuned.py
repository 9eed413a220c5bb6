"""Chat, training conversations and records of tuned runs behind the API, against the functions of the package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bytemill.lm.generation.chat import chat_prompt
from bytemill.lm.generation.text_generation import GenerationOptions, SamplingParameters, generate_text
from bytemill.lm.training.saved_model import load_trained
from bytemill.shards import TokenShards
from bytemill.studio.library import Library
from tests.studio.conftest import client_of, id_of

GREEDY = {"sampling": {"temperature": 0.0}, "max_tokens": 6}


@pytest.fixture(scope="module")
def client(tuned: Path) -> Iterator[httpx.Client]:
    with client_of(Library(tuned)) as own:
        yield own


def answer(client: httpx.Client, run: str, messages: list[dict[str, str]], **values: Any) -> list[Any]:
    path = f"/models/{id_of(client, run, 'models')}/chat"
    found = client.post(path, json={"messages": messages, **GREEDY, **values})
    assert found.status_code == 200, found.text
    blocks = (block.split("\n", 1) for block in found.text.strip().split("\n\n"))
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def test_an_answer_is_that_of_the_package_and_ends_with_the_turn(tuned: Path, client: httpx.Client):
    trained = load_trained(tuned / "sft", "cpu")
    context_length = trained.model.config.context_length
    for messages, n_forgotten in (
        (said("3"), 0),
        ([{"role": "system", "content": "s"}, *said("3", "3!", "7")], 0),
        (said("1", "1!", "2", "2!", "7", "7!", "5"), 2),  # the first turns do not fit
    ):
        (_, prompt), *tokens, (last, _) = answer(client, "sft", messages)
        assert last == "done"
        own = chat_prompt(trained.tokenizer, messages, context_length, 6)
        assert (prompt["ids"], prompt["n_forgotten"]) == (own.ids, own.n_forgotten)
        assert own.n_forgotten == n_forgotten
        assert len(own.ids) <= context_length - 6
        assert [own.ids[0]] == trained.tokenizer.encode("S" if messages[0]["role"] == "system" else "Q")
        assert [bytes.fromhex(token) for token in prompt["tokens"]] == [
            trained.tokenizer.decode_single_token_bytes(i) for i in own.ids
        ]
        options = GenerationOptions(6, SamplingParameters(temperature=0))
        texts = [new.text for new in generate_text(trained.model, trained.tokenizer, own.text, options)]
        assert [token["text"] for _, token in tokens] == texts
        if messages == said("3"):  # as in training
            assert "".join(texts) == "3!"
            assert [token["special"] for _, token in tokens] == [False, False, True]


def test_what_cannot_be_answered_is_said(client: httpx.Client):
    path = f"/models/{id_of(client, 'plain', 'models')}/chat"
    found = client.post(f"{path}/prompt", json={"messages": []})
    assert found.status_code == 422
    assert "plain has no chat template" in found.json()["detail"]
    assert "tune the model on conversations" in found.json()["hint"]
    assert answer(client, "plain", said("1"))[-1][0] == "failed"
    path = f"/models/{id_of(client, 'sft', 'models')}/chat"
    assert client.post(f"{path}/prompt", json={"messages": []}).json()["ids"] == []
    ((name, event),) = answer(client, "sft", said("x" * 40))
    assert name == "failed"
    assert "exceeds the context of 24 tokens" in event["message"]
    assert client.post(path, json={"messages": [{"role": "tool", "content": ""}]}).status_code == 422


@pytest.mark.parametrize(
    ("run", "folders"), [("sft", ["chats"]), ("dpo", ["pairs/chosen", "pairs/rejected"])]
)
def test_training_conversations_are_those_of_the_shards(
    tuned: Path, client: httpx.Client, run: str, folders: list[str]
):
    found = client.get(f"/runs/{id_of(client, run, 'runs')}/conversations").json()["sets"]
    assert [each["name"] for each in found] == [folder.rpartition("/")[2] for folder in folders]
    for each, folder in zip(found, folders, strict=True):
        shards = TokenShards(tuned / folder)
        ends = shards.document_ends()
        assert ends is not None
        assert each["n_conversations"] == len(ends)
        start = 0
        for example, end in zip(each["examples"], ends[:3].tolist(), strict=True):
            tokens = [
                bytes.fromhex(token)[0]
                for token, mark in zip(example["tokens"], example["special"], strict=True)
                if not mark
            ]
            assert tokens == [i for i in shards.read(start, end).tolist() if i < 256]
            assert example["is_target"] == shards.mask(start, end).tolist()
            assert example["n_tokens"] == end - start
            start = end


def test_shards_are_read_below_the_folder_of_the_studio_alone(tuned: Path, tmp_path: Path):
    run = tmp_path / "root" / "run"
    run.mkdir(parents=True)
    for name in ("tokenizer.json", "chat_template.jinja", "metrics.jsonl"):
        (run / name).write_bytes((tuned / "sft" / name).read_bytes())
    inside = tmp_path / "root" / "inside"
    inside.mkdir()
    for path in (tuned / "chats").iterdir():
        (inside / path.name).symlink_to(path)
    cases = [
        (str(tuned / "chats"), "not below the folder of the studio"),
        ("s3://bucket/shards", "not below the folder of the studio"),
        (str(tmp_path / "root" / "nowhere"), "is gone"),
        (str(inside), "a link that leads outside this folder"),
    ]
    for folder, problem in cases:
        (run / "config.toml").write_text(f"[data]\ntrain = [{json.dumps(folder)}]\n")
        with client_of(Library(tmp_path / "root")) as own:
            found = own.get(f"/runs/{id_of(own, 'run', 'runs')}/conversations")
        assert found.status_code == 422, found.text
        assert problem in found.json()["detail"]
