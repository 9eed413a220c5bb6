"""Shell completion: installed once, read by each shell, complete."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

SCRIPTS = {
    "bash": ".local/share/bash-completion/completions/bytemill",
    "zsh": ".zsh/completions/_cyclopts_bytemill",
    "fish": ".config/fish/completions/bytemill.fish",
}


Install = Callable[[str], Path]


@pytest.fixture
def install(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs the completion for a shell in a home folder of its own and returns the script."""
    for name in ("ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(shell: str) -> Path:
        outcome = run("--install-completion", "--shell", shell)
        assert outcome.status == 0, outcome.err
        script = tmp_path / SCRIPTS[shell]
        assert str(script) in outcome.out
        return script

    return call


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_valid_and_the_startup_file_keeps_its_content(
    shell: str, install: Install, tmp_path: Path
) -> None:
    startup_file = tmp_path / f".{shell}rc"
    startup_file.write_text("alias ll='ls -l'\n", encoding="utf-8")
    script = install(shell)
    text = script.read_text(encoding="utf-8")
    for word in ("tokenizer", "reencode", "vocab-size", "validation-fraction", "show-probabilities"):
        assert word in text
    if (program := shutil.which(shell)) is not None:
        checked = subprocess.run([program, "-n", script], capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")
    if shell != "fish":  # which finds its scripts by itself
        once = startup_file.read_text(encoding="utf-8")
        assert "alias ll='ls -l'\n" in once
        assert str(script.parent) in once
        if shell == "zsh":
            install(shell)
            assert startup_file.read_text(encoding="utf-8") == once


COMPLETED = {
    "bytemill to": ["tokenizer"],
    "bytemill data re": ["reencode", "report"],
    "bytemill tokenizer train --vo": ["--vocab-size"],
    "bytemill tokenizer train --ties ": ["bytes", "huggingface"],
    "bytemill data convert shards out --source-dtype int6": ["int64"],
    "bytemill data encode t.json a.txt --layout meg": ["megatron"],
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="platform: bash is not installed")
def test_bash_completes_commands_options_and_values(install: Install) -> None:
    program = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_bytemill; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--noprofile", "--norc", "-c", program, "bash", install("bash")]
    for line, expected in COMPLETED.items():
        words = [*command, *line.split(" ")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected
        assert done.stderr == ""
