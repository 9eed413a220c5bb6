"""`_core.pyi` says what the compiled module has, no more and no less."""

import ast
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, GetSetDescriptorType, MethodDescriptorType
from typing import Any

import pytest

import bytemill
from bytemill import _core
from bytemill._core import (
    CharacterJson,
    Encoder,
    PretokenCounter,
    PretokenCounts,
    RankFile,
    StringArray,
    TokenizerJson,
)
from bytemill.formats.byte_level import ALPHABET

STUB = Path(bytemill.__file__).with_name("_core.pyi")
OF_EVERY_MODULE = {"__all__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__"}


@dataclass
class Described:
    """What a module or a class has: functions with their parameters, properties and constants, classes."""

    functions: dict[str, list[str]] = field(default_factory=dict)
    static: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    classes: dict[str, "Described"] = field(default_factory=dict)


def in_stub(body: list[ast.stmt], *, in_class: bool) -> Described:
    found = Described()
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
                parameters = spelled(node.args)
                if "property" in decorators:
                    found.values.add(name)
                    continue
                if "staticmethod" in decorators:
                    found.static.add(name)
                elif in_class:
                    assert parameters.pop(0) == "self", name
                found.functions[name] = parameters
            case ast.ClassDef(name=name):
                found.classes[name] = in_stub(node.body, in_class=True)
            case ast.AnnAssign(target=ast.Name(id=name)):
                if not (name.startswith("_") and not name.startswith("__")):  # aliases of the stub's own
                    found.values.add(name)
            case ast.Import() | ast.ImportFrom() | ast.Expr():
                pass
            case _:
                raise AssertionError(f"line {node.lineno} of the stub holds something unforeseen")
    return found


def spelled(arguments: ast.arguments) -> list[str]:
    """Parameters as in a signature, with a default as "name=default"."""
    assert not arguments.vararg, "the core takes no *args"
    assert not arguments.kwarg, "the core takes no **kwargs"
    names = [parameter.arg for parameter in [*arguments.posonlyargs, *arguments.args]]
    first_default = len(names) - len(arguments.defaults)
    for place, default in enumerate(arguments.defaults):
        names[first_default + place] += f"={ast.unparse(default)}"
    if arguments.posonlyargs:
        names.insert(len(arguments.posonlyargs), "/")
    if arguments.kwonlyargs:
        names.append("*")
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            names.append(parameter.arg + (f"={ast.unparse(default)}" if default else ""))
    return names


def in_module() -> Described:
    found = Described()
    for name, value in vars(_core).items():
        if name in OF_EVERY_MODULE:
            continue
        if isinstance(value, type):
            found.classes[name] = in_class(value)
        elif isinstance(value, BuiltinFunctionType):
            found.functions[name] = parameters_of(value)
        else:
            found.values.add(name)
    return found


def in_class(cls: type) -> Described:
    found = Described()
    for name, value in vars(cls).items():
        match value:
            case MethodDescriptorType():
                self, *parameters = parameters_of(value)
                assert self == "$self", f"{cls.__name__}.{name}"
                found.functions[name] = parameters
            case staticmethod():
                found.functions[name] = parameters_of(value.__func__)
                found.static.add(name)
            case GetSetDescriptorType():
                found.values.add(name)
            case BuiltinFunctionType() if name == "__new__":
                # Stubs spell it `__init__`; its parameters are those of the class.
                found.functions["__init__"] = parameters_of(cls)
            case str() | None if name in ("__doc__", "__module__"):
                pass
            case _:
                raise AssertionError(f"{cls.__name__}.{name} is of an unforeseen kind: {value!r}")
    return found


def parameters_of(function: Any) -> list[str]:
    signature: str | None = function.__text_signature__
    assert signature is not None, f"{function!r} has no signature"
    assert signature.startswith("(")
    assert signature.endswith(")")
    return [part.strip() for part in signature[1:-1].split(",") if part.strip()]


def described_by_stub() -> Described:
    return in_stub(ast.parse(STUB.read_text("utf-8")).body, in_class=False)


def test_the_stub_and_the_module_have_the_same_names_and_parameters() -> None:
    stub, module = described_by_stub(), in_module()
    assert stub.functions == module.functions
    assert stub.values == module.values
    assert stub.classes.keys() == module.classes.keys()
    for name, in_the_stub in stub.classes.items():
        assert (name, in_the_stub) == (name, module.classes[name])


def test_the_comparison_would_see_a_difference() -> None:
    text = STUB.read_text("utf-8")
    module = in_module()
    differences = [
        ("def check_pattern(pattern:", "def check_pattern(expression:"),
        ("def named_pattern(pattern: str)", "def named_pattern(pattern: str = 'gpt2')"),
        ("UNICODE_VERSION: str", "UNICODE: str"),
        ("class StreamEncoder", "class EncoderStream"),
        ("    n_replaced: int", "    n_bad: int"),
        ("    def items(self)", "    def pairs(self)"),
        ("    def finish(self)", "    def finish(self, /, wait)"),
        ("        num_threads: int | None,", "        n_threads: int | None,"),
        ("    @staticmethod\n    def from_items(items", "    def from_items(self, items"),
    ]
    for before, after in differences:
        assert before in text
        assert in_stub(ast.parse(text.replace(before, after)).body, in_class=False) != module, after
    assert in_stub(ast.parse(text).body, in_class=False) == module


def test_classes_are_final_as_the_stub_says_and_name_their_module() -> None:
    decorated = {
        node.name
        for node in ast.parse(STUB.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and "final" in map(ast.unparse, node.decorator_list)
    }
    for name in in_module().classes:
        cls = getattr(_core, name)
        assert cls.__module__ == "bytemill._core"
        assert name in decorated
        with pytest.raises(TypeError):
            type("Derived", (cls,), {})


def test_classes_without_a_constructor_in_the_stub_cannot_be_made() -> None:
    for name, described in described_by_stub().classes.items():
        if "__init__" not in described.functions:
            with pytest.raises(TypeError):
                getattr(_core, name)()


def test_parameters_can_be_given_by_name() -> None:
    counter = PretokenCounter(pattern=None, special_tokens=["<s>"], num_threads=1, chunk_bytes=None)
    counter.add_texts(texts=["low<s>low"])
    counts = counter.finish()
    assert isinstance(counts, PretokenCounts)
    options: dict[str, Any] = {"ties": "bytes", "min_frequency": 1, "num_threads": None, "progress": None}
    assert counts.learn_merges(n_merges=1, **options) == ([(b"o", b"w")], [2])
    assert _core.pretoken_spans(text="a b", pattern="gpt2") == [(0, 1), (1, 3)]


def values_of_kinds() -> list[tuple[object, str, Callable[[object], bool]]]:
    counter = PretokenCounter(None, ["<s>"], 1, None)
    counter.add_texts(["low<s>low"])
    counts = counter.finish()
    vocab = {i: bytes([i]) for i in range(256)}
    encoder = Encoder.from_merges(vocab, [], {"<s>": 256}, "gpt2", False)
    stream = encoder.stream("all", "strict", 1)
    rank_file = RankFile.read(b"YQ== 0\n")
    assert rank_file is not None
    alphabet = json.dumps({character: byte for byte, character in enumerate(ALPHABET)})
    read = TokenizerJson.read(f'{{"model": {{"vocab": {alphabet}, "merges": []}}}}'.encode())
    assert read is not None
    tokenizer_json, _ = read
    of_characters = CharacterJson.read(b'{"model": {"vocab": {"a": 0}, "merges": []}}')
    assert of_characters is not None
    character_json, _ = of_characters

    def is_int(value: object) -> bool:
        return type(value) is int

    documents = _core.clean_text(b"text\n", True, "strict")
    broken = _core.clean_text(b"\xff", True, "strict")

    return [
        (StringArray(["a"]), "n_strings", is_int),
        (documents, "text", lambda value: value == b"text\n"),
        (documents, "ends", lambda value: str(value) == "[5]"),
        (documents, "is_open", lambda value: value is False),
        (documents, "broken", lambda value: value is None),
        (broken, "broken", lambda value: value == (0, 0, "")),
        *(
            (documents, name, is_int)
            for name in ("consumed", "n_lines", "n_replaced", "n_skipped_bytes", "n_broken")
        ),
        *(
            (counts, name, is_int)
            for name in (
                "n_bytes",
                "n_pretokens",
                "n_unique",
                "n_unique_bytes",
                "n_special",
                "n_replaced",
                "memory_bytes",
            )
        ),
        (counts, "read_seconds", lambda value: type(value) is float),
        (counts, "is_on_disk", lambda value: value is False),
        (counts, "special_counts", lambda value: value == [1]),
        (counts, "spilled", lambda value: value == (0, 0, 0.0)),
        *((stream, name, is_int) for name in ("n_bytes", "n_replaced")),
        (rank_file, "n_ranks", is_int),
        *((tokenizer_json, name, is_int) for name in ("n_entries", "n_merges")),
        (tokenizer_json, "missing_byte", lambda value: value is None),
        *((character_json, name, is_int) for name in ("n_entries", "n_merges")),
        *((encoder, name, is_int) for name in ("n_vocab", "longest_token")),
        (encoder, "dtype", lambda value: value == "uint16"),
        (encoder, "pattern", lambda value: isinstance(value, str)),
        (encoder, "special_tokens", lambda value: value == {"<s>": 256}),
        (encoder, "normalizer", lambda value: value == ()),
        (encoder, "fallback", lambda value: value is None),
        (encoder, "shape", lambda value: value is None),
        (encoder, "ranked", lambda value: value is False),
        (encoder, "ignore_merges", lambda value: value is False),
    ]


def test_properties_are_of_their_kinds_and_cannot_be_set() -> None:
    checked = set()
    for owner, name, is_right in values_of_kinds():
        assert is_right(getattr(owner, name)), name
        with pytest.raises(AttributeError):
            setattr(owner, name, 0)
        checked.add((type(owner).__name__, name))
    stub = described_by_stub().classes
    assert checked == {(cls, name) for cls, described in stub.items() for name in described.values}


def test_constants_are_what_the_stub_says() -> None:
    assert isinstance(_core.__version__, str)
    assert _core.__version__ == bytemill.__version__
    assert set(_core.NAMED_PATTERNS) == {"gpt2", "cl100k", "o200k", "llama3", "qwen2", "tekken"}
    assert _core.UNICODE_VERSION.count(".") == 2
    assert all(_core.named_pattern(expression) == name for name, expression in _core.NAMED_PATTERNS.items())


def test_every_public_name_of_the_module_is_inspected() -> None:
    everything = {name for name, _ in inspect.getmembers(_core)} - OF_EVERY_MODULE
    found = in_module()
    assert everything == {*found.functions, *found.values, *found.classes}
    assert set(_core.__all__) <= everything  # type: ignore[attr-defined]
