"""What is written is read by the libraries themselves, in a process of its own: their imports warn and take seconds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bytemill.data.convert import convert_shards

DOCUMENTS = [[1, 2, 3, 99], [4, 99], [5, 6, 7, 8, 9, 10, 11, 99], [12, 13, 99], [14, 99]]
WIDE = [[100_000 if token == 7 else token for token in document] for document in DOCUMENTS]
"""With an id that asks for four bytes."""

PROGRAM = """
import importlib.machinery, importlib.util, json, sys, types

# Of Megatron nothing but the reader: its __init__ and its utils bring all of it, 15 seconds of imports.
place = importlib.util.find_spec("megatron").submodule_search_locations[0]
core = types.ModuleType("megatron.core")
core.__path__ = [place + "/core"]
utils = types.ModuleType("megatron.core.utils")
utils.log_single_rank = lambda *_: None
sys.modules |= {"megatron.core": core, "megatron.core.utils": utils}
from megatron.core.datasets.indexed_dataset import IndexedDataset
from datatrove.pipeline.tokens.merger import load_doc_ends
from datatrove.utils.dataset import DatatroveFileDataset, DatatroveFolderDataset

def megatron(prefix, mmap):
    dataset = IndexedDataset(prefix, mmap=mmap)
    return {
        "sequences": [dataset[i].tolist() for i in range(len(dataset))],
        "documents": dataset.document_indices.tolist(),
        "lengths": dataset.sequence_lengths.tolist(),
        "part": dataset.get(0, offset=1, length=1).tolist(),
    }

def datatrove(folder, token_size):
    dataset = DatatroveFolderDataset(folder, seq_len=3, token_size=token_size)
    file = folder + "/shard_00000.ds"
    one = DatatroveFileDataset(file, seq_len=3, token_size=token_size, return_positions=True)
    with open(file + ".index", "rb") as index:
        ends = load_doc_ends(index).tolist()
    return {
        "files": [file.file_path.rpartition("/")[2] for file in dataset.files],
        "windows": [dataset[i]["input_ids"].tolist() for i in range(len(dataset))],
        "ends": ends,
        "positions": [one[i]["positions"].tolist() for i in range(len(one))],
    }

asked = json.loads(sys.argv[1])
print(json.dumps([globals()[name](*arguments) for name, *arguments in asked]))
"""


def ask(*questions: list[Any]) -> list[Any]:
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(questions)],
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert outcome.returncode == 0, outcome.stderr.decode()
    return json.loads(outcome.stdout.splitlines()[-1])


def written(folder: Path, layout: str, dtype: str, shard_tokens: int) -> Path:
    source = folder / f"{dtype}.bin"
    documents = DOCUMENTS if dtype == "uint16" else WIDE
    np.array([token for document in documents for token in document], dtype).tofile(source)
    out = folder / f"{layout}-{dtype}-{shard_tokens}"
    options: dict[str, Any] = {"source_layout": "bin", "source_dtype": dtype, "separator": 99}
    convert_shards(source, out, layout=layout, shard_tokens=shard_tokens, **options)
    return out


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the libraries find."""
    folder = tmp_path_factory.mktemp("libraries")
    questions: dict[str, list[Any]] = {}
    for dtype, token_size in (("uint16", 2), ("uint32", 4)):
        whole = written(folder, "megatron", dtype, 1000)
        questions[f"megatron {dtype} mapped"] = ["megatron", str(whole / "shard_00000"), True]
        questions[f"megatron {dtype} read"] = ["megatron", str(whole / "shard_00000"), False]
        questions[f"datatrove {dtype}"] = [
            "datatrove",
            str(written(folder, "datatrove", dtype, 12)),
            token_size,
        ]
    for path in sorted(written(folder, "megatron", "uint16", 5).glob("*.idx")):
        questions[f"cut {path.stem}"] = ["megatron", str(path.with_suffix("")), True]
    return dict(zip(questions, ask(*questions.values()), strict=True))


@pytest.mark.parametrize(("dtype", "documents"), [("uint16", DOCUMENTS), ("uint32", WIDE)])
@pytest.mark.parametrize("how", ["mapped", "read"])
def test_megatron_reads_every_document(
    found: dict[str, Any], dtype: str, documents: list[list[int]], how: str
) -> None:
    answer = found[f"megatron {dtype} {how}"]
    assert answer["sequences"] == documents
    assert answer["lengths"] == [len(document) for document in documents]
    assert answer["documents"] == list(range(len(documents) + 1))
    assert answer["part"] == documents[0][1:2]


def test_megatron_finds_whole_documents_in_every_shard(found: dict[str, Any]) -> None:
    shards = [answer["sequences"] for name, answer in found.items() if name.startswith("cut")]
    assert shards == [DOCUMENTS[:2], DOCUMENTS[2:3], DOCUMENTS[3:]]


@pytest.mark.parametrize(("dtype", "documents"), [("uint16", DOCUMENTS), ("uint32", WIDE)])
def test_datatrove_reads_tokens_and_document_ends(
    found: dict[str, Any], dtype: str, documents: list[list[int]]
) -> None:
    answer = found[f"datatrove {dtype}"]
    tokens = [token for document in documents for token in document]
    assert answer["files"] == ["shard_00000.ds", "shard_00001.ds"]
    # Windows of seq_len + 1 tokens; what does not fill one at the end of a file is left out.
    assert answer["windows"] == [tokens[start : start + 4] for start in (0, 4, 8, 14)]
    assert answer["ends"] == [4, 6, 14]
    assert answer["positions"] == [[0, 1, 2, 3], [0, 1, 0, 1], [0, 1, 2, 3]]
