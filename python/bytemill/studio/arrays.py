"""Arrays in JSON: little-endian bytes in base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def packed(array: NDArray[Any], dtype: str) -> str:
    """Return an array as base64 of little-endian numbers.

    >>> import numpy as np
    >>> packed(np.array([1, 258]), "u4")
    'AQAAAAIBAAA='
    """
    return base64.b64encode(np.ascontiguousarray(array, dtype=f"<{dtype}").tobytes()).decode("ascii")
