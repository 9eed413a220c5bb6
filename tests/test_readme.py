"""What the README shows works as it stands there."""

import json
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
    path.write_text(f"It's a small world, and a small corpus.<|endoftext|>\n{README}" * 3, encoding="utf-8")


def test_the_python_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus.txt")
    examples = blocks("python")
    assert "bm.train(" in examples[0]
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bytemill.TrainingStoppedEarly)
        for code in examples:
            exec(compile(code, "README.md", "exec"), names)  # noqa: S102 (the README is ours)
    assert bytemill.Tokenizer.load("tokenizer.json").decode([72, 105]) == "Hi"
    assert capsys.readouterr().out.endswith("naïve small worlds\n")


def test_the_python_examples_pass_pyright_strict_which_would_see_a_mistake(tmp_path: Path) -> None:
    files = {
        "examples.py": "\n".join(blocks("python")),
        "mistakes.py": "import bytemill as bm\n\nbm.Tokenizer.load('tokenizer.json').encode(b'bytes')\n",
    }
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pyright",
            "--outputjson",
            "--pythonpath",
            sys.executable,
            "--project",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(files)
    found = [
        (Path(item["file"]).name, item["range"]["start"]["line"] + 1, item["rule"])
        for item in answer["generalDiagnostics"]
    ]
    assert found == [("mistakes.py", 3, "reportArgumentType")]


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
