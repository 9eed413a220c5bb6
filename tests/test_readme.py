"""What the README shows works as it stands there."""

import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import bytemill

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def write_corpus(path: Path) -> None:
    path.write_text("It's a small world, and a small corpus.<|endoftext|>\n" * 20, encoding="utf-8")


def test_the_five_lines_of_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus.txt")
    (code,) = blocks("python")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bytemill.TrainingStoppedEarly)
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102 (the README is ours)
    assert bytemill.Tokenizer.load("tokenizer.json").decode([72, 105]) == "Hi"


def test_the_commands_run_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_corpus(tmp_path / "data" / "one.txt")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("bytemill ")]
    assert len(commands) == 5
    for command in commands:
        arguments = [sys.executable, "-m", "bytemill", *shlex.split(command)[1:]]
        done = subprocess.run(
            arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
