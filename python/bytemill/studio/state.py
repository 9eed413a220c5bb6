"""What all routes share."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from bytemill.studio.jobs import Jobs
from bytemill.studio.texts import TextStore

if TYPE_CHECKING:
    from bytemill.studio.library import Library
    from bytemill.studio.models import Models


@dataclass
class State:
    """The state of a server."""

    library: Library
    models: Models
    jobs: Jobs = field(default_factory=Jobs)
    started: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells a page that the server was started again."""

    def __post_init__(self) -> None:
        self.texts = TextStore(self.library.open_tokenizer)


def _state(request: Request) -> State:
    return request.app.state.studio


Studio = Annotated[State, Depends(_state)]
"""The state of the server that received a request."""
