"""Arrays in JSON: little-endian bytes in base64. All supported machines are little-endian."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from fastapi.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


_BLOCK = 3 << 18
"""Bytes that are packed at a time: a multiple of three, so that the parts join without padding."""


def packed(array: NDArray[Any], dtype: str) -> str:
    """Return an array as base64 of little-endian numbers.

    >>> import numpy as np
    >>> packed(np.array([1, 258]), "u4")
    'AQAAAAIBAAA='
    """
    return base64.b64encode(np.ascontiguousarray(array, dtype=f"<{dtype}").tobytes()).decode("ascii")


def large_response(value: Any) -> StreamingResponse:
    """Return an answer in JSON whose arrays and bytes are packed while they are sent, so that none is copied whole.

    >>> import numpy as np
    >>> parts = _json_parts({"n": 1, "views": [{"ids": np.array([1, 258], np.uint32), "data": b"ab"}], "none": []})
    >>> b"".join(parts)
    b'{"n":1,"views":[{"ids":"AQAAAAIBAAA=","data":"YWI="}],"none":[]}'
    >>> b"".join(_json_parts({"ids": np.zeros(0, np.uint32)}))
    b'{"ids":""}'
    """
    return StreamingResponse(_json_parts(value), media_type="application/json")


def _json_parts(value: Any) -> Iterator[bytes]:
    match value:
        case bytes() | np.ndarray():
            view: memoryview[Any] = memoryview(cast("Any", value))
            data = view.cast("B") if view.nbytes else b""  # an empty view cannot be cast
            yield b'"'
            for start in range(0, len(data), _BLOCK):
                yield base64.b64encode(data[start : start + _BLOCK])
            yield b'"'
        case dict():
            separator = b"{"
            for name, own in cast("dict[str, Any]", value).items():
                yield separator + json.dumps(name).encode() + b":"
                yield from _json_parts(own)
                separator = b","
            yield b"}" if value else b"{}"
        case [{}, *_]:
            separator = b"["
            for own in cast("list[Any]", value):
                yield separator
                yield from _json_parts(own)
                separator = b","
            yield b"]"
        case _:
            yield json.dumps(value).encode()
