"""`bytemill data encode` and `tokenizer train` with `--executor`."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bytemill.shards import read_manifest
from bytemill.training.memory_budget import resident_bytes

Run = Callable[..., Any]

LOCAL = ("--executor", "local", "--num-workers", "2")
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def texts(work: Path, tokenizer_file: str) -> list[str]:
    """Four files of several documents; the tokenizer is in the folder too."""
    names = [f"{number}.txt" for number in range(4)]
    text = Path("corpus.txt").read_text(encoding="utf-8")
    for number, name in enumerate(names):
        Path(name).write_text(text * (number + 1), encoding="utf-8")
    return names


def content(folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()
    }


def test_encode_writes_what_one_process_writes(texts: list[str], tokenizer_file: str, run: Run):
    options = ("--shard-tokens", "5000", "--validation-fraction", "0.4")
    arguments = ("data", "encode", tokenizer_file, *texts, *options)
    one = run(*arguments, "-o", "one")
    many = run(*arguments, "-o", "many", *LOCAL, "--unit-size", "10kB")
    assert many.status == 0, many.err
    assert content("many") == content("one")
    assert "note: encoding with 2 local processes\n" in many.err
    assert re.search(r"^encoding: 0 bytes of .*, 0 of \d+ units$", many.err, flags=re.MULTILINE)
    assert many.out.split("\n  encoded in")[0].replace("many", "one") == one.out.split("\n  encoded in")[0]
    again = run(*arguments, "-o", "many", *LOCAL, "--json")
    assert again.status == 0
    assert content("many") == content("one")


def test_reencode_writes_what_one_process_writes(texts: list[str], tokenizer_file: str, run: Run):
    options = ("--document-index", "--shard-tokens", "4000")
    assert run("data", "encode", tokenizer_file, *texts, *options, "-o", "shards").status == 0
    train = ("tokenizer", "train", *texts, "--vocab-size", "280", "--special-token", "<|endoftext|>")
    assert run(*train, "-o", "new.json").status == 0
    arguments = ("data", "reencode", "shards", "--from", tokenizer_file, "--to", "new.json")
    assert run(*arguments, "-o", "one").status == 0
    many = run(*arguments, "-o", "many", *LOCAL, "--unit-size", "5kB")
    assert many.status == 0, many.err
    assert "note: encoding with 2 local processes\n" in many.err
    assert content("many") == content("one")
    planned = run(*arguments, "-o", "planned", *LOCAL, "--unit-size", "5kB", "--dry-run", "--json")
    assert (planned.status, Path("planned").exists()) == (0, False), planned.err
    plan, shards = json.loads(planned.out), read_manifest("one")
    assert (plan["n_sources"], plan["total_bytes"]) == (1, 2 * read_manifest("shards").n_tokens)
    assert (len(plan["unit_sizes"]), sum(plan["unit_sizes"])) == (3, plan["total_bytes"])
    assert plan["sample_bytes"] == sum(plan["unit_sizes"][:2])
    # The sample is not all of the text, so the size of the output is an estimate.
    assert 0.8 < plan["output_bytes"] / (2 * shards.n_tokens) < 1.25


def test_progress_as_json_lines(texts: list[str], tokenizer_file: str, run: Run):
    outcome = run(
        "data",
        "encode",
        tokenizer_file,
        *texts,
        "-o",
        "out",
        *LOCAL,
        "--unit-size",
        "10kB",
        "--json-progress",
    )
    lines = [json.loads(line) for line in outcome.err.splitlines()]
    assert {line["stage"] for line in lines} == {"encode", "pack"}
    last = [line for line in lines if line["stage"] == "encode"][-1]
    assert (last["n_done"], last["n_bytes"], last["seconds_left"]) == (
        last["n_units"],
        last["total_bytes"],
        0,
    )
    assert last["bytes_per_second"] > 0


def test_a_dry_run_writes_nothing(texts: list[str], tokenizer_file: str, run: Run):
    before = content(".")
    arguments = (*texts, *LOCAL, "--unit-size", "10kB", "--dry-run")
    outcome = run("data", "encode", tokenizer_file, *arguments, "-o", "out")
    assert outcome.status == 0, outcome.err
    assert re.match(
        r"  4 inputs, .*\n  \d+ units of .* to .*\n  2 local processes\n  measured on .*/s", outcome.out
    )
    assert "of output" in outcome.out
    plan = json.loads(run("data", "encode", tokenizer_file, *arguments, "-o", "out", "--json").out)
    assert sum(plan["unit_sizes"]) == plan["total_bytes"] == sum(Path(name).stat().st_size for name in texts)
    assert min(plan["rate"], plan["seconds"], plan["memory_bytes"], plan["output_bytes"]) > 0
    trained = run("tokenizer", "train", *arguments, "-n", "280", "-o", "new.json")
    assert (trained.status, "of output" in trained.out) == (0, False)
    trained = run("tokenizer", "train", *arguments, "-n", "280", "-o", "new.json", "--json")
    assert json.loads(trained.out)["output_bytes"] is None
    assert content(".") == before


def test_train_gives_the_tokenizer_of_one_process(texts: list[str], run: Run):
    arguments = ("tokenizer", "train", *texts, "-n", "320")
    run(*arguments, "-o", "one.json")
    outcome = run(*arguments, "-o", "many.json", *LOCAL, "--unit-size", "8kB", "--counts", "a.counts")
    assert outcome.status == 0, outcome.err
    assert Path("many.json").read_bytes() == Path("one.json").read_bytes()
    assert not list(Path().glob(".many.json*units*"))
    run(*arguments, "-o", "again.json", "--counts", "a.counts")
    assert Path("again.json").read_bytes() == Path("one.json").read_bytes()
    # This process may have torch in memory.
    memory = f"{resident_bytes() // 10**6 + 400}MB"
    within = run(*arguments, "-o", "within.json", *LOCAL, "--unit-size", "8kB", "--max-memory", memory)
    assert within.status == 0, within.err
    assert Path("within.json").read_bytes() == Path("one.json").read_bytes()
    planned = run(*arguments, "-o", "other.json", *LOCAL, "--counts", "a.counts", "--dry-run")
    assert (planned.status, "leave out --executor" in planned.err) == (2, True)


def test_training_that_ended_once_the_counts_existed_resumes(
    texts: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
):
    arguments = ("tokenizer", "train", *texts, "-n", "320")
    command = (*arguments, "-o", "many.json", *LOCAL, "--counts", "a.counts")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["bytemill.training.pipeline"], "learn_merges", interrupted)
        outcome = run(*command)
    assert outcome.status == 130
    assert "run the same command again to train on the counts in a.counts" in outcome.err
    assert list(Path().glob(".many.json*units*"))
    resumed = run(*command)
    assert (resumed.status, "note: a.counts exists, so nothing is counted\n" in resumed.err) == (0, True)
    assert not list(Path().glob(".many.json*units*"))
    run(*arguments, "-o", "one.json")
    assert Path("many.json").read_bytes() == Path("one.json").read_bytes()
    # Counts of another corpus are not taken.
    Path(texts[0]).write_text("changed", "utf-8")
    assert "belongs to other inputs" in run(*command, "--overwrite").err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--num-workers", "2"), "--num-workers needs --executor local or --executor ray"),
        (("--dry-run",), "--dry-run needs --executor"),
        ((*LOCAL, "--profile"), "--profile measures one process"),
        ((*LOCAL, "--limit-bytes", "1MB"), "a corpus with a limit of bytes cannot be divided"),
        ((*LOCAL, "--unit-size", "many"), "'many' is not a number of bytes"),
        (("--executor", "ray", "--ray-address", "127.0.0.1:1"), "no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_what_does_not_go_together_is_an_error(
    texts: list[str], tokenizer_file: str, run: Run, more: tuple[str, ...], said: str
):
    outcome = run("data", "encode", tokenizer_file, *texts, "-o", "out", *more)
    assert outcome.status in (1, 2)
    assert said in outcome.err
    assert not Path("out/manifest.json").exists()


def test_bad_input_ends_with_its_line(work: Path, tokenizer_file: str, run: Run):
    lines = ['{"text": "the cat"}'] * 3000
    lines[2000] = "{"
    Path("a.jsonl").write_text("\n".join(lines))
    outcome = run("data", "encode", tokenizer_file, "a.jsonl", "-o", "out", *LOCAL, "--unit-size", "8kB")
    assert outcome.status == 1
    assert "a.jsonl:2,001: " in outcome.err


@pytest.mark.parametrize("name", ["kuberay.yaml", "bytemill.slurm"])
def test_the_files_for_clusters_have_commands_that_exist(run: Run, name: str):
    text = (REPOSITORY / "docs" / "guides" / "cluster" / name).read_text(encoding="utf-8")
    used = set(
        re.findall(r"(?<= )--[a-z-]+", text[text.index("bytemill data encode") :].split("runtimeEnv")[0])
    )
    known = set(re.findall(r"--[a-z-]+", run("data encode --help").out))
    assert {"--executor", "--ray-address"} <= used <= known


def test_the_job_for_kubernetes_mounts_the_corpus_on_every_node():
    job = yaml.safe_load(
        (REPOSITORY / "docs" / "guides" / "cluster" / "kuberay.yaml").read_text(encoding="utf-8")
    )
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        node = group["template"]["spec"]
        assert node["volumes"][0]["persistentVolumeClaim"]["claimName"] == "corpus"
        assert [mount["mountPath"] for each in node["containers"] for mount in each["volumeMounts"]] == [
            "/data"
        ]
