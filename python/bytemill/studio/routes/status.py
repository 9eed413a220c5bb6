"""The route that the page asks first, and again every few seconds."""

from __future__ import annotations

from hashlib import blake2s
from importlib.util import find_spec

from fastapi import APIRouter

from bytemill._core import __version__
from bytemill.studio.files import shown_name
from bytemill.studio.models import checkpoint_paths
from bytemill.studio.schemas import Status
from bytemill.studio.state import Studio

router = APIRouter(tags=["status"])


@router.get("/status")
def status(studio: Studio) -> Status:
    """Return what the page needs to know first, and whether it must read the lists again."""
    root = studio.library.root
    shelf = studio.library.shelf()
    checkpoints = [list(checkpoint_paths(entry.path)) for entry in shelf.runs.values()]
    library = f"{shelf.digest} {checkpoints} {studio.library.stamps.of_all_opened()}"
    return Status(
        version=__version__,
        started=studio.started,
        root=None if root is None else shown_name(root.name) or "/",
        has_models=find_spec("torch") is not None,
        library=blake2s(library.encode(), digest_size=8).hexdigest(),
    )
