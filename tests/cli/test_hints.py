"""Hints: the commands and options that they name exist, in the command that failed."""

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import commands, options

import bytemill
from bytemill.cli import failures
from bytemill.cli.app import app

Run = Callable[..., Any]

OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")
COMMAND = re.compile(r"\bbytemill (?:[^`;)\n:]*)")


def strings_of(node: ast.AST) -> Iterator[str]:
    """Yields the literals of an expression, an f-string with `X` for its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings_of(child)


def hints() -> Iterator[tuple[str, str]]:
    """Yields the hints in the source of the package and their places."""
    root = Path(bytemill.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg="hint", value=value):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if "HINT" in name:
                    pass
                case _:
                    continue
            for text in strings_of(value):
                yield f"{file.relative_to(root)}:{value.lineno}", text


def command_of(words: list[str]) -> tuple[tuple[str, ...], set[str]]:
    """Returns the name of the command that words begin with, and its options."""
    found = [(chain, command) for chain, command in commands() if tuple(words[: len(chain)]) == chain]
    assert found, f"no command: {words}"
    chain, command = max(found, key=lambda pair: len(pair[0]))
    return chain, {*options(command), *command.help_flags}


def test_options_and_commands_in_the_source_exist():
    known = {name for _, command in commands() for name in (*options(command), *command.help_flags)}
    n_options = n_commands = 0
    for place, hint in hints():
        assert "bytemill[" not in hint, f"{place}: use install_hint"
        for text in COMMAND.findall(hint):
            words = text.split()[1:]
            if not words or words[0] not in app:
                continue  # the package's name in a sentence
            _, available = command_of(words)
            assert set(OPTION.findall(text)) <= available, place
            n_commands += 1
        for name in OPTION.findall(COMMAND.sub("", hint)):
            assert name in known or name.removesuffix("s") in known, f"{place}: {name}"
            n_options += 1
    assert n_options > 30
    assert n_commands > 4


def write_inputs(tokenizer_file: str) -> None:
    """Writes inputs that cause errors."""
    Path("latin.txt").write_bytes(b"caf\xe9 au lait\n")
    Path("rows.jsonl").write_text('{"body": "a"}\n')
    Path("broken.jsonl").write_text('{"text": "a"}\n{"text"\n')
    Path("ids.bin").write_bytes(bytes(range(64)))
    Path("ids.xyz").write_bytes(bytes(range(63)))
    Path("texts").mkdir()
    Path("texts/picture.png").touch()
    Path("column.parquet").write_bytes(b"PAR1 and no more")
    Path("other").mkdir()
    Path("other/notes.txt").touch()
    bytemill.encode_corpus(bytemill.Tokenizer.load(tokenizer_file), "corpus.txt", "shards")


FAILURES = [
    "tokenizer train corpus.txt -n 300",
    "tokenizer train corpus.txt -n 100 -o new.json",
    "tokenizer train latin.txt -n 300 -o new.json",
    "tokenizer train rows.jsonl -n 300 -o new.json",
    "tokenizer train broken.jsonl -n 300 -o new.json",
    "tokenizer train texts -n 300 -o new.json",
    "tokenizer train corpus.txt -n 300 -o new.json --max-memory 1MB",
    "tokenizer train corpus.txt -n 300 -o new.json --format jsonl",
    "tokenizer train corpus.txt -n 300 -o new.json --sample 0.00000001",
    "tokenizer train rows.jsonl -n 300 -o new.json --max-document-bytes 5",
    "tokenizer train --counts none.counts -n 300 -o new.json",
    "tokenizer train --counts corpus.txt -n 300 -o new.json",
    "tokenizer train -n 300",
    "tokenizer encode tokenizer.json --file latin.txt",
    "tokenizer inspect tokenizer.json --file latin.txt",
    "tokenizer inspect tokenizer.json a --file latin.txt",
    "tokenizer decode tokenizer.json 999999",
    "tokenizer decode tokenizer.json word",
    "tokenizer show tokenizer.json --special-token a=3 --special-token b",
    "tokenizer convert tokenizer.json tokenizer.json",
    "tokenizer convert tokenizer.json a.unknown",
    "data encode tokenizer.json latin.txt -o new",
    "data encode tokenizer.json rows.jsonl -o new",
    "data encode tokenizer.json corpus.txt -o shards --shard-tokens 7",
    "data encode tokenizer.json corpus.txt -o new --documents nothing",
    "data encode tokenizer.json corpus.txt -o new --bos nothing",
    "data info other",
    "data convert ids.bin new --layout npy",
    "data convert ids.xyz new --layout npy",
    "data convert shards new --layout npy --source-layout bin",
    "data convert shards shards --layout npy",
    "data reencode ids.bin --from tokenizer.json --to tokenizer.json -o new",
    "data get tinystories --url nonsense",
    "data get hellaswag --from-file corpus.txt",
    "lm train",
    "lm train --data.tokenizer tokenizer.json",
    "lm train --data.tokenizer tokenizer.json --data.train other --run.folder run",
    "lm train none.toml",
    "lm train --model.preset tniy --data.tokenizer tokenizer.json",
    "lm generate other",
    "lm generate corpus.txt",
    "lm eval other --text corpus.txt",
    "lm eval other --hellaswag none.jsonl",
    "lm eval other",
    "lm plan none.toml",
    "quickstart other",
    "quickstart new --corpus latin.txt --model-steps 0",
    "quickstart new --corpus rows.jsonl --model-steps 0",
]


@pytest.mark.parametrize("words", FAILURES)
def test_hints_name_options_of_the_command_that_failed(tokenizer_file: str, run: Run, words: str):
    write_inputs(tokenizer_file)
    arguments = shlex.split(words)
    outcome = run(*arguments)
    assert outcome.status in (1, 2)
    assert "bug" not in outcome.err
    _, available = command_of(arguments)
    hint = outcome.err.partition("hint: ")[2]
    for text in COMMAND.findall(hint):
        named = shlex.split(text)[1:]
        if named and named[0] in app:
            _, others = command_of(named)
            assert set(OPTION.findall(text)) <= others
    assert set(OPTION.findall(COMMAND.sub("", hint))) <= available, hint


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tokenizer", "train", "corpus.txt"], "--errors replace reads it as U+FFFD; or convert the input"),
        (["tokenizer", "show", "tokenizer.json"], "convert the input"),
    ],
)
def test_a_hint_leaves_out_options_that_the_command_lacks(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
):
    _, available = command_of(arguments)
    error = bytemill.CorpusError("no", hint="--errors replace reads it as U+FFFD; or convert the input")
    assert failures.report(error, available) == 1
    assert capsys.readouterr().err == f"error: no\nhint: {hint}\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("libopenblas.so: failed to map segment from shared object"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("arguments", [["tokenizer", "train"], ["tokenizer", "show"], ["lm", "generate"]])
def test_too_little_memory_is_no_bug_and_names_what_to_lower(
    error: BaseException, arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    _, available = command_of(arguments)
    assert failures.report(error, available) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: there is not enough memory\nhint: ")
    named = set(OPTION.findall(said))
    assert named <= available
    assert bool(named) == (arguments[1] != "show")
