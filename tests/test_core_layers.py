"""The modules of the Rust crates use each other in one direction, those of the core that of the table in
docs/concepts/architecture.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ARCHITECTURE = REPOSITORY / "docs/concepts/architecture.md"

Module = tuple[str, ...]
"""The path of a module in the crate; empty for `lib.rs`."""

Uses = dict[Module, set[Module]]
"""The modules that each module uses. A folder is the module of its `mod.rs`."""

USE = re.compile(
    r"^\s*(?P<test>#\[cfg\(test\)\]\s*)?(?P<public>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[^;]+);", re.MULTILINE
)
PATH = re.compile(r"\b(?:crate|self|super)(?:::\w+)+")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{.*?\n\}", re.DOTALL)


def sources(folder: Path) -> dict[Module, str]:
    """The text of each module without comments and tests."""
    found: dict[Module, str] = {}
    for file in sorted(folder.rglob("*.rs")):
        module = file.relative_to(folder).with_suffix("").parts
        if "tests" in module or module[-1].endswith("_tests"):
            continue
        module = module[:-1] if module[-1] in ("lib", "mod") else module
        found[module] = TESTS.sub("", re.sub(r"//[^\n]*", "", file.read_text(encoding="utf-8")))
    return found


def paths_of(tree: str) -> Iterator[tuple[Module, str]]:
    """The paths of a `use`, each with the name it gets: `a::{b, c as d}` has two."""
    start, brace, rest = tree.partition("{")
    prefix = tuple(part for part in map(str.strip, start.split("::")) if part)
    if not brace:
        last, _, alias = prefix[-1].partition(" as ")
        yield (*prefix[:-1], last), alias or last
        return
    depth, item = 0, ""
    for character in rest[: rest.rindex("}")] + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            if item.strip():
                yield from ((prefix + path, name) for path, name in paths_of(item))
            item = ""
        else:
            item += character


def from_root(module: Module, path: Module, modules: Iterable[Module]) -> Module | None:
    """A path in a module as one from the crate's root; None for one of another crate."""
    if path[0] == "crate":
        return path[1:]
    if path[0] not in ("self", "super"):
        return module + path if module + path[:1] in modules else None
    while path[:1] in (("self",), ("super",)):
        module, path = module[:-1] if path[0] == "super" else module, path[1:]
    return module + path


def uses_in(texts: Mapping[Module, str]) -> Uses:
    """What each module uses: the modules that it names, and those that define what these export again."""
    named: dict[Module, list[Module]] = {}
    exported: dict[Module, Module] = {}
    for module, text in texts.items():
        inline = [tuple(path.split("::")) for path in PATH.findall(USE.sub("", text))]
        named[module] = [path for each in inline if (path := from_root(module, each, texts)) is not None]
        for use in USE.finditer(text):
            for each, name in paths_of(use["tree"]):
                path = from_root(module, each, texts)
                if path is not None and not use["test"]:
                    named[module].append(path)
                    if use["public"]:
                        exported[(*module, name)] = path

    def modules_of(path: Module) -> set[Module]:
        n_parts = next(n for n in range(len(path), -1, -1) if path[:n] in texts)
        origin = exported.get(path[: n_parts + 1])
        return {path[:n_parts]} | (modules_of(origin + path[n_parts + 1 :]) if origin is not None else set())

    uses: Uses = {}
    for module, paths in named.items():
        uses[module] = {other for path in paths for other in modules_of(path)} - {module}
    return uses


def n_common(one: Module, other: Module) -> int:
    """The number of folders that contain both."""
    return sum(1 for _ in takewhile(lambda parts: parts[0] == parts[1], zip(one, other, strict=False)))


def between_files(uses: Uses) -> Uses:
    """The same without uses between a folder's own module and what is in the folder."""
    return {
        module: {other for other in others if n_common(module, other) < min(len(module), len(other))}
        for module, others in uses.items()
    }


def between_folders(uses: Uses) -> Uses:
    """The uses that cross the borders of folders, and of the files beside them, at every depth."""
    found: Uses = {}
    for module, others in between_files(uses).items():
        for other in others:
            end = n_common(module, other) + 1
            found.setdefault(module[:end], set()).add(other[:end])
    return found


def cycle(uses: Uses) -> list[str]:
    """A shortest cycle, as names from a module back to itself; empty if there is none."""
    found: list[list[Module]] = []
    for start in sorted(uses):
        paths, seen = [[start]], {start}
        while paths:
            path = paths.pop(0)
            if start in uses.get(path[-1], ()):
                found.append([*path, start])
                break
            new = sorted(uses.get(path[-1], set()) - seen)
            seen.update(new)
            paths += [[*path, other] for other in new]
    return ["/".join(module) for module in min(found, key=len, default=[])]


def layers(text: str) -> list[str]:
    """The folders in the table of the core, the uppermost first."""
    section = text.partition("\n## The core")[2].partition("\n## ")[0]
    return [name.removesuffix(".rs") for name in re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)]


MADE_UP = {
    (): "pub mod high;\npub mod low;\npub mod middle;\npub use low::Deep;",
    ("high",): "mod one;\nmod two;\npub use one::One;",
    (
        "high",
        "one",
    ): "use super::two::{Three, Two as Other};\nuse crate::middle::{Lowest, self};\npub struct One;",
    ("high", "two"): "use std::fmt;\nfn two() { crate::low::Deep::new() }",
    ("middle",): "pub use crate::low::{deep::Deep as Lowest};",
    ("low",): "mod deep;\npub use deep::Deep;",
    ("low", "deep"): "#[cfg(test)]\nuse crate::high::One;\npub struct Deep;",
}


def test_uses_in_a_made_up_crate_are_all_found() -> None:
    uses = uses_in(MADE_UP)
    assert uses == {
        (): {("low",), ("low", "deep")},
        ("high",): {("high", "one")},
        ("high", "one"): {("high", "two"), ("middle",), ("low", "deep")},
        ("high", "two"): {("low",), ("low", "deep")},
        ("middle",): {("low", "deep")},
        ("low",): {("low", "deep")},
        ("low", "deep"): set(),
    }
    assert cycle(between_files(uses)) == []
    assert cycle(between_folders(uses)) == []


@pytest.mark.parametrize(
    ("module", "text", "files", "folders"),
    [
        (
            ("high", "two"),
            "use super::One;",
            ["high/one", "high/two", "high/one"],
            ["high/one", "high/two", "high/one"],
        ),
        (("low", "other"), "fn f() { crate::high::One::new() }", [], ["high", "low", "high"]),
        (("low",), "use crate::{middle::Lowest};", [], ["low", "middle", "low"]),
        (("low", "deep"), "use super::{Deep, self};", [], []),
    ],
)
def test_a_circle_in_a_made_up_crate_is_named(
    module: Module, text: str, files: list[str], folders: list[str]
) -> None:
    uses = uses_in(MADE_UP | {module: text})
    assert cycle(between_files(uses)) == files
    assert cycle(between_folders(uses)) == folders


@pytest.mark.parametrize(("crate", "n_least"), [("bytemill", 400), ("bytemill-py", 30)])
def test_no_files_and_no_folders_of_a_crate_use_each_other_in_a_circle(crate: str, n_least: int) -> None:
    uses = uses_in(sources(REPOSITORY / "crates" / crate / "src"))
    assert sum(map(len, uses.values())) > n_least
    assert " -> ".join(cycle(between_files(uses))) == ""
    assert " -> ".join(cycle(between_folders(uses))) == ""


def test_folders_of_the_core_use_only_those_below_them_in_the_table() -> None:
    uses = uses_in(sources(REPOSITORY / "crates/bytemill/src"))
    order = layers(ARCHITECTURE.read_text(encoding="utf-8"))
    folders = {module[0] for module in uses if module}
    assert set(order) == folders
    upward = {
        f"{'/'.join(module)} uses {'/'.join(other)}"
        for module, others in uses.items()
        for other in others
        if module and other and order.index(module[0]) > order.index(other[0])
    }
    assert upward == set()
