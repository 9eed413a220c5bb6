"""Shell completion: installed once, read by each shell, complete."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Process = Callable[..., subprocess.CompletedProcess[bytes]]

SCRIPTS = {
    "bash": ".local/share/bash-completion/completions/bytemill",
    "zsh": ".zsh/completions/_cyclopts_bytemill",
    "fish": ".config/fish/completions/bytemill.fish",
}


def install(process: Process, home: Path, shell: str) -> Path:
    """Install the completion for `shell` below `home` and return the script."""
    done = process("--install-completion", "--shell", shell, HOME=str(home), ZSH="", ZSH_CUSTOM="")
    assert done.returncode == 0, done.stderr.decode()
    script = home / SCRIPTS[shell]
    assert str(script) in done.stdout.decode()
    return script


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_valid_and_names_commands_and_options(
    shell: str, process: Process, tmp_path: Path
) -> None:
    script = install(process, tmp_path, shell)
    text = script.read_text(encoding="utf-8")
    for word in ("tokenizer", "reencode", "vocab-size", "validation-fraction", "show-probabilities"):
        assert word in text
    if (program := shutil.which(shell)) is not None:
        checked = subprocess.run([program, "-n", script], capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.parametrize(("shell", "startup_file"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_the_startup_file_keeps_its_content_and_gets_one_entry(
    shell: str, startup_file: str, process: Process, tmp_path: Path
) -> None:
    (tmp_path / startup_file).write_text("alias ll='ls -l'\n", encoding="utf-8")
    install(process, tmp_path, shell)
    once = (tmp_path / startup_file).read_text(encoding="utf-8")
    install(process, tmp_path, shell)
    assert (tmp_path / startup_file).read_text(encoding="utf-8") == once
    assert "alias ll='ls -l'\n" in once
    assert str((tmp_path / SCRIPTS[shell]).parent) in once


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bytemill", "to"], ["tokenizer"]),
        (["bytemill", "data", "re"], ["reencode"]),
        (["bytemill", "tokenizer", "train", "--vo"], ["--vocab-size"]),
        (["bytemill", "tokenizer", "train", "--ties", ""], ["bytes", "huggingface"]),
        (["bytemill", "data", "convert", "shards", "out", "--layout", "me"], ["megatron"]),
    ],
)
def test_bash_completes_commands_options_and_values(
    words: list[str], expected: list[str], process: Process, tmp_path: Path
) -> None:
    script = install(process, tmp_path, "bash")
    program = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bytemill; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", program, "bash", script, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected
    assert done.stderr == ""
