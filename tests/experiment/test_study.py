"""Study files: every mistake is one line that names the key, and grids have the cells one expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bytemill.errors import BytemillError
from bytemill.experiment.study import Study, cells, load_study, tokenizer_sources, trials

from .conftest import STUDY, edit

if TYPE_CHECKING:
    from pathlib import Path


def study(path: Path, *changes: tuple[str, str]) -> Study:
    (path / "study.toml").write_text(STUDY)
    return load_study(edit(path / "study.toml", *changes))


def test_the_grid_trains_all_arms_of_a_seed_before_the_next_seed(tmp_path: Path):
    names = [cell.name for cell in cells(study(tmp_path))]
    arms = ["bytes.mini", "own.mini"]
    assert names == [f"{arm}.seed{seed}" for seed in (0, 1) for arm in arms]


def test_sizes_patterns_and_texts_are_combined_and_named_by_what_differs(tmp_path: Path):
    own = study(
        tmp_path,
        (
            "vocab_sizes = [270]",
            'vocab_sizes = [270, 290]\npatterns = ["gpt2", "none"]\ntexts = { en = ["a"], code = ["b"] }',
        ),
        ("seeds = 2", "seeds = [5]"),
    )
    sources = tokenizer_sources(own)
    assert len(sources) == 1 + 2 * 2 * 2
    assert sources["own-290-none-code"].inputs == ("b",)
    assert own.seed_list == [5]


TEXTS = '[[texts]]\nname = "raw"\ntrain = ["r"]\n[[texts]]\nname = "clean"\ntrain = ["c"]\n\n[budget]'


def test_every_tokenizer_is_trained_on_every_text(tmp_path: Path):
    own = study(tmp_path, ("[budget]", TEXTS), ("seeds = 2", "seeds = [4]"))
    arms = ["bytes+raw", "bytes+clean", "own+raw", "own+clean"]
    assert [cell.name for cell in cells(own)] == [f"{arm}.mini.seed4" for arm in arms]


def test_trials_are_all_arms_by_rate_with_seeds_of_their_own(tmp_path: Path):
    tuning = ("[text]", '[text]\ntuning = ["t"]')
    own = study(tmp_path, ("[budget]", "[learning_rate]\nsearch = [1, 0.01]\n[budget]"), tuning)
    assert [trial.name for trial in trials(own)] == [
        f"{tokenizer}.mini.seed{seed}.rate{rate}"
        for seed in (0, 1)
        for rate in ("1", "0.01")
        for tokenizer in ("bytes", "own")
    ]
    three = ("[budget]", "[learning_rate]\nsearch = [1]\nseeds = 3\n[budget]")
    own = study(tmp_path, ("seeds = 2", "seeds = [7]"), three, tuning)
    assert {trial.seed for trial in trials(own)} == {7, 8, 9}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("amount = 4000", "amount = 4000\nequal = 'words'", "budget: equal is 'words'"),
        ("amount = 4000", "", "budget: amount must be set"),
        ("amount = 4000", "amount = 0", "budget: amount is 0"),
        ("[text]", "[text]\nfoo = 1", "text: unknown setting foo"),
        ("seeds = 2", "seeds = []\nfoo = 2", "unknown setting foo"),
        ('preset = "tiny"', 'preset = "tinny"', "models.mini: unknown preset 'tinny'"),
        ("num_heads = 2", "num_heads = 3", "d_model 16 is not divisible by num_heads 3"),
        ("training.batch_size = 4", "training.batch_sise = 4", "train: unknown setting training.batch_sise"),
        ("training.batch_size = 4", "training.steps = 4", "train: a study sets training.steps itself"),
        ("vocab_sizes = [257]", "", "tokenizers.bytes: a tokenizer needs either load or vocab_sizes"),
        ("[tokenizers.bytes]", "[tokenizers.'a b']", "tokenizers: 'a b' cannot be a name"),
        (
            "[budget]",
            "[learning_rate]\nsearch = [0.1]\n[budget]",
            "learning_rate.search needs text of its own",
        ),
        ("[budget]", "[learning_rate]\nseeds = 1\n[budget]", "learning_rate: seeds is 1"),
        ("seeds = 2", "seeds = []", "seeds is ()"),
        ("seeds = 2", "seeds = 0", "seeds is 0"),
        ("seeds = 2", "seeds = [3, 3]", "seeds is (3, 3)"),
        ("[text]", "[text]\nsegment_bytes = 64", "text: segment_bytes is a setting of earlier versions"),
        (
            "vocab_sizes = [257]",
            'vocab_sizes = [257]\ntexts = { "../x" = ["a"], y = ["b"] }',
            "tokenizers.bytes: '../x' cannot be a name",
        ),
        (
            "vocab_sizes = [257]",
            "vocab_sizes = [257]\npatterns = ['gpt2', '[/]']",
            "tokenizers.bytes: '[/]' cannot be a name",
        ),
        ("[text]", "[text", "is not a TOML file"),
        ("[budget]", TEXTS.replace("clean", "raw"), "texts: two are called 'raw'"),
        ("[budget]", TEXTS.replace("clean", "../x"), "texts: '../x' cannot be a name"),
        ("[budget]", TEXTS.replace('train = ["c"]', ""), "texts 2: train must be set"),
        ("[text]", "[texts]\na = 1\n[text]", "texts is {'a': 1}"),
        ("", "", "cannot read"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(tmp_path: Path, old: str, new: str, message: str):
    with pytest.raises(BytemillError) as raised:
        study(tmp_path, (old, new)) if old else load_study(tmp_path / "none.toml")
    assert message in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)
