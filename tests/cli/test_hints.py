"""Advice in errors and results: its commands parse, its options exist in them, and five of its commands are run."""

import ast
import functools
import hashlib
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
Prepare = Callable[[pytest.MonkeyPatch, Run], None]

OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")
COMMAND = re.compile(r"\bbytemill (?:[^`;)\n:]*)")
RECOMMENDED = re.compile(r"\bbytemill (?:quickstart|tokenizer|data|lm|experiment)\b[^`;)\n:]*")


def strings_of(node: ast.AST) -> Iterator[str]:
    """Yields the literals of an expression, an f-string with `X` for its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings_of(child)


@functools.cache
def tree_of(text: str) -> ast.AST:
    return ast.parse(text)


def sources(pattern: re.Pattern[str]) -> Iterator[tuple[Path, ast.AST]]:
    """Yields the files of the package that have a pattern, and their content."""
    root = Path(bytemill.__file__).parent
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if pattern.search(text):
            yield file.relative_to(root), tree_of(text)


def hints() -> Iterator[tuple[str, str]]:
    """Yields the hints in the source of the package and their places."""
    for file, tree in sources(re.compile("hint=|HINT")):
        for node in ast.walk(tree):
            match node:
                case ast.keyword(arg="hint", value=value):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if "HINT" in name:
                    pass
                case _:
                    continue
            for text in strings_of(value):
                yield f"{file}:{value.lineno}", text


@functools.cache
def options_by_command() -> dict[tuple[str, ...], set[str]]:
    return {chain: {*options(command), *command.help_flags} for chain, command in commands()}


def command_of(words: list[str]) -> tuple[tuple[str, ...], set[str]]:
    """Returns the name of the command that words begin with, and its options."""
    found = [chain for chain in options_by_command() if tuple(words[: len(chain)]) == chain]
    assert found, f"no command: {words}"
    return (chain := max(found, key=len)), options_by_command()[chain]


def test_options_and_commands_in_the_source_exist():
    known = set[str]().union(*options_by_command().values())
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


def text_of(node: ast.AST) -> str | None:
    """Returns a string of the source, with {} for the values of an f-string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


@functools.cache
def advice() -> set[str]:
    """The strings in the source that name a command, without documentation and help."""
    found: set[str] = set()
    for file, tree in sources(COMMAND):
        skipped = set[ast.AST]()
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=ast.Constant() as docstring):
                    skipped.add(docstring)
                case ast.keyword(arg="help" | "help_epilogue" | "usage", value=value):
                    skipped.update(ast.walk(value))
                case ast.Assign(targets=[ast.Name(id="EXAMPLES")], value=value):
                    skipped.add(value)
                case ast.JoinedStr(values=parts):
                    skipped.update(parts)
                # test_quickstart_command runs these.
                case ast.FunctionDef(name="commands") if file.name == "quickstart.py":
                    skipped.update(ast.walk(node))
                case _:
                    pass
        for node in ast.walk(tree):
            text = None if node in skipped else text_of(node)
            if text is not None and COMMAND.search(text):
                found.add(text)
    return found


COMPLETED = {
    "bytemill data encode {}": "bytemill data encode tokenizer.json corpus.txt -o shards",
    "bytemill lm eval --hellaswag": "bytemill lm eval run --hellaswag items.jsonl",
    "bytemill lm train {} {} {}": "bytemill lm train run --data.train moved",
    "bytemill tokenizer encode": "bytemill tokenizer encode tokenizer.json",
}
"""Recommended commands that lack arguments in the source."""


def test_commands_that_the_source_recommends_parse():
    found: list[str] = [command.strip() for text in advice() for command in RECOMMENDED.findall(text)]
    assert len(found) > 20
    for command in found:
        words = shlex.split(COMPLETED.get(command, command).replace("{}", "value"))
        app.parse_args(words[1:], exit_on_error=False, print_error=False)


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
    "quickstart other --corpus corpus.txt --model-steps 0",
    "quickstart new --corpus latin.txt --model-steps 0",
    "quickstart new --corpus rows.jsonl --model-steps 0",
]


def test_hints_name_options_of_the_command_that_failed(tokenizer_file: str, run: Run):
    write_inputs(tokenizer_file)
    before = sorted(Path().rglob("[!.]*"))
    for words in FAILURES:
        outcome = run(words)
        assert outcome.status in (1, 2), words
        assert "bug" not in outcome.err, words
        _, available = command_of(shlex.split(words))
        hint = outcome.err.partition("hint: ")[2]
        for text in COMMAND.findall(hint):
            named = shlex.split(text)[1:]
            if named and named[0] in app:
                _, others = command_of(named)
                assert set(OPTION.findall(text)) <= others, words
        assert set(OPTION.findall(COMMAND.sub("", hint))) <= available, (words, hint)
        assert sorted(Path().rglob("[!.]*")) == before, words


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
def test_too_little_memory_is_no_bug_and_names_what_to_lower(
    error: BaseException, capsys: pytest.CaptureFixture[str]
):
    for arguments in (["tokenizer", "train"], ["tokenizer", "show"], ["lm", "generate"]):
        _, available = command_of(arguments)
        assert failures.report(error, available) == 1
        said = capsys.readouterr().err
        assert said.startswith("error: there is not enough memory\nhint: ")
        named = set(OPTION.findall(said))
        assert named <= available
        assert bool(named) == (arguments[1] != "show")


MODEL = (
    "--model.context-length 16 --model.d-model 16 --model.num-layers 1 --model.num-heads 2 --model.d-ff 32 "
    "--training.device cpu --training.batch-size 4 --training.steps 2 --run.validation-windows 4"
)
DATA = "--data.tokenizer tokenizer.json --data.train shards"


def damage_a_shard(patch: pytest.MonkeyPatch, run: Run) -> None:
    shard = next(Path("shards").glob("shard_*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


def interrupt_the_second_step(patch: pytest.MonkeyPatch, run: Run) -> None:
    from bytemill.lm.training import trainer

    original, n_calls = trainer.accumulate_gradients, 0

    def interrupt(*arguments: Any, **options: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    patch.setattr(trainer, "accumulate_gradients", interrupt)


def go_offline(patch: pytest.MonkeyPatch, run: Run) -> None:
    add_dataset(patch, "story", "http://127.0.0.1:1/story.txt")


def add_dataset(patch: pytest.MonkeyPatch, name: str, url: str) -> None:
    """Registers a data set whose published file is `corpus.txt`."""
    from bytemill.datasets.catalogue import DATASETS, Dataset

    text = Path("corpus.txt").read_bytes()
    sha256 = hashlib.sha256(text).hexdigest()
    dataset = Dataset(name, "a text", "CC0-1.0", "https://example.org", f"{name}.txt", len(text), sha256, url)
    patch.setitem(DATASETS, name, dataset)
    patch.setenv("BYTEMILL_CACHE", str(Path("cache").resolve()))
    patch.setenv("NO_PROXY", "127.0.0.1")


def train_a_model(patch: pytest.MonkeyPatch, run: Run) -> None:
    assert run("lm", "train", *shlex.split(f"{MODEL} {DATA} --run.folder mine -q")).status == 0


def move_the_data(patch: pytest.MonkeyPatch, run: Run) -> None:
    train_a_model(patch, run)
    Path("shards").rename("moved")


def export_a_model(patch: pytest.MonkeyPatch, run: Run) -> None:
    train_a_model(patch, run)
    assert run("lm export mine -o exported -q").status == 0


CASES: dict[str, tuple[str, Prepare]] = {
    "encode the corpus again: bytemill data encode TOKENIZER INPUTS --output {} --overwrite": (
        "data info shards --verify",
        damage_a_shard,
    ),
    "to resume: bytemill lm train {}": (
        f"lm train {MODEL} {DATA} --run.folder run --run.checkpoint-every 1",
        interrupt_the_second_step,
    ),
    "name its new path: bytemill lm train {} {} {}": ("lm train mine", move_the_data),
    "download {} on another machine, then: bytemill data get {} --from-file FILE": (
        "data get story",
        go_offline,
    ),
    "import it first: bytemill lm import {} -o {}": ("lm generate mine a --draft exported", export_a_model),
}
"""Advice that is run: the text in the source, the command that prints it, and what is done before."""
PLACEHOLDERS = {
    "TOKENIZER": "tokenizer.json",
    "INPUTS": "corpus.txt",
    "FILE": "corpus.txt",
    "DIR": "new",
    "NEW_PATH": "moved",
}
"""What a user writes for the words of a hint."""


@pytest.mark.parametrize("text", CASES)
def test_a_recommended_command_runs(
    tokenizer_file: str, text: str, run: Run, monkeypatch: pytest.MonkeyPatch
):
    assert text in advice()
    monkeypatch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
    assert run("data encode tokenizer.json corpus.txt -o shards -q").status == 0
    advised_by, prepare = CASES[text]
    prepare(monkeypatch, run)
    outcome = run(*shlex.split(advised_by))
    assert "bug" not in outcome.err
    shown = re.search(re.escape(text).replace(r"\{\}", r"[^\n]+"), outcome.out + outcome.err)
    assert shown, outcome.out + outcome.err
    command = RECOMMENDED.search(shown[0])
    assert command
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command[0])]
    outcome = run(*words[1:])
    assert outcome.status == 0, (words, outcome.err)
