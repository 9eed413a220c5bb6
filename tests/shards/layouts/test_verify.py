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
    options = {"separator": 99, "shard_tokens": 50, "keep_separators": True}
    convert_shards(folder / "ids.npy", folder / layout, layout=layout, **options)
    return folder / layout


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


BREAKS: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "is missing"),
    (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, the manifest says"),
    (flip, "sha256"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_are_one_array_and_damage_to_any_file_is_found(tmp_path: Path, layout: str) -> None:
    out = make(tmp_path, layout)
    tokens = TokenShards(out)
    assert tokens[:].tolist() == np.concatenate(tokens.arrays).tolist() == TOKENS
    assert np.concatenate(list(tokens.blocks(7))).tolist() == TOKENS
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    manifest = read_manifest(out)
    assert manifest.documents is not None
    files = [info.file for shard in manifest.shards for info in (shard, *shard.sidecars)]
    for name in [*files, manifest.documents.file]:
        for break_it, says in BREAKS:
            break_it(out / name)
            problems = verify(out)
            assert any(problem.startswith(name) and says in problem for problem in problems), problems
            if break_it is not flip:
                with pytest.raises(ShardError, match=f"damaged: {name}"):
                    TokenShards(out)
            (out / name).write_bytes(whole[name])
    assert verify(out) == []
    (out / f"shard_00099{LAYOUTS[layout].suffix}").write_bytes(b"12")
    assert verify(out) == [f"shard_00099{LAYOUTS[layout].suffix} is not in the manifest"]


def test_a_document_index_that_does_not_fit_is_found(tmp_path: Path) -> None:
    out = make(tmp_path, "npy")
    index = out / "documents.npy"
    manifest = read_manifest(out)
    assert manifest.documents is not None
    for ends, says in (
        (np.arange(3, 123, 3)[::-1].copy(), "ends at token 3"),
        (np.array([*range(3, 120, 3), 119]), "ends at token 119"),
        (np.array([6, 3, *range(9, 123, 3)]), "do not ascend"),
        (np.array([3, 9, 6, *range(12, 123, 3)]), "do not ascend"),
    ):
        np.save(index, ends.astype(np.uint64))
        assert any(says in problem for problem in verify(out))
        assert index.stat().st_size == manifest.documents.n_bytes
        with pytest.raises(ShardError, match=says):
            TokenShards(out).document_ends()


def test_batches_for_training_come_from_any_layout(tmp_path: Path) -> None:
    from bytemill.lm.batches import ShardBatches

    folders = [make(tmp_path, layout) for layout in LAYOUTS]
    taken = [[tensor.tolist() for tensor in ShardBatches([folder], 8, seed=1).take(4)] for folder in folders]
    assert all(batch == taken[0] for batch in taken[1:])
    assert len(ShardBatches(folders, 8).tokens) == len(TOKENS) * len(folders)
