"""Text to begin with: what every Python brings along, or files of one's own, cut into documents."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.corpus import iter_texts, resolve_inputs
from bytemill.errors import CorpusError
from bytemill.system.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

END_OF_TEXT = "<|endoftext|>"
"""What ends every document."""

VALIDATION_SHARE = 0.1
"""Of the documents; whole ones, so that no sentence of the validation text was seen in training."""

MAX_BYTES = 64_000_000
"""What the arc takes in at most: it holds the text in memory."""

_SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
_MIN_DOCUMENTS = 20
"""Files with fewer documents are cut into parts, so that some of them can be set aside for validation."""


def python_documents() -> list[str]:
    """The documentation topics of this Python and its library's docstrings: a document a topic or module.

    The library is read and not run. Raises `CorpusError` where this Python has neither.
    """
    documents = [*_topics(), *_library_docstrings(Path(sysconfig.get_path("stdlib")))]
    if not documents:
        raise CorpusError(
            "this Python has neither its documentation nor its library as text",
            hint="give files of your own with --corpus",
        )
    return documents


def file_documents(inputs: Sequence[str]) -> list[str]:
    """The documents of files: what stands between `<|endoftext|>`; few and long ones are cut at line ends.

    Raises `CorpusError` for files that cannot be read, are empty, or hold more than `MAX_BYTES`.
    """
    n_bytes = sum(source.n_bytes or 0 for source in resolve_inputs(inputs))
    _check_size(n_bytes)
    texts = list(iter_texts(list(inputs)))
    _check_size(sum(len(text.encode()) for text in texts))
    documents = [part for text in texts for part in text.split(END_OF_TEXT) if part.strip()]
    if not documents:
        raise CorpusError("the corpus holds nothing but white space", hint="give some text")
    if len(documents) < _MIN_DOCUMENTS:
        part_size = max(1, sum(map(len, documents)) // (2 * _MIN_DOCUMENTS))
        documents = [part for document in documents for part in _parts(document, part_size)]
    return documents


def split(documents: Sequence[str]) -> tuple[list[str], list[str]]:
    """Documents to train on and documents to validate with, in their order; neither is empty.

    Which is which depends on the texts alone. Raises `CorpusError` where there are not two.

    >>> split(["a", "b", "c"])
    (['a', 'c'], ['b'])
    """
    if len(documents) < 2:
        raise CorpusError(
            "the corpus is a single line: none of it can be set aside for validation",
            hint="give more text, in several files or lines",
        )
    places = _places(documents)
    # However few documents there are, the smallest number is validation's and the largest is training's.
    limit, largest = max(VALIDATION_SHARE, min(places)), max(places)
    training: list[str] = []
    validation: list[str] = []
    for document, place in zip(documents, places, strict=True):
        (validation if place <= limit and place < largest else training).append(document)
    return training, validation


def _topics() -> Iterator[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name in sorted(topics):
        if text := str(topics[name]).strip():
            yield text + "\n"


def _library_docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        if _SKIPPED_FOLDERS.intersection(path.relative_to(folder).parts[:-1]):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the library's own escapes and the like
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if docstrings := list(_docstrings(tree)):
            yield "\n\n".join(docstrings) + "\n"


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The docstrings of a module, class or function and of what is defined directly in it, in their order."""
    if text := ast.get_docstring(node):
        # Escapes in the source can spell lone surrogates, which UTF-8 cannot.
        yield text.encode("utf-8", "replace").decode()
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _docstrings(child)


def _check_size(n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise CorpusError(
            f"the corpus has {format_bytes(n_bytes)}, and quickstart takes at most {format_bytes(MAX_BYTES)}",
            hint="give it a part, or train on all of it: bytemill tokenizer train FILE --vocab-size 32000",
        )


def _parts(text: str, size: int) -> Iterator[str]:
    """The text in parts of at least `size` characters, cut at line ends."""
    part: list[str] = []
    n_characters = 0
    for line in text.splitlines(keepends=True):
        part.append(line)
        n_characters += len(line)
        if n_characters >= size:
            yield "".join(part)
            part, n_characters = [], 0
    if part:
        yield "".join(part)


def _places(documents: Iterable[str]) -> list[float]:
    """A number from 0 to 1 for each document, which depends on its text and on how often it came before."""
    n_before: Counter[bytes] = Counter()
    places: list[float] = []
    for document in documents:
        digest = hashlib.sha256(document.encode()).digest()
        repeated = hashlib.sha256(digest + n_before[digest].to_bytes(8, "big")).digest()
        places.append(int.from_bytes(repeated[:8], "big") / 2**64)
        n_before[digest] += 1
    return places
