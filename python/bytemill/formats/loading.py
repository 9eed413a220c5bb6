"""Load a tokenizer file of any format into an encoder.

The core reads the tokens and merges of rank files, tokenizer.json and GGUF; Python reads the rest. Files that the
core does not support, and damaged ones, go to the readers in Python (`read`), which report what is wrong.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from bytemill.errors import BytemillError, MissingExtraError, TokenizerError, TokenizerFileError
from bytemill.formats.encoder import Loaded, build_file
from bytemill.formats.files import (
    GGUF_MAGIC,
    GPT2_FILES,
    SIDECAR_FILES,
    begins_with,
    read_bytes,
    vocab_and_merges_paths,
)
from bytemill.formats.registry import (
    Content,
    has_registered_formats,
    read_content,
    registered_format,
    supported_files,
)
from bytemill.formats.spec import LibraryModel
from bytemill.storage import local_input

if TYPE_CHECKING:
    import os
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens, TokenizerSpec


def load(
    path: str | os.PathLike[str],
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> Loaded:
    """Load the tokenizer at `path`. Arguments and errors are those of `read`."""
    path = local_input(path, _siblings(path))
    found = find(path)
    if not isinstance(found, Path):
        return build_file(_read_pair(found, pattern, special_tokens), str(path))
    if begins_with(found, GGUF_MAGIC):
        from bytemill.formats import gguf

        return gguf.load(found, pattern, special_tokens)
    takes_no_arguments = pattern is ... and special_tokens is None
    if takes_no_arguments and found.suffix == ".json" and not has_registered_formats():
        from bytemill.formats.huggingface import tokenizer_json

        if (cached := tokenizer_json.load_from_cache(found)) is not None:
            return cached
    return load_content(Content(read_bytes(found), str(found), pattern, special_tokens, found))


def load_content(content: Content) -> Loaded:
    """Load a file's content with the core, or with the library that the file was made for. Raises as `load`."""
    loaded = None if registered_format(content.data) is not None else _load_with_core(content)
    try:
        return loaded or build_file(read_content(content), content.location)
    except TokenizerFileError as error:
        return load_with_library(content, error)


def load_fast(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> Loaded | None:
    """Load a file's content with the core; None if a reader in Python must read or reject it."""
    return _load_with_core(Content(data, location, pattern, special_tokens))


def _load_with_core(content: Content) -> Loaded | None:
    # A format is imported only if the file may be of it: all of them take longer to import than a rank file to load.
    try:
        # No base64 begins with "{".
        if not content.data[:4096].lstrip().startswith(b"{"):
            from bytemill.formats import tiktoken

            if tiktoken.recognize(content):
                return tiktoken.load(content)
        if content.pattern is ... and content.special_tokens is None:
            from bytemill.formats.huggingface import tokenizer_json

            return tokenizer_json.load(content)
    except BytemillError:
        pass
    return None


def load_with_library(content: Content, error: TokenizerFileError) -> Loaded:
    """Load a file that the core does not run with the library that it was made for.

    Raises:
        TokenizerFileError: There is no such library, or it does not read the file either. `error`, with a hint if the
            library is not installed.
    """
    from bytemill.formats import library, sentencepiece
    from bytemill.formats.huggingface import tokenizer_json

    if content.pattern is not ... or content.special_tokens is not None:
        raise error
    reason = str(error).removeprefix(f"{content.location}: ").removeprefix(f"{content.location} ")
    try:
        if sentencepiece.recognize(content):
            return library.load(LibraryModel("sentencepiece", content.data, reason))
        if not tokenizer_json.recognize(content):
            raise error
        text, metadata = tokenizer_json.for_library(content)
        return library.load(LibraryModel("tokenizers", text.encode(), reason), metadata)
    except MissingExtraError as missing:
        raise TokenizerFileError(str(error), hint=f"the library can read it: {missing.hint}") from missing
    except TokenizerError:
        raise error from None


def read(
    path: str | os.PathLike[str],
    *,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read the tokenizer at `path` in Python.

    Args:
        path: A file of any supported format, one of GPT-2's two files beside the other one, or a folder.
        pattern: Pattern for a file that stores none. By default that of the settings file beside a rank file, of the
            published rank file with this content, or GPT-2's for its own files.
        special_tokens: Special tokens for a file that stores none, with the same defaults.

    Raises:
        TokenizerFileError: The file is missing, damaged or unsupported, or stores its own pattern.
    """
    found = find(path)
    if not isinstance(found, Path):
        return _read_pair(found, pattern, special_tokens)
    if begins_with(found, GGUF_MAGIC):
        from bytemill.formats import gguf

        return gguf.read_file(found, pattern, special_tokens)
    return read_content(Content(read_bytes(found), str(found), pattern, special_tokens, found))


def from_bytes(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read a file's content in Python; `location` names the file in errors. Other arguments as for `read`."""
    return read_content(Content(data, location, pattern, special_tokens))


def _read_pair(
    files: tuple[Path, Path], pattern: str | EllipsisType | None, special_tokens: SpecialTokens | None
) -> TokenizerSpec:
    from bytemill.formats import gpt2

    return gpt2.read_in_folder(*files, pattern, special_tokens)


def find(path: str | os.PathLike[str]) -> Path | tuple[Path, Path]:
    """Return the file to read, or GPT-2's two files. Raises TokenizerFileError for a folder without a tokenizer."""
    path = Path(path)
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise TokenizerFileError(f"{path}: cannot be read: {error}") from error
    if not is_folder:
        return path
    if (path / "tokenizer.json").is_file():
        return path / "tokenizer.json"
    for vocab_name, merges_name in GPT2_FILES:
        vocab, merges = path / vocab_name, path / merges_name
        if vocab.is_file() and merges.is_file():
            return vocab, merges
        if vocab.is_file() or merges.is_file():
            present, missing = (vocab_name, merges_name) if vocab.is_file() else (merges_name, vocab_name)
            raise TokenizerFileError(
                f"{path} contains {present} but not {missing}", hint="put both into the folder"
            )
    if (path / "tokenizer.model").is_file():  # a SentencePiece model, or the rank file of Llama 3
        return path / "tokenizer.model"
    raise TokenizerFileError(f"{path}: no tokenizer in this folder", hint=supported_files())


def _siblings(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files that belong to one of this name."""
    name = PurePath(path).name
    if name == "tokenizer.json":
        return [*SIDECAR_FILES]
    if name in ("vocab.json", "merges.txt"):
        return ["vocab.json", "merges.txt", *SIDECAR_FILES]
    if not name.endswith((".json", ".txt", ".bpe")):
        return [f"{name}.json"]
    return [file.name for file in vocab_and_merges_paths(Path(name))]
