"""Tables of the components of a tokenizer.json that the core runs exactly.

A row is the type of a component, or the name of an option, with the function that reads it. What has no row, and
settings that a row refuses, are an error that names them: then the library runs the file. The rows are in
`normalizers`, `pre_tokenizers`, `parts` and `models`; `table` has all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bytemill.errors import TokenizerFileError
from bytemill.formats.files import array_at, object_at, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Result = TypeVar("Result")


@dataclass(frozen=True)
class Component(Generic[Result]):
    """A component that the core runs exactly."""

    name: str
    """Its `type`, or the name of an option."""
    settings: str
    """The settings that the core runs; empty for all."""
    read: Callable[[Any, str], Result]
    """Reads the object, or the value of an option, at a path. Raises TokenizerFileError for other settings."""


class Table(Generic[Result]):
    """The components of one kind."""

    def __init__(self, kind: str, field: str = "", hint: str | None = None) -> None:
        self.kind = kind
        """What a component is called in errors and in the documentation."""
        self.rows: dict[str, Component[Result]] = {}
        self._field = field
        self._hint = hint

    def row(
        self, *names: str, settings: str = ""
    ) -> Callable[[Callable[[Any, str], Result]], Callable[[Any, str], Result]]:
        """Return a decorator that adds a function as the reader of these components."""

        def add(read: Callable[[Any, str], Result]) -> Callable[[Any, str], Result]:
            self.rows |= {name: Component(name, settings, read) for name in names}
            return read

        return add

    def read(self, step: dict[str, Any], path: str) -> Result:
        """Read a component. Raises TokenizerFileError if the core does not run it."""
        name = step.get("type")
        row = self.rows.get(name) if isinstance(name, str) else None
        if row is None:
            raise self.unknown(name, path)
        return row.read(step, path)

    def read_all(self, value: Any, location: str) -> list[Result]:
        """Read nested sequences of components. Raises as `read`."""
        article = "an" if self.kind.startswith("a") else "a"
        return [self.read(*each) for each in steps_of(value, location, self._field, f"{article} {self.kind}")]

    def unknown(self, name: Any, path: str) -> TokenizerFileError:
        """Return the error for a component without a row."""
        return TokenizerFileError(f"{path} is {shown(name)}, which is not supported", hint=self._hint)


def steps_of(value: Any, location: str, field: str, what: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects in nested sequences in order, with their paths; an object that is no sequence is the only one.

    Args:
        value: The object.
        location: Its path, for errors.
        field: Name of the array in a `Sequence`.
        what: What an object is, for errors.

    Raises:
        TokenizerFileError: A part is not an object, or a sequence has no array.
    """
    pending = [(value, location)]
    while pending:
        inner, path = pending.pop()
        step = object_at(inner, path, what)
        if step.get("type") == "Sequence":
            path = f"{path}.{field}"
            parts = array_at(step.get(field), path)
            pending.extend((part, f"{path}[{i}]") for i, part in reversed(list(enumerate(parts))))
        else:
            yield step, path
