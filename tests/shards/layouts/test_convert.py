"""Converting shards keeps every id and every document, and puts separators where the layout wants them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shards.packed_documents import files_of

from bytemill.data.convert import ConvertProgress, convert_shards, move_separators
from bytemill.data.layouts import LAYOUTS
from bytemill.data.token_source import TokenBlock, open_tokens
from bytemill.errors import OutputError, ShardError
from bytemill.shards import TokenShards, read_manifest, verify

SEPARATOR = 99
DOCUMENTS = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9, 10, 11], [12, 13]]
"""One of them holds nothing but its separator."""

ReadAll = Callable[[str, Path], list[Any]]


def behind(documents: list[list[int]]) -> list[list[int]]:
    return [[*document, SEPARATOR] for document in documents]


def in_front(documents: list[list[int]]) -> list[list[int]]:
    return [[SEPARATOR, *document] for document in documents]


def joined(documents: list[list[int]]) -> list[int]:
    return [token for document in documents for token in document]


def ends_of(documents: list[list[int]]) -> list[int]:
    return np.cumsum([len(document) for document in documents]).tolist()


def write_bin(path: Path, tokens: list[int], dtype: str = "uint16") -> Path:
    np.array(tokens, dtype).tofile(path)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Documents with a separator behind each, as nanoGPT prepares them."""
    return write_bin(tmp_path / "train.bin", joined(behind(DOCUMENTS)))


def convert_bin(source: Path, out: Path, layout: str, **options: Any) -> None:
    defaults = {"shard_tokens": 6, "separator": SEPARATOR, "source_layout": "bin", "source_dtype": "uint16"}
    convert_shards(source, out, layout=layout, **(defaults | options))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_back_by_a_reader_of_its_own(
    source: Path, tmp_path: Path, read_back: ReadAll, layout: str
) -> None:
    convert_bin(source, tmp_path / "out", layout)
    documents = in_front(DOCUMENTS) if layout == "llmc" else behind(DOCUMENTS)
    shards = read_back(layout, tmp_path / "out")
    assert [token for shard in shards for token in shard.tokens] == joined(documents)
    assert {shard.dtype for shard in shards} == {"uint16"}
    if LAYOUTS[layout].whole_documents:
        assert [document for shard in shards for document in shard.documents] == documents
        assert [len(shard.tokens) for shard in shards] == [6, 9, 3]
    else:
        assert [len(shard.tokens) for shard in shards] == [6, 6, 6]
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.n_documents, manifest.n_tokens, manifest.layout) == (5, 18, layout)
    assert verify(tmp_path / "out") == []
    tokens = TokenShards(tmp_path / "out")
    ends = tokens.document_ends()
    assert tokens[:].tolist() == joined(documents)
    assert ends is not None
    assert ends.tolist() == ends_of(documents)


@pytest.mark.parametrize(
    ("first", "second"),
    [*((name, "npy") for name in LAYOUTS), *(("npy", name) for name in LAYOUTS), ("llmc", "megatron")],
)
def test_two_conversions_are_one(source: Path, tmp_path: Path, first: str, second: str) -> None:
    convert_bin(source, tmp_path / "direct", second)
    convert_bin(source, tmp_path / "between", first, shard_tokens=4)
    convert_shards(tmp_path / "between", tmp_path / "out", layout=second, shard_tokens=6)
    direct, out = files_of(tmp_path / "direct"), files_of(tmp_path / "out")
    manifests = [json.loads(files.pop("manifest.json")) for files in (direct, out)]
    assert out == direct
    # Only where separators moved is it known that every document has one.
    flags = [manifest["settings"].pop("append_separator") for manifest in manifests]
    assert flags == [second == "llmc", "llmc" in (first, second)]
    assert manifests[0] == manifests[1]


documents_of = st.lists(st.lists(st.integers(0, 50), max_size=6), min_size=1, max_size=12)


def blocks_of(documents: list[list[int]], sizes: list[int], is_late: bool) -> list[TokenBlock]:
    """The documents, cut anywhere, as any reader may give them: some know only at the next token that one ended."""
    tokens, ends = joined(documents), np.array(ends_of(documents), np.int64)
    blocks: list[TokenBlock] = []
    start = 0
    for size in [*sizes, len(tokens)]:
        stop = min(len(tokens), start + size)
        is_last = stop == len(tokens)
        n_done = sum(len(block.ends) for block in blocks)
        here = ends[n_done:]
        here = here[here < stop] if is_late and not is_last else here[here <= stop]
        blocks.append(TokenBlock(np.array(tokens[start:stop], np.uint16), here - start))
        start = stop
    return blocks


def documents_in(blocks: list[TokenBlock]) -> list[list[int]]:
    tokens: list[int] = []
    ends: list[int] = []
    for block in blocks:
        ends += [len(tokens) + int(end) for end in block.ends]
        tokens += block.tokens.tolist()
    assert not ends or ends[-1] == len(tokens)
    return [tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def moved_slowly(documents: list[list[int]], to_front: bool) -> list[list[int]]:
    moved: list[list[int]] = []
    for document in documents:
        if to_front:
            bare = document[:-1] if document[-1:] == [SEPARATOR] else document
            moved.append([SEPARATOR, *bare])
        else:
            bare = document[1:] if document[:1] == [SEPARATOR] else document
            moved.append([*bare, SEPARATOR])
    return moved


@given(
    documents_of,
    st.lists(st.integers(1, 7), max_size=10),
    st.sampled_from([behind, in_front, list]),
    st.booleans(),
    st.booleans(),
)
def test_separators_move_as_one_document_after_another_would(
    documents: list[list[int]],
    sizes: list[int],
    arrange: Callable[[list[list[int]]], list[list[int]]],
    to_front: bool,
    is_late: bool,
) -> None:
    arranged = arrange(documents)
    # Only separators in front are found late.
    blocks = blocks_of(arranged, sizes, is_late and not to_front)
    moved = list(move_separators(blocks, SEPARATOR, to_front=to_front))
    assert documents_in(moved) == moved_slowly(arranged, to_front)


@given(
    documents_of,
    st.sampled_from([behind, in_front]),
    st.sampled_from(list(LAYOUTS)),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_any_documents_survive_any_layout(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[list[int]],
    arrange: Callable[[list[list[int]]], list[list[int]]],
    layout: str,
    shard_tokens: int,
    block_tokens: int,
) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    source = write_bin(tmp_path / "train.bin", joined(arrange(documents)))
    convert_bin(source, tmp_path / "out", layout, shard_tokens=shard_tokens)
    expected = in_front(documents) if layout == "llmc" else behind(documents)
    # A separator at the very beginning is taken for one in front: a first document of nothing but its separator
    # cannot be told from that.
    if arrange is behind and not documents[0]:
        return
    assert verify(tmp_path / "out") == []
    reading = open_tokens(tmp_path / "out")
    assert documents_in(list(reading.blocks(block_tokens=block_tokens))) == expected
    if not documents[0] and layout not in ("llmc", "megatron", "datatrove"):
        return
    reading = _without_documents(tmp_path / "out")
    assert documents_in(list(reading.blocks(block_tokens=block_tokens))) == expected


def _without_documents(folder: Path) -> Any:
    """The same shards as files of another program, told apart by their separator or their own index."""
    (folder / "manifest.json").unlink()
    (folder / "documents.npy").unlink()
    layout = "bin" if list(folder.glob("*.bin")) and not list(folder.glob("*.idx")) else None
    if layout and next(iter(sorted(folder.glob("*.bin")))).read_bytes()[:4] == (20240520).to_bytes(
        4, "little"
    ):
        layout = None
    tokens = open_tokens(folder, layout=layout, dtype="uint16")
    tokens.separate_at(SEPARATOR)
    return tokens


@pytest.mark.parametrize("suffix", [".npy", ".ds"])
def test_files_of_others_are_told_apart_by_their_names(tmp_path: Path, suffix: str) -> None:
    tokens = np.arange(10, dtype=np.uint32)
    path = tmp_path / f"some{suffix}"
    if suffix == ".npy":
        np.save(path, tokens)
    else:
        tokens.tofile(path)
        (tmp_path / "some.ds.metadata").write_text("gpt2|4\n10\n10 T", "utf-8")
    convert_shards(path, tmp_path / "out", layout="npy")
    assert TokenShards(tmp_path / "out")[:].tolist() == list(range(10))
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.fingerprint, manifest.n_vocab, manifest.dtype) == ("unknown", 10, "uint16")
    assert manifest.documents is None


def test_a_folder_of_npy_files_in_front_becomes_one_for_nanogpt(tmp_path: Path) -> None:
    """The shards of a common tutorial: uint16 arrays, the end of text in front."""
    tokens = joined(in_front(DOCUMENTS))
    (tmp_path / "edu").mkdir()
    np.save(tmp_path / "edu" / "edufineweb_train_000001.npy", np.array(tokens[:7], np.uint16))
    np.save(tmp_path / "edu" / "edufineweb_train_000002.npy", np.array(tokens[7:], np.uint16))
    convert_shards(tmp_path / "edu", tmp_path / "out", layout="bin", separator=SEPARATOR)
    assert np.fromfile(tmp_path / "out" / "shard_00000.bin", np.uint16).tolist() == joined(behind(DOCUMENTS))
    convert_shards(
        tmp_path / "edu", tmp_path / "as_is", layout="bin", separator=SEPARATOR, keep_separators=True
    )
    assert np.fromfile(tmp_path / "as_is" / "shard_00000.bin", np.uint16).tolist() == tokens


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "uint32"])
def test_ids_of_any_integer_type_are_narrowed_to_the_vocabulary(tmp_path: Path, dtype: str) -> None:
    class Tokenizer:
        fingerprint, n_vocab = "f", 100
        special_tokens = {"<|end|>": SEPARATOR}  # noqa: RUF012

    np.save(tmp_path / "ids.npy", np.array([1, 2, SEPARATOR, 3], dtype))
    convert_shards(
        tmp_path / "ids.npy", tmp_path / "out", layout="megatron", separator="<|end|>", tokenizer=Tokenizer()
    )
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.dtype, manifest.n_vocab, manifest.fingerprint) == ("uint16", 100, "f")
    assert (manifest.n_documents, manifest.separator_id) == (2, SEPARATOR)
    assert manifest.settings.document_separator == "<|end|>"
    assert TokenShards(tmp_path / "out")[:].tolist() == [1, 2, SEPARATOR, 3]


@pytest.mark.parametrize("bad", [-1, 2**32, 2**40])
def test_an_id_outside_the_vocabulary_is_named(tmp_path: Path, bad: int) -> None:
    np.save(tmp_path / "ids.npy", np.array([1, 2, bad, 3]))
    with pytest.raises(ShardError, match=rf"ids.npy: token 2 is {bad:,}, which is not in a vocabulary"):
        convert_shards(tmp_path / "ids.npy", tmp_path / "out", layout="npy")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("layout", "source_dtype"), [("bin", "uint16"), ("llmc", "int32"), ("llmc", "uint32"), ("npy", "int64")]
)
def test_the_type_follows_the_highest_id(tmp_path: Path, layout: str, source_dtype: str) -> None:
    for highest, dtype in ((50_256, "uint16"), (65_535, "uint16"), (65_536, "uint32")):
        if highest > np.iinfo(source_dtype).max:
            continue
        ids = np.array([7, highest, 3], source_dtype)
        np.save(tmp_path / "ids.npy", ids)
        manifest = convert_shards(tmp_path / "ids.npy", tmp_path / f"{highest}", layout=layout)
        assert (manifest.dtype, manifest.n_vocab) == (dtype, highest + 1)
        [shard] = manifest.shards
        data = (tmp_path / f"{highest}" / shard.file).read_bytes()
        assert data.endswith(ids.astype(dtype).tobytes())
        if layout == "llmc":
            header = np.frombuffer(data[:12], np.int32).tolist()
            assert header == [*((20240520, 1) if dtype == "uint16" else (20240801, 7)), 3]


def test_the_type_can_be_forced(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([7, 50_256, 3]))
    manifest = convert_shards(tmp_path / "ids.npy", tmp_path / "wide", layout="bin", dtype="uint32")
    assert manifest.dtype == "uint32"
    assert np.fromfile(tmp_path / "wide" / "shard_00000.bin", np.uint32).tolist() == [7, 50_256, 3]
    # From there back, whatever the type of the source.
    assert convert_shards(tmp_path / "wide", tmp_path / "narrow", layout="bin").dtype == "uint16"
    np.save(tmp_path / "ids.npy", np.array([7, 65_536, 3]))
    with pytest.raises(ShardError, match=r"ids.npy: token 1 is 65,536, which uint16 cannot hold"):
        convert_shards(tmp_path / "ids.npy", tmp_path / "out", layout="bin", dtype="uint16")
    with pytest.raises(ShardError, match="dtype is 'int8'"):
        convert_shards(tmp_path / "ids.npy", tmp_path / "out", layout="bin", dtype="int8")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        ({"source_layout": None, "source_dtype": None}, r"layout of .*train\.bin is unknown", "--source-dtype uint16"),
        ({"source_dtype": None}, "does not store the type of its ids", ""),
        ({"layout": "megatron", "separator": None}, "needs the ends of documents, which are unknown", "50256"),
        ({"separator": None, "document_index": True}, "a document index needs the ends of documents", ""),
        ({"separator": "<|end|>"}, r"the id of the separator '<\|end\|>' is unknown", ""),
        ({"shard_tokens": 0}, "shard_tokens is 0; it must be at least 1", ""),
        ({"layout": "llmc", "shard_tokens": 2**31}, "layout llmc has at most 2,147,483,647", ""),
        ({"layout": "hdf5"}, "there is no layout 'hdf5'", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_asked_for(
    source: Path, tmp_path: Path, options: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(ShardError, match=says) as caught:
        convert_bin(source, tmp_path / "out", **{"layout": "npy", **options})
    assert hint in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


def test_shards_are_not_replaced_by_themselves_or_by_accident(source: Path, tmp_path: Path) -> None:
    convert_bin(source, tmp_path / "out", "npy")
    before = files_of(tmp_path / "out")
    with pytest.raises(OutputError, match="out is an input"):
        convert_shards(tmp_path / "out", tmp_path / "out", layout="bin", overwrite=True)
    with pytest.raises(ShardError, match=r"already contains a manifest\.json"):
        convert_bin(source, tmp_path / "out", "bin")
    assert files_of(tmp_path / "out") == before
    convert_bin(source, tmp_path / "out", "datatrove", overwrite=True)
    assert verify(tmp_path / "out") == []
    assert not list((tmp_path / "out").glob("*.npy")) or read_manifest(tmp_path / "out").documents
    assert not list((tmp_path / "out").glob("shard_*.npy"))


def test_an_interrupted_conversion_leaves_no_manifest_and_starts_afresh(source: Path, tmp_path: Path) -> None:
    def interrupt(event: ConvertProgress) -> None:
        raise KeyboardInterrupt

    for layout in ("megatron", "datatrove", "bin"):
        out = tmp_path / layout
        with pytest.raises(KeyboardInterrupt):
            convert_bin(source, out, layout, progress=interrupt)
        assert not (out / "manifest.json").exists()
        assert not list(out.glob(".*"))
        convert_bin(source, out, layout)
        assert verify(out) == []
        assert not (out / "UNFINISHED.txt").exists()


KILLED = """
import os, sys
from bytemill.shards import convert_shards
def die(event):
    if event.n_shards >= 1:
        os._exit(9)
convert_shards(sys.argv[1], sys.argv[2], layout=sys.argv[3], separator=99, shard_tokens=900_000, progress=die)
"""


@pytest.mark.parametrize("layout", ["megatron", "llmc"])
def test_a_killed_conversion_leaves_nothing_that_the_next_one_does_not_replace(
    tmp_path: Path, layout: str
) -> None:
    tokens = np.tile(np.array([1, 2, 3, SEPARATOR], np.uint16), 600_000)
    np.save(tmp_path / "ids.npy", tokens)
    out = tmp_path / "out"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "ids.npy"), str(out), layout], check=False
    )
    assert killed.returncode == 9
    assert not (out / "manifest.json").exists()
    assert list(out.glob(".*.partial"))
    options: dict[str, Any] = {"layout": layout, "separator": SEPARATOR, "shard_tokens": 900_000}
    convert_shards(tmp_path / "ids.npy", out, **options)
    convert_shards(tmp_path / "ids.npy", tmp_path / "undisturbed", **options)
    assert files_of(out) == files_of(tmp_path / "undisturbed")


def test_shards_of_another_tokenizer_are_refused(source: Path, tmp_path: Path) -> None:
    class Tokenizer:
        fingerprint, n_vocab = "other", 100
        special_tokens: dict[str, int] = {}  # noqa: RUF012

    convert_bin(source, tmp_path / "out", "npy")
    with pytest.raises(ShardError, match="were encoded with tokenizer unknown, but this one is other"):
        convert_shards(tmp_path / "out", tmp_path / "again", layout="bin", tokenizer=Tokenizer())


def test_a_folder_of_several_layouts_asks_which(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(3))
    (tmp_path / "ids.ds").write_bytes(b"\0\0")
    source.unlink()
    with pytest.raises(ShardError, match="contains files of several layouts: datatrove, npy"):
        open_tokens(tmp_path)
    assert open_tokens(tmp_path, layout="npy").n_tokens == 3
    assert open_tokens(tmp_path / "*.npy").n_tokens == 3
    for nowhere in (tmp_path / "absent", tmp_path / "absent*"):
        with pytest.raises(ShardError, match="there is no"):
            open_tokens(nowhere)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ShardError, match="contains neither a manifest"):
        open_tokens(tmp_path / "empty")
    (tmp_path / "parts" / "train").mkdir(parents=True)
    (tmp_path / "parts" / "train" / "manifest.json").write_text("{}", "utf-8")
    with pytest.raises(ShardError, match="contains neither a manifest") as caught:
        open_tokens(tmp_path / "parts")
    assert caught.value.hint == "name one of its folders: train"


def test_documents_without_separators_get_one_where_it_is_named(tmp_path: Path, read_back: ReadAll) -> None:
    """From the index of Megatron's files to llm.c's, whose readers ask for one in front."""
    source = tmp_path / "source.npy"
    np.save(source, np.array(joined(behind(DOCUMENTS)), np.uint16))
    convert_shards(source, tmp_path / "megatron", layout="megatron", separator=SEPARATOR)
    (tmp_path / "megatron" / "manifest.json").unlink()
    convert_shards(tmp_path / "megatron", tmp_path / "plain", layout="llmc")
    assert read_back("llmc", tmp_path / "plain")[0].tokens == joined(behind(DOCUMENTS))
    convert_shards(tmp_path / "megatron", tmp_path / "out", layout="llmc", separator=SEPARATOR + 1)
    expected = [[SEPARATOR + 1, *document] for document in behind(DOCUMENTS)]
    assert read_back("llmc", tmp_path / "out")[0].tokens == joined(expected)
    assert read_manifest(tmp_path / "out").settings.append_separator
