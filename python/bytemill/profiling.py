"""Where the time and the memory of long work go, phase by phase.

Whoever works says so (`with phase("count"): …`); where nobody asked for a profile that costs nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def phase(name: str) -> Generator[None]:
    """The block is the phase `name` of the work under way; phases of the same name are added up.

    Phases of several threads may go on at the same time, and one within another.
    """
    del name
    yield
