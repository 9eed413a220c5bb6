"""Do tokens respect the syntax of code? Boundaries of tree-sitter's leaves that are boundaries of tokens."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.comparison.counting import encode_units, unit_encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.comparison.counting import GroupCounts, TokenTable
    from bytemill.tokenizer.tokenizer import Tokenizer

LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".java": "java",
    ".go": "go",
}
"""Languages by the ending of the file."""
SYNTAX_BYTES = 2_000_000
"""Code of a group that is parsed, from its start."""
_WHITE_SPACE = frozenset(b" \t\r\n")


class SyntaxMarks:
    """The boundaries of syntax leaves in the code of a group.

    Args:
        counts: The group; its kept text is parsed.
        num_threads: Threads of the encoders; by default one per core.
    """

    def __init__(self, counts: GroupCounts, num_threads: int | None = None) -> None:
        self._num_threads = num_threads
        self.note: str | None = None
        """Why there are none."""
        self.blocks: list[tuple[bytes, NDArray[np.int64], list[list[tuple[int, int]]]]] = []
        """Text of units in a known language, their ends, and the boundaries of each as `leaf_boundaries` gives them."""
        n_bytes = 0
        for data, ends, source in counts.kept:
            language = LANGUAGES.get(PurePath(source.split("!")[-1]).suffix.lower())
            if language is None or n_bytes >= SYNTAX_BYTES:
                continue
            parser = _parser(language)
            if parser is None:
                self.note = "needs the extra code"
                return
            starts = [0, *ends.tolist()[:-1]]
            leaves = [leaf_boundaries(data[a:b], parser) for a, b in zip(starts, ends.tolist(), strict=True)]
            self.blocks.append((data, ends, leaves))
            n_bytes += len(data)
        if not self.blocks:
            self.note = "no code by the names of the files"

    def kept(self, tokenizer: Tokenizer, table: TokenTable) -> NDArray[np.int64] | None:
        """Count the boundaries that are boundaries of tokens, and all, by unit; None if the tokens are not the text."""
        encoder = unit_encoder(tokenizer, self._num_threads)
        rows: list[tuple[int, int]] = []
        for data, ends, boundaries in self.blocks:
            ids, _ = encode_units(encoder, data, ends)
            cuts = table.lengths[ids].cumsum()
            if not len(cuts) or cuts[-1] != len(data):
                return None
            is_cut = np.zeros(len(data) + 1, np.bool_)
            is_cut[cuts] = True
            for start, own in zip([0, *ends.tolist()[:-1]], boundaries, strict=True):
                rows.append((sum(bool(is_cut[start + a : start + b + 1].any()) for a, b in own), len(own)))
        return np.array(rows)


def leaf_boundaries(code: bytes, parser: Any) -> list[tuple[int, int]]:
    """Return the boundaries of the leaves of a syntax tree, without those at the ends of the code.

    A boundary is a range of offsets: white space between two leaves may belong to the token before or after it, or be
    one. A token boundary anywhere in the range respects it.

    Args:
        code: The code, which may be a part of a file: the parser skips what it does not understand.
        parser: A parser of tree-sitter.
    """
    found: dict[int, int] = {}
    for start, end in _leaves(parser.parse(code)):
        for offset in (start, end):
            first = last = offset
            while first > 0 and code[first - 1] in _WHITE_SPACE:
                first -= 1
            while last < len(code) and code[last] in _WHITE_SPACE:
                last += 1
            if first > 0 and last < len(code):
                found[first] = last
    return sorted(found.items())


def _leaves(tree: Any) -> list[tuple[int, int]]:
    cursor = tree.walk()
    leaves: list[tuple[int, int]] = []
    while True:
        if cursor.goto_first_child():
            continue
        node = cursor.node
        if node.end_byte > node.start_byte:
            leaves.append((node.start_byte, node.end_byte))
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return leaves


_parsers: dict[str, Any] = {}


def _parser(language: str) -> Any:
    """Return a parser; None if the extra `code` is not installed."""
    if language not in _parsers:
        try:
            tree_sitter: Any = import_module("tree_sitter")
            grammar: Any = import_module(f"tree_sitter_{language}")
        except ImportError:
            return None
        _parsers[language] = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    return _parsers[language]
