"""Plain text out of Debian packages: fetched with apt into a private folder, unpacked, and freed of markup.

Nothing on the machine is installed. Pages and manual pages become text deterministically and crudely on purpose: the
result has to read like the prose it came from, with the markup and the navigation that repeats on each page gone, and
nothing more.
"""

import gzip
import lzma
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath


class PackageError(Exception):
    """A package cannot be had here; the message says why in one line."""


def apt_is_here() -> bool:
    """True where packages can be fetched and opened."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def _apt(folder: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    lists, archives = folder / "lists", folder / "archives"
    for private in (lists / "partial", archives / "partial"):
        private.mkdir(parents=True, exist_ok=True)
    options = (
        f"Dir::State::Lists={lists}",
        f"Dir::Cache={archives}",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
    )
    command = ["apt-get", "-q", *(word for option in options for word in ("-o", option)), *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def _archive_of(package: str, folder: Path) -> Path | None:
    found = sorted((folder / "packages").glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1] if found else None


def fetch(package: str, folder: Path) -> Path:
    """The archive of a package, fetched into `folder`/packages unless it is there; PackageError says why not."""
    archives = folder / "packages"
    archives.mkdir(parents=True, exist_ok=True)
    archive = _archive_of(package, folder)
    if archive is None:
        if not any((folder / "lists").glob("*_Packages*")):
            _apt(folder, "update")
        answer = _apt(folder, "download", package, cwd=archives)
        archive = _archive_of(package, folder)
        if archive is None:
            lines = [line for line in answer.stderr.splitlines() if line.startswith("E:")]
            raise PackageError(lines[0] if lines else "apt-get download gave no file")
    return archive


def version_of(archive: Path) -> str:
    """The package's version, from the archive's file name."""
    return archive.name.split("_")[1].replace("%3a", ":")


def files_of(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(path, content) of the regular files that `wanted` accepts, those of a source tree in a .tar.xz too.

    Raises PackageError for an archive that cannot be read to its end.
    """
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as unpacking:
        try:
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as package:
                yield from _members(package, wanted)
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise PackageError(f"{archive.name}: {error}") from error
        finally:
            if unpacking.stdout is not None:
                unpacking.stdout.close()


def _members(archive: tarfile.TarFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        if not member.isfile():
            continue
        path = re.sub(r"^\./", "", member.name)
        source_tree = path.endswith(".tar.xz")
        if not source_tree and not wanted(path):
            continue
        content = archive.extractfile(member)
        if content is None:
            continue
        if source_tree:
            with tarfile.open(fileobj=content, mode="r|xz") as tree:
                yield from _members(tree, wanted)
        else:
            yield path, content.read()


_BLOCKS = frozenset(
    {
        *("address", "article", "blockquote", "br", "caption", "dd", "details", "div", "dl", "dt", "figure"),
        *("figcaption", "form", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "main", "ol", "p", "pre"),
        *("section", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul"),
    }
)
_DROPPED = frozenset(
    {"aside", "button", "footer", "head", "header", "nav", "noscript", "script", "style", "svg", "template"}
)
_MANUAL_PAGE = re.compile(r"/man\d\w*/[^/]+\.\d\w*$")
_MANY_BLANK_LINES = re.compile(r"\n\s*\n\s*\n+")


class _TextOfHtml(HTMLParser):
    """Collect what a reader of the page would read; text in `pre` keeps its blanks."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._dropping: str | None = None
        self._depth = 0
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropping is not None:
            self._depth += tag == self._dropping
            return
        if tag in _DROPPED or ("role", "navigation") in attrs:
            self._dropping, self._depth = tag, 1
            return
        self._pre += tag == "pre"
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropping is None and tag in _BLOCKS and ("role", "navigation") not in attrs:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._dropping is not None:
            self._depth -= tag == self._dropping
            if self._depth == 0:
                self._dropping = None
            return
        self._pre -= tag == "pre" and self._pre > 0
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._dropping is None:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))


def text_of_html(html: str) -> str:
    """The readable text of a page.

    >>> text_of_html("<head><title>x</title></head><p>Tom &amp;\\n <b>Jerry</b></p><pre>a  b</pre>")
    'Tom & Jerry\\n\\na  b\\n'
    """
    parser = _TextOfHtml()
    parser.feed(html)
    parser.close()
    return _tidied("".join(parser.parts))


_ROFF_NAMED = (
    {"aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "Bq": "„", "Fo": "«", "Fc": "»"}
    | {"em": "—", "en": "–", "hy": "‐", "bu": "•", "co": "©", "mu": "×", "->": "→", "<-": "←"}
    | {"ha": "^", "ti": "~", "rs": "\\"}
)
_ROFF_ESCAPE = re.compile(
    r"""\\(?:
        f(?:\(..|\[[^\]]*\]|.)          # font
      | s[-+]?\d+                       # size
      | [*n](?:\((?P<string>..)|\[[^\]]*\]|.)   # string or register
      | \((?P<two>..)
      | \[(?P<long>[^\]]*)\]
      | (?P<one>.)
    )""",
    re.VERBOSE,
)
_ROFF_TEXT_REQUESTS = frozenset(
    {
        *("B", "I", "R", "BR", "RB", "BI", "IB", "IR", "RI", "SM", "SB", "SH", "SS", "IP", "TP", "UR", "MT"),
        *("Nm", "Nd", "Fl", "Ar", "Pa", "Xr", "Sh", "Ss", "It", "Op"),
    }
)
_ROFF_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"|(\S+)')


def _roff_escape(match: re.Match[str]) -> str:
    name = match["two"] or match["long"] or match["string"]
    if name is not None:
        if re.fullmatch(r"u[0-9A-F]{4,6}", name) and int(name[1:], 16) < 0x110000:
            return chr(int(name[1:], 16))
        return _ROFF_NAMED.get(name, "")
    one = match["one"]
    if one is None:
        return ""
    return {"-": "-", "e": "\\", " ": " ", "~": " ", "0": " ", "'": "´", "`": "`", "\\": "\\"}.get(one, "")


def text_of_roff(page: str) -> str:
    r"""The text of a manual page: requests and comments go, the words in headings and font changes stay.

    >>> text_of_roff('.TH LS 1\n.SH NAME\nls \\- list\n.\\" note\n.BR cat (1)\n')
    'NAME\nls - list\ncat(1)\n'
    """
    lines: list[str] = []
    for line in page.splitlines():
        if line[:1] in {".", "'"}:
            request, _, rest = line[1:].strip().partition(" ")
            if request in {"PP", "LP", "P", "Pp", "sp"}:
                lines.append("")
            if request not in _ROFF_TEXT_REQUESTS:
                continue
            words = [quoted or bare for quoted, bare in _ROFF_ARGUMENT.findall(rest)]
            words = words[:1] if request == "IP" else words  # what follows the mark is an indentation
            alternates = len(request) == 2 and set(request) <= set("BIR")
            line = ("" if alternates else " ").join(words)  # noqa: PLW2901
        lines.append(_ROFF_ESCAPE.sub(_roff_escape, line))
    return _tidied("\n".join(lines))


def _tidied(text: str) -> str:
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    return _MANY_BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"


def text_of_file(path: str, data: bytes) -> str | None:
    """The text of a packaged file, told apart by its path; None where it is not UTF-8 or has nothing to read.

    Bytes that are not UTF-8 are left out as long as they are fewer than one in a thousand.

    `.gz` and dictzip's `.dz` are unpacked first; manual pages are known by their folder.
    """
    if path.endswith((".gz", ".dz")):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return None
        path = path[:-3]
    text = data.decode("utf-8", "ignore")
    n_bytes_lost = len(data) - len(text.encode("utf-8"))
    if n_bytes_lost * 1000 > len(data) or "\0" in text:
        return None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.strip():
        return None
    if PurePosixPath(path).suffix.lower() in {".html", ".htm", ".xhtml"}:
        text = text_of_html(text)
    elif _MANUAL_PAGE.search(path):
        text = text_of_roff(text)
    return text if text.endswith("\n") else text + "\n"
