"""What the benchmark texts are made of: files of Debian packages, or what Python has where apt is not."""

import ast
import gettext
import re
import struct
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import debian
from plain_text import text_of_file


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
    origins: tuple[tuple[str, str], ...]
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
        origins.extend(((f"manpages-{manual}", _MANUAL.replace("/man/", f"/man/{manual}[^/]*/")),))
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

_LOCAL = {
    "english": (Source("docstrings", ()), Source("topics", ()), Source("manual pages", ())),
    "code": (Source("modules", ()), Source("headers", ())),
    "multilingual": (Source("catalogues", ()),),
}


def packages_can_be_had() -> bool:
    """True where this machine can fetch Debian packages."""
    return debian.apt_is_here()


def sources_of(text: str, origin: str) -> list[Source]:
    """The sources of a text, `origin` being "debian" or "local"."""
    return list((_PACKAGED if origin == "debian" else _LOCAL)[text])


def documents_of(source: Source, cache: Path, packages_used: dict[str, str]) -> Iterator[Document]:
    """The documents of a source; `packages_used` learns where they came from.

    A package that cannot be had is left out and named on stderr.
    """
    if not source.origins:
        yield from _LOCAL_READERS[source.name]()
        return
    found: list[str] = []
    for packages, expression in source.origins:
        archive = _first_that_can_be_had(packages, cache)
        if archive is None:
            continue
        found.append(f"{archive.name.split('_')[0]} {debian.version_of(archive)}")
        wanted = re.compile(expression)

        def is_wanted(path: str, wanted: re.Pattern[str] = wanted) -> bool:
            return wanted.search(path) is not None and zlib.crc32(path.encode()) % source.one_in == 0

        for path, data in debian.files_of(archive, is_wanted):
            text = text_of_file(path, data)
            if text is not None:
                yield Document(path, text)
    packages_used[source.name] = ", ".join(found)


def _first_that_can_be_had(packages: str, cache: Path) -> Path | None:
    reasons: list[str] = []
    for package in packages.split("|"):
        archive = debian.fetch([package], cache)[package]
        if isinstance(archive, Path):
            return archive
        reasons.append(f"{package}: {archive}")
    print("; ".join(reasons), file=sys.stderr)
    return None


def _files_below(folder: Path, pattern: str) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob(pattern)):
        if path.is_file() and not path.is_symlink():
            text = text_of_file(path.as_posix(), path.read_bytes())
            if text is not None:
                yield path.relative_to(folder).as_posix(), text


def _modules() -> Iterator[Document]:
    for folder in ("stdlib", "purelib"):
        for name, text in _files_below(Path(sysconfig.get_paths()[folder]), "*.py"):
            yield Document(f"{folder}/{name}", text)


def _headers() -> Iterator[Document]:
    for name, text in _files_below(Path(sysconfig.get_paths()["include"]), "*.h"):
        yield Document(f"include/{name}", text)


def _docstrings() -> Iterator[Document]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for module in _modules():
        try:
            tree = ast.parse(module.text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
        text = "\n\n".join(docstring for docstring in found if docstring)
        # A docstring with an escaped lone surrogate has no UTF-8 to be written in.
        text = text.encode("utf-8", "ignore").decode("utf-8")
        if text.strip():
            yield Document(module.path, text + "\n")


def _topics() -> Iterator[Document]:
    from pydoc_data.topics import topics

    for name, text in sorted(topics.items()):
        yield Document(f"topics/{name}", text)


def _manual_pages() -> Iterator[Document]:
    for name, text in _files_below(Path("/usr/share/man"), "man[1-8]/*.gz"):
        yield Document(f"man/{name}", text)


def _catalogues() -> Iterator[Document]:
    """Translations of this machine's programs."""
    for path in sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo")):
        try:
            with path.open("rb") as file:
                catalogue: dict[object, str] = vars(gettext.GNUTranslations(file))["_catalog"]
        except (OSError, ValueError, LookupError, struct.error):  # a damaged catalogue
            continue
        messages = [message for original, message in catalogue.items() if original and message]
        if messages:
            yield Document(path.relative_to("/usr/share/locale").as_posix(), "\n".join(messages) + "\n")


_LOCAL_READERS = {
    "docstrings": _docstrings,
    "topics": _topics,
    "manual pages": _manual_pages,
    "modules": _modules,
    "headers": _headers,
    "catalogues": _catalogues,
}
