"""Builds the texts of the benchmarks: English technical prose, code, and prose in many languages and scripts.

    uv run python benchmarks/corpus.py [english] [code] [multilingual] [--megabytes N] [--source local]

The texts come from Debian packages (documentation, manual pages, dictionaries, sources), so they can be built
again anywhere apt is. Where it is not, CPython's own sources and documentation give smaller ones. Each text
is a mix: every source gives an equal share as long as it has text, and pieces of at most 64 KiB of all
sources stand in an order given by a hash, so that any stretch of the text stands for the whole. Nothing is
repeated to fill up a size.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import corpus_sources
from corpus_sources import Document, Source
from harness import format_table

RECIPE = 1
"""Goes up when the same packages no longer give the same text; texts of another recipe are built anew."""

DEFAULT_MEGABYTES = {"english": 100.0, "code": 75.0, "multilingual": 100.0}
PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class SourceReport:
    """What one source gave: packages with their versions, bytes it had, bytes of it that are in the text."""

    source: str
    packages: str
    n_bytes_available: int
    n_bytes_used: int


@dataclass(frozen=True)
class TextReport:
    """What stands beside a built text, as JSON."""

    text: str
    path: str
    n_bytes: int
    n_bytes_wanted: int
    sha256: str
    recipe: int
    origin: str
    sources: list[SourceReport]


def cache_folder() -> Path:
    """Where texts and packages are kept: $BYTEMILL_BENCH_CACHE, else ~/.cache/bytemill/bench."""
    return Path(os.environ.get("BYTEMILL_BENCH_CACHE", "~/.cache/bytemill/bench")).expanduser()


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


def _place(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


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
            pieces.append(Piece(_place(f"{document.path}#{number}"), source, content))
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


def build(name: str, megabytes: float, cache: Path, origin: str) -> TextReport:
    """Builds one text in `cache` and writes its report beside it."""
    wanted = int(megabytes * 1_000_000)
    sources: list[Source] = corpus_sources.sources_of(name, origin)
    packages: dict[str, str] = {}
    documents = (
        (source.name, document)
        for source in sources
        for document in corpus_sources.documents_of(source, cache, packages)
    )
    pieces = collect(documents, long_lines_once=name == "multilingual")
    chosen = mix(pieces, wanted)
    reports = [
        SourceReport(
            source.name,
            packages.get(source.name, ""),
            sum(len(piece.content) for piece in pieces if piece.source == source.name),
            sum(len(piece.content) for piece in chosen if piece.source == source.name),
        )
        for source in sources
    ]
    path = text_path(cache, name, megabytes)
    digest = hashlib.sha256()
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for piece in chosen:
            file.write(piece.content)
            digest.update(piece.content)
    partial.replace(path)
    n_bytes = sum(len(piece.content) for piece in chosen)
    report = TextReport(name, str(path), n_bytes, wanted, digest.hexdigest(), RECIPE, origin, reports)
    path.with_suffix(".json").write_text(
        json.dumps(asdict(report), indent=1, ensure_ascii=False), encoding="utf-8"
    )
    return report


def text_path(cache: Path, name: str, megabytes: float) -> Path:
    """The file of a text of this size."""
    return cache / f"{name}-{megabytes:g}MB.txt"


def built_before(name: str, megabytes: float, cache: Path, origin: str) -> TextReport | None:
    """The report of a text that stands already, None where it has to be built."""
    path = text_path(cache, name, megabytes)
    try:
        fields = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        fields["sources"] = [SourceReport(**source) for source in fields["sources"]]
        report = TextReport(**fields)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    same = report.recipe == RECIPE and report.origin == origin and path.is_file()
    return report if same and path.stat().st_size == report.n_bytes else None


def print_report(report: TextReport) -> None:
    """One table a text: where its bytes come from; then what is missing, if anything is."""
    print(f"\n{report.text}: {report.n_bytes:,} bytes, sha256 {report.sha256}\n{report.path}\n")
    rows = [
        [row.source, f"{row.n_bytes_available:,}", f"{row.n_bytes_used:,}", row.packages]
        for row in report.sources
    ]
    print(format_table(["source", "bytes there", "bytes used", "packages"], rows))
    if report.n_bytes < 0.99 * report.n_bytes_wanted:
        there, wanted = report.n_bytes / 1e6, report.n_bytes_wanted / 1e6
        print(f"\nThere is no more text: {there:.1f} MB of the {wanted:g} MB asked for.")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the texts of the benchmarks.")
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help=f"which of {', '.join(DEFAULT_MEGABYTES)} (all)"
    )
    parser.add_argument("--megabytes", type=float, help="size of each text in 10^6 bytes (100, code 75)")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="folder for packages and texts (%(default)s)"
    )
    parser.add_argument(
        "--source", choices=("debian", "local"), help="packages, or what Python itself has on this machine"
    )
    parser.add_argument("--rebuild", action="store_true", help="build texts that stand already")
    arguments = parser.parse_args()
    names: list[str] = arguments.texts or list(DEFAULT_MEGABYTES)
    unknown = [name for name in names if name not in DEFAULT_MEGABYTES]
    if unknown:
        parser.error(f"no text is called {unknown[0]!r}: there are {', '.join(DEFAULT_MEGABYTES)}")
    origin = arguments.source or ("debian" if corpus_sources.packages_can_be_had() else "local")
    if origin == "local" and arguments.source is None:
        print("apt-get and dpkg-deb are not here: using what Python has on this machine.", file=sys.stderr)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for name in names:
        megabytes = arguments.megabytes or DEFAULT_MEGABYTES[name]
        report = None if arguments.rebuild else built_before(name, megabytes, arguments.cache, origin)
        print_report(report or build(name, megabytes, arguments.cache, origin))
    return 0


if __name__ == "__main__":
    sys.exit(main())
