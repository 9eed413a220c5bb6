"""Registry of tokenizer formats: how their files are recognized, loaded, written and named.

A built-in format is one module and its entry in `FORMATS`. The module is imported with its first use and has

    recognize(content) -> bool           whether a file's content is of the format
    read(content) -> TokenizerSpec       raises TokenizerFileError for a damaged file
    render(spec, path) -> dict           files to write and their contents, in writing order; raises TokenizerError
    left_out(spec) -> list               what the files do not store of a tokenizer, as phrases
    load(content) -> Loaded | None       optional: reads the file with the core; None if `read` must read or reject it

of which a format that is only read or only written lacks what it does not do. Formats of single files can be added with
`register_tokenizer_format` (see docs/guides/extending.md).

`load` reads tokens and merges of rank files, tokenizer.json and GGUF with the core, the rest in Python. Files that the
core does not support, and damaged ones, go to the readers in Python (`read`), which report what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, cast

from bytemill.errors import BytemillError, MissingExtraError, TokenizerError, TokenizerFileError
from bytemill.formats.encoder import Loaded, build, build_file
from bytemill.formats.files import (
    GGUF_MAGIC,
    GPT2_FILES,
    SIDECAR_FILES,
    begins_with,
    decode_utf8,
    parse_json,
    read_bytes,
    vocab_and_merges_paths,
)
from bytemill.formats.spec import LibraryModel, TokenizerSpec, training_left_out
from bytemill.storage import local_input
from bytemill.system.atomic_files import make_folder, write_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens


_RANK_FILES = ("tiktoken.model", "qwen.tiktoken")
"""Names of rank files in the folders of models."""
OWN_PARTS_HINT = (
    "leave out --pattern and --special-token (pattern=, special_tokens=), which are for files that store none; "
    "--add-special-token (Tokenizer.with_special_tokens) adds special tokens"
)


_FETCH_HINTS = {
    "a Git LFS pointer": "fetch the file itself: git lfs pull",
    "an HTML page": "download the file again",
}
_GPT2_NAMES = tuple(name for names in GPT2_FILES for name in names)


@dataclass(frozen=True)
class Content:
    """The content of a tokenizer file, and what the caller says about it."""

    data: bytes
    location: str
    """Name of the file, for errors."""
    pattern: str | EllipsisType | None = ...
    """Pattern for a file that stores none; `...` for the default."""
    special_tokens: SpecialTokens | None = None
    """Special tokens for a file that stores none; None for the default."""
    file: Path | None = None
    """The file, if the files beside it count too."""

    @cached_property
    def text(self) -> str:
        """The text. Raises TokenizerFileError if it is not UTF-8."""
        return decode_utf8(self.data, self.location)

    @cached_property
    def document(self) -> Any:
        """The JSON value, or None if the text does not begin like an object. Raises TokenizerFileError."""
        return parse_json(self.text, self.location) if self.text.lstrip().startswith("{") else None

    def refuse_arguments(self) -> None:
        """Raise TokenizerFileError if a pattern or special tokens are given, because the file stores its own."""
        refuse_arguments(self.pattern, self.special_tokens, self.location)


def refuse_arguments(
    pattern: str | EllipsisType | None, special_tokens: SpecialTokens | None, location: str
) -> None:
    """Raise TokenizerFileError if an argument is given for a file that stores its own pattern and special tokens."""
    if pattern is not ... or special_tokens is not None:
        raise TokenizerFileError(
            f"{location} stores its pattern and special tokens; only a rank file and vocab.json with merges.txt "
            "take explicit ones",
            hint=OWN_PARTS_HINT,
        )


@dataclass(frozen=True)
class FormatInfo:
    """Names of a format."""

    name: str
    """Value of `Tokenizer.save(format=…)`."""
    title: str
    """The files as a noun phrase, for messages."""
    suffixes: tuple[str, ...]
    """Ends of file names that select the format for writing; `/` stands for a folder."""


@dataclass(frozen=True)
class _BuiltIn(FormatInfo):
    module: str
    """Name of the module in this package."""
    files: str = ""
    """What the format reads, for messages; empty for nothing."""

    def call(self, function: str, *arguments: Any, **options: Any) -> Any:
        """Call a function of the module."""
        return getattr(import_module(f"bytemill.formats.{self.module}"), function)(*arguments, **options)


def _call(name: str, function: str, *arguments: Any) -> Any:
    """Call a function of a built-in format."""
    return cast("_BuiltIn", FORMATS[name]).call(function, *arguments)


@dataclass(frozen=True)
class TokenizerFormat(FormatInfo):
    """A format of single files that can be registered."""

    recognize: Callable[[bytes], bool]
    """Returns True for the content of a file of the format."""
    read: Callable[[bytes, str], TokenizerSpec]
    """Called with the content and the path. Raises `TokenizerFileError` for a damaged file."""
    write: Callable[[TokenizerSpec], bytes] | None = None
    """Returns the content. Raises `TokenizerError` if the format cannot represent the tokenizer. None: read only."""
    left_out: Callable[[TokenizerSpec], list[str]] | None = None
    """Returns what the format does not store of a tokenizer, as phrases. None: ties and counts of merges."""


FORMATS: dict[str, FormatInfo] = {
    each.name: each
    for each in (
        _BuiltIn(
            "gpt2",
            "vocab.json and merges.txt",
            ("vocab.json", "merges.txt", "/"),
            "gpt2",
            "a folder with a tokenizer.json, a tokenizer.model, or vocab.json and merges.txt",
        ),
        _BuiltIn(
            "huggingface", "tokenizer.json", (".json",), "huggingface.tokenizer_json", "a tokenizer.json"
        ),
        _BuiltIn("tekken", "tekken.json", (), "tekken", "Mistral's tekken.json"),
        _BuiltIn("sentencepiece", "SentencePiece model", (), "sentencepiece", "a SentencePiece .model"),
        _BuiltIn("tiktoken", "rank file", (".tiktoken",), "tiktoken", "a .tiktoken rank file"),
        _BuiltIn("minbpe", "minbpe model", (".model",), "minbpe", "minbpe's .model"),
        _BuiltIn("vocab", "listing", (".vocab",), "vocab_listing"),
        _BuiltIn("gguf", "GGUF file", (".gguf",), "gguf", "a GGUF file"),
    )
}
"""Formats by name. Suffixes are matched in this order, contents in the reverse one: those that must be parsed last."""


def writable_formats() -> list[str]:
    """Return the names of the formats that can be written."""
    return [each.name for each in FORMATS.values() if each.suffixes]


def output_names() -> str:
    """Return the file names that select a format for writing, for help texts."""
    first = [each.suffixes[0] for each in FORMATS.values() if each.suffixes]
    *names, last = (f"NAME{suffix}" if suffix.startswith(".") else suffix for suffix in first)
    return f"{', '.join(names)} or {last}"


if TYPE_CHECKING:
    WrittenFormat = str
else:
    WrittenFormat = Literal[*writable_formats()]
"""Names of the built-in formats that can be written, for the command line."""


def supported_files() -> str:
    """Return what can be read, for hints."""
    folder, *files = (each.files for each in FORMATS.values() if isinstance(each, _BuiltIn) and each.files)
    return f"bytemill reads {', '.join(files)}, and {folder}"


def register_tokenizer_format(tokenizer_format: TokenizerFormat) -> None:
    """Add a format, so that loading, saving and converting accept it.

    Args:
        tokenizer_format: The format. Its `recognize` has precedence over the built-in formats.

    Raises:
        TokenizerError: Another format has the name or a suffix.
    """
    for other in FORMATS.values():
        shared = {*other.suffixes} & {*tokenizer_format.suffixes}
        if other.name == tokenizer_format.name or shared:
            what = f"suffix {shared.pop()!r}" if shared else "name"
            raise TokenizerError(f"format {other.name!r} already has the {what}", hint="choose another one")
    FORMATS[tokenizer_format.name] = tokenizer_format


def has_registered_formats() -> bool:
    """Return True if some format is not one of the built-in ones."""
    return any(isinstance(each, TokenizerFormat) for each in FORMATS.values())


def registered_format(data: bytes) -> TokenizerFormat | None:
    """Return the registered format that recognizes a file's content, or None."""
    registered = (each for each in FORMATS.values() if isinstance(each, TokenizerFormat))
    return next((each for each in registered if each.recognize(data)), None)


def read_content(content: Content) -> TokenizerSpec:
    """Read the content of a file with the format that recognizes it.

    Raises:
        TokenizerFileError: The content is damaged or of an unknown format, or has no use for the arguments.
    """
    if (registered := registered_format(content.data)) is not None:
        content.refuse_arguments()
        return registered.read(content.data, content.location)
    for each in reversed(FORMATS.values()):
        if isinstance(each, _BuiltIn) and each.call("recognize", content):
            return each.call("read", content)
    raise _unknown_format(content)


def _unknown_format(content: Content) -> TokenizerFileError:
    # It takes longer to import than a tokenizer to load.
    from bytemill.corpus.content import HEAD_BYTES, describe

    what = describe(content.data[:HEAD_BYTES])
    if what in _FETCH_HINTS:
        return TokenizerFileError(f"{content.location} is {what}, not a tokenizer", hint=_FETCH_HINTS[what])
    return TokenizerFileError(f"{content.location}: unknown format", hint=supported_files())


def format_of_name(path: Path) -> str:
    """Return the format that a file name selects; a name without a suffix is a folder.

    Raises:
        TokenizerError: The name selects no format.

    >>> from pathlib import Path
    >>> format_of_name(Path("stories.tiktoken")), format_of_name(Path("gpt2/vocab.json"))
    ('tiktoken', 'gpt2')
    """
    name = "/" if path.is_dir() or not path.suffix else path.name
    for each in FORMATS.values():
        if name.endswith(each.suffixes):
            return each.name
    raise TokenizerError(
        f"{path}: no output format has files named *{path.suffix}",
        hint=f"name the format with --output-format: {', '.join(writable_formats())}",
    )


def render(spec: TokenizerSpec, path: Path, written_format: str, **options: Any) -> dict[Path, bytes]:
    """Return the output files and their contents, in writing order.

    Args:
        spec: The tokenizer.
        path: A file, or a folder for GPT-2's two files or for tokenizer.json.
        written_format: The format.
        **options: Options of the format's `render`.

    Raises:
        TokenizerError: The format cannot represent `spec`.
    """
    found = FORMATS.get(written_format)
    if isinstance(found, _BuiltIn) and found.suffixes:
        return found.call("render", spec, path, **options)
    if isinstance(found, TokenizerFormat) and found.write is not None:
        return {path: found.write(spec)}
    raise TokenizerError(
        f"there is no output format {written_format!r}", hint=f"choose one of {', '.join(writable_formats())}"
    )


def write_files(files: Mapping[Path, bytes], path: Path) -> None:
    """Write the files that `render` returned for `path`, each atomically. Raises OutputError."""
    if any(file.parent == path for file in files):
        make_folder(path)
    for file, data in files.items():
        write_bytes(file, data)


def left_out(spec: TokenizerSpec, written_format: str) -> list[str]:
    """Describe what the format does not store of `spec`, one phrase per item."""
    found = FORMATS[written_format]
    if isinstance(found, _BuiltIn):
        return found.call("left_out", spec)
    if isinstance(found, TokenizerFormat) and found.left_out is not None:
        return found.left_out(spec)
    return training_left_out(spec)


def load(
    path: str | os.PathLike[str],
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> Loaded:
    """Load the tokenizer at `path`. Arguments and errors are those of `read`."""
    path = local_input(path, _siblings(path))
    found = find(path)
    if not isinstance(found, Path):
        loaded = _call("gpt2", "load_in_folder", *found, pattern, special_tokens)
        return loaded or build_file(
            _call("gpt2", "read_in_folder", *found, pattern, special_tokens), str(path)
        )
    if begins_with(found, GGUF_MAGIC):
        return _call("gguf", "load", found, pattern, special_tokens)
    may_be_cached = pattern is ... and special_tokens is None and found.suffix == ".json"
    if may_be_cached and not has_registered_formats():
        cached = _call("huggingface", "load_from_cache", found)
        if cached is not None:
            return cached
    return load_content(Content(read_bytes(found), str(found), pattern, special_tokens, found))


def load_content(content: Content) -> Loaded:
    """Load the content of a file: with the core, or with the library it was made for. Errors are those of `read`."""
    loaded = None if registered_format(content.data) is not None else load_with_core(content)
    try:
        return loaded or build_file(read_content(content), content.location)
    except TokenizerFileError as error:
        return load_with_library(content, error)


def load_with_library(content: Content, error: TokenizerFileError) -> Loaded:
    """Load a file that the core does not run with the library that it was made for.

    Raises:
        TokenizerFileError: There is no such library, or it does not read the file either. `error`, with a hint if the
            library is not installed.
    """
    if content.pattern is not ... or content.special_tokens is not None:
        raise error
    reason = str(error).removeprefix(f"{content.location}: ").removeprefix(f"{content.location} ")
    try:
        if _call("sentencepiece", "recognize", content):
            model, metadata = LibraryModel("sentencepiece", content.data, reason), None
        elif _call("huggingface", "recognize", content):
            text, metadata = _call("huggingface", "for_library", content)
            model = LibraryModel("tokenizers", text.encode(), reason)
        else:
            raise error
        return build(TokenizerSpec(None, {}, metadata=metadata, library=model))
    except MissingExtraError as missing:
        raise TokenizerFileError(str(error), hint=f"a library can read it: {missing.hint}") from missing
    except TokenizerError:
        raise error from None


def load_with_core(content: Content) -> Loaded | None:
    """Load the content of a file with the core; None if a reader in Python must read or reject it."""
    # A format is imported only if the file may be of it: all of them take longer to import than a rank file to load.
    try:
        # No base64 begins with "{".
        is_json = content.data[:4096].lstrip().startswith(b"{")
        if not is_json and _call("tiktoken", "recognize", content):
            return _call("tiktoken", "load", content)
        if content.file is not None and content.file.name.endswith(_GPT2_NAMES):
            return _call("gpt2", "load", content)
        if content.pattern is ... and content.special_tokens is None:
            if is_json and (loaded := _call("tekken", "load", content)) is not None:
                return loaded
            is_model = not is_json and _call("sentencepiece", "recognize", content)
            return _call("sentencepiece" if is_model else "huggingface", "load", content)
    except BytemillError:
        pass
    return None


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
        return _call("gpt2", "read_in_folder", *found, pattern, special_tokens)
    if begins_with(found, GGUF_MAGIC):
        return _call("gguf", "read_file", found, pattern, special_tokens)
    return read_content(Content(read_bytes(found), str(found), pattern, special_tokens, found))


def from_bytes(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read a file's content in Python; `location` names the file in errors. Other arguments as for `read`."""
    return read_content(Content(data, location, pattern, special_tokens))


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
    if (path / "tekken.json").is_file():
        return path / "tekken.json"
    for name in ("tokenizer.model", *_RANK_FILES):  # a SentencePiece model, or the rank file of Llama 3
        if (path / name).is_file():
            return path / name
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
