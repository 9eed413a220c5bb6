"""The built front end: it matches its source, asks nothing of other sites, and is small."""

import gzip
import hashlib
import json
import re
from pathlib import Path

from bytemill.studio.app import STATIC
from tests.conftest import REPOSITORY

WEB = REPOSITORY / "web"
MAX_FIRST_VIEW_BYTES = 150_000


def test_the_built_files_match_their_source():
    names = ["index.html", "package.json", "svelte.config.js", "tsconfig.json", "vite.config.ts"]
    names += [path.relative_to(WEB).as_posix() for path in (WEB / "src").rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    assert (STATIC / "source.sha256").read_text().strip() == digest.hexdigest(), "run make web"


def test_the_types_match_the_server():
    from bytemill.studio.app import create_app
    from bytemill.studio.library import Library
    from bytemill.studio.security import Access

    document = create_app(Library(None), Access.of("127.0.0.1", 0)).openapi()
    types = (WEB / "src" / "lib" / "api-types.ts").read_text(encoding="utf-8")
    for name, schema in document["components"]["schemas"].items():
        own = re.search(
            rf"^        {re.escape(name)}: \{{\n(.*?)^        \}};", types, re.DOTALL | re.MULTILINE
        )
        assert own is not None, f"{name} is missing: run make web"
        found = set(re.findall(r'^            "?(\w+)"?\??:', own[1], re.MULTILINE))
        assert found == set(schema.get("properties", {})), f"{name} differs: run make web"


def test_the_first_view_is_small():
    page = (STATIC / "index.html").read_text()
    scripts = re.findall(r'(?:src|href)="/(assets/[^"]+\.js)"', page)
    assert scripts
    size = sum(len(gzip.compress((STATIC / name).read_bytes())) for name in scripts)
    assert size <= MAX_FIRST_VIEW_BYTES


def test_versions_of_packages_are_exact():
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    assert not (WEB / "package-lock.json").exists()


def test_no_script_of_the_page_is_inline_and_none_is_from_elsewhere():
    page = (STATIC / "index.html").read_text()
    assert not re.findall(r"<script(?![^>]*\bsrc=)", page)
    assert not re.findall(r'(?:src|href)="(?!/)', page)
    allowed = ("http://www.w3.org/", "https://svelte.dev/e/")  # name spaces, and addresses in messages
    for path in STATIC.rglob("*.js"):
        for address in re.findall(r"https?://[^\"'`\s)]+", path.read_text(encoding="utf-8")):
            assert address.startswith(allowed), f"{path.name}: {address}"


def test_every_built_file_is_there_and_nothing_else():
    files = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()}
    assert {"index.html", "source.sha256"} <= files
    text = "".join(
        (STATIC / name).read_text(encoding="utf-8")
        for name in files
        if Path(name).suffix in (".js", ".html", ".css")
    )
    for name in files - {"index.html", "source.sha256"}:
        assert Path(name).name in text, f"nothing refers to {name}"
