"""Settings from files and environment variables: values, origins and errors."""

from pathlib import Path

import pytest

from bytemill.errors import RunConfigError
from bytemill.lm.training.config import (
    config_to_toml,
    environment_layers,
    file_layer,
    recorded_paths,
    resolve,
)


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
