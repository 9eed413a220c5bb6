"""The script of a page: there is one, and the page allows no other."""

import base64
import hashlib
from importlib import resources


def without_script(document: str) -> str:
    """Check the script of a page, and return the page without it."""
    before, rest = document.split("<script>")
    script, after = rest.split("</script>")
    assert script == resources.files("bytemill.report").joinpath("templates/page.js").read_text(
        encoding="utf-8"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in before or f"script-src 'sha256-{digest}'" in before
    return before + after
