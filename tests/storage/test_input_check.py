"""An output is compared with inputs by path, link and inode, and folders by what they contain."""

import os
from pathlib import Path

import pytest

from bytemill.errors import OutputError
from bytemill.storage.input_check import check_file_is_no_input, check_folder_is_no_input


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("in/deep", "other"):
        Path(folder).mkdir(parents=True)
    for name in ("in/a.txt", "in/shard_0.npy", "other/b.txt"):
        Path(name).write_text("text")
    Path("link.txt").symlink_to("in/a.txt")
    os.link("in/a.txt", "hard.txt")
    Path("linked").symlink_to("in")


@pytest.mark.parametrize(
    "output", ["in/a.txt", "./in/../in/a.txt", "link.txt", "hard.txt", "linked/a.txt", Path("in/a.txt")]
)
def test_a_file_that_is_read_is_not_written(output: str) -> None:
    for name in (
        "in/a.txt",
        "linked/a.txt",
        Path("in/a.txt").absolute(),
        f"file://{Path('in/a.txt').resolve()}",
    ):
        with pytest.raises(OutputError, match="is an input") as caught:
            check_file_is_no_input(output, ["other/b.txt", None, name])
        assert caught.value.hint == "choose another output"
    check_file_is_no_input(output, ["other/b.txt", "in", "gpt2", "-", "memory://x/a.txt", "s3://b/a.txt"])


@pytest.mark.parametrize(
    ("output", "relation"),
    [("in", "is an input"), ("linked", "is an input"), ("in/deep", "lies in the input in"),
     ("in/new/er", "lies in the input in"), (".", "contains the input in"), ("linked/deep", "lies in")],
)  # fmt: skip
def test_a_folder_that_is_read_is_neither_written_nor_written_into(output: str, relation: str) -> None:
    for name in ("in", Path("in").absolute(), "linked/"):
        with pytest.raises(OutputError, match=relation.replace("input in", "input")):
            check_folder_is_no_input(output, folders=["other", name])
    if output != ".":
        check_folder_is_no_input(output, folders=["other"])
    check_folder_is_no_input("inner", folders=["in", "other"])  # a name that begins with another


def test_files_in_the_output_are_kept_if_they_have_a_name_of_it() -> None:
    def replaced(name: str) -> bool:
        return name.startswith("shard_")

    Path("alias").symlink_to("in/shard_0.npy")
    for name in ("in/shard_0.npy", "linked/shard_0.npy", "alias"):
        with pytest.raises(OutputError, match=f"in contains the input {name}"):
            check_folder_is_no_input("in", files=[name], replaced=replaced)
        with pytest.raises(OutputError, match="contains"):
            check_folder_is_no_input(".", files=[name], replaced=replaced)
    check_folder_is_no_input("in", files=["in/a.txt", "other/b.txt", "shard_1.npy"], replaced=replaced)


def test_objects_are_compared_by_url() -> None:
    check_file_is_no_input("s3://b/x/a.txt", ["s3://b/x/b.txt", "x/a.txt", "s3://c/x/a.txt"])
    with pytest.raises(OutputError, match=r"s3://b/x/a\.txt is an input"):
        check_file_is_no_input(Path("s3://b/x/a.txt"), ["s3://b/x/a.txt"])
    for output, relation in (("s3://b/x/", "is"), ("s3://b/x/y", "lies in"), ("s3://b", "contains")):
        with pytest.raises(OutputError, match=relation):
            check_folder_is_no_input(output, folders=["s3://b/x"])
    check_folder_is_no_input("s3://b/xy", folders=["s3://b/x", "b/x"])
    with pytest.raises(OutputError, match="contains"):
        check_folder_is_no_input("s3://b/x", files=["s3://b/x/manifest.json"], replaced=lambda _: True)
