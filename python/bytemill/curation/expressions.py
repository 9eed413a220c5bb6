"""Rules over measurements: comparisons, arithmetic, `and`, `or`, `not` and `in`, and nothing else.

>>> rule = Expression("words < 50 or language.probability < 0.5")
>>> rule.value({"words": 80, "language": {"probability": 0.3}})
True
>>> rule.names
('language.probability', 'words')
"""

from __future__ import annotations

import ast
import itertools
import operator
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_CHARACTERS = 1000
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right if right else 0.0,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


class Expression:
    """An expression over measurements. A division by zero is 0.

    Args:
        source: The expression, in Python's syntax.

    Raises:
        CurationError: The expression holds something else.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        if len(source) > _MAX_CHARACTERS:
            raise CurationError(f"an expression has {len(source):,} characters", hint="write several rules")
        try:
            tree = ast.parse(f"({source}\n)", mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise CurationError(f"{source!r} is not an expression", hint="write words < 50") from error
        if isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise CurationError(f"{source!r} is not an expression", hint="write words < 50")
        names: set[str] = set()
        self._evaluate = self._compiled(tree, names)
        self.names = tuple(sorted(names))
        """The measurements in it."""

    def value(self, values: Mapping[str, Any]) -> bool:
        """Evaluate it.

        Args:
            values: Measurements, those of other steps as a mapping by their name.

        Raises:
            CurationError: A measurement is missing, or has another type.
        """
        try:
            return bool(self._evaluate(values))
        except TypeError as error:
            raise CurationError(f"{self.source!r} compares what has different types: {error}") from error

    def _compiled(self, node: ast.expr, names: set[str]) -> Callable[[Mapping[str, Any]], Any]:
        match node:
            case ast.BoolOp(op, values):
                parts = [self._compiled(value, names) for value in values]
                combine = all if isinstance(op, ast.And) else any
                return lambda given: combine(part(given) for part in parts)
            case ast.UnaryOp(ast.Not(), operand):
                part = self._compiled(operand, names)
                return lambda given: not part(given)
            case ast.UnaryOp(ast.USub(), operand):
                part = self._compiled(operand, names)
                return lambda given: -part(given)
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                first, second = self._compiled(left, names), self._compiled(right, names)
                arithmetic = _ARITHMETIC[type(op)]
                return lambda given: arithmetic(first(given), second(given))
            case ast.Compare(left, ops, comparators) if all(type(op) in _COMPARISONS for op in ops):
                terms = [self._compiled(term, names) for term in (left, *comparators)]
                compare = [_COMPARISONS[type(op)] for op in ops]
                return lambda given: _compared(compare, [term(given) for term in terms])
            case ast.Constant(value) if isinstance(value, (bool, int, float, str)):
                return lambda _: value
            case ast.List(items) | ast.Tuple(items) | ast.Set(items):
                parts = [self._compiled(item, names) for item in items]
                return lambda given: [part(given) for part in parts]
            case ast.Name() | ast.Attribute():
                path = self._path(node)
                names.add(".".join(path))
                return lambda given: self._found(given, path)
            case _:
                raise self._unknown(node)

    def _path(self, node: ast.expr) -> tuple[str, ...]:
        match node:
            case ast.Name(name):
                return (name,)
            case ast.Attribute(value, name):
                return (*self._path(value), name)
            case _:
                raise self._unknown(node)

    def _unknown(self, node: ast.expr) -> CurationError:
        return CurationError(
            f"{self.source!r} holds {ast.unparse(node)!r}, which is not part of rules",
            hint="use names of measurements, numbers, texts, lists, < <= > >= == != in, + - * /, and, or, not",
        )

    def _found(self, values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
        found: Any = values
        for name in path:
            if not isinstance(found, dict) or name not in found:
                raise CurationError(
                    f"{self.source!r}: {'.'.join(path)} was not measured",
                    hint="correct the name, or run data curate on the corpus again",
                )
            found = cast("dict[str, Any]", found)[name]
        return found


def _compared(compare: list[Callable[[Any, Any], bool]], values: list[Any]) -> bool:
    pairs = itertools.pairwise(values)
    return all(function(left, right) for function, (left, right) in zip(compare, pairs, strict=True))
