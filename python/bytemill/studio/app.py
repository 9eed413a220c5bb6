"""The web application: routes, errors, and the files of the page."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse

from bytemill._core import __version__
from bytemill.errors import BytemillError
from bytemill.studio.errors import ChangedError, ChangingError, ForgottenTextError, NotThereError
from bytemill.studio.jobs import JobCancelledError
from bytemill.studio.models import Models
from bytemill.studio.routes import comparison, jobs, models, runs, status, texts, tokenizers
from bytemill.studio.security import Guard
from bytemill.studio.state import State
from bytemill.studio.texts import EditError, StaleVersionError, TextTooLargeError

if TYPE_CHECKING:
    from bytemill.studio.library import Library
    from bytemill.studio.security import Access

_STATUS = {NotThereError: 404, ChangedError: 409, ForgottenTextError: 410, ChangingError: 503}
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
    for module in (status, tokenizers, texts, comparison, runs, models, jobs):
        app.include_router(module.router, prefix=PREFIX)
    _add_errors(app)
    _add_page(app)
    return app


def _add_errors(app: FastAPI) -> None:
    def failed(status: int, message: str, hint: str | None = None) -> JSONResponse:
        return JSONResponse({"detail": message, "hint": hint}, status_code=status)

    @app.exception_handler(BytemillError)
    async def on_error(_: Request, error: BytemillError) -> JSONResponse:
        status = next((own for kind, own in _STATUS.items() if isinstance(error, kind)), 422)
        return failed(status, _without_paths(str(error), app), error.hint and _without_paths(error.hint, app))

    @app.exception_handler(StaleVersionError)
    async def on_stale(_: Request, error: StaleVersionError) -> JSONResponse:
        return failed(409, str(error))

    @app.exception_handler(TextTooLargeError)
    async def on_large(_: Request, error: TextTooLargeError) -> JSONResponse:
        return failed(413, str(error))

    @app.exception_handler(UnicodeEncodeError)
    async def on_surrogate(_: Request, __: UnicodeEncodeError) -> JSONResponse:
        return failed(422, "the text has half of a surrogate pair, which is no character")

    @app.exception_handler(EditError)
    async def on_edit(_: Request, error: EditError) -> JSONResponse:
        return failed(422, str(error))

    @app.exception_handler(JobCancelledError)
    async def on_cancelled(_: Request, __: JobCancelledError) -> JSONResponse:
        return failed(504, "the work was cancelled or took too long")

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        position = ".".join(map(str, first["loc"][1:]))
        message = str(first["msg"]).removeprefix("Value error, ")
        return failed(422, f"{position}: {message}" if position else message)

    # Registered for the sake of the checker, which takes nested functions for unused.
    _ = on_error, on_stale, on_large, on_surrogate, on_edit, on_cancelled, on_invalid


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
