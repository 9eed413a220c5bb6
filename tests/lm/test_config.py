"""Settings: default < file < option, every origin known, mistakes named."""

from pathlib import Path
from typing import Any

import pytest

from bytemill.errors import ModelConfigError, RunConfigError
from bytemill.lm.training.config import config_from_dict, differences, resolve, settings
from bytemill.lm.training.config_file import config_to_toml, load_settings, read_config
from bytemill.lm.training.plan import parse_bytes, plan_for

from .conftest import Corpus


def test_options_win_over_files_and_files_over_defaults(tmp_path: Path, corpus: Corpus):
    file = tmp_path / "run.toml"
    file.write_text('[model]\nn_layers = 2\nd_ff = 64\n[training]\nsteps = 7\n[data]\ntrain = "shards"\n')
    options = {"model.num-layers": 8, "data.tokenizer": str(corpus.folder / "tokenizer.json")}
    resolved = load_settings(file, options)
    model = resolved.config.model
    assert (model.num_layers, model.d_ff, model.d_model, model.vocab_size) == (8, 64, 128, 300)
    assert resolved.config.training.steps == 7
    assert resolved.config.data.train == ("shards",)
    assert resolved.origins["model.num_layers"] == "the command line"
    assert resolved.origins["model.d_ff"] == resolved.origins["training.steps"] == str(file)
    assert resolved.origins["model.d_model"] == "preset tiny"
    assert resolved.origins["model.vocab_size"] == "the tokenizer"
    assert resolved.origins["optimizer.beta1"] == "default"


def test_what_is_printed_gives_the_same_settings_again(tmp_path: Path, corpus: Corpus):
    given = {
        **corpus.data,
        "model.preset": "gpt2-124m",
        "run.sample_prompt": 'He said "\\n\x7f"',
        "optimizer.eps": 1e-9,
    }
    resolved = resolve([("here", given)], n_vocab=300)
    text = config_to_toml(resolved)
    (tmp_path / "a.toml").write_text(text)
    again = load_settings(tmp_path / "a.toml", {})
    assert again.config == resolved.config
    assert "eps = 1e-09" in text
    assert "# preset gpt2-124m" in text
    assert "# here" in text
    assert config_from_dict(resolved.config.to_dict()) == resolved.config
    assert "# " not in config_to_toml(resolved, origins=False).replace("# preset", "")


def test_every_setting_has_its_help():
    assert [setting.key for setting in settings().values() if not setting.about.endswith(".")] == []


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("model.n_layrs", 3, "there is no setting model.n_layrs", "model.num_layers"),
        ("model.num_layers", "3", "model.num_layers is '3', which is no int", None),
        ("training.compile", 1, "which is no bool", None),
        ("training.steps", True, "which is no int", None),
        ("training.steps", 0, "training.steps is 0", "1 or more"),
        ("optimizer.beta1", 1.5, "optimizer.beta1 is 1.5", "from 0 to 1"),
        ("optimizer.name", "lion", "optimizer.name is 'lion'", "adamw, muon, sgd"),
        ("optimizer.learning_rate", float("nan"), "learning_rate is nan", "0 or more"),
        ("data.train", [3], "data.train is", "a list of names"),
        ("model.preset", "huge", "there is no preset 'huge'", "tinystories"),
        ("model.vocab_size", 200, "the tokenizer has 300 ids", "leave it out"),
    ],
)
def test_mistakes_are_named_with_their_place(key: str, value: Any, message: str, hint: str | None):
    with pytest.raises(RunConfigError, match=message) as caught:
        resolve([("run.toml", {key: value})], n_vocab=300)
    if hint:
        assert hint in (caught.value.hint or "")


def test_impossible_models_are_refused():
    with pytest.raises(ModelConfigError, match="num_heads"):
        resolve([("x", {"model.num_heads": 3})])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[modle]\na=1", r"there is no section \[modle\]"),
        ("model = 3", "is a section"),
        ("[model", "is no TOML"),
    ],
)
def test_files_that_are_no_settings_are_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(RunConfigError, match=message):
        read_config(tmp_path / "run.toml")
    with pytest.raises(RunConfigError, match="cannot read"):
        read_config(tmp_path / "nothing.toml")


def test_what_may_change_when_a_run_goes_on():
    base = resolve([("x", {})]).config
    changed = resolve([("x", {"training.steps": 5, "run.folder": "elsewhere", "run.log_every": 1})]).config
    assert differences(base, changed) == []
    assert differences(base, resolve([("x", {"training.seed": 1})]).config) == [
        "training.seed is 1 and was 0"
    ]


def test_sizes_and_plans():
    assert parse_bytes("80GB") == 80 * 10**9
    assert parse_bytes("512 kib") == 512 * 1024
    for wrong in ("80 apples", "", "1.2.3GB", "-3GB"):
        with pytest.raises(RunConfigError, match="no size"):
            parse_bytes(wrong)
    plan = plan_for("gpt2-xl", {}, memory="80GB", device="a100", batch_size=1)
    assert plan.fits
    assert plan.days is not None
    assert plan_for("tiny", {"model.num_layers": 8}).config.num_layers == 8
    with pytest.raises(RunConfigError, match="no preset"):
        plan_for("nothing", {})
    with pytest.raises(RunConfigError, match="'abacus' is not known"):
        plan_for("tiny", {}, device="abacus")
    with pytest.raises(RunConfigError, match="a batch of 0"):
        plan_for("tiny", {}, batch_size=0)
