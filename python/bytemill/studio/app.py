"""The web application: its routes, errors, and the files of the page."""

from __future__ import annotations

from hashlib import blake2s
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse

from bytemill._core import __version__
from bytemill.errors import BytemillError
from bytemill.studio.files import shown_name
from bytemill.studio.models import Models, checkpoint_paths
from bytemill.studio.routes import models, runs, texts, tokenizers, training_data
from bytemill.studio.schemas import Queued, Status
from bytemill.studio.security import Guard
from bytemill.studio.state import State, Studio

if TYPE_CHECKING:
    from bytemill.studio.library import Library
    from bytemill.studio.security import Access

STATIC = Path(str(resources.files("bytemill.studio") / "static"))
PREFIX = "/api/v1"


def create_app(library: Library, access: Access, *, device: str = "auto") -> FastAPI:
    """Create the application.

    Args:
        library: What may be opened.
        access: Who may connect.
        device: Device of models, as in `load_trained`.
    """
    app = FastAPI(
        title="bytemill studio",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # it loads scripts from elsewhere
        redoc_url=None,
    )
    app.state.studio = State(library, Models(library.stamps, device))
    app.add_middleware(Guard, access=access)
    app.add_api_route(f"{PREFIX}/status", status, tags=["status"])
    for module in (tokenizers, texts, runs, training_data, models):
        app.include_router(module.router, prefix=PREFIX)
    app.add_api_route(f"{PREFIX}/jobs/{{name}}", job, tags=["jobs"])
    _add_errors(app)
    _add_page(app)
    return app


def status(studio: Studio) -> Status:
    """Return what the page needs to know first, and whether it must read the lists again."""
    root = studio.library.root
    shelf = studio.library.shelf()
    checkpoints = [list(checkpoint_paths(entry.path)) for entry in shelf["runs"].values()]
    library = f"{shelf.digest} {checkpoints} {studio.library.stamps.of_all_opened()}"
    return Status(
        version=__version__,
        started=studio.started,
        root=None if root is None else shown_name(root.name) or "/",
        has_models=find_spec("torch") is not None,
        library=blake2s(library.encode(), digest_size=8).hexdigest(),
    )


async def job(name: str, studio: Studio) -> Queued:
    """Return how many jobs wait before the one whose request had this name in its header x-job."""
    return Queued(before=studio.jobs.before(name))


def _add_errors(app: FastAPI) -> None:
    def failed(status: int, message: str, hint: str | None = None) -> JSONResponse:
        return JSONResponse({"detail": message, "hint": hint}, status_code=status)

    @app.exception_handler(BytemillError)
    async def on_error(_: Request, error: BytemillError) -> JSONResponse:
        own = getattr(error, "status", 422)  # errors of the studio have one of their own
        return failed(own, _without_paths(str(error), app), error.hint and _without_paths(error.hint, app))

    @app.exception_handler(UnicodeEncodeError)
    async def on_surrogate(_: Request, __: UnicodeEncodeError) -> JSONResponse:
        return failed(422, "the text has half of a surrogate pair, which is no character")

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        position = ".".join(map(str, first["loc"][1:]))
        message = str(first["msg"]).removeprefix("Value error, ")
        return failed(422, f"{position}: {message}" if position else message)

    # Registered for the sake of the checker, which takes nested functions for unused.
    _ = on_error, on_surrogate, on_invalid


def _without_paths(message: str, app: FastAPI) -> str:
    """Return a message without the folder above the root: the page shows names below it alone."""
    root = app.state.studio.library.root
    return message if root is None else message.replace(f"{root}/", "")


def _add_page(app: FastAPI) -> None:
    files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(files["index.html"], headers={"Cache-Control": "no-cache"})

    @app.get("/{name:path}", include_in_schema=False)
    async def file(name: str) -> FileResponse:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        # The names of these files have a hash of their content.
        kept = "public, max-age=31536000, immutable" if name.startswith("assets/") else "no-cache"
        return FileResponse(files[name], headers={"Cache-Control": kept})

    _ = page, file
