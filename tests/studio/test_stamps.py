"""Files that change, vanish or are half written while the studio has them loaded."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from bytemill.errors import CheckpointError, TokenizerFileError
from bytemill.lm.inspection import surprisal
from bytemill.lm.training.saved_model import load_trained
from bytemill.studio import models as studio_models
from bytemill.studio.errors import ChangingError
from bytemill.studio.library import Library
from bytemill.studio.server import listen, running
from bytemill.studio.stamps import Stamps
from tests.studio.conftest import id_of
from tests.studio.retraining import make_folder, train_run, train_tokenizer

TEXT = "The cat saw the dog. The child liked the cat."


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Path:
    make_folder(root, tmp_path / "own")
    return tmp_path / "own"


@contextmanager
def client_of(library: Library) -> Iterator[httpx.Client]:
    with (
        running(library, listen(port=0)) as url,
        httpx.Client(base_url=f"{url}api/v1", timeout=60, trust_env=False) as client,
    ):
        yield client


@pytest.fixture
def client(own: Path) -> Iterator[httpx.Client]:
    with client_of(Library(own)) as client:
        yield client


def ids_of(packed: str) -> list[int]:
    return np.frombuffer(base64.b64decode(packed), "<u4").tolist()


def test_a_file_written_again_with_the_same_content_is_the_same(tmp_path: Path):
    path, stamps = tmp_path / "a", Stamps()
    assert stamps.of_opened([path]) is None
    missing = stamps.of([path])
    path.write_text("one")
    first = stamps.of([path])
    path.with_name("b").write_text("one")
    os.utime(path.with_name("b"), (1, 1))
    path.with_name("b").replace(path)
    assert stamps.of_opened([path]) == first
    path.write_text("two")  # of the same size, and perhaps of the same time
    assert len({missing, first, stamps.of([path])}) == 3


def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, stamps = tmp_path / "a", Stamps()
    path.write_text("one")
    os.utime(path, (1, 1))
    first = stamps.of([path])
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read again"))
    assert stamps.of([path]) == first


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path):
    path, stamps = tmp_path / "a", Stamps()
    path.write_text("0")

    def read(changes: list[str], *, fails: bool = False) -> str:
        found = path.read_text()
        if changes:
            path.write_text(changes.pop())
            if fails:
                raise TokenizerFileError("half of it was there")
        return found

    assert stamps.read("a", [path], lambda changes=["1"]: read(changes)) == ("1", stamps.of([path]))
    assert stamps.read("a", [path], lambda changes=["2"]: read(changes, fails=True))[0] == "2"
    with pytest.raises(ChangingError, match="is being written"):
        stamps.read("a", [path], lambda changes=list("98765"): read(changes))
    with pytest.raises(ZeroDivisionError):
        stamps.read("a", [path], lambda: 1 // 0)


def test_a_retrained_tokenizer_is_used_at_once_by_every_route(client: httpx.Client, own: Path):
    tokenizer_id, other = id_of(client, "own"), id_of(client, "run")
    view = {"tokenizer": tokenizer_id}
    path = f"/texts/{client.post('/texts', json={'text': TEXT}).json()['id']}"

    def all_stamps(version: int) -> dict[str, str]:
        change = {"version": version, "edits": [{"start": 0, "end": 0, "text": ""}], "views": [view]}
        compared = client.post(
            "/comparison", json={"text": path.rpartition("/")[2], "tokenizers": [tokenizer_id, other]}
        )
        listed = client.get("/sources").json()["tokenizers"]
        return {
            "summary": client.get(f"/tokenizers/{tokenizer_id}").json()["stamp"],
            "vocabulary": client.get(f"/tokenizers/{tokenizer_id}/vocabulary").json()["stamp"],
            "ids": client.post(f"{path}/ids", json=view).json()["stamp"],
            "change": client.patch(path, json=change).json()["views"][0]["stamp"],
            "explanation": client.post("/explanation", json={**view, "text": "a"}).json()["stamp"],
            "comparison": compared.json()["stamps"][0],
            "list": next(each["stamp"] for each in listed if each["id"] == tokenizer_id),
        }

    before = all_stamps(0)
    assert len(set(before.values())) == 1, before
    seen = client.get("/status").json()["library"]
    smaller = {**view, "vocab_size": 270}
    client.post(f"{path}/ids", json=smaller)
    tokenizer = train_tokenizer(own / "own.json")
    assert client.get("/status").json()["library"] != seen
    # An edit across the change sends all ids: the page has those of the old tokenizer.
    change = {"version": 1, "edits": [{"start": 0, "end": 0, "text": "A"}], "views": [view]}
    (answer,) = client.patch(path, json=change).json()["views"]
    assert (answer["start"], answer["n_removed"]) == (0, 0)
    assert ids_of(answer["ids"]) == tokenizer.encode("A" + TEXT)
    found = client.post(f"{path}/ids", json=smaller).json()
    assert len(ids_of(found["ids"])) == len(tokenizer.truncate(270).encode("A" + TEXT))
    after = all_stamps(2)
    assert len(set(after.values())) == 1, after
    assert after["list"] not in before.values()


def test_weights_that_were_trained_anew_are_used_at_once_by_every_route(
    client: httpx.Client, own: Path, root: Path
):
    path = f"/models/{id_of(client, 'run', 'models')}"

    def answers() -> dict[str, Any]:
        found = {
            name: client.post(f"{path}/{name}", json=body).json()
            for name, body in {
                "prompt": {"text": TEXT},
                "sampling": {"ids": [72]},
                "surprisal": {"text": TEXT, "checkpoint": 6},
                "inside": {"text": TEXT},
            }.items()
        }
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
    train_run(root, own / "run", seed=2)
    assert client.get("/status").json()["library"] != seen
    after = answers()
    assert len(stamps(before)) == len(stamps(after)) == 1
    assert stamps(before) != stamps(after)
    trained = load_trained(own / "run", "cpu")
    expected = surprisal(trained.model, trained.tokenizer, TEXT)
    assert after["surprisal"]["bits"] == pytest.approx(expected.bits.tolist(), rel=1e-4)
    assert after["inside"]["key"] != before["inside"]["key"]
    assert after["inside"]["norms"] != before["inside"]["norms"]
    # Ids of the earlier model are not continued with the later one.
    old = {"ids": [72], "stamp": before["prompt"]["stamp"]}
    refused = client.post(f"{path}/sampling", json=old)
    assert refused.status_code == 409
    assert refused.json()["detail"] == "run has changed on disk since these tokens were made"
    events = client.post(f"{path}/generate", json=old).text
    assert events.startswith("event: failed")
    assert "run has changed on disk" in events


def test_a_half_replaced_folder_is_an_error_until_it_is_whole(client: httpx.Client, own: Path):
    path = f"/models/{id_of(client, 'run', 'models')}/surprisal"
    body = {"text": TEXT, "checkpoint": 6}
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
        assert client.post(path, json={"text": TEXT}).json()["checkpoint"] == 4
    weights.write_bytes(whole)
    assert client.post(path, json=body).json() == first


def test_a_checkpoint_that_is_removed_while_it_is_read_is_not_there(
    client: httpx.Client, own: Path, monkeypatch: pytest.MonkeyPatch
):
    path = f"/models/{id_of(client, 'run', 'models')}/prompt"
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


MODEL_ROUTES = {
    "prompt": {"text": "a"},
    "generate": {"ids": [1], "max_tokens": 1},
    "sampling": {"ids": [1]},
    "surprisal": {"text": "a"},
    "inside": {"text": "a"},
}


@pytest.mark.parametrize("is_listed", [True, False])
def test_what_is_missing_is_one_sentence_by_every_route(
    own: Path, root: Path, is_listed: bool, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(root / "study", own / "study")
    shutil.copytree(own / "run", own / "gone")
    (own / "imported").mkdir()
    for name in ("model.json", "model.safetensors"):
        (own / "imported" / name).write_text("{}")
    if is_listed:  # the folder is not searched again
        monkeypatch.setattr("bytemill.studio.library._SECONDS", 1e6)
    library = Library(own)
    with client_of(library) as client:
        ids = {
            name: id_of(client, name, kind)
            for name, kind in {
                "own": "tokenizers", "story.txt": "texts", "study": "studies", "run": "runs",
                "gone": "models", "imported": "models",
            }.items()
        }  # fmt: skip
        text = client.post("/texts", json={"text": "a cat"}).json()["id"]

        def missing(method: str, path: str, body: dict[str, Any] | None = None, status: int = 404) -> str:
            answer = client.request(method, path, json=body)
            assert answer.status_code == status, (path, answer.text)
            found = answer.json()
            assert str(own) not in answer.text
            assert found["hint"], path
            return found["detail"]

        for name, body in MODEL_ROUTES.items():
            for model in ("run", "gone"):
                detail = missing("POST", f"/models/{ids[model]}/{name}", {**body, "checkpoint": 3})
                assert detail == f"{model} has no checkpoint of step 3"
        shutil.rmtree(own / "run" / "checkpoints")
        shutil.rmtree(own / "gone")
        shutil.rmtree(own / "imported")
        shutil.rmtree(own / "study")
        for name in ("own.json", "story.txt"):
            (own / name).unlink()
        if not is_listed:
            library._next_search = 0.0  # pyright: ignore[reportPrivateUsage]

        for name, body in MODEL_ROUTES.items():
            expected = "run has no weights at the moment"
            assert missing("POST", f"/models/{ids['run']}/{name}", body) == expected
            assert (
                missing("POST", f"/models/{ids['imported']}/{name}", body) == "imported is not there any more"
            )
            assert missing("POST", f"/models/{ids['gone']}/{name}", body) == "gone is not there any more"
        view = {"tokenizer": ids["own"]}
        change = {"version": 0, "edits": [{"start": 0, "end": 1, "text": "b"}], "views": [view]}
        comparison = {"text": text, "tokenizers": [ids["own"], id_of(client, "python-docs-8k")]}
        for method, path, body in (
            ("GET", f"/tokenizers/{ids['own']}", None),
            ("GET", f"/tokenizers/{ids['own']}/vocabulary", None),
            ("POST", f"/texts/{text}/ids", view),
            ("PATCH", f"/texts/{text}", change),
            ("POST", "/explanation", {**view, "text": "a"}),
            ("POST", "/comparison", comparison),
        ):
            assert missing(method, path, body) == "own is not there any more"
        # The edit was refused as a whole.
        assert client.patch(f"/texts/{text}", json={**change, "views": []}).json()["version"] == 1
        assert missing("GET", "/tokenizers/never") == "this tokenizer is not there any more"
        assert missing("POST", "/texts", {"source": ids["story.txt"]}) == "story.txt is not there any more"
        assert missing("GET", f"/runs/{ids['gone']}/metrics") == "gone is not there any more"
        assert missing("GET", f"/studies/{ids['study']}") == "study is not there any more"
        forgotten = "the studio has forgotten this text: it keeps 64"
        for method, path, body in (
            ("POST", "/texts/none/ids", view),
            ("PATCH", "/texts/none", change),
            ("POST", "/comparison", {**comparison, "text": "none"}),
        ):
            assert missing(method, path, body, 410) == forgotten
        head = {"key": "none", "layer": 0, "head": 0}
        assert missing("POST", "/inside/head", head).startswith("the studio has forgotten")


def test_a_text_and_a_study_have_stamps(client: httpx.Client, own: Path, root: Path):
    text_id = id_of(client, "story.txt", "texts")

    def listed() -> str | None:
        return next(each["stamp"] for each in client.get("/sources").json()["texts"] if each["id"] == text_id)

    assert listed() is None
    first = client.post("/texts", json={"source": text_id}).json()["stamp"]
    assert listed() == first
    (own / "story.txt").write_text("another story")
    assert listed() != first
    second = client.post("/texts", json={"source": text_id}).json()
    assert (second["text"], second["stamp"]) == ("another story", listed())


def test_a_study_that_goes_on_has_another_stamp(own: Path, root: Path):
    shutil.copytree(root / "study", own / "study")
    with client_of(Library(own)) as client:
        path = f"/studies/{id_of(client, 'study', 'studies')}"
        first = client.get(path).json()
        assert client.get("/runs").json()["studies"][0]["stamp"] == first["stamp"]
        results = own / "study" / "results.jsonl"
        results.write_text("".join(results.read_text().splitlines(keepends=True)[:-1]))
        second = client.get(path).json()
        assert len(second["missing"]) == len(first["missing"]) + 1
        assert client.get("/runs").json()["studies"][0]["stamp"] == second["stamp"] != first["stamp"]


def test_a_model_that_was_replaced_takes_no_memory(own: Path, root: Path):
    library = Library(own)
    entry = next(iter(library.shelf().runs.values()))
    models = studio_models.Models(library.stamps, "cpu")
    first = models.load(entry, 6)
    train_run(root, own / "run", seed=2)
    second = models.load(entry, None)
    assert first.stamp != second.stamp
    assert list(models._loaded.values()) == [second]  # pyright: ignore[reportPrivateUsage]
