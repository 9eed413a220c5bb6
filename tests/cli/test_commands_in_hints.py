"""The commands that errors and results recommend run as they are printed, with placeholders filled in."""

import ast
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import commands
from tests.experiment.conftest import InThisProcess

import bytemill

Run = Callable[..., Any]
Prepare = Callable[[pytest.MonkeyPatch, Run], None]

COMMAND = re.compile(r"\bbytemill (?:quickstart|tokenizer|data|lm|experiment)\b[^`;)\n:]*")
PLACEHOLDERS = {
    "TOKENIZER": "tokenizer.json", "TEXT": "corpus.txt", "INPUTS": "corpus.txt", "FILE": "corpus.txt", "DIR": "new",
    "NAME": "new", "32000": "300", "STUDY.toml": "study.toml", "NEW_PATH": "moved",
}  # fmt: skip
"""What a user writes for the words of a hint. The corpus is too small for 32000 tokens."""
MODEL = (
    "--model.context-length 16 --model.d-model 16 --model.num-layers 1 --model.num-heads 2 --model.d-ff 32 "
    "--training.device cpu --training.batch-size 4 --training.steps 2 --run.validation-windows 4"
)
DATA = "--data.tokenizer tokenizer.json --data.train shards"
NOT_RUN_HERE = {
    "datasets/catalogue.py": "describes a data set; the command is no advice",
}


def nothing(patch: pytest.MonkeyPatch, run: Run) -> None:
    """The command fails without preparation."""


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


def cache_hellaswag(patch: pytest.MonkeyPatch, run: Run) -> None:
    train_a_model(patch, run)
    add_dataset(patch, "hellaswag", "http://127.0.0.1:1/hellaswag.jsonl")
    Path("cache/datasets").mkdir(parents=True)
    Path("cache/datasets/hellaswag.txt").write_bytes(Path("corpus.txt").read_bytes())


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
    assert run("lm", "export", "mine", "-o", "exported", "-q").status == 0


def encode_with_another_tokenizer(patch: pytest.MonkeyPatch, run: Run) -> None:
    bytemill.train(["corpus.txt"], 280, []).save("other.json")
    assert run("data", "encode", "other.json", "corpus.txt", "-o", "others", "-q").status == 0


def encode_without_a_separator(patch: pytest.MonkeyPatch, run: Run) -> None:
    bytemill.train(["corpus.txt"], 280, special_tokens=[]).save("plain.json")
    assert run("data", "encode", "plain.json", "corpus.txt", "-o", "plain", "-q").status == 0


def limit_the_corpus_of_quickstart(patch: pytest.MonkeyPatch, run: Run) -> None:
    patch.setattr("bytemill.quickstart.MAX_BYTES", 1000)
    Path("tokenizer.json").unlink()


def make_folder(patch: pytest.MonkeyPatch, run: Run) -> None:
    Path("notes").mkdir()
    Path("notes/notes.txt").touch()


def write_settings(patch: pytest.MonkeyPatch, run: Run) -> None:
    Path("wrong_type.toml").write_text("[run]\nfolder = 3\n", encoding="utf-8")
    Path("unknown.toml").write_text("[run]\nzzzzzz = 3\n", encoding="utf-8")


def write_a_study(patch: pytest.MonkeyPatch, run: Run) -> None:
    patch.setattr("bytemill.experiment.runner.Processes", lambda _: InThisProcess())
    shape = {"context_length": 16, "d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32}
    model = "\n".join(f"{key} = {value}" for key, value in shape.items())
    text = '[text]\ntrain = ["corpus.txt"]\nvalidation = { text = ["corpus.txt"] }\n'
    rest = "[tokenizers.own]\nvocab_sizes = [260]\n[budget]\namount = 300\n[train]\ntraining.batch_size = 4\n"
    Path("study.toml").write_text(f"seeds = 1\n{text}{rest}[models.mini]\n{model}\n", encoding="utf-8")


def join_no_shards() -> str:
    from bytemill.lm.batches import JoinedShards

    with pytest.raises(bytemill.ShardError) as caught:
        JoinedShards([])
    return str(caught.value.hint)


@dataclass(frozen=True)
class Case:
    """A way to make bytemill print advice."""

    advised_by: str | Callable[[], str]
    """A command that prints it, or a function that returns the hint of a Python call."""
    prepare: Prepare = nothing
    more: str = ""
    """Arguments added to the advised command: those that the text leaves to the reader, and a small model."""


CASES = {
    "bytemill tokenizer show {}": Case("tokenizer convert tokenizer.json new.json"),
    '\nSee it: bytemill tokenizer inspect {} "Some text"': Case(
        "tokenizer train corpus.txt -n 300 -o new.json"
    ),
    "encode the corpus again: bytemill data encode TOKENIZER INPUTS --output {} --overwrite": Case(
        "data info shards --verify", damage_a_shard
    ),
    "encode it first: bytemill data encode TOKENIZER {} -o DIR": Case("data info corpus.txt"),
    "encode it first: bytemill data encode {}; then train with --data.train {}": Case(
        f"lm train {MODEL} --data.tokenizer tokenizer.json --data.train corpus.txt"
    ),
    "ids are whole numbers separated by blanks or commas, as `bytemill tokenizer encode` prints them": Case(
        "tokenizer decode tokenizer.json word", more="tokenizer.json 'some text'"
    ),
    "to resume: bytemill lm train {}": Case(
        f"lm train {MODEL} {DATA} --run.folder run --run.checkpoint-every 1", interrupt_the_second_step
    ),
    "name its new path: bytemill lm train {} {} {}": Case("lm train mine", move_the_data),
    "download {} on another machine, then: bytemill data get {} --from-file FILE": Case(
        "data get story", go_offline
    ),
    "make one with: bytemill data encode TOKENIZER TEXT -o DIR": Case(join_no_shards),
    "encode the text with that tokenizer: bytemill data encode TOKENIZER TEXT -o DIR": Case(
        f"lm train {MODEL} --data.tokenizer tokenizer.json --data.train others", encode_with_another_tokenizer
    ),
    "encode it with a tokenizer that has <|endoftext|>, or add --documents TOKEN to: "
    "bytemill data encode TOKENIZER TEXT -o DIR": Case(
        f"lm train {MODEL} --data.tokenizer plain.json --data.train plain --training.document-mask",
        encode_without_a_separator,
    ),
    "to download the items: bytemill data get hellaswag": Case(
        "lm eval mine --hellaswag none.jsonl", cache_hellaswag
    ),
    "give a prompt, for samples during training with `bytemill lm train --run.sample-prompt TEXT`": Case(
        f"lm train {MODEL} --data.tokenizer other.json --data.train others --run.sample-every 1",
        encode_with_another_tokenizer,
        more=f"{MODEL} --data.tokenizer other.json --data.train others --run.sample-every 1",
    ),
    "`bytemill lm train --help-all` names the type of each setting": Case(
        "lm train wrong_type.toml", write_settings
    ),
    "`bytemill lm train --help-all` lists all settings": Case("lm train unknown.toml", write_settings),
    "bytemill lm train {} --run.folder {}": Case("lm generate none", more=MODEL),
    "import it first: bytemill lm import {} -o DIR": Case("lm generate exported", export_a_model),
    "bytemill data encode {} TEXT -o DIR": Case("lm train --data.tokenizer tokenizer.json"),
    "pass fewer files, or train on all of it: bytemill tokenizer train FILE --vocab-size 32000": Case(
        "quickstart new --corpus corpus.txt", limit_the_corpus_of_quickstart
    ),
    "make one with: bytemill experiment run STUDY.toml": Case("experiment report none", write_a_study),
    "choose another folder: bytemill quickstart NAME": Case(
        "quickstart notes", make_folder, more="--corpus corpus.txt --model-steps 0 -n 300 --no-open"
    ),
}
"""By the text in the source, with {} for the values of an f-string."""


def text_of(node: ast.AST) -> str | None:
    """Returns a string of the source, with {} for the values of an f-string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def advice() -> Iterator[tuple[str, str]]:
    """Yields the strings in the source that name a command, and their files, without documentation and help."""
    root = Path(bytemill.__file__).parent
    for file in sorted(root.rglob("*.py")):
        tree, skipped = ast.parse(file.read_text(encoding="utf-8")), set[ast.AST]()
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
                yield file.relative_to(root).as_posix(), text


def test_there_is_a_case_for_every_command_that_the_source_recommends():
    found = list(advice())
    assert sorted(text for file, text in found if file not in NOT_RUN_HERE) == sorted(CASES)
    assert set(NOT_RUN_HERE) <= {file for file, _ in found}


@pytest.fixture
def shards(tokenizer_file: str, run: Run) -> None:
    """A tokenizer and its shards in the current folder."""
    assert run("data", "encode", tokenizer_file, "corpus.txt", "-o", "shards", "-q").status == 0


def printed(case: Case, run: Run) -> str:
    """Returns what bytemill prints in a case, on both streams."""
    if not isinstance(case.advised_by, str):
        return case.advised_by()
    outcome = run(*shlex.split(case.advised_by))
    assert "bug" not in outcome.err
    return outcome.out + outcome.err


@pytest.mark.parametrize("text", CASES)
def test_a_recommended_command_runs(shards: None, text: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    case = CASES[text]
    case.prepare(monkeypatch, run)
    said = printed(case, run)
    shown = re.search(re.escape(text).replace(r"\{\}", r"[^\n]+"), said)
    assert shown, said
    command = COMMAND.search(shown[0])
    assert command
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(f"{command[0]} {case.more}")]
    outcome = run(*words[1:])
    assert outcome.status == 0, (words, outcome.err)


GROUPS = [(), ("tokenizer",), ("data",), ("lm",), ("experiment",), ("--install-completion",)]


@pytest.mark.parametrize("chain", [*GROUPS, *(chain for chain, _ in commands())], ids=" ".join)
def test_the_help_that_wrong_usage_names_exists(chain: tuple[str, ...], run: Run):
    outcome = run(*chain, "--no-such-option")
    assert outcome.status == 2
    command = re.search("hint: see `bytemill (.+)`\n", outcome.err)
    assert command, outcome.err
    assert command[1] == " ".join([*chain, "--help"])
    assert run(*shlex.split(command[1])).status == 0
