"""Records in JSON files: dataclasses that pydantic validates when they are read.

Writing a record does not import pydantic, which takes longer than encoding 50 MB of text.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pydantic import TypeAdapter, ValidationError

    from bytemill.errors import BytemillError


class Strict:
    """Constraints of a field: no conversion from other types, a range, a check.

    Like `Strict`, `Field` and `AfterValidator` of pydantic, whose import takes long.

    Args:
        ge: Smallest number.
        lt: Number above the largest one.
        check: Returns the value, or raises ValueError with what it must be.
    """

    def __init__(
        self, *, ge: int | None = None, lt: int | None = None, check: Callable[[Any], object] | None = None
    ) -> None:
        self.ge = ge
        self.lt = lt
        self._check = check

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> Any:
        limits = {name: limit for name, limit in (("ge", self.ge), ("lt", self.lt)) if limit is not None}
        schema = handler(source) | {"strict": True} | limits
        if self._check is None:
            return schema
        function = {"type": "no-info", "function": self._check}
        return {"type": "function-after", "function": function, "schema": schema}

    def allows(self, value: object, kind: type[int] | type[float]) -> bool:
        """Return True if `value` has the type and lies in the range."""
        if type(value) is not kind:
            return False
        number = cast("float", value)
        return (self.ge is None or self.ge <= number) and (self.lt is None or number < self.lt)


Count = Annotated[int, Strict(ge=0)]
"""A whole number of at least 0."""
Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]


class Record:
    """Base class of records, which are dataclasses. Unknown keys are ignored, so that later versions can add keys."""

    def to_dict(self) -> dict[str, Any]:
        """Return every field by name, in values that JSON can hold."""
        return asdict(cast("Any", self))


RecordType = TypeVar("RecordType", bound=Record)


def read_json_object(path: Path, error_type: type[BytemillError], hint: str) -> dict[str, Any]:
    """Read a JSON object from a file.

    Args:
        path: The file.
        error_type: Exception for a file that is damaged or cannot be read.
        hint: Hint for a damaged file.

    Raises:
        FileNotFoundError: If there is no such file, or no such folder.
        BytemillError: If the file is damaged or cannot be read (`error_type`).
    """
    try:
        text = path.read_bytes()
    except NotADirectoryError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise error_type(f"cannot read {path}: {error.strerror or error}") from error
    return parse_json_object(text, path, error_type, hint)


def parse_json_object(
    text: str | bytes, path: str | Path, error_type: type[BytemillError], hint: str
) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        text: The JSON.
        path: The file that contains it, for the error message.
        error_type: Exception for other content.
        hint: Hint for other content.

    Raises:
        BytemillError: If the text is not a JSON object (`error_type`).
    """
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:  # invalid JSON or UTF-8, or too deep
        raise error_type(f"{path} is damaged: {error}", hint=hint) from error
    if not isinstance(document, dict):
        raise error_type(f"{path} is damaged: it is not a JSON object", hint=hint)
    return cast("dict[str, Any]", document)


def parse_record(
    kind: type[RecordType],
    document: dict[str, Any],
    path: str | Path,
    error_type: type[BytemillError],
    hint: str,
) -> RecordType:
    """Validate a JSON object.

    Args:
        kind: The record's class.
        document: The JSON object.
        path: The file, for the error message.
        error_type: Exception for an invalid record.
        hint: Hint for an invalid record.

    Raises:
        BytemillError: If a key is missing or has an invalid value (`error_type`); names the file and the first key.
    """
    from pydantic import ValidationError

    try:
        return cast("RecordType", _validator(kind).validate_python(document))
    except ValidationError as error:
        raise error_type(f"{path} is damaged: {first_problem(error, document)}", hint=hint) from error


@cache
def _validator(kind: type[Record]) -> TypeAdapter[Record]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)  # building one takes milliseconds


def first_problem(error: ValidationError, document: Any) -> str:
    """Describe the first problem of a record in one line.

    Args:
        error: What pydantic raised.
        document: The validated values.
    """
    details = error.errors()[0]
    name, value = "", document
    for key in details["loc"]:
        if isinstance(key, int) and isinstance(value, list):
            items = cast("list[Any]", value)
            name, value = (
                f"{name}[{key}]",
                items[key] if key < len(items) else None,
            )  # a tuple may be too short
        elif isinstance(key, str) and isinstance(value, dict):
            name = f"{name}.{key}" if name else key
            value = cast("dict[str, Any]", value).get(key)
        else:
            break  # a member of a union
    if details["type"] == "missing":
        return f"{name} is missing"
    reason = {"dataclass_type": "it must be a JSON object", "tuple_type": "it must be a list"}.get(
        details["type"]
    )
    reason = reason or details["msg"].replace("Input should", "it must").removeprefix("Value error, ")
    return f"{name} is {value!r:.80}; {reason}" if name else reason
