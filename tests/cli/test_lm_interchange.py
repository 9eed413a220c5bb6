"""`bytemill lm import`, `export` and `train --init-from`."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.test_lm import TINY, data, kept, quick, trained  # noqa: F401 - fixtures
from tests.datasets.stub_hub import Hub, hub  # noqa: F401 - a fixture
from tests.support.s3_server import S3Server

from bytemill.storage import StoreFolder

Run = Callable[..., Any]


def test_a_trained_model_is_exported_imported_and_fine_tuned(trained: str, run: Run):  # noqa: F811
    exported = run(f"lm export {trained} -o hf")
    assert exported.status == 0, exported.err
    checkpoint = Path("mine/checkpoints/step_00000006")
    assert exported.out == f"exported {checkpoint} as LlamaForCausalLM: {Path('hf/model.safetensors')}\n"
    imported = run("lm import hf -o back")
    assert imported.status == 0, imported.err
    assert "parameters of LlamaForCausalLM of transformers: back" in imported.out
    texts = [
        run(f"lm generate {folder} a --temperature 0 --max-tokens 8").out for folder in (trained, "back")
    ]
    assert texts[0] == texts[1]
    scores = [
        json.loads(run(f"lm eval {folder} --text corpus.txt --json -q").out)["texts"]["corpus.txt"]["loss"]
        for folder in (trained, "back")
    ]
    assert abs(scores[0] - scores[1]) < 1e-6
    tuned = run(
        "lm", "train", "--init-from", "back", "--data.train", "shards", "--training.steps", "1",
        "--run.folder", "tuned", "--training.batch-size", "2", "--json", "--training.device", "cpu",
    )  # fmt: skip
    assert tuned.status == 0, tuned.err
    again = run("lm train tuned --print-config --json")
    assert json.loads(again.out)["model"]["d_ff"] == 32


def test_a_model_of_another_program_is_exported_by_path(trained: str, run: Run):  # noqa: F811
    for source in ("by-path", "by-path.gguf"):
        assert run(f"lm export {trained} -o {source} -q").status == 0
        exported = run(f"lm export {source} -o again-{source}")
        assert exported.status == 0, exported.err
        assert "for this and later commands: " in exported.err
    first, again = (Path(name, "model.safetensors").read_bytes() for name in ("by-path", "again-by-path"))
    assert first == again
    refused = run("lm export by-path.gguf -o by-path.gguf --overwrite")
    assert Path("by-path.gguf").read_bytes()[:4] == b"GGUF", refused.err


def test_progress_and_notes_go_to_standard_error(trained: str, run: Run):  # noqa: F811
    exported = run(f"lm export {trained} -o progress")
    assert exported.err.startswith("reading the model\nwriting: ")
    assert run(f"lm export {trained} -o silent -q").err == ""
    imported = run("lm import progress -o again")
    assert imported.err.startswith("reading the model\nwriting: ")
    alone = run(f"lm export {trained} -o alone --no-tokenizer")
    assert "tokenizer" not in alone.err
    assert not Path("alone/tokenizer.json").exists()
    wrong = run(f"lm export {trained} -o alone.gguf --no-tokenizer")
    assert "a GGUF file needs the tokenizer" in wrong.err
    no_end = run(
        "tokenizer train corpus.txt -o no-end.json --vocab-size 260 --no-end-of-text --special-token '<x>'"
    )
    assert no_end.status == 0, no_end.err
    run("lm import alone -o no-end --tokenizer no-end.json -q")
    assert "the exported model has no end token" in run("lm export no-end -o hf-no-end").err


def test_results_as_json_and_errors_in_one_line(trained: str, run: Run):  # noqa: F811
    exported = run(f"lm export {trained} -o out.gguf --json")
    assert exported.status == 0, exported.err
    assert json.loads(exported.out)["files"] == ["out.gguf"]
    again = run(f"lm export {trained} -o out.gguf --output-format gguf")
    assert again.status == 1
    assert "error: out.gguf exists\nhint: use another name, or add --overwrite" in again.err
    missing = run("lm import nowhere -o out")
    assert missing.status == 1
    assert "error: nowhere does not exist\nhint: " in missing.err
    run(f"lm export {trained} -o hf -q")
    imported = run("lm import hf -o in --json")
    assert json.loads(imported.out)["model"]["num_layers"] == 1
    unknown = run(f"lm generate {trained} a --draft hf")
    assert "hint: import it first: bytemill lm import hf -o hf-imported" in unknown.err


def test_models_of_other_programs_are_used_by_path(trained: str, run: Run):  # noqa: F811
    for options in ("-o hf -q", "-o out.gguf -q"):
        assert run(f"lm export {trained} {options}").status == 0
    generate = "a --temperature 0 --max-tokens 8"
    expected = run(f"lm generate {trained} {generate}").out
    for name, kind in (("hf", "LlamaForCausalLM of transformers"), ("out.gguf", "llama of llama.cpp (F32)")):
        first, second = (run(f"lm generate {name} {generate}") for _ in range(2))
        assert first.out == second.out == expected
        assert f"note: imported {kind} for this and later commands: " in first.err
        assert "note" not in second.err
        score = json.loads(run(f"lm eval {name} --text corpus.txt --json -q").out)
        assert score["texts"]["corpus.txt"]["n_tokens"] > 100
        planned = json.loads(run(f"lm plan {name} --json").out)
        own = json.loads(run(f"lm plan {trained} --json").out)
        assert planned == own | {"model": name}
    assert "has no chat template" in run("lm chat out.gguf").err
    tuned = run(
        "lm train --init-from hf --data.train shards --training.steps 1 --run.folder tuned --print-config"
    )
    folder = re.search(r'init_from = "(.*models.*)"', tuned.out)
    assert folder
    assert (Path(folder[1]) / "model.json").exists()
    os.utime("hf/model.safetensors")
    assert "note: imported" in run(f"lm generate hf {generate}").err
    Path("hf/config.json").write_text("{}")
    assert "error: hf/config.json" in run(f"lm generate hf {generate}").err


def test_an_export_is_uploaded_with_a_card(trained: str, run: Run, hub: Hub):  # noqa: F811
    exported = run(f"lm export {trained} -o hf --push me/model --private --json")
    assert exported.status == 0, exported.err
    assert json.loads(exported.out)["url"] == f"{hub.url}/me/model"
    assert hub.private == {"me/model"}
    files = hub.repositories["me/model"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= set(files)
    card = files["README.md"].decode()
    n_parameters = re.search(r"\| parameters \| ([\d,]+) \|", card)
    assert n_parameters is not None
    assert int(n_parameters[1].replace(",", "")) > 10_000
    assert "| steps | 6 |" in card
    assert "| validation loss | " in card
    refused = run(f"lm export {trained} -o a.gguf --push me/model")
    assert (refused.status, "leave out gguf" in refused.err) == (2, True)


def test_a_tokenizer_is_uploaded(tokenizer_file: str, run: Run, hub: Hub):  # noqa: F811
    pushed = run("tokenizer push tokenizer.json me/words")
    assert pushed.status == 0, pushed.err
    assert pushed.out.startswith(f"{hub.url}/me/words: README.md, ")
    again = run("tokenizer push tokenizer.json me/words")
    assert "note: the repository has a model card, which was kept" in again.err
    card = run("tokenizer push tokenizer.json me/words --card")
    assert card.out == hub.repositories["me/words"]["README.md"].decode()
    hub.status = 403
    refused = run("tokenizer push tokenizer.json me/words")
    assert (refused.status, "hf auth login" in refused.err) == (1, True)


def test_an_export_to_a_store(run: Run, s3: S3Server, trained: str):  # noqa: F811
    url = f"{s3.bucket()}/hf"
    store = StoreFolder(url)
    assert run(f"lm export {trained} -o hf").status == 0
    exported = run(f"lm export {trained} -o {url}")
    assert exported.status == 0, exported.err
    assert exported.out.endswith(f" as LlamaForCausalLM: {url}/model.safetensors\n")
    assert store.list() == {path.name: path.stat().st_size for path in Path("hf").iterdir()}
    puts = [
        request.path
        for request in s3.requests
        if request.method in ("PUT", "POST") and "/hf/" in request.path
    ]
    assert puts[-1].endswith("/config.json")
    refused = run(f"lm export {trained} -o {url}")
    assert (refused.status, f"{url} is not empty" in refused.err) == (1, True)
    store.put("model-00002-of-00002.safetensors", b"of another model")
    again = run(f"lm export {trained} -o {url} --overwrite --precision bfloat16")
    assert again.status == 0, again.err
    assert set(store.list()) == {path.name for path in Path("hf").iterdir()}
    divided = ("--max-shard-bytes", "20000", "--overwrite", "-q")
    for output in ("hf", url):
        assert run("lm", "export", trained, "-o", output, *divided).status == 0
    names = {path.name for path in Path("hf").iterdir()}
    assert {"model.safetensors.index.json", "model.safetensors"} & names == {"model.safetensors.index.json"}
    assert set(store.list()) == names
    imported = run(f"lm import {url} -o {url}-imported")
    assert imported.status == 0, imported.err
    assert imported.out.endswith(f": {url}-imported\n")
    assert run(f"lm import {url} -o back -q").status == 0
    stored, here = (
        run(f"lm generate {folder} a --temperature 0 --max-tokens 8")
        for folder in (f"{url}-imported", "back")
    )
    assert (stored.status, stored.out) == (0, here.out)
    refused = run(f"lm import back -o {url}-imported")
    assert (refused.status, f"{url}-imported is not empty" in refused.err) == (1, True)
    pushed = run(f"lm export {trained} -o {url} --push me/model")
    assert (pushed.status, "uploads a folder of this machine" in pushed.err) == (2, True)


def test_a_quantized_model_is_evaluated_and_continued_but_not_trained(trained: str, run: Run):  # noqa: F811
    refused = run(f"lm quantize {trained} -o small")
    assert (
        "error: token_embeddings.weight has rows of 16 weights, and quantized groups have 32" in refused.err
    )
    assert not Path("small").exists()
    wide = ["32" if TINY[max(0, i - 1)] == "--model.d-model" else value for i, value in enumerate(TINY)]
    assert run("lm", "train", *wide, "--training.steps", "2", "--run.folder", "wide", "-q").status == 0
    made = run("lm quantize wide -o small --json")
    assert made.status == 0, made.err
    document = json.loads(made.out)
    assert document["bits"] == 8
    assert 0.26 < document["bytes_after"] / document["bytes_before"] < 0.3
    assert run("lm generate small a --temperature 0 --max-tokens 8").status == 0
    scores = [
        json.loads(run(f"lm eval {folder} --text corpus.txt --json -q").out)["texts"]["corpus.txt"]["loss"]
        for folder in ("wide", "small")
    ]
    assert 0 < abs(scores[0] - scores[1]) < 0.01
    shown = run("lm quantize wide -o smaller --bits 4")
    assert re.fullmatch(
        r"quantized [\d.,KM]+ parameters to 4 bits, 0\.\d+ of the bytes: smaller\n", shown.out
    )
    refused = run(
        "lm", "train", "--init-from", "small", "--data.train", "shards", "--training.steps", "1",
        "--run.folder", "never",
    )  # fmt: skip
    assert refused.status == 1
    assert "error: small is quantized to 8 bits, and training needs the weights in float32" in refused.err
    assert run("lm quantize small -o twice").status == 1
    assert run("lm export wide -o hf-q8 --precision q8_0").status == 1
