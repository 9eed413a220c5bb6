"""Tokenizer files that others made, against the libraries that they were made for.

The files are those of the folder `zoo` of the whole data. `tests/formats/test_library.py` and the tests of each format
have small files of the same kinds.
"""

import lzma
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

import bytemill as bm
from bytemill.tokenizer.verification import verify_tokenizer

ENGINES = {
    "chinese-bbpe.model": "core",
    "clip.tokenizer.json": "core",
    "gpt-neox.tokenizer.json": "core",
    "gte-wordpiece.tokenizer.json": "tokenizers",
    "llama2.model": "core",
    "openllama-chinese.tokenizer.json": "core",
    "parity-60-languages.tokenizer.json": "core",
    "phi2-truncation.tokenizer.json": "core",
    "t5-unigram.tokenizer.json": "tokenizers",
    "tigrinya-unigram.model": "sentencepiece",
    "torchtitan-test.tokenizer.json": "tokenizers",
    "xlnet-unigram.model": "sentencepiece",
    "yi.tokenizer.json": "core",
}
"""What runs each file."""
LLAMA_CPP = {
    "bert-bge": "tokenizers",
    "deepseek-coder": "core",
    "falcon": "core",
    "llama-spm": "core",
    "phi-3": "core",
}
"""The same for GGUF files with llama.cpp's own texts and ids."""


def unpacked(full_data: Path, folder: Path, name: str) -> Path:
    """Decompress a file of the zoo."""
    path = folder / name
    path.write_bytes(lzma.decompress((full_data / "zoo" / f"{name}.xz").read_bytes()))
    return path


QUICK = ("gpt-neox.tokenizer.json", "phi2-truncation.tokenizer.json", "tigrinya-unigram.model")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ENGINES]
)
def test_files_agree_with_their_library(full_data: Path, tmp_path: Path, name: str):
    path = unpacked(full_data, tmp_path, name)
    assert bm.Tokenizer.load(path).engine == ENGINES[name]
    verification = verify_tokenizer(path, n_random=100, blocks=range(0, 0x110000 // 128, 40))
    assert verification.n_texts > 300
    assert verification.differences == []


@pytest.mark.parametrize("name", LLAMA_CPP)
def test_gguf_files_have_the_ids_of_llama_cpp(full_data: Path, tmp_path: Path, name: str):
    tok = bm.Tokenizer.load(unpacked(full_data, tmp_path, f"{name}.gguf"))
    assert tok.engine == LLAMA_CPP[name]
    texts = (full_data / "zoo" / f"{name}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = (full_data / "zoo" / f"{name}.out").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 40
    for text, line in zip(texts, lines, strict=False):
        assert tok.encode(text, allowed_special="none") == list(map(int, line.split()))


def test_a_gguf_file_without_a_pre_tokenizer_is_split_as_llama_cpp_does(full_data: Path, tmp_path: Path):
    path = unpacked(full_data, tmp_path, "gpt-neox.gguf")
    with pytest.warns(UserWarning, match="texts are split as llama"):
        tok = bm.Tokenizer.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpt2 = bm.Tokenizer.load(path, pattern="gpt2")
    assert gpt2.encode("Hello world 12345") != tok.encode("Hello world 12345")
    assert gpt2.decode(gpt2.encode("Hello world 12345")) == "Hello world 12345"


def files_of_mistral() -> list[Path]:
    """Return the tokenizers in the package mistral-common."""
    package = find_spec("mistral_common")
    assert package is not None
    assert package.origin is not None
    return sorted(
        path
        for path in (Path(package.origin).parent / "data").iterdir()
        if ".model" in path.suffixes or path.name.startswith("tekken")
    )


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.slow, id=path.name) for path in files_of_mistral()]
)
def test_files_in_mistrals_package_agree_with_their_library(path: Path):
    assert bm.Tokenizer.load(path).engine == "core"
    verification = verify_tokenizer(path, n_random=100, blocks=range(0, 0x110000 // 128, 40))
    assert verification.n_texts > 300
    assert verification.differences == []
