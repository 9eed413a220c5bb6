"""What the studio offers, what it leaves out, and that it follows files that change."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import bytemill
from bytemill.errors import CorpusError, TokenizerFileError
from bytemill.studio.files import ChangingError, Stamps
from bytemill.studio.library import Entry, Kind, Library, Shelf, read_text
from tests.studio.conftest import client_of, id_of, train_tokenizer
from tests.studio.test_texts import ids_of

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: names that are not UTF-8, and named pipes"
)

TEXT = "The cat saw the dog. The child liked the cat."


def names(shelf: Shelf, kind: Kind, origin: str | None = None) -> set[str]:
    return {each.name for each in shelf[kind].values() if origin in (None, each.origin)}


def only_text(library: Library) -> Entry:
    (entry,) = [each for each in library.shelf()["texts"].values() if each.origin == "found"]
    return entry


def test_what_is_below_the_root_is_found(root: Path):
    shelf = Library(root).shelf()
    assert {"tokenizer", "smaller"} <= names(shelf, "tokenizers", "found")
    assert names(shelf, "tokenizers", "run") == {"runs/first"}
    assert {"runs/first"} <= names(shelf, "runs")
    assert names(shelf, "studies") == {"study"}
    assert "story.txt" in names(shelf, "texts")


def test_without_a_root_there_is_what_comes_with_bytemill():
    shelf = Library(None).shelf()
    assert names(shelf, "tokenizers", "bundled") == {"python-docs-8k"}
    assert len(names(shelf, "texts", "bundled")) == 23
    assert not shelf["runs"]
    tokenizer = Library(None).open_tokenizer("python-docs-8k").tokenizer
    assert len(tokenizer) == 8192
    assert tokenizer.merge_counts


def test_named_things_come_first(root: Path, tmp_path: Path):
    library = Library(
        tmp_path, [str(root / "smaller.json"), str(root / "runs" / "first"), str(root / "story.txt")]
    )
    shelf = library.shelf()
    assert next(iter(shelf["tokenizers"].values())).name == "smaller"
    assert names(shelf, "runs") == {"first"}
    assert names(shelf, "texts", "named") == {"story.txt"}
    again = Library(tmp_path, [str(root / "runs" / "first")]).shelf()  # ids stay the same after a restart
    assert list(again["runs"]) == list(shelf["runs"])


def test_hidden_folders_and_large_texts_are_left_out(tmp_path: Path, root: Path):
    (tmp_path / ".git").mkdir()
    shutil.copy(root / "tokenizer.json", tmp_path / ".git" / "tokenizer.json")
    (tmp_path / "large.txt").write_bytes(b"a" * 5_000_001)
    shelf = Library(tmp_path).shelf()
    assert not names(shelf, "tokenizers", "found")
    assert not names(shelf, "texts", "found")


def test_texts_are_read_up_to_5_mb_and_with_replacements(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9\r\nend")
    entry = only_text(Library(tmp_path))
    assert (entry.name, read_text(entry)) == ("a.txt", "caf\ufffd\nend")
    for n in (5_000_000, 5_000_001):
        path.write_bytes(b"a" * n)
        if n == 5_000_000:
            assert len(read_text(entry)) == n
        else:
            with pytest.raises(CorpusError, match="more than 5 MB"):
                read_text(entry)


def test_links_to_elsewhere_are_not_followed(tmp_path: Path, root: Path):
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (own / "link.txt").symlink_to(tmp_path / "secret.txt")
    (own / "tokenizer.json").symlink_to(root / "tokenizer.json")
    (own / "folder").symlink_to(root)
    shelf = Library(own).shelf()
    assert not names(shelf, "texts", "found") | names(shelf, "tokenizers", "found") | names(shelf, "runs")


def test_a_repository_of_the_hub_is_offered_under_an_id_without_a_slash(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "hub" / "models--me--small"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    shutil.copy(root / "smaller.json", folder / "snapshots" / "abc123" / "tokenizer.json")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    library = Library(None, ["me/small"])
    entry = next(each for each in library.shelf()["tokenizers"].values() if each.name == "me/small")
    assert (entry.origin, "/" in entry.id, library.argument_of(entry)) == ("published", False, "me/small")
    own = library.open_tokenizer(entry.id).tokenizer
    assert own.fingerprint == bytemill.Tokenizer.load(root / "smaller.json").fingerprint


def test_the_studio_starts_without_torch():
    """It takes a second and hundreds of megabytes to import, and is not part of the extra."""
    code = """
import importlib.util, sys
import bytemill.studio.server
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else find(name, *more)
for name in [name for name in sys.modules if name.startswith("bytemill.studio")]:
    del sys.modules[name]
import bytemill.studio.server  # where it is not installed
print([name for name in ("torch", "scipy", "pyarrow") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


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
    path.write_text("one")
    time = path.stat().st_mtime_ns
    assert stamps.of([path]) == first
    path.write_text("two")  # of the same size, and of the same time in a file system that counts in seconds
    os.utime(path, ns=(time, time))
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


def test_a_retrained_tokenizer_is_used_at_once_by_every_route(own: Path):
    with client_of(Library(own)) as client:
        check_every_route(client, own)


def check_every_route(client: httpx.Client, own: Path) -> None:
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


MODEL_ROUTES: dict[str, dict[str, Any]] = {
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


def test_a_text_and_a_study_that_change_have_other_stamps(own: Path, root: Path):
    shutil.copytree(root / "study", own / "study")
    with client_of(Library(own)) as client:

        def listed(path: str, kind: str, own_id: str) -> str | None:
            return next(each["stamp"] for each in client.get(path).json()[kind] if each["id"] == own_id)

        text_id, study_id = id_of(client, "story.txt", "texts"), id_of(client, "study", "studies")
        assert listed("/sources", "texts", text_id) is listed("/runs", "studies", study_id) is None
        first = client.post("/texts", json={"source": text_id}).json()["stamp"]
        assert listed("/sources", "texts", text_id) == first
        (own / "story.txt").write_text("another story")
        assert listed("/sources", "texts", text_id) != first
        second = client.post("/texts", json={"source": text_id}).json()
        assert (second["text"], second["stamp"]) == ("another story", listed("/sources", "texts", text_id))
        before = client.get(f"/studies/{study_id}").json()
        assert listed("/runs", "studies", study_id) == before["stamp"]
        results = own / "study" / "results.jsonl"
        results.write_text("".join(results.read_text().splitlines(keepends=True)[:-1]))
        after = client.get(f"/studies/{study_id}").json()
        assert len(after["missing"]) == len(before["missing"]) + 1
        assert listed("/runs", "studies", study_id) == after["stamp"] != before["stamp"]


STEP = json.dumps({"kind": "step", "step": 1, "loss": 5.0}) + "\n"
DEEP = "[" * 20_000


def make_run(folder: Path, config: str = "[model]\nd_model = 8\n", metrics: str = STEP) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    (folder / "metrics.jsonl").write_text(metrics)
    return folder


def fill_with_odd_files(top: Path, outside: Path, root: Path) -> None:
    """Make every kind of file that cannot be read below `top`."""
    outside.mkdir()
    (outside / "secret.toml").write_text('password = "hunter2"\n')
    (outside / "secret.jsonl").write_text(json.dumps({"kind": "sample", "text": "hunter2"}) + "\n")
    (outside / "secret.txt").write_text("hunter2")
    shutil.copytree(root / "runs" / "first" / "checkpoints", outside / "checkpoints")
    (top / "loop.txt").symlink_to(top / "loop.txt")
    (top / "loop").symlink_to(top)
    (top / "gone.json").symlink_to(top / "nothing.json")
    (top / "away.txt").symlink_to(outside / "secret.txt")
    (top / "elsewhere").symlink_to(outside)
    for name in ("pipe.txt", "pipe.json", "pipe.gguf", "tokenizer.json"):
        os.mkfifo(top / name)
    for name in (b"caf\xe9.txt", b"caf\xe9.json"):
        Path(os.fsdecode(os.fsencode(top / "x")[:-1] + name)).write_text("{}")
    make_run(Path(os.fsdecode(os.fsencode(top / "runs" / "x")[:-1] + b"caf\xe9")))
    for part in ("config.toml", "metrics.jsonl"):
        own = make_run(top / "runs" / f"pipe {part}")
        (own / part).unlink()
        os.mkfifo(own / part)
        own = make_run(top / "runs" / f"away {part}")
        (own / part).unlink()
        (own / part).symlink_to(outside / f"secret{Path(part).suffix}")
    (make_run(top / "runs" / "away checkpoints") / "checkpoints").symlink_to(outside / "checkpoints")
    own = make_run(top / "runs" / "away step") / "checkpoints"
    own.mkdir()
    (own / "step_1").symlink_to(next((outside / "checkpoints").glob("step_*")))
    make_run(top / "runs" / "deep array", config=f"a = {DEEP}")
    make_run(top / "runs" / "deep keys", config=f"a{'.a' * 1000} = 1\n")
    make_run(top / "runs" / "deep values", config=f"a = {'[' * 200}{']' * 200}\n")
    deep = f'{{"kind": "sample", "step": 1, "text": {"[" * 200}{"]" * 200}}}\n'
    odd = [
        f"{DEEP}\n",
        deep,
        '{"kind": "sample", "step": 1, "text": "\\ud800"}\n',
        STEP.replace("5.0", "1" + "0" * 400),
    ]
    make_run(top / "runs" / "deep metrics", metrics=STEP + "".join(odd) + STEP)
    for name in ("deep model", "pipe model"):
        (top / name).mkdir()
        (top / name / "model.json").write_text(DEEP)
        (top / name / "model.safetensors").write_bytes(b"")
    (top / "pipe model" / "model.json").unlink()
    os.mkfifo(top / "pipe model" / "model.json")
    (top / "study").mkdir()
    (top / "study" / "study.toml").write_text("")
    os.mkfifo(top / "study" / "study.json")
    shutil.copytree(root / "study", top / "study of pipes")
    next((top / "study of pipes").glob("cells/*/*.f64")).unlink()
    os.mkfifo(next((top / "study of pipes").glob("cells/*")) / "bits.pipe.f64")
    shutil.copytree(root / "runs" / "first", top / "runs" / "pipe weights")
    weights = sorted((top / "runs" / "pipe weights" / "checkpoints").glob("step_*"))[-1] / "model.safetensors"
    weights.unlink()
    os.mkfifo(weights)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[httpx.Client]:
    """A client of a studio whose folder has every kind of odd file, beside a few good ones."""
    folder = tmp_path_factory.mktemp("odd")
    top = folder / "root"
    top.mkdir()
    fill_with_odd_files(top, folder / "outside", root)
    (top / "good.txt").write_text("good")
    (top / "linked.txt").symlink_to(top / "good.txt")
    shutil.copy(root / "smaller.json", top / "good.json")
    make_run(top / "runs" / "good")
    with client_of(Library(top)) as own:
        yield own


@linux
def test_all_that_can_be_read_is_offered_and_works(odd: httpx.Client):
    sources = odd.get("/sources").json()
    for kind, expected in (
        ("tokenizers", {"good", "runs/pipe weights"}),
        ("texts", {"good.txt", "linked.txt"}),
    ):
        assert {each["name"] for each in sources[kind] if each["origin"] in ("found", "run")} == expected
    runs = {run["name"]: run for run in odd.get("/runs").json()["runs"]}
    deep = {"runs/deep array", "runs/deep keys", "runs/deep values"}
    assert set(runs) == {"runs/good", "runs/deep metrics", "runs/pipe weights", *deep}
    assert runs["runs/good"]["config"] == {"model.d_model": 8}
    assert all(runs[name]["config"] == {} for name in deep)
    for name in ("good.txt", "linked.txt"):
        answer = odd.post("/texts", json={"source": id_of(odd, name, "texts")})
        assert answer.json()["text"] == "good"
    everything = [odd.get(f"/{path}").text for path in ("sources", "skipped", "runs", "models")]
    everything += [odd.get(f"/runs/{run['id']}/metrics").text for run in runs.values()]
    assert "hunter2" not in "".join(everything)  # what is outside the folder
    # Odd records of a run are left out.
    metrics = odd.get(f"/runs/{runs['runs/deep metrics']['id']}/metrics").json()
    assert metrics["others"] == {"sample": [{"kind": "sample", "step": 1, "text": "?"}]}


@linux
def test_what_is_left_out_is_listed_with_its_reason(odd: httpx.Client):
    found = odd.get("/skipped").json()
    reasons = {each["name"]: each["reason"] for each in found["skipped"]}
    outside, pipe = "it is a link that leads outside this folder", "it is not a regular file"
    assert reasons == {
        "loop.txt": "it is a link that leads to itself",
        "gone.json": "it is a link that leads to nothing",
        "away.txt": outside,
        "elsewhere": outside,
        **dict.fromkeys(("pipe.txt", "pipe.json", "pipe.gguf", "tokenizer.json"), pipe),
        **dict.fromkeys(("caf\ufffd.txt", "caf\ufffd.json", "runs/caf\ufffd"), "its name is not UTF-8"),
        **{f"runs/pipe {part}/{part}": pipe for part in ("config.toml", "metrics.jsonl")},
        **{f"runs/away {part}/{part}": outside for part in ("config.toml", "metrics.jsonl")},
        "runs/away checkpoints/checkpoints": outside,
        "runs/away step/checkpoints/step_1": outside,
        **{
            f"runs/deep {what}/config.toml": "it is nested too deeply" for what in ("array", "keys", "values")
        },
        "pipe model/model.json": pipe,
        "study/study.json": pipe,
    }
    assert found["n_skipped"] == len(reasons)


@linux
@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("models", "deep model", "deep model/model.json is damaged"),
        ("models", "runs/pipe weights", "model.safetensors cannot be read: it is not a regular file"),
        ("studies", "study of pipes", "bits.pipe.f64 cannot be read: it is not a regular file"),
    ],
)
def test_odd_files_of_a_model_or_study_are_named(odd: httpx.Client, kind: str, name: str, message: str):
    path = f"/{kind}/{id_of(odd, name, kind)}"
    answer = odd.get(path) if kind == "studies" else odd.post(f"{path}/surprisal", json={"text": "a"})
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


@linux
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_file_that_was_replaced_after_the_search_is_not_followed(tmp_path: Path, root: Path, kind: str):
    folder = tmp_path / "root"
    run = make_run(folder / "run")
    (folder / "a.txt").write_text("a")
    shutil.copy(root / "smaller.json", folder / "a.json")
    (tmp_path / "secret").write_text(STEP)
    with client_of(Library(folder)) as own:
        found = [id_of(own, "a.txt", "texts"), id_of(own, "a"), id_of(own, "run", "runs")]
        for path in (folder / "a.txt", folder / "a.json", run / "metrics.jsonl"):
            path.unlink()
            os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "secret")
        answers = [
            own.post("/texts", json={"source": found[0]}),
            own.get(f"/tokenizers/{found[1]}"),
            own.get(f"/runs/{found[2]}/metrics"),
        ]
    for answer in answers:
        assert answer.status_code in (404, 422)  # 404: the folder was searched again in between
        assert "loss" not in answer.text


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "closed").mkdir()
    scan: Any = os.scandir

    def refused(path: Any = ".") -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    skipped = Library(tmp_path).shelf().skipped
    assert skipped == {"closed": "Permission denied"}


@linux
def test_files_that_were_named_are_left_out_for_the_same_reasons(tmp_path: Path, root: Path):
    os.mkfifo(tmp_path / "pipe.json")
    run = make_run(tmp_path / "run")
    (run / "checkpoints").symlink_to(root)
    shelf = Library(None, [str(tmp_path / "pipe.json"), str(run)]).shelf()
    assert not shelf["runs"]
    assert set(shelf.skipped) == {"pipe.json", "run/checkpoints"}


@linux
def test_a_root_whose_name_is_not_utf8(tmp_path: Path):
    root = Path(os.fsdecode(os.fsencode(tmp_path / "x")[:-1] + b"caf\xe9"))
    make_run(root / "run")
    with client_of(Library(root)) as client:
        assert client.get("/status").json()["root"] == "caf\ufffd"
        assert client.get("/runs").json()["runs"][0]["argument"] == "run"
