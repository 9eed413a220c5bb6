"""What all routes share."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from bytemill.studio.jobs import Jobs
from bytemill.studio.texts import TextStore, TokenizerCache

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
        self.tokenizers = TokenizerCache(self.library)
        self.texts = TextStore(self.tokenizers)


def state_of(request: Request) -> State:
    """Return the state of the server that received a request."""
    return request.app.state.studio


Studio = Annotated[State, Depends(state_of)]
