"""The metadata of a GGUF file: the requested keys are read, all other data is skipped.

A file consists of a magic word, a version, two counts, the metadata, tensor descriptions and tensors. Only the metadata
is read, so a model of 100 GB opens as fast as its vocabulary alone. Every length in the file is checked against the
remaining file size before anything is read or allocated, and memory is bounded.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from bytemill._core import StringArray
from bytemill.errors import TokenizerFileError
from bytemill.formats.files import GGUF_MAGIC

if TYPE_CHECKING:
    from collections.abc import Container

_MAX_KEYS = 2**16
_MAX_KEY_BYTES = 2**16 - 1
"""The format's own limit."""
MAX_ELEMENTS = 2**21
"""Limit for one array that is read, and for all arrays of strings together, which must be walked through even to skip
them. Nearly three times the largest published vocabularies; walking takes less than a second."""
_MAX_STRING_BYTES = 2**24
"""Limit for one string that is read."""
_MAX_KEPT_BYTES = 2**28
"""Limit for everything that is read."""
_BLOCK = 2**20
_MAX_DIMENSIONS = 4
"""The format's own limit."""
_ALIGNMENT = 32
"""Bytes, if the file does not say."""

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B", 10: "Q", 11: "q", 12: "d"}
"""`struct` codes of the types of numbers."""

Value: TypeAlias = "str | bool | int | float | StringArray | array[int] | array[float]"


def read_metadata(file: BinaryIO, size: int, location: str, wanted: Container[str]) -> dict[str, Value]:
    """Read the metadata of a GGUF file.

    Args:
        file: The open file, at its beginning.
        size: Its size in bytes.
        location: Name of the file, for errors.
        wanted: The keys to read.

    Returns:
        The requested keys that exist, with their values.

    Raises:
        TokenizerFileError: The version is not 2 or 3, or the file is damaged; the message has the key and the offset.
    """
    return _read_values(_open(file, size, location), wanted)[0]


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a GGUF file."""

    shape: tuple[int, ...]
    """Outermost dimension first."""
    kind: int
    """Number of the type of its values in ggml."""
    offset: int
    """Bytes from the start of the file."""


def read_tensor_infos(
    file: BinaryIO, size: int, location: str, wanted: Container[str]
) -> tuple[dict[str, Value], dict[str, TensorInfo]]:
    """Read the metadata and the descriptions of the tensors of a GGUF file.

    Args:
        file: The open file, at its beginning.
        size: Its size in bytes.
        location: Name of the file, for errors.
        wanted: The keys to read, among them `general.alignment`.

    Returns:
        The requested keys that exist, with their values, and the tensors by name.

    Raises:
        TokenizerFileError: As for `read_metadata`, or the file is big-endian.
    """
    source = _open(file, size, location)
    if source.order != "<":
        raise TokenizerFileError(f"{location} is big-endian, and its tensors cannot be read")
    values, n_tensors = _read_values(source, wanted)
    # The shortest description has 8 + 1 + 4 + 8 + 4 + 8 bytes.
    source.check(33 * n_tensors, f"the list of {n_tensors} tensors")
    infos: dict[str, TensorInfo] = {}
    for index in range(n_tensors):
        name = source.raw_string(f"the name of tensor {index}", _MAX_KEY_BYTES).decode(errors="replace")
        n_dimensions = source.number("I", name)
        if n_dimensions > _MAX_DIMENSIONS or name in infos:
            problem = "appears twice" if name in infos else f"has {n_dimensions} dimensions"
            raise TokenizerFileError(f"{location}: tensor {name[:80]!r} {problem}")
        shape = [source.number("Q", name) for _ in range(n_dimensions)]
        infos[name] = TensorInfo(tuple(shape[::-1]), source.number("I", name), source.number("Q", name))
    alignment = values.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment < 1:
        raise TokenizerFileError(f"{location}: general.alignment is {alignment!r}, not a number of bytes")
    start = -(-source.offset // alignment) * alignment
    return values, {name: replace(info, offset=start + info.offset) for name, info in infos.items()}


def _open(file: BinaryIO, size: int, location: str) -> _Source:
    if file.read(4) != GGUF_MAGIC:
        raise TokenizerFileError(
            f"{location}: not a GGUF file: it does not begin with {GGUF_MAGIC.decode()!r}"
        )
    source = _Source(file, size, location)
    _read_version(source, location)
    return source


def _read_values(source: _Source, wanted: Container[str]) -> tuple[dict[str, Value], int]:
    """Return the requested keys with their values, and the number of tensors."""
    location = source.location
    n_tensors = source.number("Q", "the number of tensors")
    n_keys = source.number("Q", "the number of keys")
    # The shortest key and value have 8 + 1 + 4 + 1 bytes.
    source.check(14 * n_keys, f"the list of {n_keys} keys")
    if n_keys > _MAX_KEYS:
        raise TokenizerFileError(f"{location}: {n_keys} keys, but at most {_MAX_KEYS} are supported")
    values: dict[str, Value] = {}
    seen: set[bytes] = set()
    for index in range(n_keys):
        raw = source.raw_string(f"key {index}", _MAX_KEY_BYTES)
        try:
            key = raw.decode()
        except UnicodeDecodeError as error:
            raise TokenizerFileError(f"{location}: key {index} is not UTF-8: {raw[:40]!r}") from error
        if raw in seen:
            raise TokenizerFileError(f"{location}: key {key[:80]!r} appears twice")
        seen.add(raw)
        if key in wanted:
            values[key] = source.value(key)
        else:
            source.skip_value(key[:80])
    return values, n_tensors


def _read_version(source: _Source, location: str) -> None:
    """Check the version and set the byte order. In a big-endian file the version looks implausibly large."""
    version = source.number("I", "the version")
    if version >= 2**16:
        source.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in (2, 3):
        raise TokenizerFileError(
            f"{location} has GGUF version {version}; versions 2 and 3 are supported",
            hint="convert the file again with current tools",
        )


class _Source:
    """A file read sequentially, with every length checked against the file size first."""

    def __init__(self, file: BinaryIO, size: int, location: str) -> None:
        self.file = file
        self.size = size
        self.location = location
        self.offset = file.tell()
        self.order = "<"
        self.n_strings = 0
        self.n_kept = 0

    def check(self, n_bytes: int, what: str) -> None:
        """Raise TokenizerFileError for data that would extend beyond the end of the file."""
        left = self.size - self.offset
        if n_bytes > left:
            raise TokenizerFileError(
                f"{self.location}: {what} at offset {self.offset} needs {n_bytes} bytes, "
                f"but only {max(left, 0)} are left",
                hint="the file may be truncated: download or write it again",
            )

    def take(self, n_bytes: int, what: str) -> bytes:
        self.check(n_bytes, what)
        data = self.file.read(n_bytes)
        if len(data) != n_bytes:
            raise TokenizerFileError(f"{self.location}: the file became shorter while it was read")
        self.offset += n_bytes
        return data

    def skip(self, n_bytes: int, what: str) -> None:
        self.check(n_bytes, what)
        self.offset += n_bytes
        self.file.seek(self.offset)

    def number(self, code: str, what: str) -> int:
        layout = self.order + code
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))[0]

    def keep(self, n_bytes: int, what: str, limit: int = _MAX_KEPT_BYTES) -> None:
        """Count bytes to be kept. Raises TokenizerFileError above the limits."""
        self.n_kept += n_bytes
        if n_bytes > limit or self.n_kept > _MAX_KEPT_BYTES:
            raise TokenizerFileError(
                f"{self.location}: {what} at offset {self.offset} has {n_bytes} bytes, too many for a tokenizer"
            )

    def raw_string(self, what: str, limit: int = _MAX_STRING_BYTES) -> bytes:
        n_bytes = self.number("Q", what)
        self.check(n_bytes, what)
        self.keep(n_bytes, what, limit)
        return self.take(n_bytes, what)

    def value(self, key: str) -> Value:
        kind = self.number("I", key)
        if kind == _STRING:
            raw = self.raw_string(key)
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise TokenizerFileError(
                    f"{self.location}: {key} is not UTF-8 at byte {error.start}"
                ) from error
        if kind == _ARRAY:
            return self._array(key)
        number = self.number(self._scalar(kind, key), key)
        if kind != _BOOL:
            return number
        if number > 1:
            raise TokenizerFileError(f"{self.location}: {key} is {number}, not true or false")
        return bool(number)

    def skip_value(self, key: str) -> None:
        kind = self.number("I", key)
        if kind == _STRING:
            self.skip(self.number("Q", key), key)
        elif kind == _ARRAY:
            element, count = self._array_head(key)
            if element == _STRING:
                self._strings(key, count, wanted=False)
            else:
                self.skip(count * struct.calcsize(self._scalar(element, key)), key)
        else:
            self.skip(struct.calcsize(self._scalar(kind, key)), key)

    def _scalar(self, kind: int, key: str) -> str:
        if kind not in _SCALARS:
            raise TokenizerFileError(
                f"{self.location}: {key}: unknown type {kind} at offset {self.offset - 4}"
            )
        return _SCALARS[kind]

    def _array_head(self, key: str) -> tuple[int, int]:
        element = self.number("I", key)
        if element == _ARRAY:
            raise TokenizerFileError(f"{self.location}: {key}: nested arrays are not supported")
        # A string begins with its length.
        each = 8 if element == _STRING else struct.calcsize(self._scalar(element, key))
        count = self.number("Q", key)
        self.check(each * count, f"{key}: an array of {count} elements")
        return element, count

    def _array(self, key: str) -> StringArray | array[int] | array[float]:
        element, count = self._array_head(key)
        if count > MAX_ELEMENTS:
            raise TokenizerFileError(
                f"{self.location}: {key} has {count} elements; at most {MAX_ELEMENTS} are supported"
            )
        if element == _STRING:
            return self._strings(key, count, wanted=True)
        code = self._scalar(element, key)
        n_bytes = count * struct.calcsize(code)
        self.keep(n_bytes, key)
        # The 32-bit and 64-bit codes of struct and array differ in size on some systems.
        return array(
            "d" if code in "fd" else "q" if code != "Q" else "Q",
            struct.unpack(f"{self.order}{count}{code}", self.take(n_bytes, key)),
        )

    def _strings(self, key: str, count: int, *, wanted: bool) -> StringArray:
        """Read the next `count` strings; if not `wanted`, skip them and return none."""
        self.n_strings += count
        if self.n_strings > MAX_ELEMENTS:
            raise TokenizerFileError(
                f"{self.location}: {key}: the file has {self.n_strings} strings in arrays up to here; "
                f"at most {MAX_ELEMENTS} are supported"
            )
        if wanted:
            n_bytes = min(self.size - self.offset, 64 * count + _BLOCK)
            read = StringArray.read(self.file.read(n_bytes), count, self.order == ">")
            if read is not None:
                self.keep(read[1], key)
                self.skip(read[1], key)
                return read[0]
            self.file.seek(self.offset)
        length = struct.Struct(self.order + "Q").unpack_from
        strings: list[str] = []
        # Very long and damaged ones, and those to skip. One call of `read` per string would take most of the time.
        block, at, begin = b"", 0, self.offset
        for index in range(count):
            if len(block) - at < 8:
                begin += at
                block, at = block[at:] + self.file.read(8 + _BLOCK), 0
            if len(block) - at < 8:
                self._truncated(key, index, begin + at, 8)
            n_bytes = length(block, at)[0]
            at += 8
            if len(block) - at < n_bytes:
                if n_bytes > self.size - begin - at:
                    self._truncated(key, index, begin + at, n_bytes)
                if not wanted:
                    begin += at + n_bytes
                    self.file.seek(begin)
                    block, at = b"", 0
                    continue
                self.keep(n_bytes, f"{key}[{index}]", _MAX_STRING_BYTES)
                begin += at
                block, at = block[at:] + self.file.read(n_bytes + _BLOCK), 0
                if len(block) < n_bytes:
                    self._truncated(key, index, begin, n_bytes)
            if wanted:
                try:
                    strings.append(block[at : at + n_bytes].decode())
                except UnicodeDecodeError as error:
                    raise TokenizerFileError(
                        f"{self.location}: {key}[{index}] is not UTF-8 at byte {error.start}"
                    ) from error
            at += n_bytes
        n_read = begin + at - self.offset
        if wanted:
            self.keep(n_read, key)
        self.offset += n_read
        self.file.seek(self.offset)
        return StringArray(strings)

    def _truncated(self, key: str, index: int, offset: int, n_bytes: int) -> None:
        self.offset = offset
        self.check(n_bytes, f"{key}[{index}]")
        raise TokenizerFileError(f"{self.location}: the file became shorter while it was read")
