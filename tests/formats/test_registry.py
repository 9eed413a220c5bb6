"""Every built-in format is one module with the functions of a format, and recognizes its own files only."""

from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from bytemill import Tokenizer
from bytemill.formats.registry import FORMATS, Content, WrittenFormat, format_of_name, writable_formats

MODULES = {
    name: import_module(f"bytemill.formats.{each.module}")  # type: ignore[attr-defined]
    for name, each in FORMATS.items()
    if hasattr(each, "module")
}


@pytest.mark.parametrize("name", MODULES)
def test_a_format_has_the_functions_of_a_format(name: str) -> None:
    functions = {"recognize", "read"} | ({"render", "left_out"} if name in writable_formats() else set())
    assert {each for each in functions if not callable(getattr(MODULES[name], each, None))} == set()


def test_the_command_line_offers_what_can_be_written() -> None:
    assert get_args(WrittenFormat) == tuple(writable_formats())
    assert set(MODULES) - set(writable_formats()) == {"sentencepiece"}


@pytest.mark.parametrize("name", writable_formats())
def test_a_written_file_is_recognized_by_its_format_alone(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"th"}, [(b"t", b"h")], ["<e>"])
    suffix = FORMATS[name].suffixes[0]
    path = tmp_path / (f"t{suffix}" if suffix.startswith(".") else suffix)
    assert format_of_name(path) == name
    tokenizer.save(path, format=name)
    for file in tmp_path.iterdir():
        if file.name.endswith(".tiktoken.json"):
            continue
        content = Content(file.read_bytes(), str(file))
        # A GGUF file is no text: the formats that parse texts would report that.
        others = [other for other in MODULES if name != "gguf" or other not in ("gpt2", "huggingface")]
        assert [other for other in others if MODULES[other].recognize(content)] == [name]
