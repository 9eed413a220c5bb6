"""Tokenizers into files of every format that bytemill writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from bytemill.errors import TokenizerError
from bytemill.formats.files import shown
from bytemill.system.atomic_files import make_folder, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.formats.spec import TokenizerSpec

WrittenFormat: TypeAlias = Literal["huggingface", "tiktoken", "gpt2", "minbpe", "vocab", "gguf"]

WRITTEN_FORMATS: tuple[WrittenFormat, ...] = get_args(WrittenFormat)


@dataclass(frozen=True)
class FormatFacts:
    """What is to be known of a format before a tokenizer is written in it."""

    title: str
    """The files, as a sentence names them."""
    names: tuple[str, ...]
    """Ends of file names that mean this format; `/` is a folder."""


FORMATS: dict[WrittenFormat, FormatFacts] = {
    "gpt2": FormatFacts("vocab.json and merges.txt", ("vocab.json", "merges.txt", "/")),
    "huggingface": FormatFacts("tokenizer.json", (".json",)),
    "tiktoken": FormatFacts("rank file", (".tiktoken",)),
    "minbpe": FormatFacts("minbpe model", (".model",)),
    "vocab": FormatFacts("listing", (".vocab",)),
    "gguf": FormatFacts("GGUF file", (".gguf",)),
}
"""In the order in which names are compared."""


def format_of_name(path: Path) -> WrittenFormat:
    """The format that a name asks for; one without an ending is a folder.

    Raises TokenizerError where it asks for none that bytemill writes.

    >>> format_of_name(Path("stories.tiktoken")), format_of_name(Path("gpt2/vocab.json"))
    ('tiktoken', 'gpt2')
    """
    name = "/" if path.is_dir() or not path.suffix else path.name
    for written_format, facts in FORMATS.items():
        if name.endswith(facts.names):
            return written_format
    raise TokenizerError(
        f"{path}: bytemill writes no format with files named *{path.suffix}",
        hint=f"Name the format with --output-format: {', '.join(WRITTEN_FORMATS)}.",
    )


def rendered(
    spec: TokenizerSpec,
    path: Path,
    written_format: WrittenFormat,
    *,
    special_tokens_as_they_are: bool = False,
) -> dict[Path, bytes]:
    """The files that stand for `spec` and what they hold, in the order in which they are to be written.

    `path` is a file, and a folder for GPT-2's two files or for a tokenizer.json by its own name. Raises
    TokenizerError where the format cannot say what `spec` says. `special_tokens_as_they_are` is for listings.
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
            from bytemill.formats.paths import halves

            vocab_json, merges_txt = gpt2.write(spec)
            vocab, merges = halves(path)
            return {merges: merges_txt.encode(), vocab: vocab_json.encode()}
        case "minbpe":
            from bytemill.formats import minbpe

            return {path: minbpe.write(spec).encode()}
        case "vocab":
            from bytemill.formats import vocab_listing

            listing = vocab_listing.write(spec, special_tokens_as_they_are=special_tokens_as_they_are)
            return {path: listing.encode()}
        case "gguf":
            return {path: _gguf(spec)}


def publish(files: Mapping[Path, bytes], path: Path) -> None:
    """Write what was `rendered` for `path`, each file atomically. Raises OutputError."""
    if any(file.parent == path for file in files):
        make_folder(path)
    for file, data in files.items():
        write_bytes(file, data)


def left_out(spec: TokenizerSpec, written_format: WrittenFormat) -> list[str]:
    """What `spec` says and files of the format do not, a phrase for each."""
    if written_format == "vocab":
        return ["the bytes of tokens that are no text", "the pattern", "which tokens are special"]
    phrases: list[str] = []
    if written_format == "gpt2":
        from bytemill.formats.gpt2 import special_tokens_to_name

        named = special_tokens_to_name(spec)
        if named:
            phrases.append(f"that these tokens are special: {', '.join(map(shown, named))}")
    if written_format == "tiktoken":
        from bytemill.formats.minbpe import hidden_token

        overlapping = hidden_token(sorted(spec.special_tokens))
        if overlapping is not None:
            phrases.append("that {1} is found where {0} begins it".format(*map(shown, overlapping)))
    if written_format not in ("huggingface", "gguf"):
        if spec.ties is not None:
            phrases.append("how training broke ties")
        if spec.merge_counts is not None:
            phrases.append("how often each merge's pair stood in the corpus")
    return phrases


def _rank_file(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    from bytemill.formats.tiktoken import rank_settings, tiktoken

    ranks = tiktoken.write(spec)
    if tiktoken.is_published(ranks, spec):
        return {path: ranks.encode()}
    settings = rank_settings.write(spec, path.stem)
    # The ranks last: where they stand, what they leave out stands beside them.
    return {rank_settings.settings_file(path): settings.encode(), path: ranks.encode()}


def _gguf(spec: TokenizerSpec) -> bytes:
    # The library that writes it knows files only.
    from tempfile import TemporaryDirectory

    from bytemill.formats.gguf import gguf

    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.gguf"
        gguf.write(spec, file)
        return file.read_bytes()
