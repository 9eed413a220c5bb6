"""A folder of its own whose tokenizer and run are made again while a studio serves it."""

import shutil
from pathlib import Path

import torch

import bytemill
from bytemill.lm.training.config import resolve
from bytemill.lm.training.trainer import train
from tests.lm.conftest import END, TINY, sentences


def make_folder(root: Path, folder: Path) -> None:
    """Put a tokenizer, a text and a run into a folder."""
    folder.mkdir()
    shutil.copy(root / "tokenizer.json", folder / "own.json")
    (folder / "story.txt").write_text("The cat saw the dog.", encoding="utf-8")
    shutil.copytree(root / "runs" / "first", folder / "run")


def train_run(root: Path, folder: Path, seed: int) -> None:
    """Train as `bytemill lm train --overwrite` does; checkpoints of steps 2, 4 and 6 remain."""
    values = {
        **TINY,
        "data.tokenizer": str(root / "tokenizer.json"),
        "data.train": str(root / "shards" / "train"),
        "training.steps": 6,
        "training.seed": seed,
        "run.checkpoint_every": 2,
        "run.keep_checkpoints": 3,
        "run.log_every": 1,
        "run.folder": str(folder),
    }
    n_threads = torch.get_num_threads()
    train(resolve([("the test", values)], n_vocab=300), overwrite=True)
    torch.set_num_threads(n_threads)


def train_tokenizer(path: Path) -> bytemill.Tokenizer:
    """Train another tokenizer of 300 tokens into the file of the first."""
    tokenizer = bytemill.train_from_iterator([sentences(7, 300).upper()], 300, [END])
    tokenizer.save(path)
    return tokenizer
