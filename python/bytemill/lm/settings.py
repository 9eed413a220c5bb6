"""Base class of validated settings, with one-line error messages."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from bytemill.errors import BytemillError, RunConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic.fields import FieldInfo


class Settings(BaseModel):
    """Immutable settings with strict types and no unknown fields.

    Raises:
        BytemillError: A value is missing, unknown, of the wrong type or out of range (`error_type` of the class).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)
    error_type: ClassVar[type[BytemillError]] = RunConfigError

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _first_error(error, type(self), values) from error

    def to_dict(self) -> dict[str, Any]:
        """Return every field by name, as values that JSON supports; a table of settings is a dict."""
        return self.model_dump()

    def to_flat(self) -> dict[str, Any]:
        """Return every value by its dotted name, such as "rope.theta"."""
        return flattened(self.to_dict())

    @classmethod
    def fields_by_name(cls) -> dict[str, FieldInfo]:
        """Return every field by its dotted name; a table stands for its fields."""
        found: dict[str, FieldInfo] = {}
        for name, info in cls.model_fields.items():
            if (kind := _table(info)) is not None:
                found |= {f"{name}.{inner}": own for inner, own in kind.fields_by_name().items()}
            else:
                found[name] = info
        return found


def _table(field: FieldInfo) -> type[Settings] | None:
    """Return the class of a field that is a table of settings; None for another field."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the tables among values by their entries, with dotted names.

    >>> flattened({"d_ff": 64, "rope": {"theta": 500.0}})
    {'d_ff': 64, 'rope.theta': 500.0}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            inner = flattened(cast("dict[str, Any]", value))
            found |= {f"{name}.{key}": each for key, each in inner.items()}
        else:
            found[name] = value
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with dotted names as tables; the inverse of `flattened`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        *tables, last = name.split(".")
        place = found
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return found


def suggestion(name: str, known: Iterable[str], fallback: str | None = None) -> str:
    """Return a hint with the closest known name; if none is close, `fallback` or a list of all names."""
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {close[0]}?"
    return fallback or f"choose one of {', '.join(names)}"


def _first_error(error: ValidationError, kind: type[Settings], values: Mapping[str, Any]) -> BytemillError:
    details = error.errors()
    first = details[0]
    context = first.get("ctx", {})
    if isinstance(own := context.get("error"), BytemillError):  # raised by a validator of a subclass
        if not first["loc"] or _table(kind.model_fields[str(first["loc"][0])]) is None:
            return own
        # The error of a table begins with the name of a setting, or is about an unknown one.
        start = "unknown setting " if str(own).startswith("unknown setting ") else ""
        message = f"{start}{first['loc'][0]}.{str(own).removeprefix(start)}"
        return type(own)(message, hint=own.hint)
    if missing := [str(item["loc"][0]) for item in details if item["type"] == "missing"]:
        return kind.error_type(
            f"{', '.join(missing)} must be set", hint="set every size, or start from a preset"
        )
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return kind.error_type(f"unknown setting {name}", hint=suggestion(name, kind.model_fields))
    return kind.error_type(f"{name} is {values.get(name)!r}", hint=_hint(first["type"], context))


def _hint(problem: str, context: Mapping[str, Any]) -> str:
    match problem:
        case "literal_error":
            return f"choose one of {str(context['expected']).replace(' or ', ', ').replace(chr(39), '')}"
        case "greater_than_equal":
            return f"choose a number of at least {context['ge']}"
        case "greater_than":
            return f"choose a number above {context['gt']}"
        case "less_than_equal":
            return f"choose a number of at most {context['le']}"
        case "less_than":
            return f"choose a number below {context['lt']}"
        case "int_type" | "int_from_float":
            return "choose a whole number"
        case "float_type" | "finite_number":
            return "choose a finite number"
        case "bool_type":
            return "choose true or false"
        case "tuple_type":
            return 'write a list of names: ["a", "b"]'
        case _:
            return "`bytemill lm train --help-all` names the type of each setting"
