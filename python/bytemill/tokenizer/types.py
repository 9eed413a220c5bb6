"""Type aliases shared by the tokenizer's modules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
    TokenIds: TypeAlias = Sequence[int] | NDArray[Any]

AllowedSpecial: TypeAlias = Literal["all", "none", "none_raise"] | Collection[str]
DisallowedSpecial: TypeAlias = Literal["all"] | Collection[str]
