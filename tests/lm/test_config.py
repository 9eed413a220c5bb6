"""Settings: default < file < environment < option, with the origin of every value and error; their paths."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bytemill.errors import ModelConfigError, RunConfigError
from bytemill.lm.model_config import AttentionConfig, RopeConfig
from bytemill.lm.planning import parse_bytes, plan_for
from bytemill.lm.presets import preset
from bytemill.lm.training.config import (
    SECTIONS,
    config_from_dict,
    config_to_toml,
    differences,
    environment_layers,
    file_layer,
    recorded_paths,
    resolve,
)
from bytemill.lm.training.run import rate_change, rate_share

from .conftest import Corpus


def test_later_layers_win_and_every_origin_is_known():
    resolved = resolve(
        [
            (
                "run.toml",
                {"model.num_layers": 2, "model.d_ff": 64, "training.steps": 700, "data.train": "shards"},
            ),
            ("the command line", {"model.num_layers": 8}),
        ],
        n_vocab=300,
    )
    model = resolved.config.model
    assert (model.num_layers, model.d_ff, model.d_model, model.vocab_size) == (8, 64, 128, 300)
    assert resolved.config.training.steps == 700
    assert resolved.config.data.train == ("shards",)
    assert resolved.origins["model.num_layers"] == "the command line"
    assert resolved.origins["model.d_ff"] == resolved.origins["training.steps"] == "run.toml"
    assert resolved.origins["model.d_model"] == "preset tiny"
    assert resolved.origins["model.vocab_size"] == "the tokenizer"
    assert resolved.origins["optimizer.beta1"] == "default"


def test_a_preset_replaces_the_sizes_of_weaker_layers_and_not_of_its_own():
    layers: list[Any] = [
        ("run.toml", {"model.num_layers": 2, "model.d_ff": 64}),
        ("the command line", {"model.preset": "tinystories", "model.num_heads": 8}),
    ]
    assert resolve(layers).config.model == preset("tinystories", num_heads=8)


def test_warm_up_fits_the_run():
    too_long = r"schedule\.warmup_steps is 20, longer than the run of 10 steps \(training\.steps\)"
    with pytest.raises(RunConfigError, match=too_long) as caught:
        resolve([("x", {"schedule.warmup_steps": 20, "training.steps": 10})])
    for option in ("--schedule.warmup-steps to 10", "--training.steps to 20"):
        assert option in (caught.value.hint or "")
    assert resolve([("x", {"schedule.warmup_steps": 10, "training.steps": 10})]).config.n_warmup_steps == 10
    for steps, n_warmup in ((5, 0), (50, 5), (5000, 100)):
        assert resolve([("x", {"training.steps": steps})]).config.n_warmup_steps == n_warmup


def test_a_batch_ramp_starts_with_a_divisor_of_the_batch():
    with pytest.raises(
        RunConfigError, match=r"batch_ramp_start is 5, which does not divide the 32"
    ) as caught:
        resolve([("x", {"training.batch_ramp_start": 5, "training.batch_ramp_steps": 10})])
    assert caught.value.hint == "choose a divisor of 32"
    for name in ("training.batch_ramp_start", "training.batch_ramp_steps"):
        with pytest.raises(RunConfigError, match="batch_ramp_start is") as caught:
            resolve([("x", {name: 4})])
        assert caught.value.hint == "set both, or neither"


def test_printed_settings_resolve_to_the_same_settings(corpus: Corpus):
    explicit = {
        **corpus.data,
        "model.preset": "gpt2",
        "run.sample_prompt": 'He said "\\n\x7f"',
        "optimizer.eps": 1e-9,
    }
    resolved = resolve([("here", explicit)], n_vocab=300)
    text = config_to_toml(resolved)
    document = tomllib.loads(text)
    again = resolve(
        [("a", {f"{s}.{name}": value for s, own in document.items() for name, value in own.items()})]
    )
    assert again.config == resolved.config
    assert "eps = 1e-09" in text
    assert "# preset gpt2" in text
    assert "# here" in text
    assert config_from_dict(resolved.config.to_dict()) == resolved.config


@pytest.mark.parametrize("entries", [{"model.rope.theta": 500.0}, {"model.rope": {"theta": 500.0}}])
def test_a_table_of_settings_changes_what_it_names(entries: dict[str, Any]):
    resolved = resolve([("a", {"model.rope": {"scaling": "linear", "factor": 2.0}}), ("b", entries)])
    assert resolved.config.model.rope == RopeConfig(theta=500.0, scaling="linear", factor=2.0)
    assert resolved.origins["model.rope.factor"] == "a"
    assert resolved.origins["model.rope.theta"] == "b"
    assert "[model.rope]\ntheta = 500.0 " in config_to_toml(resolved)
    shape = preset("nanochat-d12", attention={"num_kv_heads": 2})
    assert shape.attention == AttentionConfig(num_kv_heads=2, qk_norm=True)


def test_every_setting_has_its_help():
    for kind in SECTIONS.values():
        assert [
            name for name, info in kind.fields_by_name().items() if not (info.description or "").endswith(".")
        ] == []


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("model.n_layrs", 3, "unknown setting model.n_layrs", "model.num_layers"),
        ("model.num_layers", "3", "model.num_layers is '3'", "whole number"),
        ("model.rope.thet", 1.0, "unknown setting model.rope.thet", "model.rope.theta"),
        ("model.rope.factor", 0.5, "model.rope.factor is 0.5", "at least 1"),
        ("model.rope", {"theta": 0.0}, "model.rope.theta is 0.0", "above 0"),
        ("model.rope", 3, "model.rope is 3", "it is a table: set model.rope.theta"),
        ("training.compile", 1, "training.compile is 1", "true or false"),
        ("training.steps", True, "training.steps is True", "whole number"),
        ("training.steps", 0, "training.steps is 0", "at least 1"),
        ("optimizer.beta1", 1.5, "optimizer.beta1 is 1.5", "below 1"),
        ("optimizer.ema_decay", 1.0, "optimizer.ema_decay is 1.0", "below 1"),
        ("optimizer.z_loss", -1.0, "optimizer.z_loss is -1.0", "at least 0"),
        ("optimizer.muon_method", "svd", "optimizer.muon_method is 'svd'", "newton_schulz, polar_express"),
        ("optimizer.muon_momentum", 1.0, "optimizer.muon_momentum is 1.0", "below 1"),
        ("optimizer.spike_norm", -2.0, "optimizer.spike_norm is -2.0", "at least 0"),
        ("schedule.decay_shape", "sqrt", "schedule.decay_shape is 'sqrt'", "linear, 1-sqrt"),
        ("training.batch_ramp_steps", -1, "training.batch_ramp_steps is -1", "at least 0"),
        ("optimizer.name", "lion", "optimizer.name is 'lion'", "adamw, muon, soap, sgd"),
        ("optimizer.learning_rate", float("nan"), "learning_rate is nan", "finite"),
        ("data.train", [3], "data.train is", None),
        ("model.preset", "huge", "unknown preset 'huge'", "tinystories"),
        ("model.vocab_size", 200, "the tokenizer has 300 ids", "leave model.vocab_size out"),
    ],
)
def test_errors_name_the_key_and_its_origin(key: str, value: Any, message: str, hint: str | None):
    with pytest.raises(
        (RunConfigError, ModelConfigError), match=rf"run.toml: .*{message}|run.toml: {message}"
    ) as caught:
        resolve([("run.toml", {key: value})], n_vocab=300)
    if hint:
        assert hint in (caught.value.hint or "")


def test_settings_that_may_change_on_resume():
    base = resolve([("x", {})]).config
    changed = resolve([("x", {"training.steps": 5, "run.folder": "elsewhere", "run.log_every": 1})]).config
    assert differences(base, changed) == []
    assert differences(base, resolve([("x", {"training.seed": 1})]).config) == [
        "training.seed is 1 and was 0"
    ]


@pytest.mark.parametrize(
    ("schedule", "step", "steps", "message"),
    [
        ({}, 100, 100, None),
        (
            {},
            100,
            200,
            "from 1.00e-04 in step 100 to 6.20e-04 in step 101: the schedule of 200 steps .* 100 steps",
        ),
        ({}, 5, 2000, "from 5.00e-04 in step 5 to 6.00e-05 in step 6"),
        ({"decay_steps": 100, "warmup_steps": 10}, 60, 200, None),
        ({"name": "wsd"}, 100, 200, "from 1.00e-04 in step 100 to 1.00e-03 in step 101"),
        ({"name": "wsd"}, 60, 200, None),
        ({"name": "constant"}, 15, 200, "from 1.00e-03 in step 15 to 8.00e-04 in step 16"),
        ({"name": "constant"}, 50, 200, None),
    ],
)
def test_a_change_of_the_rate_where_a_run_resumes_is_described(
    schedule: dict[str, Any], step: int, steps: int, message: str | None
):
    settings = {f"schedule.{name}": value for name, value in schedule.items()}
    before, after = (resolve([("x", {**settings, "training.steps": n})]).config for n in (100, steps))
    found = rate_change(before, after, step, 1e-3)
    assert found is None if message is None else re.search(message, found or ""), found
    if found and "--schedule" in found:
        decay, warmup = map(int, re.findall(r"steps (\d+)", found))
        options = {"schedule.decay_steps": decay, "schedule.warmup_steps": warmup}
        kept = resolve([("x", {**settings, "training.steps": steps, **options})]).config
        assert differences(before, kept) == []
        assert [rate_share(t, kept) for t in range(100)] == [rate_share(t, before) for t in range(100)]


def test_sizes_and_plans():
    assert parse_bytes("80GB") == 80 * 10**9
    assert parse_bytes("512 kib") == 512 * 1024
    for wrong in ("80 apples", "", "1.2.3GB", "-3GB"):
        with pytest.raises(RunConfigError, match="not a size"):
            parse_bytes(wrong)
    plan = plan_for(preset("gpt2-xl"), memory="80GB", device="a100", batch_size=1)
    assert plan.fits
    assert plan.days is not None
    with pytest.raises(RunConfigError, match="unknown device 'abacus'"):
        plan_for(preset("tiny"), device="abacus")
    with pytest.raises(RunConfigError, match="a batch of 0"):
        plan_for(preset("tiny"), batch_size=0)


def test_a_file_gives_its_values_by_key(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('[training]\nsteps = 5\n[data]\ntrain = ["a"]\nvalidation = []\n')
    expected = {"training.steps": 5, "data.train": ["a"], "data.validation": []}
    assert file_layer(file) == file_layer(tmp_path) == (str(file), expected)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # as some editors save it
    assert file_layer(file) == (str(file), expected)


def test_relative_paths_of_a_run_are_looked_up_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project, run = tmp_path / "project", tmp_path / "project" / "runs" / "a"
    for folder in ("train", "validation", "elsewhere", "runs/a"):
        (project / folder).mkdir(parents=True)
    (project / "tokenizer.json").touch()
    (project / "items.jsonl").touch()
    values = {
        "data.tokenizer": "tokenizer.json",
        "data.train": ["train", "s3://bucket/train", "/data/train", "gone"],
        "data.validation": ["wiki=validation", "train"],
        "training.init_from": "",
        "run.hellaswag": "items.jsonl",
    }
    resolved = resolve([("the test", values)])
    monkeypatch.chdir(project)
    (run / "config.toml").write_text(config_to_toml(resolved, recorded_paths(run)))
    _, here = file_layer(run)
    assert {key: here[key] for key in values} == values
    monkeypatch.chdir(project / "elsewhere")
    expected = {
        "data.tokenizer": "../tokenizer.json",
        "data.train": ["../train", "s3://bucket/train", "/data/train", "gone"],
        "data.validation": ["wiki=../validation", "../train"],
        "training.init_from": "",
        "run.hellaswag": "../items.jsonl",
    }
    _, there = file_layer("../runs/a")
    assert {key: there[key] for key in values} == expected
    run.rename(tmp_path / "moved")  # without the data, which is where it was
    _, moved = file_layer(tmp_path / "moved")
    assert {key: moved[key] for key in values} == expected
    (project / "tokenizer.json").unlink()
    (tmp_path / "moved" / "tokenizer.json").touch()
    assert file_layer(tmp_path / "moved")[1]["data.tokenizer"] == str(tmp_path / "moved" / "tokenizer.json")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[training]\nstps = 3", "unknown setting training.stps", "did you mean training.steps?"),
        ("[trainin]\nsteps = 3", "unknown setting trainin.steps", "did you mean training.steps?"),
        ("[x]\ny = 3", "unknown setting x.y", "`bytemill lm train --help-all` lists all settings"),
        (
            "[paths]\ndata = '/d'",
            "unknown setting paths.data",
            "`bytemill lm train --help-all` lists all settings",
        ),
        ("steps = 3", "steps is outside of a section", "write it in the section [training]"),
        ("[model]\npreset = [1]", "unknown preset '[1]'", "choose one of tiny"),
        ("[training]\nsteps = '3'", "training.steps is '3'", "choose a whole number"),
        ("[training", "is not a TOML file: Expected ']'", "correct the file"),
    ],
)
def test_errors_name_the_file_the_key_and_a_remedy(tmp_path: Path, text: str, message: str, hint: str):
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(RunConfigError) as caught:
        resolve([file_layer(file)])
    assert str(file) in str(caught.value)
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_folder_without_a_run_is_refused_with_a_hint(tmp_path: Path):
    with pytest.raises(RunConfigError, match="is not a run folder") as caught:
        file_layer(tmp_path)
    assert "bytemill lm train" in (caught.value.hint or "")


def test_environment_variables_are_parsed_by_type_and_are_the_origin():
    layers = environment_layers(
        {"BYTEMILL_TRAINING_STEPS": "7", "BYTEMILL_DATA_TRAIN": "a 'b c'", "BYTEMILL_DATA_URL": "x"}
    )
    assert layers == [
        ("BYTEMILL_DATA_TRAIN", {"data.train": ["a", "b c"]}),
        ("BYTEMILL_TRAINING_STEPS", {"training.steps": 7}),
    ]
    with pytest.raises(RunConfigError, match=r"BYTEMILL_TRAINING_STEPS: training\.steps is 'many'"):
        resolve(environment_layers({"BYTEMILL_TRAINING_STEPS": "many"}))


def test_a_preset_replaces_only_the_model_of_weaker_sources():
    environment = environment_layers(
        {"BYTEMILL_MODEL_PRESET": "tinystories", "BYTEMILL_MODEL_NUM_LAYERS": "2"}
    )
    model = resolve([("run.toml", {"model.d_ff": 64}), *environment]).config.model
    assert (model.num_layers, model.d_ff) == (2, 1344)
