"""`bytemill lm train`, `generate`, `eval` and `plan`."""

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bytemill.analysis.inspection import visible

Run = Callable[..., Any]
TINY = (
    "--model.context-length", "16", "--model.d-model", "16", "--model.num-layers", "1", "--model.num-heads", "2",
    "--model.d-ff", "32", "--training.device", "cpu", "--training.batch-size", "4", "--run.validation-windows", "4",
    "--data.tokenizer", "tokenizer.json", "--data.train", "shards", "--data.validation", "shards",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from bytemill.lm.training import preparation

    monkeypatch.setattr(preparation, "matmul_rate", lambda *_: 1e10)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data(tokenizer_file: str, run: Run) -> str:
    assert run("data encode tokenizer.json corpus.txt -o shards -q").status == 0
    return "shards"


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained") / "work"


@pytest.fixture
def trained(work: Path, kept: Path, request: pytest.FixtureRequest, run: Run) -> str:
    """A model after six steps with its tokenizer and shards, trained once for all tests."""
    if not kept.exists():
        request.getfixturevalue("data")
        outcome = run("lm", "train", *TINY, "--training.steps", "6", "--run.folder", "mine", "--quiet")
        assert outcome.status == 0, outcome.err
        assert outcome.out == outcome.err == ""
        shutil.copytree(work, kept)
    shutil.copytree(kept, work, dirs_exist_ok=True)
    return "mine"


def test_train_shows_progress_and_resumes(data: str, run: Run):
    command = (
        "lm",
        "train",
        *TINY,
        "--run.folder",
        "out",
        "--run.sample-every",
        "4",
        "--schedule.name",
        "constant",
    )
    outcome = run(*command, "--training.steps", "4")
    assert outcome.status == 0, outcome.err
    assert outcome.out == f"trained 4 steps: {Path('out/checkpoints/step_00000004')}\n"
    for expected in (
        "parameters",
        "step 4: loss ",
        "validation loss",
        "sample: ",
        "saved out",
        "bits per byte",
    ):
        assert expected in outcome.err
    assert "\x1b" not in outcome.err
    more = run("lm train out --training.steps 6 --json")
    assert "resuming from out" in more.err
    result = json.loads(more.out)
    assert result["step"]["step"] == result["validation"]["step"] == 6
    again = run("lm train out")
    assert again.status == 0
    assert "all 6 steps are done; raise --training.steps to train longer" in again.err


def test_a_resumed_run_keeps_origins_and_says_how_the_rate_changes(data: str, run: Run):
    def settings() -> dict[str, str]:
        lines = Path("out", "config.toml").read_text().splitlines()
        parts = [line.rpartition("  # ") for line in lines]
        return {entry.rstrip(): origin for entry, _, origin in parts}

    Path("run.toml").write_text("[run]\nlog_every = 3\nsample_prompt = 'a  # b'\n")
    first = run("lm", "train", "run.toml", *TINY, "--run.folder", "out", "--training.steps", "4")
    assert first.status == 0, first.err
    assert "the learning rate goes" not in first.err
    origins = settings()
    more = run("lm train out --training.steps 20")
    assert "the learning rate goes from 1.00e-04 in step 4 to" in more.err
    changed = {'folder = "out"': "the command line", "steps = 20": "--training.steps"}
    del origins["steps = 4"]
    assert settings() == {**origins, **changed}
    assert origins["log_every = 3"] == "run.toml"
    file = Path("out", "config.toml")
    file.write_text(file.read_text().replace("log_every = 3 ", "log_every = 7 "))
    assert run("lm train out").status == 0
    assert settings()["log_every = 7"] == str(file)
    assert settings()["d_model = 16"] == "--model.d-model"


def test_the_resolved_settings_are_printed_with_their_origin(data: str, run: Run):
    Path("run.toml").write_text("[model]\nnum_layers = 3\n[training]\ncompile = true\n")
    outcome = run("lm", "train", "run.toml", *TINY, "--training.no-compile", "--print-config")
    assert outcome.status == 0, outcome.err
    lines = {line.split(" ")[0]: line.split("# ")[-1] for line in outcome.out.splitlines() if " = " in line}
    assert lines["num_layers"] == "--model.num-layers"
    assert lines["compile"] == "--training.no-compile"
    assert lines["norm"] == "preset tiny"
    assert lines["vocab_size"] == "the tokenizer"
    Path("again.toml").write_text(outcome.out)
    repeated = run("lm train again.toml --print-config --json")
    first = run("lm", "train", "run.toml", *TINY, "--training.no-compile", "--print-config", "--json")
    assert json.loads(repeated.out) == json.loads(first.out)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--model.n-layrs", "3"), 2, "Did you mean"),
        (("nothing.toml",), 1, "error: cannot read nothing.toml"),
        (("--model.num-heads", "5"), 1, "error: d_model 16 is not divisible"),
        (("--data.train", "nowhere"), 1, "error: there is no folder nowhere"),
        (("--training.device", "cuda:77"), 1, "error: device cuda:77 is not available"),
    ],
)
def test_errors_take_one_line(data: str, run: Run, arguments: tuple[str, ...], status: int, message: str):
    names = {word for word in arguments if word.startswith("--")}
    kept = [word for pair in zip(TINY[::2], TINY[1::2], strict=True) if pair[0] not in names for word in pair]
    outcome = run("lm", "train", *arguments, *kept)
    assert outcome.status == status
    assert message.lower() in outcome.err.lower()
    assert "Traceback" not in outcome.err


@pytest.mark.slow
def test_sigterm_saves_and_exits_with_130(data: str, start: Callable[..., subprocess.Popen[bytes]]):
    process = start(
        "lm", "train", *TINY, "--training.steps", "100000", "--run.log-every", "1", stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"step "):
            process.send_signal(signal.SIGTERM)
            break
    rest = process.stderr.read().decode()
    assert process.wait() == 130
    assert "interrupted\nhint: to resume: bytemill lm train run\n" in rest
    assert len(list(Path("run/checkpoints").iterdir())) == 1


def test_ctrl_c_saves_and_exits_with_130(data: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    from bytemill.cli.lm_training import TrainingView

    def interrupt(view: object, record: dict[str, Any]) -> None:
        if record["kind"] == "step":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingView, "__call__", interrupt)
    outcome = run("lm", "train", *TINY, "--training.steps", "100", "--run.log-every", "2")
    assert outcome.status == 130
    assert outcome.err == "interrupted\nhint: to resume: bytemill lm train run\n"
    assert [path.name for path in Path("run/checkpoints").iterdir()] == ["step_00000002"]


def test_a_full_disk_ends_the_run_with_one_line_and_its_hint(data: str, run: Run):
    command = ("lm", "train", *TINY, "--schedule.name", "constant", "-q")
    assert run(*command, "--training.steps", "1").status == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        outcome = run(*command, "--training.steps", "3")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcome.status == 1
    weights = Path("run/checkpoints/step_00000003/model.safetensors")
    assert outcome.err == (
        f"error: cannot write {weights}: the file would grow beyond the size limit for files\n"
        "hint: raise the limit (`ulimit -f`) or choose another file system, then run it again\n"
    )
    assert [path.name for path in Path("run/checkpoints").iterdir()] == ["step_00000001"]
    assert run("lm generate run a --max-tokens 3").status == 0


def test_without_a_checkpoint_the_hint_does_not_promise_to_resume(
    data: str, run: Run, monkeypatch: pytest.MonkeyPatch
):

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bytemill.lm.training.trainer.accumulate_gradients", interrupt)
    outcome = run("lm", "train", *TINY, "--training.steps", "100", "-q")
    assert outcome.status == 130
    expected = "interrupted\nhint: run the same command again to start over (no checkpoint was saved yet)\n"
    assert outcome.err == expected


def test_a_moved_run_without_validation_data_resumes_in_its_new_folder(data: str, run: Run):
    assert run("data encode tokenizer.json corpus.txt -o plain -q").status == 0
    kept = TINY[: TINY.index("--data.train")]
    first = run("lm", "train", *kept, "--data.train", "plain", "--training.steps", "2", "--run.folder", "a b")
    assert first.status == 0, first.err
    Path("a b").rename("moved here")
    outcome = run("lm train 'moved here' --training.steps 4")
    assert outcome.status == 0, outcome.err
    assert "resuming from moved here" in outcome.err
    assert not Path("a b").exists()


def test_a_run_resumes_from_any_folder_and_moves_with_its_data(
    data: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    start = run("lm", "train", *TINY, "--training.steps", "1", "--run.folder", "runs/a", "-q")
    assert start.status == 0, start.err
    (tmp_path / "elsewhere" / "shards").mkdir(parents=True)  # of other data, without a manifest
    monkeypatch.chdir(tmp_path / "elsewhere")
    outcome = run("lm train ../runs/a --training.steps 2")
    assert outcome.status == 0, outcome.err
    assert "resuming from ../runs/a/checkpoints/step_00000001" in outcome.err
    monkeypatch.chdir(tmp_path)
    Path("moved").mkdir()
    for name in ("runs", "shards", "tokenizer.json"):
        Path(name).rename(Path("moved") / name)
    outcome = run("lm train moved/runs/a --training.steps 3")
    assert outcome.status == 0, outcome.err
    assert "resuming from moved/runs/a/checkpoints/step_00000002" in outcome.err


def test_a_run_whose_data_is_gone_says_how_to_name_its_new_path(data: str, run: Run, tmp_path: Path):
    start = run("lm", "train", *TINY, "--training.steps", "1", "--run.folder", "mine", "-q")
    assert start.status == 0, start.err
    Path("shards").rename("new place")
    Path("tokenizer.json").rename("other.json")  # the run has a copy
    outcome = run("lm train mine --training.steps 2")
    assert outcome.status == 1
    assert "error: there is no folder shards, which the run was trained on\n" in outcome.err
    command = "bytemill lm train mine --data.train NEW_PATH"
    assert f"hint: name its new path: {command}\n" in outcome.err
    folders = {"--data.train": str(tmp_path / "new place"), "--data.validation": "new place"}
    arguments = [part for option in folders.items() for part in option]
    outcome = run("lm", "train", "mine", *arguments, "--training.steps", "2")
    assert outcome.status == 0, outcome.err
    assert "resuming from mine/checkpoints/step_00000001" in outcome.err


def test_the_hint_about_too_little_validation_data_works(tokenizer_file: str, run: Run):
    Path("short.jsonl").write_text("".join(f'{{"text": "the cat {number}"}}\n' for number in range(200)))
    split = ("--validation-fraction", "0.005", "--split-seed", "7", "-o", "split")
    encoded = run("data", "encode", tokenizer_file, "short.jsonl", *split, "-q")
    assert encoded.status == 0, encoded.err
    kept = TINY[: TINY.index("--data.train")]
    outcome = run("lm", "train", *kept, "--data.train", "split")
    assert outcome.status == 1
    assert "too few for a window of 16" in outcome.err
    hint = outcome.err.split("train without validation: ")[1].split()
    assert hint == ["--data.train", "split/train"]
    assert run("lm", "train", *kept, *hint, "--training.steps", "1").status == 0


def test_generate_prints_the_same_text_for_the_same_seed(trained: str, run: Run):
    outcome = run(f"lm generate {trained} 'the cat' --max-tokens 20 --seed 1")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("the cat")
    assert outcome.out.endswith("\n")
    uncached = run(f"lm generate {trained} 'the cat' --max-tokens 20 --seed 1 --no-cache")
    assert uncached.out == outcome.out
    checkpoint = next(Path(trained, "checkpoints").iterdir())
    assert (
        run("lm", "generate", str(checkpoint), "the cat", "--max-tokens", "20", "--seed", "1").out
        == outcome.out
    )
    assert run(f"lm generate {trained} - --max-tokens 20 --seed 1", stdin="the cat").out == outcome.out
    three = run(f"lm generate {trained} the --samples 3 --max-tokens 5 --seed 1").out
    assert three.count("── sample") == 3


def test_prompts_of_a_file_are_continued_in_its_order_whatever_the_batch(trained: str, run: Run):
    prompts = ["the cat", "a", "the dog sat on the mat", "the"]
    Path("prompts.txt").write_text("\n".join(prompts) + "\n\n")
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": each}) + "\n" for each in prompts))
    command = f"lm generate {trained} --max-tokens 12 --samples 2 --seed 1 --json --prompts"
    whole = run(f"{command} prompts.txt")
    assert whole.status == 0, whole.err
    found = [json.loads(line) for line in whole.out.splitlines()]
    assert [(each["prompt"], each["sample"]) for each in found] == [(p, s) for p in prompts for s in (0, 1)]
    assert all(1 <= len(each["ids"]) <= 12 for each in found)
    assert len({each["text"] for each in found}) == 8
    assert run(f"{command} prompts.jsonl --batch-size 3").out == whole.out
    text = run(f"lm generate {trained} --max-tokens 12 --seed 1 --prompts prompts.txt --batch-size 1").out
    assert text.count("── prompt ") == 4
    assert found[0]["prompt"] + found[0]["text"] in text
    for extra in ("a", "--draft ngram", "--no-cache", "--show-tokens"):
        refused = run(f"lm generate {trained} --prompts prompts.txt {extra}")
        assert refused.status == 2, extra
        assert "--prompts takes no PROMPT" in refused.err
    Path("prompts.txt").write_text("\n")
    assert "prompts.txt contains no prompts" in run(f"{command} prompts.txt").err


def test_prompts_and_texts_follow_the_token_that_began_training_documents(tokenizer_file: str, run: Run):
    import bytemill
    from bytemill.lm.generation.decoding import generate
    from bytemill.lm.training.saved_model import load_trained

    vocab = {i: bytes([i]) for i in range(256)}
    bytemill.Tokenizer(vocab, [], ["<s>"]).save("tokenizer.json")
    assert run("data encode tokenizer.json corpus.txt --bos '<s>' -o shards -q").status == 0
    arguments = (*TINY[:-2], "--training.steps", "1", "--run.folder", "mine", "--run.sample-every", "1", "-q")
    outcome = run("lm", "train", *arguments)
    assert outcome.status == 0, outcome.err
    trained = load_trained("mine", "cpu")
    for prompt in ("", "the"):
        (ids,) = generate(trained.model, [256, *prompt.encode()], 5, seed=1)
        options = ("--max-tokens", "5", "--seed", "1", "--ignore-special", "--device", "cpu", "--json")
        (sample,) = json.loads(run("lm", "generate", "mine", prompt, *options).out)["samples"]
        assert sample["ids"] == ids
    Path("q.txt").write_text("First Citizen:\n")
    score = json.loads(run("lm eval mine --text q.txt --device cpu --json").out)
    assert score["texts"]["q.txt"]["n_bytes"] == 15


def test_tokens_and_probabilities_are_shown(trained: str, run: Run):
    tokens = run(f"lm generate {trained} 'the cat' --max-tokens 6 --seed 1 --show-tokens")
    assert tokens.out.count("│") >= 5
    shown = run(f"lm generate {trained} the --max-tokens 3 --seed 1 --show-probabilities --top-k 2")
    lines = shown.out.splitlines()
    assert lines[0].split() == ["id", "prob.", "log", "p", "sampled", "token"]
    assert len(lines) == 1 + 3 * 4
    result = json.loads(run(f"lm generate {trained} the --max-tokens 3 --seed 1 --top-k 2 --json").out)
    (sample,) = result["samples"]
    assert len(sample["ids"]) == 3
    for token in sample["tokens"]:
        assert len(token["alternatives"]) == 3
        assert token["sampled"] >= token["probability"] > 0
        assert sum(other["sampled"] for other in token["alternatives"]) == pytest.approx(1, abs=1e-4)


def test_the_prompt_is_interactive(trained: str, run: Run):
    lines = ["/help", "/params", "/params temperature 0", "/params top_k x", "/what", "/tokens", "the cat"]
    session = "\n".join([*lines, "/tokens", "the cat", "/quit", "not read"])
    outcome = run(f"lm generate {trained} --max-tokens 4", stdin=session)
    assert outcome.status == 0
    assert "/params NAME VALUE" in outcome.out
    assert "temperature" in outcome.out
    assert "error: top_k is 'x', not a whole number" in outcome.err
    assert "error: unknown command /what" in outcome.err
    shown, plain = outcome.out.splitlines()[-2:]
    assert shown.replace("│", "") == visible(plain.encode())
    assert "not read" not in outcome.out


def test_eval_scores_text_shards_and_hellaswag(trained: str, data: str, run: Run):
    Path("items.txt").write_text("the cat sat. it\n1\nsat on the mat\nate the rat\nwas bored\ncould tell\n")
    arguments = f"lm eval {trained} --text corpus.txt --shards shards --hellaswag items.txt"
    result = json.loads(run(arguments, "--json", "--stride", "8", "--quiet").out)
    assert result["texts"]["corpus.txt"]["n_bytes"] == Path("corpus.txt").stat().st_size
    assert result["texts"]["shards"]["perplexity"] > 1
    assert set(result["hellaswag"]["items.txt"]["accuracy"]) == {"sum", "tokens", "characters", "bytes"}
    outcome = run(arguments)
    assert "bits/byte" in outcome.out
    assert "HellaSwag" in outcome.out
    assert run(f"lm eval {trained}").status == 2
    assert run(f"lm eval {trained} --text corpus.txt --stride 17").status == 2


def test_eval_scores_tasks_beside_another_model_and_training_data(trained: str, data: str, run: Run):
    item = {"question": "the cat", "choices": {"text": ["sat", "ate"], "label": ["A", "B"]}, "answerKey": "A"}
    Path("arc.jsonl").write_text(f"{json.dumps(item)}\n" * 3)
    Path("sums.jsonl").write_text('{"question": "the cat", "answer": "#### 1"}\n')
    own = f"lm eval {trained} --task arc=arc.jsonl --task gsm8k=sums.jsonl --max-tokens 4 --results scores.jsonl"
    outcome = run(own)
    assert outcome.status == 0, outcome.err
    for expected in ("accuracy by", "95 % interval", "characters", "flexible", "GSM8K"):
        assert expected in outcome.out
    searched = run(own, "--overlap", "shards", "--against", trained)
    for expected in ("clean items", "difference", "0 of 3 items", "3 have fewer than 13 words", "better"):
        assert expected in searched.out, searched.err
    outcome = run(own, "--against", "scores.jsonl", "--json")
    first, second = json.loads(outcome.out)["tasks"]
    assert (first["task"], second["task"], first["n_items"]) == ("arc", "gsm8k", 3)
    assert {row["measure"]: row["against"]["p"] for row in first["measures"]}["bytes"] == 1
    assert all(row["corrected_p"] == 1 for row in (*first["measures"], *second["measures"]))
    assert "p is corrected for 7 comparisons (Holm)" in searched.out
    for options, message in (
        ("--max-tokens 5", "gsm8k in scores.jsonl were made with max-tokens 4, not 5"),
        ("--max-tokens 4 --samples 2 --temperature 1", "made with samples 1, not 2"),
        ("--chat", "arc in scores.jsonl were made with chat False, not True"),
    ):
        line = f"lm eval {trained} --task arc=arc.jsonl --task gsm8k=sums.jsonl {options}"
        refused = run(f"{line} --against scores.jsonl")
        assert message in refused.err
        assert "hint: compare models with the same settings: " in refused.err
    assert "of other items" in run(own, "--against", "scores.jsonl", "--limit", "2").err
    for words, message in (
        ("--task arcc=arc.jsonl", "did you mean arc?"),
        ("--task arc=arc.jsonl --shots 1", "--shots-from arc=FILE"),
        ("--core .", "cannot read core.yaml"),
        (f"--text arc.jsonl --against {trained}", "need a --task"),
    ):
        assert message in run(f"lm eval {trained} {words}").err


def test_a_damaged_checkpoint_or_another_tokenizer_is_refused(trained: str, run: Run):
    Path("mine/tokenizer.json").rename("kept.json")
    assert "tokenizer.json is missing" in run(f"lm generate {trained} a").err
    import bytemill

    bytemill.train(["corpus.txt"], 280, []).save("mine/tokenizer.json")
    assert "is not the tokenizer that the model was trained with" in run(f"lm generate {trained} a").err
    Path("kept.json").replace("mine/tokenizer.json")
    (checkpoint,) = Path("mine/checkpoints").iterdir()
    os.truncate(checkpoint / "model.safetensors", 1000)
    outcome = run(f"lm generate {trained} a")
    assert outcome.status == 1
    assert "no checkpoint in mine" in outcome.err
    assert "there is no checkpoint in shards" in run("lm eval shards --text corpus.txt").err


def test_eval_shows_the_loss_by_class_of_token(trained: str, run: Run):
    command = ("lm", "eval", trained, "--text", "corpus.txt", "--kernels", "scratch")
    assert "share of loss" not in run(*command).out
    table = run(*command, "--by-class").out
    assert "word after a space" in table
    assert "share of loss" in table
    (score,) = json.loads(run(*command, "--by-class", "--json").out)["texts"].values()
    assert sum(row["n_tokens"] for row in score["classes"].values()) == score["n_tokens"]


def test_plan_prints_tables_or_json(run: Run):
    outcome = run("lm plan gpt2-xl --memory 80GB --batch-size 4 --device a100")
    assert outcome.status == 0, outcome.err
    for expected in ("1,557,611,200 parameters", "optimizer (adamw)", "the largest batch is", "days"):
        assert expected in outcome.out
    tables = ["--model.rope.theta", "500", "--model.attention.no-qkv-bias", "--model.attention.qk-norm"]
    config = json.loads(run("lm", "plan", "tiny", *tables, "--json").out)["config"]
    assert (config["rope"]["theta"], config["attention"]["qk_norm"]) == (500, True)
    result = json.loads(run("lm plan tiny --model.num-layers 8 --json").out)
    assert result["config"]["num_layers"] == 8
    plain, full = (
        json.loads(run("lm", "plan", "tiny", "--json", *options).out)["memory_bytes"]
        for options in ([], ["--activation-checkpointing", "full", "--optimizer.ema-decay", "0.99"])
    )
    assert full["activations_per_sequence"] < plain["activations_per_sequence"] / 3
    assert plain["average"] == 0
    assert full["average"] == full["parameters"]
    assert run("lm plan nothing").status == 1
    assert "hint: write a size such as 80GB" in run("lm plan tiny --memory much").err


def test_help_has_examples_and_every_setting(run: Run, monkeypatch: pytest.MonkeyPatch):
    from bytemill.lm.training.config import setting_keys

    monkeypatch.setenv("COLUMNS", "200")
    all_options = run("lm train --help-all").out
    usual_options = run("lm train --help").out
    names = {f"--{key.replace('_', '-')} " for key in setting_keys() if not key.startswith("tuning.")}
    assert {name for name in names if name not in all_options} == set()
    assert 10 <= sum(name in usual_options.partition("--help shows")[0] for name in names) <= 15
    assert "--data.tokenizer STR" in usual_options
    assert "--schedule.name" not in usual_options
    for command in ("train", "generate", "eval", "plan"):
        assert f"bytemill lm {command} " in run("lm", command, "--help").out


@pytest.mark.slow
def test_a_terminal_gets_a_live_display(data: str):
    receiver, sender = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bytemill", "lm", "train", *TINY, "--training.steps", "20"],
        stderr=sender, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(sender)
    seen = b""
    try:
        while piece := os.read(receiver, 65536):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(receiver)
    assert process.wait() == 0
    assert b"step 20 of 20" in seen
    assert b"validation loss" in seen
    assert b"\x1b[" in seen


def test_values_come_from_file_environment_and_flags_in_this_order(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
):
    Path("run.toml").write_text("[training]\nsteps = 300\nseed = 3\nbatch_size = 3\n[model]\nd_ff = 64\n")
    monkeypatch.setenv("BYTEMILL_TRAINING_SEED", "4")
    monkeypatch.setenv("BYTEMILL_TRAINING_BATCH_SIZE", "4")
    outcome = run("lm train run.toml --training.batch-size 5 --print-config")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "steps = 300 # run.toml" in lines
    assert "seed = 4 # BYTEMILL_TRAINING_SEED" in lines
    assert "batch_size = 5 # --training.batch-size" in lines
    assert "d_ff = 64 # run.toml" in lines
    assert "# warmup_steps is not set # default" in lines
    outcome = run("lm train run.toml --model.preset tinystories --print-config")
    assert "d_ff = 1344" in outcome.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[training]\nstps = 3",
            "run.toml: unknown setting training.stps\nhint: did you mean training.steps?",
        ),
        ("[training]\nsteps = 0", "run.toml: training.steps is 0"),
        ("[training]\nsteps = true", "run.toml: training.steps is True"),
        (
            "[training]\nsteps = 10\n[schedule]\nwarmup_steps = 20",
            "warmup_steps is 20, longer than the run of 10 steps",
        ),
        ("[training", "run.toml is not a TOML file: Expected"),
    ],
)
def test_errors_in_a_file_name_the_file_and_the_key(run: Run, work: Path, text: str, message: str):
    Path("run.toml").write_text(text)
    outcome = run("lm train run.toml --print-config")
    assert outcome.status != 0
    assert message in outcome.err
    assert outcome.err.count("\n") == 2


def test_a_number_of_devices_that_does_not_divide_the_batch_is_an_error(data: str, run: Run):
    outcome = run("lm", "train", *TINY, "--run.folder", "mine", "--devices", "3")
    assert outcome.status == 1
    assert "cannot be divided evenly among 3 processes" in outcome.err
    assert "hint: start 1, 2 or 4 processes, or change --training.batch-size" in outcome.err
    assert not Path("mine").exists()


def test_plan_prints_the_run_of_a_depth(run: Run) -> None:
    options = ("--model.vocab-size", "500", "--model.context-length", "64")
    planned = json.loads(run("lm", "plan", "--depth", "2", *options, "--json").out)
    assert planned["run"]["model.d_model"] == 128
    assert planned["training_tokens"] == planned["run"]["tokens"]
    assert planned["batch_size"] == planned["run"]["training.batch_size"]
    text = run("lm", "plan", "--depth", "2", *options).out
    assert f"optimizer.learning_rate  {planned['run']['optimizer.learning_rate']:g}" in text
    assert "there is nothing to plan" in run("lm", "plan").err


def test_a_draft_guesses_for_the_model(run: Run, trained: str) -> None:
    command = f"lm generate {trained} 'the cat' --max-tokens 20 --temperature 0"
    plain = run(command)
    for draft in ("ngram", str(trained)):
        outcome = run(f"{command} --draft {draft}")
        assert outcome.out == plain.out
        assert "tokens per pass of the model" in outcome.err
    assert "draft-tokens" in run(f"{command} --draft ngram --draft-tokens 0").err
