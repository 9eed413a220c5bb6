"""Registry of tokenizer formats: how their files are recognized, read, written and named.

A built-in format is one module and its entry in `FORMATS`. The module is imported with its first use and has

    recognize(content) -> bool           whether a file's content is of the format
    read(content) -> TokenizerSpec       raises TokenizerFileError for a damaged file
    render(spec, path) -> dict           files to write and their contents, in writing order; raises TokenizerError
    left_out(spec) -> list               what the files do not store of a tokenizer, as phrases

of which a format that is only read or only written lacks what it does not do. Formats of single files can be added with
`register_tokenizer_format` (see docs/guides/extending.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import decode_utf8, parse_json
from bytemill.formats.spec import training_left_out
from bytemill.system.atomic_files import make_folder, write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens, TokenizerSpec

OWN_PARTS_HINT = (
    "leave out --pattern and --special-token (pattern=, special_tokens=), which are for files that store none; "
    "--add-special-token (Tokenizer.with_special_tokens) adds special tokens"
)


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
    raise TokenizerFileError(f"{content.location}: unknown format", hint=supported_files())


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
