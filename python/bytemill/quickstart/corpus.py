"""The quickstart corpus: the documentation that Python ships with, or user-supplied files, as documents."""

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
"""Special token that ends every document."""

VALIDATION_SHARE = 0.1
"""Share of the documents. Documents stay whole, so no sentence of the validation text occurs in training."""

MAX_BYTES = 64_000_000
"""Largest corpus, because the run holds the text in memory."""

_SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
_MIN_DOCUMENTS = 20
"""A corpus with fewer documents is cut into smaller ones, so that some can be set aside for validation."""


def python_documents() -> list[str]:
    """Return the documentation topics and the docstrings of this Python, one document per topic or module.

    The standard library is parsed, not imported.

    Raises:
        CorpusError: This Python has neither.
    """
    documents = [*_topics(), *_library_docstrings(Path(sysconfig.get_path("stdlib")))]
    if not documents:
        raise CorpusError(
            "this Python has neither documentation topics nor the source of its library",
            hint="pass text files with --corpus",
        )
    return documents


def file_documents(inputs: Sequence[str]) -> list[str]:
    """Return the documents of files, separated by `<|endoftext|>`. A few long ones are cut at line ends.

    Args:
        inputs: Paths, globs or folders.

    Raises:
        CorpusError: A file cannot be read, or the corpus is empty or larger than `MAX_BYTES`.
    """
    n_bytes = sum(source.n_bytes or 0 for source in resolve_inputs(inputs))
    _check_size(n_bytes)
    texts = list(iter_texts(list(inputs)))
    _check_size(sum(len(text.encode()) for text in texts))
    documents = [document for text in texts for document in text.split(END_OF_TEXT) if document.strip()]
    if not documents:
        raise CorpusError("the corpus contains only white space", hint="pass files with text")
    if len(documents) < _MIN_DOCUMENTS:
        size = max(1, sum(map(len, documents)) // (2 * _MIN_DOCUMENTS))
        documents = [chunk for document in documents for chunk in _cut(document, size)]
    return documents


def split(documents: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split documents into training and validation documents, in their order. Neither list is empty.

    The split depends on the texts alone.

    Args:
        documents: At least two documents.

    Returns:
        Training documents and validation documents.

    Raises:
        CorpusError: There are fewer than two documents.

    >>> split(["a", "b", "c"])
    (['a', 'c'], ['b'])
    """
    if len(documents) < 2:
        raise CorpusError(
            "the corpus is a single line, which leaves nothing for validation",
            hint="pass more text, in several files or lines",
        )
    keys = _split_keys(documents)
    # The smallest key always goes to validation and the largest to training, so that neither list is empty.
    limit, largest = max(VALIDATION_SHARE, min(keys)), max(keys)
    training: list[str] = []
    validation: list[str] = []
    for document, key in zip(documents, keys, strict=True):
        (validation if key <= limit and key < largest else training).append(document)
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
                warnings.simplefilter("ignore")  # invalid escapes in the library's own strings
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if docstrings := list(_docstrings(tree)):
            yield "\n\n".join(docstrings) + "\n"


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the docstrings of a module, class or function and of the definitions in its body."""
    if text := ast.get_docstring(node):
        # Escapes in the source can spell lone surrogates, which UTF-8 cannot encode.
        yield text.encode("utf-8", "replace").decode()
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _docstrings(child)


def _check_size(n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise CorpusError(
            f"the corpus has {format_bytes(n_bytes)}; quickstart takes at most {format_bytes(MAX_BYTES)}",
            hint="pass fewer files, or train on all of it: bytemill tokenizer train FILE --vocab-size 32000",
        )


def _cut(text: str, size: int) -> Iterator[str]:
    """Cut a text at line ends into chunks of at least `size` characters."""
    lines: list[str] = []
    n_characters = 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        n_characters += len(line)
        if n_characters >= size:
            yield "".join(lines)
            lines, n_characters = [], 0
    if lines:
        yield "".join(lines)


def _split_keys(documents: Iterable[str]) -> list[float]:
    """Return a number from 0 to 1 per document, from a hash of its text and of how often it came before."""
    n_before: Counter[bytes] = Counter()
    keys: list[float] = []
    for document in documents:
        digest = hashlib.sha256(document.encode()).digest()
        repeated = hashlib.sha256(digest + n_before[digest].to_bytes(8, "big")).digest()
        keys.append(int.from_bytes(repeated[:8], "big") / 2**64)
        n_before[digest] += 1
    return keys
