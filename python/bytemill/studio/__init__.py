"""The studio: tokens, vocabularies, models and runs in the browser. Needs the extra `studio`."""

from importlib.util import find_spec

from bytemill.errors import MissingExtraError
from bytemill.system.extras import install_hint

if find_spec("fastapi") is None or find_spec("uvicorn") is None:
    raise MissingExtraError(
        "bytemill studio needs fastapi and uvicorn, which are not installed",
        hint=f"install them with: {install_hint('studio')}",
    )
