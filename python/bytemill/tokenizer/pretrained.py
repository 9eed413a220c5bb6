"""Published tokenizers by name: `Tokenizer.from_pretrained`.

Local files come first: a path, bytemill's cache, tiktoken's cache, Hugging Face's cache. Only then does `tiktoken` or
`huggingface_hub`, if installed, download a file. A file for a published name must have the published checksum, wherever
it comes from.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import BytemillError, OutputError, TokenizerFileError
from bytemill.formats import registry, tiktoken
from bytemill.formats.files import SIDECAR_FILES
from bytemill.formats.spec import TokenizerSpec
from bytemill.formats.tiktoken import KNOWN_FILES, KnownFile
from bytemill.system.extras import EXTRA_OF, install_hint
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bytemill.formats.encoder import Loaded

# tiktoken's encodings, and OpenAI's models by encoding.

ENCODING_NAMES = (
    "gpt2",
    "r50k_base",
    "p50k_base",
    "p50k_edit",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
)

HARMONY_SPECIAL_TOKENS: dict[str, int] = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|reserved_200000|>": 200000,
    "<|reserved_200001|>": 200001,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|reserved_200004|>": 200004,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    **{f"<|reserved_{i}|>": i for i in (200009, 200010, 200011)},
    "<|call|>": 200012,
    **{f"<|reserved_{i}|>": i for i in range(200013, 201088)},
}
"""Special tokens of o200k_harmony, besides those of o200k_base. Id 200018 is also o200k_base's `<|endofprompt|>`."""

_MODELS: dict[str, str] = {
    "gpt2": "gpt2 gpt-2",
    "r50k_base": (
        "davinci curie babbage ada "
        "text-davinci-001 text-curie-001 text-babbage-001 text-ada-001 "
        "text-similarity-davinci-001 text-similarity-curie-001 text-similarity-babbage-001 text-similarity-ada-001 "
        "text-search-davinci-doc-001 text-search-curie-doc-001 text-search-babbage-doc-001 text-search-ada-doc-001 "
        "code-search-babbage-code-001 code-search-ada-code-001"
    ),
    "p50k_base": (
        "text-davinci-002 text-davinci-003 code-davinci-001 code-davinci-002 code-cushman-001 code-cushman-002 "
        "davinci-codex cushman-codex"
    ),
    "p50k_edit": "text-davinci-edit-001 code-davinci-edit-001",
    "cl100k_base": (
        "gpt-4 gpt-3.5-turbo gpt-3.5 gpt-35-turbo davinci-002 babbage-002 "
        "text-embedding-ada-002 text-embedding-3-small text-embedding-3-large"
    ),
    "o200k_base": "o1 o3 o4-mini gpt-5 gpt-4.1 gpt-4o",
}
_ENCODING_OF = {model: name for name, models in _MODELS.items() for model in models.split()}

# Prefixes of model families: dated versions, deployments, fine-tuned models. Where prefixes with different encodings
# overlap, the longer one comes first.
_PREFIXES: dict[str, str] = {
    "o200k_harmony": "gpt-oss-",
    "o200k_base": "o1- o3- o4-mini- gpt-5 gpt-4.5- gpt-4.1- chatgpt-4o- gpt-4o- ft:gpt-4o",
    "cl100k_base": "gpt-4- gpt-3.5-turbo- gpt-35-turbo- ft:gpt-4 ft:gpt-3.5-turbo ft:davinci-002 ft:babbage-002",
}


def encoding_name_for_model(model_name: str) -> str:
    """Return the name of a model's encoding. Raises KeyError for an unknown model.

    >>> encoding_name_for_model("gpt-4o-mini")
    'o200k_base'
    """
    if model_name in _ENCODING_OF:
        return _ENCODING_OF[model_name]
    for name, prefixes in _PREFIXES.items():
        if model_name.startswith(tuple(prefixes.split())):
            return name
    raise KeyError(f"unknown model {model_name!r}: use get_encoding with the name of an encoding")


_KNOWN = {known.name: known for known in KNOWN_FILES}
_ENDOFTEXT = {"<|endoftext|>": 50256}


@dataclass(frozen=True)
class Published:
    """A tokenizer with a published name."""

    name: str
    file: KnownFile
    """The rank file, with the pattern and the special tokens."""
    tiktoken_cache_name: str | None = None
    """Name of the rank file in tiktoken's cache."""
    hub: tuple[tuple[str, str], ...] = ()
    """Repositories on Hugging Face's hub and their files with the same vocabulary; the first is used for downloads."""

    @property
    def file_name(self) -> str:
        """Name of the rank file in bytemill's cache."""
        return f"{self.file.name}.tiktoken"


_R50K = "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4"
_P50K = "ec7223a39ce59f226a68acc30dc1af2788490e15"
_LLAMA3_HUB = tuple(
    (f"meta-llama/{name}", "original/tokenizer.model")
    for name in ("Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct", "Llama-3.1-8B", "Llama-3.2-1B")
)
_GPT2_HUB = tuple((name, "tokenizer.json") for name in ("openai-community/gpt2", "gpt2"))
_P50K_EDIT = {"<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283}

_UNSUPPORTED = {"o200k_harmony": "not supported: it gives the id 200018 to two special tokens"}

PUBLISHED: dict[str, Published] = {
    published.name: published
    for published in (
        Published("gpt2", _KNOWN["r50k_base"], _R50K, _GPT2_HUB),
        Published("r50k_base", _KNOWN["r50k_base"], _R50K, _GPT2_HUB),
        Published("p50k_base", _KNOWN["p50k_base"], _P50K),
        Published("p50k_edit", replace(_KNOWN["p50k_base"], special_tokens=_ENDOFTEXT | _P50K_EDIT), _P50K),
        Published("cl100k_base", _KNOWN["cl100k_base"], "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
        Published("o200k_base", _KNOWN["o200k_base"], "fb374d419588a4632f3f557e76b4b70aebbca790"),
        Published("llama3", _KNOWN["llama3"], hub=_LLAMA3_HUB),
    )
}
_PUBLISHED_NAMES = f"published tokenizers: {', '.join(PUBLISHED)}"

_FILE_SUFFIXES = frozenset({".json", ".txt", ".bpe", ".model", ".tiktoken", ".gguf", ".vocab"})
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def load(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    local_files_only: bool = False,
) -> Loaded:
    """Implement `Tokenizer.from_pretrained`."""
    text = os.fspath(name)
    with suppress(OSError, ValueError):
        if text and Path(text).exists():
            return registry.load(text)
    encoding = _encoding(text) if revision is None else text
    published = PUBLISHED.get(encoding) if revision is None else None
    if published is not None:
        folder = cache_folder("tokenizers") if cache_dir is None else Path(cache_dir)
        return _Search(published, folder, local_files_only=local_files_only).run()
    if encoding in _UNSUPPORTED:
        raise TokenizerFileError(
            f"{encoding}: {_UNSUPPORTED[encoding]}",
            hint="use the model's tokenizer.json, or bytemill.compat.tiktoken, which has it",
        )
    if not isinstance(name, str) or not _HUB_NAME.fullmatch(text):
        raise TokenizerFileError(
            f"{text}: no such file or folder, and not the name of a tokenizer", hint=_PUBLISHED_NAMES
        )
    return _from_hub(text, revision, local_files_only=local_files_only)


def published_name(name: str | os.PathLike[str]) -> str | None:
    """Return the published name behind a name that is not an existing path.

    It is the name itself, the encoding of an OpenAI model such as `gpt-4`, or None.
    """
    encoding = _encoding(os.fspath(name))
    return encoding if encoding in PUBLISHED and not Path(name).exists() else None


def is_name(name: str | os.PathLike[str]) -> bool:
    """Return whether `name` is not an existing path, but one that `load` may find.

    It is a published name, or like that of a repository on the hub: `OWNER/NAME`, where no folder OWNER exists and NAME
    is not that of a tokenizer file.
    """
    path = Path(name)
    if path.exists():
        return False
    if _encoding(str(path)) in PUBLISHED | _UNSUPPORTED:
        return True
    is_like_file = path.suffix in _FILE_SUFFIXES or path.parent.exists()
    return not is_like_file and _HUB_NAME.fullmatch(path.as_posix()) is not None


def _encoding(name: str) -> str:
    """Return the encoding of an OpenAI model, and any other name unchanged."""
    try:
        return encoding_name_for_model(name)
    except KeyError:
        return name


def is_cached(name: str) -> bool:
    """Return whether the rank file of a published name is in bytemill's or tiktoken's cache; it is not read."""
    return _Search(PUBLISHED[name], cache_folder("tokenizers"), local_files_only=True).is_cached()


class _Search:
    """Search for a published tokenizer, with the reason why each source failed."""

    def __init__(self, published: Published, folder: Path, *, local_files_only: bool) -> None:
        self.published = published
        self.cache_file = folder / published.file_name
        self.local_files_only = local_files_only
        self.reasons: list[str] = []
        self.missing: list[str] = []
        """Packages that could download it."""

    def run(self) -> Loaded:
        known = self.published.file
        for data, location in self._candidates():
            if hashlib.sha256(data).hexdigest() == known.sha256:
                return registry.load_content(
                    registry.Content(data, location, known.pattern, known.special_tokens)
                )
            self.reasons.append(f"{location} is damaged: its checksum is not the published one")
        install = " or ".join(install_hint(EXTRA_OF[package]) for package in self.missing)
        raise TokenizerFileError(
            f"{self.published.name}: not found ({'; '.join(self.reasons)})",
            hint=f"save the published rank file as {self.cache_file}"
            + (f", or {install}" if install else ""),
        )

    def is_cached(self) -> bool:
        """Implement the function of this name."""
        paths = (self.cache_file, self._tiktoken_cache_file())
        return any(path is not None and path.is_file() for path in paths)

    def _candidates(self) -> Iterator[tuple[bytes, str]]:
        """Yield contents that may be the rank file, each with its origin."""
        for path in (self.cache_file, self._tiktoken_cache_file()):
            data = None if path is None else _read_if_possible(path)
            if data is not None:
                yield data, str(path)
        self.reasons.append(f"no {self.cache_file.name} in {self.cache_file.parent} or in tiktoken's cache")
        hub = _import_if_installed("huggingface_hub") if self.published.hub else None
        if hub is not None:
            for repository, file in self.published.hub:
                path = _hub_cache_path(hub, repository, file, None)
                if path is not None:
                    yield from self._as_rank_file(path)
        if self.local_files_only:
            self.reasons.append("downloads are disabled")
            return
        yield from self._download_with_tiktoken()
        if self.published.hub:
            yield from self._download_from_hub(hub)

    def _tiktoken_cache_file(self) -> Path | None:
        if self.published.tiktoken_cache_name is None:
            return None
        folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
        if folder == "":
            return None
        base = Path(tempfile.gettempdir(), "data-gym-cache") if folder is None else Path(folder)
        return base / self.published.tiktoken_cache_name

    def _download_with_tiktoken(self) -> Iterator[tuple[bytes, str]]:
        if self.published.tiktoken_cache_name is None:
            return
        encodings = _import_if_installed("tiktoken_ext.openai_public")
        if encodings is None:
            self.missing.append("tiktoken")
            self.reasons.append("tiktoken, which could download it, is not installed")
            return
        try:
            ranks = encodings.ENCODING_CONSTRUCTORS[self.published.file.name]()["mergeable_ranks"]
            data = tiktoken.write(TokenizerSpec(None, special_tokens={}, ranks=ranks)).encode()
        except Exception as error:  # other versions of the library and the network may raise anything
            self.reasons.append(f"tiktoken could not download it: {_summary(error)}")
            return
        # Many systems clear tiktoken's own cache, which is in the temporary folder, at startup.
        if hashlib.sha256(data).hexdigest() == self.published.file.sha256:
            self._store(data)
        yield data, "tiktoken's download"

    def _download_from_hub(self, hub: Any) -> Iterator[tuple[bytes, str]]:
        if hub is None:
            self.missing.append("huggingface_hub")
            self.reasons.append("huggingface_hub, which could download it, is not installed")
            return
        repository, file = self.published.hub[0]
        try:
            path = _download(hub, repository, file)
        except Exception as error:  # as above
            self.reasons.append(f"{repository} could not be downloaded: {_summary(error)}")
            return
        yield from self._as_rank_file(path)

    def _as_rank_file(self, path: Path) -> Iterator[tuple[bytes, str]]:
        """Yield a file from the hub, converted to a rank file."""
        data = _read_if_possible(path)
        if data is None:
            return
        try:
            if not tiktoken.looks_like_ranks(data):
                data = tiktoken.write(registry.from_bytes(data, str(path))).encode()
        except BytemillError as error:
            self.reasons.append(str(error))
            return
        yield data, str(path)

    def _store(self, data: bytes) -> None:
        from bytemill.system.atomic_files import make_folder, write_bytes

        with suppress(OutputError):  # without a cache, the next call downloads it again
            make_folder(self.cache_file.parent)
            write_bytes(self.cache_file, data)


def _from_hub(name: str, revision: str | None, *, local_files_only: bool) -> Loaded:
    """Load a repository of Hugging Face's hub from its cache, or download it."""
    hub = _import_if_installed("huggingface_hub")
    if hub is None:
        raise TokenizerFileError(
            f"{name}: no such file or folder, not a published name, and huggingface_hub, which could download it, "
            "is not installed",
            hint=f"{install_hint('hub')}; {_PUBLISHED_NAMES}",
        )
    file_sets = (("tokenizer.json",), ("vocab.json", "merges.txt"))
    for files in file_sets:
        cached = [path for file in files if (path := _hub_cache_path(hub, name, file, revision)) is not None]
        # Two files alone do not tell how texts are split: the cache must know whether there is a configuration.
        is_whole = len(files) == 1 or local_files_only or _is_settled(hub, name, SIDECAR_FILES[0], revision)
        if len(cached) == len(files) and is_whole:
            return registry.load(cached[0] if len(cached) == 1 else cached[0].parent)
    if local_files_only:
        raise TokenizerFileError(
            f"{name}: no such file or folder, not in the hub's cache, and downloads are disabled",
            hint="download it once with local_files_only=False",
        )
    reasons: list[str] = []
    for files in file_sets:
        try:
            paths = [_download(hub, name, file, revision) for file in files]
            for file in SIDECAR_FILES:
                _download_if_there(hub, name, file, revision)
            return registry.load(paths[0] if len(paths) == 1 else paths[0].parent)
        except BytemillError:
            raise
        except Exception as error:  # other versions of the library and the network may raise anything
            reason = f"{files[0]}: {_summary(error)}"
            if reason not in reasons:
                reasons.append(reason)
    raise TokenizerFileError(
        f"{name}: no such file or folder, and it could not be downloaded from the hub ({'; '.join(reasons)})",
        hint=f"check the name and the connection, or give the path of a local tokenizer; {_PUBLISHED_NAMES}",
    )


def _download(hub: Any, repository: str, file: str, revision: str | None = None) -> Path:
    # Without a connection this fails at once, while `hf_hub_download` retries for 23 s.
    hub.get_hf_file_metadata(hub.hf_hub_url(repository, file, revision=revision))
    return Path(hub.hf_hub_download(repository, file, revision=revision))


def _download_if_there(hub: Any, repository: str, file: str, revision: str | None) -> None:
    errors = importlib.import_module(f"{hub.__name__}.errors")
    try:
        hub.hf_hub_download(repository, file, revision=revision)
    except errors.LocalEntryNotFoundError:  # not because the repository lacks the file
        raise
    except errors.EntryNotFoundError:
        pass


def _hub_cache_path(hub: Any, repository: str, file: str, revision: str | None) -> Path | None:
    """Return the path of a file in the hub's cache, if it is there."""
    try:
        found = hub.try_to_load_from_cache(repository, file, revision=revision)
    except Exception:  # a name that the hub does not allow; the download will report it
        return None
    return Path(found) if isinstance(found, str) else None


def _is_settled(hub: Any, repository: str, file: str, revision: str | None) -> bool:
    """Return whether the hub's cache has a file, or knows that the repository lacks it."""
    try:
        return hub.try_to_load_from_cache(repository, file, revision=revision) is not None
    except Exception:  # as above
        return False


def _read_if_possible(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _import_if_installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _summary(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 160 else text[:159] + "…"
