"""Files that are damaged, cut off or of another kind are a ShardError, whatever their bytes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.data.layouts import LAYOUTS, layout_named
from bytemill.data.token_source import open_tokens
from bytemill.errors import ShardError

IDS = np.arange(40, dtype=np.uint16)
ENDS = np.array([3, 3, 20, 40], np.uint64)


def write(folder: Path, name: str) -> Path:
    for earlier in folder.glob("some.*"):
        earlier.unlink()
    layout = layout_named(name)
    path = folder / f"some{layout.suffix}"
    path.write_bytes(layout.header("uint16", len(IDS)) + IDS.tobytes())
    for suffix, content in layout.sidecars("uint16", ENDS, "f"):
        (folder / f"some{suffix}").write_bytes(content)
    return path


def read_all(path: Path, name: str) -> list[int] | None:
    """The ids, None for a ShardError; any other exception fails the test."""
    try:
        tokens = open_tokens(path, layout=name, dtype="uint16")
        found = [(block.tokens.tolist(), block.ends.tolist()) for block in tokens.blocks(block_tokens=7)]
    except ShardError:
        return None
    return [token for ids, _ in found for token in ids]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_whole_is_read(folder: Path, name: str) -> None:
    assert read_all(write(folder, name), name) == IDS.tolist()


@pytest.mark.parametrize("name", LAYOUTS)
@given(data=st.data())
def test_damage_anywhere_is_an_error_or_other_ids(folder: Path, name: str, data: st.DataObject) -> None:
    path = write(folder, name)
    files = sorted(file for file in folder.iterdir() if file.name.startswith(path.stem))
    victim = data.draw(st.sampled_from(files))
    content = bytearray(victim.read_bytes())
    kind = data.draw(st.sampled_from(["cut", "random", "grown", "byte", "number"]))
    if kind == "cut":
        content = content[: data.draw(st.integers(0, len(content)))]
    elif kind == "random":
        content = bytearray(data.draw(st.binary(max_size=300)))
    elif kind == "grown":
        content += data.draw(st.binary(min_size=1, max_size=9))
    else:
        # A header's fields are what is worth damaging.
        at = data.draw(st.integers(0, min(200, len(content) - 1)))
        value = data.draw(st.binary(min_size=1, max_size=1 if kind == "byte" else 8))
        content[at : at + len(value)] = value
    victim.write_bytes(content)
    read_all(path, name)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"(" * 100,
        b"{'descr': '<u2', 'fortran_order': False, 'shape': (-1,), }",
        b"{'descr': '<u2', 'fortran_order': False, 'shape': (1" + b"0" * 30 + b",), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
        b"{'descr': '>u2', 'fortran_order': False, 'shape': (2,), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        b"{'descr': [], 'fortran_order': False, 'shape': (1,), }",
        b"{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1), }",
        b"{'descr': 5, 'fortran_order': False, 'shape': (2,), }",
        b"['descr']",
    ],
)
def test_headers_that_numpy_chokes_on(folder: Path, header: bytes) -> None:
    path = folder / "odd.npy"
    padded = header.ljust(118) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + b"\0\0\0\0")
    assert read_all(path, "npy") is None
    path.unlink()


def test_a_pickle_is_not_opened(folder: Path) -> None:
    np.save(folder / "odd.npy", np.array([{}], dtype=object))
    assert read_all(folder / "odd.npy", "npy") is None
    (folder / "odd.npy").unlink()


def change(at: int, data: bytes) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[at : at + len(data)] = data
        path.write_bytes(content)

    return apply


@pytest.mark.parametrize(
    ("name", "victim", "break_it", "says"),
    [
        ("llmc", "some.bin", change(0, b"\0\0"), "not a magic number and version of layout llmc"),
        ("llmc", "some.bin", change(4, b"\7"), "begins with 20240520 and 7"),
        ("llmc", "some.bin", change(8, b"\x29"), "41 ids .* need 1,106"),
        ("llmc", "some.bin", change(8, b"\xff\xff\xff\xff"), "its header has -1 tokens"),
        ("llmc", "some.bin", lambda path: path.write_bytes(b"12345678"), "too few for the header"),
        ("megatron", "some.idx", Path.unlink, "has no some.idx next to it"),
        ("megatron", "some.idx", change(0, b"X"), "does not begin with MMIDIDX"),
        ("megatron", "some.idx", change(9, b"\2"), "has version 2, not 1"),
        ("megatron", "some.idx", change(17, b"\7"), "ids of type float32"),
        ("megatron", "some.idx", change(17, b"\x63"), "of type 99, which is unknown"),
        ("megatron", "some.idx", change(18, b"\x63"), "its header requires"),
        ("megatron", "some.idx", change(34, b"\4"), "are not consecutive"),
        (
            "megatron",
            "some.bin",
            lambda path: path.write_bytes(b"12"),
            "has 2 bytes; 40 ids of uint16 need 80",
        ),
        ("datatrove", "some.ds.index", change(0, b"\x63"), "do not ascend"),
        ("datatrove", "some.ds.index", change(16, b"\x29"), "end at token 41, but there are 40"),
        ("datatrove", "some.ds.index", lambda path: path.write_bytes(b""), "lists no document"),
        ("datatrove", "some.ds.index", lambda path: path.write_bytes(b"123"), "not a whole number of uint64"),
        ("datatrove", "some.ds.metadata", change(11, b"4"), "holds uint32 according to its metadata"),
        ("datatrove", "some.ds", lambda path: path.write_bytes(b"123"), "not a whole number of uint16"),
        (
            "bin",
            "some.bin",
            lambda path: path.write_bytes(b"123"),
            "has 3 bytes, which is not a whole number",
        ),
        ("npy", "some.npy", lambda path: path.write_bytes(b""), "not a valid .npy file"),
    ],
)
def test_the_error_says_what_is_wrong(
    folder: Path, name: str, victim: str, break_it: Callable[[Path], None], says: str
) -> None:
    path = write(folder, name)
    break_it(folder / victim)
    with pytest.raises(ShardError, match=says):
        for _ in open_tokens(path, layout=name, dtype="uint16").blocks():
            pass


def test_too_long_for_their_layouts() -> None:
    with pytest.raises(ShardError, match="layout llmc has at most 2,147,483,647"):
        layout_named("llmc").header("uint16", 2**31)
    with pytest.raises(ShardError, match="layout megatron has at most 2,147,483,647"):
        layout_named("megatron").sidecars("uint16", np.array([2**31], np.uint64), "f")
