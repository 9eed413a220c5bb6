"""What the studio offers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bytemill
from bytemill.errors import CorpusError
from bytemill.lm.training import config
from bytemill.studio import run_files
from bytemill.studio.library import Library, Shelf


def names(shelf: Shelf, kind: str, origin: str | None = None) -> set[str]:
    return {each.name for each in getattr(shelf, kind).values() if origin in (None, each.origin)}


def test_what_is_below_the_root_is_found(root: Path):
    shelf = Library(root).shelf()
    assert {"tokenizer", "smaller"} <= names(shelf, "tokenizers", "found")
    assert names(shelf, "tokenizers", "run") == {"runs/first"}
    assert {"runs/first"} <= names(shelf, "runs")
    assert names(shelf, "studies") == {"study"}
    assert "story.txt" in names(shelf, "texts")


def test_without_a_root_there_is_what_comes_with_bytemill():
    shelf = Library(None).shelf()
    assert names(shelf, "tokenizers", "bundled") == {"python-docs-8k"}
    assert len(names(shelf, "texts", "bundled")) == 23
    assert not shelf.runs
    tokenizer = Library(None).tokenizer("python-docs-8k")
    assert len(tokenizer) == 8192
    assert tokenizer.merge_counts


def test_named_things_come_first(root: Path, tmp_path: Path):
    library = Library(
        tmp_path, [str(root / "smaller.json"), str(root / "runs" / "first"), str(root / "story.txt")]
    )
    shelf = library.shelf()
    assert next(iter(shelf.tokenizers.values())).name == "smaller"
    assert names(shelf, "runs") == {"first"}
    assert names(shelf, "texts", "named") == {"story.txt"}


def test_ids_stay_the_same_after_a_restart(root: Path):
    assert list(Library(root).shelf().runs) == list(Library(root).shelf().runs)


def test_a_tokenizer_that_changed_is_opened_again(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    bytemill.train_from_iterator(["aa bb"], 257).save(path)
    library = Library(tmp_path)
    (tokenizer_id,) = [each.id for each in library.shelf().tokenizers.values() if each.origin == "found"]
    assert len(library.tokenizer(tokenizer_id)) == 257
    bytemill.train_from_iterator(["aa bb aa bb cc"], 258).save(path)
    assert len(library.tokenizer(tokenizer_id)) == 258


def test_hidden_folders_and_large_texts_are_left_out(tmp_path: Path, root: Path):
    (tmp_path / ".git").mkdir()
    shutil.copy(root / "tokenizer.json", tmp_path / ".git" / "tokenizer.json")
    (tmp_path / "large.txt").write_bytes(b"a" * 5_000_001)
    shelf = Library(tmp_path).shelf()
    assert not names(shelf, "tokenizers", "found")
    assert not names(shelf, "texts", "found")


def test_a_text_that_grew_is_refused(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text("small")
    library = Library(tmp_path)
    (text_id,) = [each.id for each in library.shelf().texts.values() if each.origin == "found"]
    text = library.text(text_id)
    assert (text.name, text.content) == ("a.txt", "small")
    path.write_bytes(b"a" * 5_000_001)
    with pytest.raises(CorpusError, match="more than 5 MB"):
        library.text(text_id)


def test_malformed_text_is_shown_with_replacements(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\r\nend")
    library = Library(tmp_path)
    (text_id,) = [each.id for each in library.shelf().texts.values() if each.origin == "found"]
    assert library.text(text_id).content == "caf\ufffd\nend"


def test_a_repository_of_the_hub_is_offered_under_an_id_without_a_slash(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "hub" / "models--me--small"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    shutil.copy(root / "smaller.json", folder / "snapshots" / "abc123" / "tokenizer.json")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    library = Library(None, ["me/small"])
    entry = next(each for each in library.shelf().tokenizers.values() if each.name == "me/small")
    assert (entry.origin, "/" in entry.id, library.argument_of(entry)) == ("published", False, "me/small")
    assert (
        library.tokenizer(entry.id).fingerprint == bytemill.Tokenizer.load(root / "smaller.json").fingerprint
    )


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_studio_starts_without_torch(is_installed: bool):
    """It takes a second and hundreds of megabytes to import, and is not part of the extra."""
    hidden = "importlib.util.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more)\n"
    code = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        + ("" if is_installed else hidden)
        + "import bytemill.studio.app, bytemill.studio.server\n"
        "print([name for name in ('torch', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_table_of_paths_is_the_one_of_runs():
    assert run_files._PATHS == config.TABLE
