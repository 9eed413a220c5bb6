"""A layout that is registered from outside the package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.shards.packed_documents import TOKENIZER

from bytemill.corpus import Corpus
from bytemill.data.layouts import LAYOUTS, Dtype, FileSummary, PlainLayout, register_layout
from bytemill.errors import ShardError
from bytemill.shards import TokenShards, convert_shards, encode_corpus, verify

MAGIC = b"TOY!"


class ToyLayout(PlainLayout):
    """Four magic bytes, then the ids as uint32."""

    name = "toy"
    suffix = ".toy"

    def dtype(self, narrowest: Dtype) -> Dtype:
        del narrowest
        return "uint32"

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        del dtype, n_tokens
        return MAGIC

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        del dtype
        return FileSummary("uint32", (path.stat().st_size - len(MAGIC)) // 4)

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        del dtype
        if self.inspect(path).n_tokens != n_tokens:
            raise ShardError(f"{path.name} does not hold {n_tokens} tokens")
        return np.memmap(path, "<u4", "r", len(MAGIC), (n_tokens,))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_layout(ToyLayout())
    yield
    del LAYOUTS["toy"]


def test_a_registered_layout_encodes_reads_verifies_and_converts(tmp_path: Path) -> None:
    toy = tmp_path / "toy"
    text = "forty-two tokens of text in a toy layout.."
    options: dict[str, Any] = {"layout": "toy", "shard_tokens": 16, "separators": False}
    manifest = encode_corpus(TOKENIZER, Corpus.from_texts([text]), toy, **options)
    assert [shard.file for shard in manifest.shards] == [f"shard_{index:05d}.toy" for index in range(3)]
    assert (toy / "shard_00000.toy").read_bytes().startswith(MAGIC)
    assert TokenShards(toy)[:].tolist() == list(text.encode())
    assert verify(toy) == []
    convert_shards(toy, tmp_path / "npy", layout="npy")
    assert TokenShards(tmp_path / "npy")[:].tolist() == list(text.encode())
    (toy / "manifest.json").unlink()
    convert_shards(toy, tmp_path / "bin", layout="bin")
    assert TokenShards(tmp_path / "bin")[:].tolist() == list(text.encode())


def test_damage_in_a_registered_layout_is_found(tmp_path: Path) -> None:
    encode_corpus(TOKENIZER, Corpus.from_texts(["some text"]), tmp_path / "toy", layout="toy")
    shard = tmp_path / "toy" / "shard_00000.toy"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    assert "shard_00000.toy has sha256" in verify(tmp_path / "toy")[0]


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ShardError, match="layout 'toy' already exists"):
        register_layout(ToyLayout())
