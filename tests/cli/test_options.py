"""Options: one name has one meaning in all commands."""

from collections import defaultdict
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

from tests.cli.commands import commands, options


def kind(hint: object) -> object:
    """What a value of this type is: the type without None; choices without other text; text for a path."""
    is_union = get_origin(hint) in (Union, UnionType)
    plain = [each for each in get_args(hint) if each is not NoneType] if is_union else [hint]
    return str if plain[0] is Path else plain[0]


def agree(one: object, other: object) -> bool:
    """Choices agree where they have some in common: not all commands offer all of them."""
    if get_origin(one) is Literal and get_origin(other) is Literal:
        return bool(set(get_args(one)) & set(get_args(other)))
    return one == other


def test_an_option_has_the_same_meaning_in_all_commands():
    uses: dict[str, list[tuple[str, str, object]]] = defaultdict(list)
    for chain, command in commands():
        for name, (first_name, hint) in options(command).items():
            uses[name].append((" ".join(chain), first_name, kind(hint)))
    for name, found in uses.items():
        command, first_name, first_kind = found[0]
        for other, other_first_name, other_kind in found[1:]:
            assert other_first_name == first_name, f"{name} of {other} and {command}"
            assert agree(other_kind, first_kind), f"{name} of {other} and {command}"


def test_all_commands_are_walked():
    names = {" ".join(chain) for chain, _ in commands()}
    assert {"quickstart", "tokenizer train", "data get", "lm eval"} <= names
