"""The documentation of the running Python, a text that every machine has."""

import ast
import sysconfig
import warnings
from contextlib import suppress
from pathlib import Path

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_documents() -> list[str]:
    """Return the documentation topics and the docstrings of this Python, one document per topic or module.

    The standard library is parsed, not imported.
    """
    documents: list[str] = []
    with suppress(ImportError):
        from pydoc_data.topics import topics

        documents += [text + "\n" for name in sorted(topics) if (text := str(topics[name]).strip())]
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if _SKIPPED_FOLDERS.intersection(path.relative_to(library).parts[:-1]):
            continue
        # The library's own strings have invalid escapes, and some of its files are no valid source on purpose.
        with suppress(OSError, SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, _WITH_DOCSTRING)]
            if docstrings := list(filter(None, map(ast.get_docstring, nodes))):
                # Escapes in the source can spell lone surrogates, which UTF-8 cannot encode.
                documents.append("\n\n".join(docstrings).encode("utf-8", "replace").decode() + "\n")
    return documents
