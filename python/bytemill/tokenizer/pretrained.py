"""Published tokenizers by name: `Tokenizer.from_pretrained`.

What is on this machine comes first: a file or folder of that name, bytemill's own cache, tiktoken's, Hugging Face's.
Only then is anything fetched, and that by `tiktoken` or `huggingface_hub` where they are installed: they know where the
files are. A file of a published name counts only if it has the published checksum, wherever it comes from.
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
from bytemill.formats import load as loading
from bytemill.formats.loaded import Loaded, build
from bytemill.formats.tiktoken import tiktoken
from bytemill.formats.tiktoken.tiktoken import KNOWN_FILES, KnownFile
from bytemill.system import paths as cache

if TYPE_CHECKING:
    from collections.abc import Iterator

_KNOWN = {known.name: known for known in KNOWN_FILES}
_ENDOFTEXT = {"<|endoftext|>": 50256}


def _llama3_special_tokens() -> dict[str, int]:
    """The 256 special tokens of Llama 3, of which most are reserved."""
    names = ["begin_of_text", "end_of_text", *(f"reserved_special_token_{i}" for i in range(4))]
    names += ["start_header_id", "end_header_id", "reserved_special_token_4", "eot_id"]
    names += [f"reserved_special_token_{i}" for i in range(5, 251)]
    return {f"<|{name}|>": 128_000 + i for i, name in enumerate(names)}


@dataclass(frozen=True)
class Published:
    """A tokenizer that is known by name."""

    name: str
    file: KnownFile
    """The rank file, with the pattern and the special tokens."""
    in_tiktokens_cache: str | None = None
    """What tiktoken's cache calls the file."""
    hub: tuple[tuple[str, str], ...] = ()
    """Repositories on Hugging Face's hub and their files with the same vocabulary; the first is fetched from."""

    @property
    def file_name(self) -> str:
        """What the rank file is called in bytemill's own cache."""
        return f"{self.file.name}.tiktoken"


_R50K = "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4"
_P50K = "ec7223a39ce59f226a68acc30dc1af2788490e15"
# Llama 3.1 to 3.3 have the same file and other names for some of the reserved tokens.
_LLAMA3 = KnownFile(
    "llama3",
    128_000,
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
    "llama3",
    _llama3_special_tokens(),
)
_LLAMA3_HUB = tuple(
    (f"meta-llama/{name}", "original/tokenizer.model")
    for name in ("Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct", "Llama-3.1-8B", "Llama-3.2-1B")
)
_GPT2_HUB = tuple((name, "tokenizer.json") for name in ("openai-community/gpt2", "gpt2"))
_P50K_EDIT = {"<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283}

_REFUSED = {
    "o200k_harmony": "it has two special tokens for the id 200018, so that ids do not tell which it was"
}

PUBLISHED: dict[str, Published] = {
    published.name: published
    for published in (
        Published("gpt2", _KNOWN["r50k_base"], _R50K, _GPT2_HUB),
        Published("r50k_base", _KNOWN["r50k_base"], _R50K, _GPT2_HUB),
        Published("p50k_base", _KNOWN["p50k_base"], _P50K),
        Published("p50k_edit", replace(_KNOWN["p50k_base"], special_tokens=_ENDOFTEXT | _P50K_EDIT), _P50K),
        Published("cl100k_base", _KNOWN["cl100k_base"], "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
        Published("o200k_base", _KNOWN["o200k_base"], "fb374d419588a4632f3f557e76b4b70aebbca790"),
        Published("llama3", _LLAMA3, hub=_LLAMA3_HUB),
    )
}

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def cache_folder() -> Path:
    """Where published rank files are kept: `$BYTEMILL_CACHE`, else bytemill's folder in the user's cache."""
    return cache.cache_folder("tokenizers")


def load(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    local_files_only: bool = False,
) -> Loaded:
    """The tokenizer of that name; arguments and errors are those of `Tokenizer.from_pretrained`."""
    text = os.fspath(name)
    with suppress(OSError, ValueError):
        if text and Path(text).exists():
            return _from_path(Path(text))
    published = PUBLISHED.get(text) if revision is None else None
    if published is not None:
        folder = cache_folder() if cache_dir is None else Path(cache_dir)
        return _Search(published, folder, local_files_only=local_files_only).run()
    if text in _REFUSED:
        raise TokenizerFileError(
            f"{text}: {_REFUSED[text]}", hint="Take o200k_base, or the model's tokenizer.json."
        )
    if not isinstance(name, str) or not _HUB_NAME.fullmatch(text):
        raise TokenizerFileError(f"{text}: no such file or folder, and no name of a tokenizer", hint=_names())
    return _from_hub(text, revision, local_files_only=local_files_only)


def is_published(name: str | os.PathLike[str]) -> bool:
    """Whether `name` is a published tokenizer's, and not that of a file or folder that is here."""
    return os.fspath(name) in PUBLISHED and not Path(name).exists()


def _names() -> str:
    return f"Published tokenizers: {', '.join(PUBLISHED)}."


def _from_path(path: Path) -> Loaded:
    """A file or folder; also Llama's own rank file, which is called `tokenizer.model`."""
    model = path / "tokenizer.model" if path.is_dir() else path
    beside = path.is_dir() and (path / "tokenizer.json").exists()
    if not beside and model.is_file() and model.stat().st_size < 2**22:
        data = model.read_bytes()
        if hashlib.sha256(data).hexdigest() == _LLAMA3.sha256:
            return _of_ranks(data, str(model), _LLAMA3)
    return loading.load(path)


def _of_ranks(data: bytes, location: str, known: KnownFile) -> Loaded:
    """The tokenizer of a published rank file."""
    quick = loading.load_fast(data, location, known.pattern, known.special_tokens)
    return quick or build(tiktoken.from_bytes(data, location, known.pattern, known.special_tokens))


class _Search:
    """The search for a published tokenizer, and why each place had none."""

    def __init__(self, published: Published, folder: Path, *, local_files_only: bool) -> None:
        self.published = published
        self.own = folder / published.file_name
        self.local_files_only = local_files_only
        self.reasons: list[str] = []
        self.missing: list[str] = []
        """Packages that could have fetched it."""

    def run(self) -> Loaded:
        known = self.published.file
        for data, location in self._candidates():
            if hashlib.sha256(data).hexdigest() == known.sha256:
                return _of_ranks(data, location, known)
            self.reasons.append(f"{location} is damaged: it has not the published checksum")
        reasons = "; ".join(self.reasons)
        install = f", or pip install {' or '.join(self.missing)}" if self.missing else ""
        raise TokenizerFileError(
            f"{self.published.name}: not on this machine ({reasons})",
            hint=f"Put the published rank file there as {self.own}{install}.",
        )

    def _candidates(self) -> Iterator[tuple[bytes, str]]:
        """Contents that may be the rank file, each with the place where it was found."""
        for path in (self.own, self._in_tiktokens_cache()):
            data = None if path is None else _content(path)
            if data is not None:
                yield data, str(path)
        self.reasons.append(f"no {self.own.name} in {self.own.parent} or in tiktoken's cache")
        hub = _optional("huggingface_hub") if self.published.hub else None
        if hub is not None:
            for repository, file in self.published.hub:
                path = _cached(hub, repository, file, None)
                if path is not None:
                    yield from self._as_ranks(path)
        if self.local_files_only:
            self.reasons.append("and nothing is to be fetched")
            return
        yield from self._fetched_by_tiktoken()
        if self.published.hub:
            yield from self._fetched_from_hub(hub)

    def _in_tiktokens_cache(self) -> Path | None:
        if self.published.in_tiktokens_cache is None:
            return None
        folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
        if folder == "":
            return None
        base = Path(tempfile.gettempdir(), "data-gym-cache") if folder is None else Path(folder)
        return base / self.published.in_tiktokens_cache

    def _fetched_by_tiktoken(self) -> Iterator[tuple[bytes, str]]:
        if self.published.in_tiktokens_cache is None:
            return
        encodings = _optional("tiktoken_ext.openai_public")
        if encodings is None:
            self.missing.append("tiktoken")
            self.reasons.append("tiktoken, which could fetch it, is not installed")
            return
        try:
            ranks = encodings.ENCODING_CONSTRUCTORS[self.published.file.name]()["mergeable_ranks"]
            data = _rank_file(ranks)
        except (
            Exception
        ) as error:  # what a library of another version and the network may raise is not to be listed
            self.reasons.append(f"tiktoken could not fetch it: {_shortly(error)}")
            return
        # tiktoken's own cache is a folder that many systems empty when they start.
        if hashlib.sha256(data).hexdigest() == self.published.file.sha256:
            self._keep(data)
        yield data, "what tiktoken has fetched"

    def _fetched_from_hub(self, hub: Any) -> Iterator[tuple[bytes, str]]:
        if hub is None:
            self.missing.append("huggingface_hub")
            self.reasons.append("huggingface_hub, which could fetch it, is not installed")
            return
        repository, file = self.published.hub[0]
        try:
            path = Path(hub.hf_hub_download(repository, file))
        except Exception as error:  # as above
            self.reasons.append(f"{repository} could not be fetched: {_shortly(error)}")
            return
        yield from self._as_ranks(path)

    def _as_ranks(self, path: Path) -> Iterator[tuple[bytes, str]]:
        """A file of the hub as the rank file that says the same."""
        data = _content(path)
        if data is None:
            return
        try:
            if not tiktoken.looks_like_ranks(data):
                from bytemill.formats import detect

                data = tiktoken.write(detect.from_bytes(data, str(path))).encode()
        except BytemillError as error:
            self.reasons.append(str(error))
            return
        yield data, str(path)

    def _keep(self, data: bytes) -> None:
        from bytemill.system.atomic_files import make_folder, write_bytes

        with suppress(OutputError):  # without a cache it is fetched again, and no more
            make_folder(self.own.parent)
            write_bytes(self.own, data)


def _from_hub(name: str, revision: str | None, *, local_files_only: bool) -> Loaded:
    """The tokenizer of a repository on Hugging Face's hub: from its cache, else fetched."""
    hub = _optional("huggingface_hub")
    if hub is None:
        raise TokenizerFileError(
            f"{name}: no such file or folder, no published name, and huggingface_hub, which could look for it "
            "on the hub, is not installed",
            hint=f"pip install huggingface_hub. {_names()}",
        )
    kinds = (("tokenizer.json",), ("vocab.json", "merges.txt"))
    for files in kinds:
        paths = [_cached(hub, name, file, revision) for file in files]
        if None not in paths:
            return _of_files([path for path in paths if path is not None])
    if local_files_only:
        raise TokenizerFileError(
            f"{name}: no such file or folder, not in the hub's cache, and nothing is to be fetched",
            hint="Fetch it once with local_files_only=False.",
        )
    reasons: list[str] = []
    for files in kinds:
        try:
            paths = [Path(hub.hf_hub_download(name, file, revision=revision)) for file in files]
            if files == ("tokenizer.json",):
                from bytemill.formats.huggingface.folder import SIDECAR_FILES

                for file in SIDECAR_FILES:
                    with suppress(Exception):  # few repositories have all of them, and no id depends on them
                        hub.hf_hub_download(name, file, revision=revision)
            return _of_files(paths)
        except BytemillError:
            raise
        except (
            Exception
        ) as error:  # what a library of another version and the network may raise is not to be listed
            reason = f"{files[0]}: {_shortly(error)}"
            if reason not in reasons:
                reasons.append(reason)
    raise TokenizerFileError(
        f"{name}: no such file or folder, and it could not be fetched from the hub ({'; '.join(reasons)})",
        hint=f"Check the name and the connection, or give the path of a tokenizer that is here. {_names()}",
    )


def _of_files(paths: list[Path]) -> Loaded:
    if len(paths) == 1:
        return loading.load(paths[0])
    from bytemill.formats import gpt2

    return build(gpt2.read(paths[0], paths[1]))


def _cached(hub: Any, repository: str, file: str, revision: str | None) -> Path | None:
    """Where the hub's cache has a file."""
    try:
        found = hub.try_to_load_from_cache(repository, file, revision=revision)
    except Exception:  # a name that the hub does not allow; fetching will say so
        return None
    return Path(found) if isinstance(found, str) else None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _rank_file(ranks: dict[bytes, int]) -> bytes:
    from bytemill.formats.spec import TokenizerSpec

    return tiktoken.write(TokenizerSpec(pattern=None, special_tokens={}, ranks=ranks)).encode()


def _optional(name: str) -> Any:
    """A module that may not be installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _shortly(error: Exception) -> str:
    """The kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 160 else text[:159] + "…"
