"""The texts of the benchmarks, mixed from files of Debian packages."""

import argparse
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import TEXT_MEGABYTES, UsageError, option
from benchmarks.texts import packages

from benchmarks import harness

RECIPE = 1
"""Goes up when the same packages no longer give the same text; texts of another recipe are built anew."""

PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Document:
    """One text; `path` is the same on every machine."""

    path: str
    text: str


@dataclass(frozen=True)
class Source:
    """One kind of text, with (packages, expression for the paths of its files) for each place it comes from.

    `packages` names one package, or several with `|` between them, of which the first that can be had serves.
    `one_in` reads one in so many files, for packages far larger than any text needs.
    """

    name: str
    origins: tuple[tuple[str, str], ...] = ()
    one_in: int = 1


_DOC_HTML = r"/doc/(?!.*/(?:_modules/|genindex|search|py-modindex)).*\.html?$"
_MANUAL = r"/man/man\d"
_LINUX_DOC = "linux-doc-6.1|linux-doc-6.12"
_DEVELOPERS_REFERENCE = r"/developers-reference/[\w-]+\.html$"  # the other languages are in folders

_ENGLISH = (
    Source("linux-doc", ((_LINUX_DOC, r"Documentation/(?!translations/).*\.(rst|txt)\.gz$"),)),
    Source("python-doc", (("python3.11-doc|python3.13-doc", r"_sources/.*\.txt$"),)),
    Source("git-doc", (("git-doc", r"\.txt$"),)),
    Source("postgresql-doc", (("postgresql-doc-15|postgresql-doc-17", _DOC_HTML),)),
    Source("debian-handbook", (("debian-handbook", r"html/en-US/.*\.html$"),)),
    Source("manpages", (("manpages", _MANUAL), ("manpages-dev", _MANUAL))),
    Source("perl-doc", (("perl-doc", r"\.pod$"),)),
    Source("dict-gcide", (("dict-gcide", r"gcide\.dict\.dz$"),)),
    Source("dict-wn", (("dict-wn", r"wn\.dict\.dz$"),)),
    Source("dict-foldoc", (("dict-foldoc", r"\.dict\.dz$"), ("dict-jargon", r"\.dict\.dz$"))),
    Source("sqlite3-doc", (("sqlite3-doc", _DOC_HTML),)),
    Source("django-doc", (("python-django-doc", _DOC_HTML),)),
    Source("sqlalchemy-doc", (("python-sqlalchemy-doc", _DOC_HTML),)),
    Source("debian-policy", (("debian-policy", _DOC_HTML), ("developers-reference", _DEVELOPERS_REFERENCE))),
    Source("vim-doc", (("vim-runtime", r"/doc/.*\.txt$"),)),
    Source("libreoffice-help", (("libreoffice-help-en-us", r"\.html$"),)),
)  # fmt: skip

_LANGUAGES = {
    # language: (its name in libreoffice-help, manpages, debian-handbook)
    "Chinese": ("zh-cn", "zh", "zh-CN"),
    "Japanese": ("ja", "ja", "ja-JP"),
    "Russian": ("ru", "ru", "ru-RU"),
    "German": ("de", "de", "de-DE"),
    "Korean": ("ko", "", "ko-KR"),
    "Hindi": ("hi", "", ""),
    "Greek": ("el", "", "el-GR"),
    "French": ("fr", "fr", "fr-FR"),
    "Polish": ("pl", "pl", "pl-PL"),
    "Ukrainian": ("", "uk", ""),
    "Spanish": ("es", "es", "es-ES"),
    "Khmer": ("km", "", ""),
    "Vietnamese": ("vi", "vi", "vi-VN"),
    "Turkish": ("tr", "tr", "tr-TR"),
    "Persian": ("", "", "fa-IR"),
    "Arabic": ("", "", "ar-MA"),
}


def _language_source(language: str) -> Source:
    office, manual, handbook = _LANGUAGES[language]
    origins: list[tuple[str, str]] = []
    if office:
        origins.append((f"libreoffice-help-{office}", r"\.html$"))
    if manual:
        origins.append((f"manpages-{manual}", rf"/man/{manual}[^/]*/man\d"))
        if manual in {"de", "fr", "pl", "ru", "uk", "es", "ja"}:
            origins.append((f"manpages-{manual}-dev", rf"/man/{manual}[^/]*/man\d"))
    if handbook:
        origins.append(("debian-handbook", rf"html/{handbook}/.*\.html$"))
    return Source(language, tuple(origins))


_PYTHON_FILES = r"\.py$"
_LINUX = "linux-source-6.1|linux-source-6.12"
_CODE = (
    Source(
        "Python: CPython",
        (
            ("libpython3.11-stdlib|libpython3.13-stdlib", _PYTHON_FILES),
            ("libpython3.11-minimal|libpython3.13-minimal", _PYTHON_FILES),
            ("libpython3.11-testsuite|libpython3.13-testsuite", _PYTHON_FILES),
        ),
    ),
    Source(
        "Python: applications",
        tuple(
            (package, _PYTHON_FILES) for package in ("mercurial-common", "gramps", "calibre", "ansible-core")
        ),
    ),
    Source(
        "Python: libraries",
        tuple(
            (f"python3-{name}", _PYTHON_FILES)
            for name in (
                *("sympy", "django", "scipy", "numpy", "pandas", "matplotlib"),
                *("sklearn", "networkx", "twisted", "sqlalchemy", "astropy"),
            )
        ),
        one_in=2,
    ),
    # The register tables of graphics drivers are megabytes of generated #define lines.
    Source("C: linux drivers", ((_LINUX, r"/drivers/(?!.*/asic_reg/).*\.[ch]$"),), one_in=16),
    Source("C: linux", ((_LINUX, r"^[^/]+/(?!drivers/).*\.[ch]$"),), one_in=12),
)
_PACKAGED = {"english": _ENGLISH, "code": _CODE, "multilingual": tuple(map(_language_source, _LANGUAGES))}


def documents_of(source: Source, cache: Path, packages_used: dict[str, str]) -> Iterator[Document]:
    """The documents of a source; `packages_used` learns where they came from.

    A package that cannot be had is left out and named on stderr.
    """
    found: list[str] = []
    for alternatives, expression in source.origins:
        archive = _first_that_can_be_had(alternatives, cache)
        if archive is None:
            continue
        found.append(f"{archive.name.split('_')[0]} {packages.version_of(archive)}")
        wanted = re.compile(expression)

        def is_wanted(path: str, wanted: re.Pattern[str] = wanted) -> bool:
            return wanted.search(path) is not None and zlib.crc32(path.encode()) % source.one_in == 0

        for path, data in packages.files_of(archive, is_wanted):
            text = packages.text_of_file(path, data)
            if text is not None:
                yield Document(path, text)
    packages_used[source.name] = ", ".join(found)


def _first_that_can_be_had(alternatives: str, cache: Path) -> Path | None:
    reasons: list[str] = []
    for package in alternatives.split("|"):
        try:
            return packages.fetch(package, cache)
        except packages.PackageError as error:
            reasons.append(f"{package}: {error}")
    print("; ".join(reasons), file=sys.stderr)
    return None


def pieces_of(text: str, max_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """The text's UTF-8 in pieces of whole lines, at most `max_bytes` each (a longer line is one piece).

    >>> list(pieces_of("ab\\ncd\\nef\\n", max_bytes=6))
    [b'ab\\ncd\\n', b'ef\\n']
    """
    lines: list[bytes] = []
    n_bytes = 0
    for line in text.encode("utf-8").splitlines(keepends=True):
        if lines and n_bytes + len(line) > max_bytes:
            yield b"".join(lines)
            lines, n_bytes = [], 0
        lines.append(line)
        n_bytes += len(line)
    if lines:
        yield b"".join(lines)


def equal_shares(available: dict[str, int], wanted: int) -> dict[str, int]:
    """How much each source gives of `wanted`: all give the same, those with less give all they have.

    >>> equal_shares({"a": 10, "b": 100, "c": 100}, 90)
    {'a': 10, 'b': 40, 'c': 40}
    """
    shares: dict[str, int] = {}
    left = wanted
    by_size = sorted(available, key=lambda name: (available[name], name))
    for position, name in enumerate(by_size):
        shares[name] = min(available[name], left // (len(by_size) - position))
        left -= shares[name]
    return {name: shares[name] for name in available}


@dataclass(frozen=True)
class Piece:
    """Whole lines of one document; `place` orders the pieces of a text."""

    place: bytes
    source: str
    content: bytes


def collect(documents: Iterable[tuple[str, Document]], *, long_lines_once: bool) -> list[Piece]:
    """The pieces of all documents, each text only once however many packages hold it.

    With `long_lines_once` a line of 40 characters or more stays only where it stands first: what translators
    left in English is in the packages of every language.
    """
    pieces: list[Piece] = []
    seen: set[bytes] = set()
    lines_seen: set[str] = set()
    for source, document in documents:
        digest = hashlib.sha256(document.text.encode("utf-8")).digest()
        if digest in seen:
            continue
        seen.add(digest)
        text = document.text
        if long_lines_once:
            lines = [
                line for line in text.splitlines(keepends=True) if len(line) < 40 or line not in lines_seen
            ]
            lines_seen.update(line for line in lines if len(line) >= 40)
            text = "".join(lines)
        for number, content in enumerate(pieces_of(text)):
            place = hashlib.sha256(f"{document.path}#{number}".encode("utf-8", "surrogateescape")).digest()
            pieces.append(Piece(place, source, content))
    return pieces


def mix(pieces: list[Piece], wanted: int) -> list[Piece]:
    """Pieces for a text of at most `wanted` bytes, equal shares of every source, in hash order."""
    available: dict[str, int] = {}
    for piece in pieces:
        available[piece.source] = available.get(piece.source, 0) + len(piece.content)
    left = equal_shares(available, wanted)
    chosen: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: (piece.place, piece.content)):
        content = piece.content
        if len(content) > left[piece.source]:
            content = content[: content.rfind(b"\n", 0, left[piece.source]) + 1]
            left[piece.source] = 0
        else:
            left[piece.source] -= len(content)
        if content:
            chosen.append(Piece(piece.place, piece.source, content))
    return chosen


def build(name: str, megabytes: float, cache: Path) -> dict[str, Any]:
    """Build one text in `cache` and write its report beside it."""
    wanted = int(megabytes * 1_000_000)
    sources = _PACKAGED[name]
    versions: dict[str, str] = {}
    documents = (
        (source.name, document) for source in sources for document in documents_of(source, cache, versions)
    )
    pieces = collect(documents, long_lines_once=name == "multilingual")
    chosen = mix(pieces, wanted)
    content = b"".join(piece.content for piece in chosen)
    path = harness.text_path(cache, name, megabytes)
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)
    report = {
        "text": name,
        "path": str(path),
        "n_bytes": len(content),
        "n_bytes_wanted": wanted,
        "sha256": hashlib.sha256(content).hexdigest(),
        "recipe": RECIPE,
        "sources": [
            {
                "source": source.name,
                "packages": versions.get(source.name, ""),
                "n_bytes_available": sum(len(each.content) for each in pieces if each.source == source.name),
                "n_bytes_used": sum(len(each.content) for each in chosen if each.source == source.name),
            }
            for source in sources
        ],
    }
    path.with_suffix(".json").write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    return report


def built_before(name: str, megabytes: float, cache: Path) -> dict[str, Any] | None:
    """The report of a text that stands already, None where it has to be built."""
    path = harness.text_path(cache, name, megabytes)
    try:
        report = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        expected = {"recipe": RECIPE, "n_bytes": path.stat().st_size}
    except (FileNotFoundError, ValueError):
        return None
    return report if report | expected == report else None


@harness.case(
    option("texts", nargs="*", metavar="TEXT", help=f"which of {', '.join(TEXT_MEGABYTES)} (all)"),
    option("--megabytes", type=float, help="size of each text in 10^6 bytes (100, code 75)"),
    option("--cache", type=Path, default=harness.cache_folder(), help="for packages and texts (%(default)s)"),
    option("--rebuild", action="store_true", help="build texts that stand already"),
)
def corpus(options: argparse.Namespace) -> None:
    """Build the texts of the benchmarks: English technical prose, code, and prose in many languages and scripts.

        python -m benchmarks corpus [english] [code] [multilingual] [--megabytes N]

    The texts come from Debian packages (documentation, manual pages, dictionaries, sources), so they can be built
    again anywhere apt is. Each text is a mix: every source gives an equal share as long as it has text, and pieces of
    at most 64 KiB of all sources stand in an order given by a hash, so that any stretch of the text stands for the
    whole. Nothing is repeated to fill up a size.
    """
    names: list[str] = options.texts or list(TEXT_MEGABYTES)
    if unknown := [name for name in names if name not in TEXT_MEGABYTES]:
        raise UsageError(f"no text is called {unknown[0]!r}: there are {', '.join(TEXT_MEGABYTES)}")
    if not packages.apt_is_here():
        raise UsageError(
            "apt-get and dpkg-deb are not here: give the other cases texts of your own by --text"
        )
    cache: Path = options.cache
    cache.mkdir(parents=True, exist_ok=True)
    for name in names:
        megabytes = options.megabytes or TEXT_MEGABYTES[name]
        report = None if options.rebuild else built_before(name, megabytes, cache)
        report = report or build(name, megabytes, cache)
        print(f"\n{name}: {report['n_bytes']:,} bytes, sha256 {report['sha256']}\n{report['path']}\n")
        rows = [
            [row["source"], f"{row['n_bytes_available']:,}", f"{row['n_bytes_used']:,}", row["packages"]]
            for row in report["sources"]
        ]
        print(harness.format_table(["source", "bytes there", "bytes used", "packages"], rows))
        if report["n_bytes"] < 0.99 * report["n_bytes_wanted"]:
            there, wanted = report["n_bytes"] / 1e6, report["n_bytes_wanted"] / 1e6
            print(f"\nThere is no more text: {there:.1f} MB of the {wanted:g} MB asked for.")
