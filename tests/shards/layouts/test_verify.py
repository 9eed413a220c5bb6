"""Opening and verifying shards of every layout, with what stands beside them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bytemill.data.convert import convert_shards
from bytemill.data.layouts import LAYOUTS
from bytemill.errors import ShardError
from bytemill.shards import TokenShards, read_manifest, verify

TOKENS = [token for number in range(40) for token in (number, number + 1, 99)]


def make(folder: Path, layout: str) -> Path:
    np.save(folder / "ids.npy", np.array(TOKENS, np.uint16))
    out = folder / layout
    convert_shards(
        folder / "ids.npy", out, layout=layout, separator=99, shard_tokens=50, keep_separators=True
    )
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_are_one_array_whatever_the_layout(tmp_path: Path, layout: str) -> None:
    out = make(tmp_path, layout)
    tokens = TokenShards(out)
    assert tokens[:].tolist() == TOKENS
    assert tokens.dtype == np.uint16
    assert np.concatenate(TokenShards(out).arrays).tolist() == TOKENS
    assert np.concatenate(list(tokens.blocks(7))).tolist() == TOKENS
    assert verify(out) == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("break_it", "says"),
    [(Path.unlink, "is missing"), (shorten, "bytes, the manifest says"), (flip, "sha256")],
)
def test_damage_to_any_file_is_found(
    tmp_path: Path, layout: str, break_it: Callable[[Path], None], says: str
) -> None:
    out = make(tmp_path, layout)
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    manifest = read_manifest(out)
    names = [info.file for shard in manifest.shards for info in (shard, *shard.sidecars)]
    assert manifest.documents is not None
    for name in [*names, manifest.documents.file]:
        break_it(out / name)
        problems = verify(out)
        assert any(problem.startswith(name) and says in problem for problem in problems), problems
        if break_it is not flip:
            with pytest.raises(ShardError, match=f"damaged: {name}"):
                TokenShards(out)
        (out / name).write_bytes(whole[name])
    assert verify(out) == []


def test_a_document_index_that_does_not_fit_is_found(tmp_path: Path) -> None:
    out = make(tmp_path, "npy")
    index = out / "documents.npy"
    for ends, says in (
        (np.arange(3, 123, 3)[::-1].copy(), "ends at token 3"),
        (np.array([*range(3, 120, 3), 119]), "ends at token 119"),
        (np.array([6, 3, *range(9, 123, 3)]), "do not ascend"),
    ):
        np.save(index, ends.astype(np.uint64))
        assert any(says in problem for problem in verify(out))
        if index.stat().st_size == read_manifest(out).documents.n_bytes:  # type: ignore[union-attr]
            with pytest.raises(ShardError, match=says):
                TokenShards(out).document_ends()


def test_a_file_beside_the_shards_that_nobody_listed_is_found(tmp_path: Path) -> None:
    out = make(tmp_path, "bin")
    (out / "shard_00099.bin").write_bytes(b"12")
    assert verify(out) == ["shard_00099.bin is not in the manifest"]


def test_batches_for_training_come_from_any_layout(tmp_path: Path) -> None:
    from bytemill.lm.batches import ShardBatches

    folders = [make(tmp_path, layout) for layout in LAYOUTS]
    taken = [[tensor.tolist() for tensor in ShardBatches([folder], 8, seed=1).take(4)] for folder in folders]
    assert all(batch == taken[0] for batch in taken[1:])
    assert len(ShardBatches(folders, 8).tokens) == len(TOKENS) * len(folders)
