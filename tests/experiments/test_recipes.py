"""Every preset of a real size has a recipe, which resolves, divides over 8 GPUs and fits into one of 80 GB."""

import re
from pathlib import Path

import pytest

from bytemill.lm.planning import flops_per_token, n_parameters, training_days, training_memory
from bytemill.lm.presets import PRESETS
from bytemill.lm.training.config import Resolved, TrainConfig, file_layer, resolve
from bytemill.lm.training.data import divide_batch

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
RECIPES = {path.stem: path for path in sorted((EXPERIMENTS / "recipes").glob("*.toml"))}
STUDY = {
    f"gpt2-fineweb/{name}": EXPERIMENTS / "gpt2-fineweb" / f"{name}.toml" for name in ("full", "single-gpu")
}


def resolved(name: str) -> Resolved:
    return resolve([file_layer((RECIPES | STUDY)[name])])


def tokens_per_step(config: TrainConfig) -> int:
    return config.training.batch_size * config.training.accumulation * config.model.context_length


def test_every_preset_but_the_toys_has_a_recipe() -> None:
    assert set(RECIPES) == set(PRESETS) - {"tiny", "tinystories"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_the_shape_of_its_preset(name: str) -> None:
    found = resolved(name)
    assert found.config.model == PRESETS[name].replace(vocab_size=found.config.model.vocab_size)
    assert found.config.model.vocab_size >= PRESETS[name].vocab_size
    assert found.config.model.vocab_size % 128 == 0
    assert found.config.run.folder == name


@pytest.mark.parametrize("name", RECIPES)
def test_the_first_line_states_size_batch_and_length(name: str) -> None:
    first = RECIPES[name].read_text(encoding="utf-8").splitlines()[0]
    config = resolved(name).config
    per_step = tokens_per_step(config)
    assert first == (
        f"# {name}: {n_parameters(PRESETS[name]) / 1e6:,.0f} million parameters, {per_step:,} tokens per step, "
        f"{config.training.steps * per_step / 1e9:.1f} billion tokens."
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_on_20_tokens_per_parameter_or_more(name: str) -> None:
    config = resolved(name).config
    n_tokens = config.training.steps * tokens_per_step(config)
    assert n_tokens >= 19.9 * n_parameters(PRESETS[name])
    assert config.n_warmup_steps <= config.training.steps / 10


@pytest.mark.parametrize("name", RECIPES | STUDY)
@pytest.mark.parametrize("n_processes", [1, 2, 4, 8])
def test_a_step_divides_over_gpus_and_fits(name: str, n_processes: int) -> None:
    config = resolved(name).config
    n_passes, n_sequences = divide_batch(config.training, n_processes)
    assert n_passes * n_sequences * n_processes * config.model.context_length == tokens_per_step(config)
    needed = training_memory(config.model, optimizer=config.optimizer.name, precision="bfloat16")
    assert needed.total(n_sequences) < (24e9 if name == "gpt2-fineweb/single-gpu" else 72e9)


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if name.startswith("llama") and name != "llama-1b"]
)
def test_learning_rate_and_batch_follow_the_fit_that_the_file_cites(name: str) -> None:
    config = resolved(name).config
    n_tokens = config.training.steps * tokens_per_step(config)
    flops = flops_per_token(config.model) * n_tokens
    assert config.optimizer.learning_rate == pytest.approx(0.3118 * flops**-0.1250, rel=0.05)
    assert 2**-0.5 <= tokens_per_step(config) / (0.2920 * flops**0.3271) <= 2**0.5


@pytest.mark.parametrize("name", ["gpt2-fineweb/full", "gpt2"])
def test_the_classic_run_has_10_billion_tokens(name: str) -> None:
    config = resolved(name).config
    assert (config.training.steps, tokens_per_step(config)) == (19_073, 524_288)
    assert config.n_warmup_steps * tokens_per_step(config) == pytest.approx(375e6, rel=1e-3)


def test_the_study_has_the_settings_of_the_recipe() -> None:
    full, recipe = resolved("gpt2-fineweb/full").config, resolved("gpt2").config
    assert (full.optimizer, full.schedule, full.training) == (
        recipe.optimizer,
        recipe.schedule,
        recipe.training,
    )
    single = resolved("gpt2-fineweb/single-gpu").config
    assert (single.training.steps, tokens_per_step(single)) == (5_000, 524_288)
    assert single.optimizer == full.optimizer


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_cites_a_source_and_one_for_the_learning_rate(name: str) -> None:
    lines = RECIPES[name].read_text(encoding="utf-8").splitlines()
    assert any(re.search(r"\b20\d\d\b", line) for line in lines if line.startswith("#"))
    assert all(
        "#" in line for line in lines if line.startswith(("learning_rate", "muon_learning_rate", "warmup"))
    )


def test_the_table_of_recipes_is_computed_from_them() -> None:
    rows: list[str] = []
    for name in sorted(RECIPES, key=lambda name: (name.split("-")[0], n_parameters(PRESETS[name]))):
        config = resolved(name).config
        per_step = tokens_per_step(config)
        n_tokens = config.training.steps * per_step
        hours = 24 * training_days(config.model, n_tokens, 8 * 989e12, 0.4)
        rows.append(
            f"| [{name}]({name}.toml) | {n_parameters(PRESETS[name]) / 1e6:,.0f} M | {n_tokens / 1e9:.1f} G | "
            f"{per_step / 2**20:g} Mi | {config.training.steps:,} | {config.optimizer.learning_rate:g} | {hours:.2g} |"
        )
    table = (EXPERIMENTS / "recipes" / "README.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in table
