"""Write a tokenizer in any of the output formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from bytemill.errors import TokenizerError
from bytemill.formats.files import shown
from bytemill.formats.registry import FORMATS, TokenizerFormat
from bytemill.system.atomic_files import make_folder, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.formats.spec import TokenizerSpec

WrittenFormat: TypeAlias = Literal["huggingface", "tiktoken", "gpt2", "minbpe", "vocab", "gguf"]
"""Names of the built-in formats that can be written, for the command line."""


def format_of_name(path: Path) -> str:
    """Return the format that a file name selects; a name without a suffix is a folder.

    Raises:
        TokenizerError: The name selects no format.

    >>> format_of_name(Path("stories.tiktoken")), format_of_name(Path("gpt2/vocab.json"))
    ('tiktoken', 'gpt2')
    """
    name = "/" if path.is_dir() or not path.suffix else path.name
    for each in FORMATS.values():
        if name.endswith(each.suffixes):
            return each.name
    raise TokenizerError(
        f"{path}: no output format has files named *{path.suffix}",
        hint=f"name the format with --output-format: {', '.join(FORMATS)}",
    )


def render(
    spec: TokenizerSpec,
    path: Path,
    written_format: str,
    *,
    raw_special_tokens: bool = False,
) -> dict[Path, bytes]:
    """Return the output files and their contents, in writing order.

    Args:
        spec: The tokenizer.
        path: A file, or a folder for GPT-2's two files or for tokenizer.json.
        written_format: The format.
        raw_special_tokens: As in `vocab_listing.write`.

    Raises:
        TokenizerError: The format cannot represent `spec`.
    """
    match written_format:
        case "huggingface":
            from bytemill.formats.huggingface import tokenizer_json as huggingface

            file = path / "tokenizer.json" if path.is_dir() else path
            return {file: huggingface.write(spec).encode()}
        case "tiktoken":
            return _rank_file(spec, path)
        case "gpt2":
            from bytemill.formats import gpt2
            from bytemill.formats.paths import vocab_and_merges_paths

            vocab_json, merges_txt = gpt2.write(spec)
            vocab, merges = vocab_and_merges_paths(path)
            return {merges: merges_txt.encode(), vocab: vocab_json.encode()}
        case "minbpe":
            from bytemill.formats import minbpe

            return {path: minbpe.write(spec).encode()}
        case "vocab":
            from bytemill.formats import vocab_listing

            return {path: vocab_listing.write(spec, raw_special_tokens=raw_special_tokens).encode()}
        case "gguf":
            return {path: _gguf(spec)}
        case _:
            registered = FORMATS.get(written_format)
            if not isinstance(registered, TokenizerFormat) or registered.write is None:
                raise TokenizerError(
                    f"there is no output format {written_format!r}",
                    hint=f"choose one of {', '.join(FORMATS)}",
                )
            return {path: registered.write(spec)}


def publish(files: Mapping[Path, bytes], path: Path) -> None:
    """Write the files that `render` returned for `path`, each atomically. Raises OutputError."""
    if any(file.parent == path for file in files):
        make_folder(path)
    for file, data in files.items():
        write_bytes(file, data)


def left_out(spec: TokenizerSpec, written_format: str) -> list[str]:
    """Describe what the format does not store of `spec`, one phrase per item."""
    if written_format == "vocab":
        return ["the bytes of tokens that are not UTF-8", "the pattern", "which tokens are special"]
    registered = FORMATS[written_format]
    if isinstance(registered, TokenizerFormat) and registered.left_out is not None:
        return registered.left_out(spec)
    phrases: list[str] = []
    if written_format == "gpt2":
        from bytemill.formats.gpt2 import unmarked_special_tokens

        unmarked = unmarked_special_tokens(spec)
        if unmarked:
            phrases.append(f"that these tokens are special: {', '.join(map(shown, unmarked))}")
    if written_format == "tiktoken":
        from bytemill.formats.minbpe import hidden_token

        overlapping = hidden_token(sorted(spec.special_tokens))
        if overlapping is not None:
            phrases.append("that {1} takes precedence over {0}, its prefix".format(*map(shown, overlapping)))
    if written_format not in ("huggingface", "gguf"):
        if spec.ties is not None:
            phrases.append("the tie-breaking rule of training")
        if spec.merge_counts is not None:
            phrases.append("the count of each merge's pair in the training corpus")
    return phrases


def _rank_file(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    from bytemill.formats.tiktoken import rank_settings, tiktoken

    ranks = tiktoken.write(spec)
    if tiktoken.is_published(ranks, spec):
        return {path: ranks.encode()}
    settings = rank_settings.write(spec, path.stem)
    # The settings first: a rank file never exists without them.
    return {rank_settings.settings_file(path): settings.encode(), path: ranks.encode()}


def _gguf(spec: TokenizerSpec) -> bytes:
    # The gguf package can only write to a file.
    from tempfile import TemporaryDirectory

    from bytemill.formats.gguf import gguf

    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.gguf"
        gguf.write(spec, file)
        return file.read_bytes()
