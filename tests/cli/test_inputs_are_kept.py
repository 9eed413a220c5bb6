"""No command writes over what it reads."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.corpora import InlineExecutor

import bytemill
from bytemill.cluster import encode_corpus
from bytemill.corpus import Corpus
from bytemill.training.counts import SavedCounts

Run = Callable[..., Any]

STUDY = """
[text]
train = ["results.jsonl"]
validation = { same = ["results.jsonl"] }
[tokenizers.own]
vocab_sizes = [260]
[models.mini]
preset = "tiny"
[budget]
equal = "bytes"
amount = "1KB"
"""

COMMANDS = {
    "train": "tokenizer train corpus.txt -n 280 -o corpus.txt --overwrite",
    "train on a hard link": "tokenizer train corpus.txt -n 280 -o hard.txt --overwrite",
    "train on a list": "tokenizer train @list.txt -n 280 -o list.txt --overwrite",
    "train by processes": "tokenizer train corpus.txt -n 280 -o link.txt --overwrite --executor local",
    "train on counts": "tokenizer train --counts c.counts -n 280 -o c.counts --overwrite",
    "profile of a training": "tokenizer train corpus.txt -n 280 -o new.json --profile-file corpus.txt",
    "profile over the result": "tokenizer train corpus.txt -n 280 -o t.json --overwrite --profile-file t.json",
    "profile of an encoding": "data encode t.json corpus.txt -o new --profile-file t.json",
    "encode": "data encode t.json folder -o folder",
    "encode into it": "data encode t.json folder -o folder/shards",
    "encode around it": "data encode t.json folder/sub -o folder --documents line --validation-fraction 0.5",
    "encode by processes": "data encode t.json folder -o linked --overwrite --executor local",
    "encode a name of a shard": "data encode t.json --format text shards/manifest.json -o shards --overwrite",
    "re-encode": "data reencode shards --from t.json --to t.json -o shards --overwrite",
    "re-encode a link": "data reencode shards --from t.json --to t.json -o linked_shards --overwrite",
    "re-encode links": "data reencode of_links --from t.json --to t.json -o shards --overwrite",
    "re-encode by processes": "data reencode shards --from t.json --to t.json -o shards --overwrite "
    "--executor local",
    "convert shards": "data convert linked_shards shards --layout bin --overwrite",
    "convert files": "data convert shards/shard_00000.npy shards --layout bin --overwrite",
    "convert": "tokenizer convert t.json t.json --overwrite",
    "convert a folder": "tokenizer convert hf hf/tokenizer.json --overwrite",
    "compare": "tokenizer compare t.json t2.json --text corpus.txt table.md -o table.md",
    "compare over a tokenizer": "tokenizer compare t.json t2.json --text corpus.txt -o t.json",
    "quickstart": "quickstart quick --corpus quick/train.txt --no-open --model-steps 0",
    "get": "data get hellaswag --from-file corpus.txt -o corpus.txt --overwrite",
    "classifier": "data classifier train corpus.txt t.json -o link.txt --overwrite",
    "scores": "data classifier score t.json corpus.txt -o hard.txt --overwrite",
    "items": "data contamination items gsm8k=corpus.txt -o hard.txt --overwrite",
    "contamination": "data contamination find corpus.txt t.json -o hard.txt --overwrite",
    "import": "lm import model --output linked_model --overwrite",
    "a study of its results": "experiment run study/study.toml -o study",
    "report": "experiment report study -o study/results.jsonl",
    "train a model": "lm train --data.tokenizer t.json --data.train shards --run.folder shards --overwrite",
}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture
def files(work: Path) -> Path:
    tokenizer = bytemill.train("corpus.txt", 300, ["<|endoftext|>"], counts="c.counts")
    tokenizer.save("t.json")
    tokenizer.truncate(290).save("t2.json")
    tokenizer.save("hf/")
    Path("folder/sub").mkdir(parents=True)
    shutil.copy("corpus.txt", "folder/sub/a.txt")
    Path("list.txt").write_text("corpus.txt\n")
    Path("table.md").write_text("a table")
    Path("link.txt").symlink_to("corpus.txt")
    os.link("corpus.txt", "hard.txt")
    Path("linked").symlink_to("folder")
    bytemill.encode_corpus(tokenizer, "corpus.txt", "shards")
    Path("linked_shards").symlink_to("shards")
    Path("of_links").mkdir()
    for path in Path("shards").iterdir():
        (Path("of_links") / path.name).symlink_to(path.absolute())
    Path("quick").mkdir()
    Path("quick/quickstart.json").write_text("{}")
    shutil.copy("corpus.txt", "quick/train.txt")
    Path("study").mkdir()
    Path("study/study.toml").write_text(STUDY)
    Path("study/study.json").write_text('{"title": "", "cells": [], "models": {}, "tokenizers": {}}')
    Path("study/results.jsonl").write_text('{"text": "the cat"}\n')
    Path("model").mkdir()
    Path("linked_model").symlink_to("model")
    Path("model/config.json").write_text("{}")
    return work


def test_no_command_writes_over_an_input(files: Path, run: Run) -> None:
    before = contents(files)
    for name, command in COMMANDS.items():
        outcome = run(*command.split())
        assert outcome.status == 1, (name, outcome)
        assert any(word in outcome.err for word in (" is an input", " contains the ", " lies in the ")), (
            name,
            outcome.err,
        )
        assert "choose another output" in outcome.err, name
        assert contents(files) == before, name


def test_no_function_writes_over_an_input(files: Path) -> None:
    tokenizer = bytemill.Tokenizer.load("t.json")
    before = contents(files)
    Path("folder/sub/run-1.txt").write_text("a text with the name of a checkpoint")
    for write in (
        lambda: bytemill.encode_corpus(tokenizer, "folder", "folder", overwrite=True),
        lambda: bytemill.encode_corpus(tokenizer, Corpus(["corpus.txt", "folder"]), "linked/new"),
        lambda: encode_corpus(InlineExecutor(), tokenizer, "folder", "folder", overwrite=True),
        lambda: bytemill.train("folder", 280, work_folder="folder/sub"),
        lambda: bytemill.train("folder/sub/run-1.txt", 280, work_folder="folder/sub"),
        lambda: bytemill.train(SavedCounts([("c.counts", 1)]), 280, ["<|endoftext|>"], counts="c.counts"),
    ):
        with pytest.raises(bytemill.errors.OutputError, match=r"is an input|contains the|lies in the"):
            write()
    Path("folder/sub/run-1.txt").unlink()
    assert contents(files) == before
    # Beside its input, an output is as good as elsewhere.
    bytemill.encode_corpus(tokenizer, "folder/sub/a.txt", "folder/sub")
    assert Path("folder/sub/a.txt").read_bytes() == Path("corpus.txt").read_bytes()
