"""A model whose training documents all began with a token sees that token in front of every text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bytemill
from bytemill.lm.evaluate import evaluate_hellaswag, evaluate_text, read_items, score_text_file
from bytemill.lm.generation.decoding import generate
from bytemill.lm.generation.text_generation import GenerationOptions, generate_text, prompt_ids
from bytemill.lm.inspection import surprisal
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.training.config import resolve
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.saved_model import TrainedModel, load_trained
from bytemill.lm.training.trainer import train

from .conftest import TINY, sentences

BOS = "<s>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on documents that begin with `<s>`; its tokenizer has no `<|endoftext|>`."""
    folder = tmp_path_factory.mktemp("bos")
    texts = [sentences(seed, 12) for seed in range(20)]
    tokenizer = bytemill.train_from_iterator(texts, 300, [BOS, "</s>"])
    tokenizer.save(folder / "tokenizer.json")
    for name, options in (("shards", {"prepend": True}), ("plain", {})):
        bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts(texts), folder / name, **options)  # pyright: ignore[reportArgumentType]
    values = {
        **TINY,
        "data.tokenizer": str(folder / "tokenizer.json"),
        "data.train": str(folder / "shards"),
        "training.steps": 2,
        "run.sample_every": 2,
        "run.folder": str(folder / "run"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
        train(resolve([("the test", values)], n_vocab=tokenizer.n_vocab))
        mixed = {**values, "data.train": [str(folder / "shards"), str(folder / "plain")]}
        mixed |= {"run.folder": str(folder / "mixed"), "run.sample_every": 0}
        train(resolve([("the test", mixed)], n_vocab=tokenizer.n_vocab))
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> TrainedModel:
    return load_trained(folder / "run", "cpu")


def test_the_token_is_that_of_all_training_folders(folder: Path, trained: TrainedModel):
    assert trained.bos_id == trained.tokenizer.special_tokens[BOS]
    assert load_trained(folder / "mixed", "cpu").bos_id is None


def test_prompts_follow_the_token(folder: Path, trained: TrainedModel):
    tokenizer, bos = trained.tokenizer, trained.bos_id
    assert bos is not None
    assert prompt_ids(tokenizer, "", bos) == [bos]
    assert prompt_ids(tokenizer, "The cat", bos) == [bos, *tokenizer.encode("The cat")]
    assert prompt_ids(tokenizer, f"{BOS}The cat", bos) == [bos, *tokenizer.encode("The cat")]
    for prompt in ("", "The cat"):
        options = GenerationOptions(6, seed=1, stop_at_special=False)
        new = generate_text(trained.model, tokenizer, prompt, options, bos_id=bos)
        ids = [each.token.id for each in new if each.token]
        assert [ids] == generate(trained.model, [bos, *tokenizer.encode(prompt)], 6, seed=1)
    (sample,) = read_metrics(folder / "run" / "metrics.jsonl", "sample")
    assert sample["prompt"] == ""
    assert "error" not in sample


def test_the_first_token_of_a_text_is_scored_too(trained: TrainedModel, tmp_path: Path):
    text, tokenizer = "First Citizen:\n", trained.tokenizer
    ids = [trained.bos_id, *tokenizer.encode(text)]
    expected = evaluate_text(trained.model, np.array(ids), token_byte_counts(tokenizer))
    for content in (text, BOS + text):
        (tmp_path / "q.txt").write_text(content)
        score = score_text_file(trained.model, tokenizer, str(tmp_path / "q.txt"), bos_id=trained.bos_id)
        assert score == expected
    assert (expected.n_bytes, expected.n_tokens) == (15, len(ids) - 1)
    found = surprisal(trained.model, tokenizer, text, bos_id=trained.bos_id)
    assert found.bits_per_byte == pytest.approx(expected.bits_per_byte)


def test_contexts_of_hellaswag_follow_the_token(trained: TrainedModel, tmp_path: Path):
    (tmp_path / "items").write_text("The cat\n0\nsaw it\nate\nliked the dog\nliked\n\n1\na\nb\nc\nd\n")
    items = read_items(tmp_path / "items")
    tokenizer, bos = trained.tokenizer, trained.bos_id
    results = tmp_path / "results"
    evaluate_hellaswag(trained.model, tokenizer, items, bos_id=bos, results=results)
    lines = [json.loads(line) for line in results.read_text().splitlines()[1:]]
    for line in lines:
        item = items[line["item"]]
        for ending, found in zip(item.endings, line["log_likelihoods"], strict=True):
            before = [bos, *tokenizer.encode(item.context)]
            ids = torch.tensor([[bos, *tokenizer.encode(f"{item.context} {ending}")]])
            with torch.inference_mode():
                logs = trained.model(ids[:, :-1])[0].double().log_softmax(-1)
            own = logs[torch.arange(len(logs)), ids[0, 1:]][len(before) - 1 :]
            assert found == pytest.approx(float(own.sum()), rel=1e-4)
    with pytest.raises(bytemill.errors.CheckpointError, match="not a results file of this model"):
        evaluate_hellaswag(trained.model, tokenizer, items[:1], results=results)


def test_exports_say_that_the_token_is_added(
    transformers: Any, folder: Path, trained: TrainedModel, tmp_path: Path
):
    export_model(folder / "run", tmp_path / "hf")
    own = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert (own["bos_token"], own["add_bos_token"]) == (BOS, True)
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "hf" / name).read_text())["bos_token_id"] == trained.bos_id
    expected = [trained.bos_id, *trained.tokenizer.encode("The cat")]
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")("The cat")["input_ids"] == expected
    tokenizers = pytest.importorskip("tokenizers")
    assert (
        tokenizers.Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json")).encode("The cat").ids
        == expected
    )
    gguf = pytest.importorskip("gguf")
    export_model(folder / "run", tmp_path / "model.gguf")
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.add_bos_token"].contents() is True
    assert fields["tokenizer.ggml.bos_token_id"].contents() == trained.bos_id


def test_the_token_survives_export_and_import(folder: Path, trained: TrainedModel, tmp_path: Path):
    for source, expected in (("run", trained.bos_id), ("mixed", None)):
        export_model(folder / source, tmp_path / source)
        import_model(tmp_path / source, tmp_path / f"{source}-imported")
        assert load_trained(tmp_path / f"{source}-imported", "cpu").bos_id == expected
        export_model(tmp_path / f"{source}-imported", tmp_path / f"{source}-again")
        for file in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            assert (tmp_path / source / file).read_bytes() == (
                tmp_path / f"{source}-again" / file
            ).read_bytes()
