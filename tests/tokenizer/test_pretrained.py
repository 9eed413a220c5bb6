"""Tokenizers by name: from local files or a download, always with the published checksum."""

import base64
import hashlib
import inspect
import re
import socket
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest
import tiktoken
import tiktoken_ext.openai_public

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerFileError
from bytemill.formats import tiktoken as ranks
from bytemill.formats.files import SIDECAR_FILES
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.spec import TokenizerSpec
from bytemill.system.extras import install_hint
from bytemill.system.paths import cache_folder
from bytemill.tokenizer import open_tokenizer
from bytemill.tokenizer.pretrained import PUBLISHED

TEXT = "It's 12345  naïve 日本語 😀\r\n\r\n  x = [1]  <|endoftext|><|fim_prefix|> \n  "
RANK_FILES = ("r50k_base", "cl100k_base", "o200k_base")
BY_TIKTOKEN = [name for name, published in PUBLISHED.items() if published.tiktoken_cache_name]


class NetworkUsed(BaseException):
    """Not an Exception, so that nothing takes it for a failure of the network."""


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with empty caches `own`, `tiktoken` and `hub`, and no network."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise NetworkUsed

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "tiktoken"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    for name in ("own/tokenizers", "tiktoken", "hub"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.fixture(scope="module")
def rank_files(shared_data: Path) -> dict[str, bytes]:
    """The published rank files that tiktoken knows, by name."""
    files = {name: (shared_data / f"{name}.tiktoken").read_bytes() for name in RANK_FILES}
    # p50k is r50k and a token for each run of 2 to 25 blanks.
    blanks = [f"{base64.b64encode(b' ' * n).decode()} {50255 + n}\n" for n in range(2, 26)]
    return files | {"p50k_base": files["r50k_base"] + "".join(blanks).encode()}


def put_into_tiktokens_cache(folder: Path, name: str, data: bytes) -> Path:
    path = folder / "tiktoken" / str(PUBLISHED[name].tiktoken_cache_name)
    path.write_bytes(data)
    return path


def put_into_hubs_cache(folder: Path, repository: str, file: str, data: bytes) -> Path:
    """As the hub's library lays its cache out."""
    place = folder / "hub" / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text("abc123")
    path = place / "snapshots" / "abc123" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    "name", ["gpt2", "p50k_edit", "cl100k_base", pytest.param("o200k_base", marks=pytest.mark.slow)]
)
def test_published_tokenizers_are_those_of_tiktoken(
    caches: Path, rank_files: dict[str, bytes], name: str
) -> None:
    put_into_tiktokens_cache(caches, name, rank_files[PUBLISHED[name].file.name])
    ours = Tokenizer.from_pretrained(name)
    # "gpt2" comes from other files there, with the same contents.
    theirs = tiktoken.Encoding(
        **tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS[name if name != "gpt2" else "r50k_base"]()
    )
    assert ours.special_tokens == theirs._special_tokens
    assert ours.encode(TEXT) == theirs.encode(TEXT, allowed_special="all")
    assert ours.n_vocab == theirs.n_vocab


def test_checksums_and_cache_names_are_those_of_tiktoken() -> None:
    for name in BY_TIKTOKEN:
        published = PUBLISHED[name]
        source = inspect.getsource(getattr(tiktoken_ext.openai_public, published.file.name))
        (address,) = re.findall(r'"(\w+://[^"]+)"', source)
        assert hashlib.sha1(address.encode()).hexdigest() == published.tiktoken_cache_name  # noqa: S324
        assert published.file.sha256 in source
        assert published.file_name == address.rsplit("/", 1)[1]


@pytest.mark.parametrize("name", ["gpt2", "p50k_edit"])
def test_a_cached_file_needs_no_library_and_no_network(
    caches: Path, rank_files: dict[str, bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "tiktoken", "tiktoken_ext.openai_public", "huggingface_hub")
    with pytest.raises(NetworkUsed):
        socket.socket()
    file = PUBLISHED[name].file
    (caches / "own" / "tokenizers" / f"{file.name}.tiktoken").write_bytes(rank_files[file.name])
    tokenizer = Tokenizer.from_pretrained(name)
    assert tokenizer.special_tokens == file.special_tokens
    assert tokenizer.pattern == NAMED_PATTERNS[file.pattern]
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_cache_dir_selects_the_cache(shared_data: Path) -> None:
    tokenizer = Tokenizer.from_pretrained("r50k_base", cache_dir=shared_data)
    assert tokenizer.merges == Tokenizer.load(shared_data / "r50k_base.tiktoken").merges


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTEMILL_CACHE", "~/x")
    assert cache_folder("tokenizers") == Path("~/x/tokenizers").expanduser()
    monkeypatch.delenv("BYTEMILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder("tokenizers") == Path("/somewhere/bytemill/tokenizers")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder("tokenizers") == Path("~/.cache/bytemill/tokenizers").expanduser()


def test_tiktokens_older_cache_locations_are_searched(
    caches: Path, rank_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_into_tiktokens_cache(caches, "gpt2", rank_files["r50k_base"])
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(caches / "tiktoken"))
    for value in (None, ""):
        monkeypatch.delenv("TIKTOKEN_CACHE_DIR") if value is None else monkeypatch.setenv(
            "TIKTOKEN_CACHE_DIR", ""
        )
        if value is None:
            assert Tokenizer.from_pretrained("gpt2", local_files_only=True).n_vocab == 50257
        else:  # an empty name turns the cache off
            with pytest.raises(TokenizerFileError):
                Tokenizer.from_pretrained("gpt2", local_files_only=True)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.delenv("DATA_GYM_CACHE_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(caches))
    (caches / "tiktoken").rename(caches / "data-gym-cache")
    assert Tokenizer.from_pretrained("gpt2", local_files_only=True).n_vocab == 50257


def test_tiktokens_download_is_verified_and_cached(
    caches: Path, rank_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def read_file(address: str) -> bytes:
        calls.append(address)
        return rank_files[address.rsplit("/", 1)[1].removesuffix(".tiktoken")]

    monkeypatch.setattr("tiktoken.load.read_file", read_file)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    tokenizer = Tokenizer.from_pretrained("p50k_base")
    assert len(calls) == 1
    assert tokenizer.encode("     ") == [50260]
    kept = caches / "own" / "tokenizers" / "p50k_base.tiktoken"
    assert kept.read_bytes() == rank_files["p50k_base"]
    assert Tokenizer.from_pretrained("p50k_edit").special_tokens["<|fim_suffix|>"] == 50283
    assert len(calls) == 1

    # Damaged in the cache, it is fetched anew and mended.
    kept.write_bytes(rank_files["p50k_base"][:-1])
    assert Tokenizer.from_pretrained("p50k_base").fingerprint == tokenizer.fingerprint
    assert kept.read_bytes() == rank_files["p50k_base"]


def test_a_download_is_used_even_if_it_cannot_be_cached(
    caches: Path, rank_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiktoken.load.read_file", lambda _: rank_files["r50k_base"])
    (caches / "file").write_text("")
    assert Tokenizer.from_pretrained("gpt2", cache_dir=caches / "file" / "x").n_vocab == 50257


def test_files_with_wrong_checksums_are_refused(
    caches: Path, rank_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = rank_files["r50k_base"]
    own = caches / "own" / "tokenizers" / "cl100k_base.tiktoken"
    own.write_bytes(wrong)
    theirs = put_into_tiktokens_cache(caches, "cl100k_base", wrong)
    constructors = tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS
    monkeypatch.setitem(
        constructors, "cl100k_base", lambda: {"mergeable_ranks": {bytes([i]): i for i in range(256)}}
    )
    with pytest.raises(TokenizerFileError, match="cl100k_base: not found") as caught:
        Tokenizer.from_pretrained("cl100k_base")
    for place in (own, theirs, "tiktoken's download"):
        assert f"{place} is damaged" in str(caught.value)
    assert own.read_bytes() == wrong


def test_without_network_the_hint_says_what_to_do(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(address: str) -> bytes:
        raise ConnectionError("Name or service not known\nand more")

    monkeypatch.setattr("tiktoken.load.read_file", offline)
    with pytest.raises(TokenizerFileError) as caught:
        Tokenizer.from_pretrained("o200k_base")
    assert "tiktoken could not download it: ConnectionError: Name or service not known)" in str(caught.value)
    path = caches / "own" / "tokenizers" / "o200k_base.tiktoken"
    assert caught.value.hint == f"save the published rank file as {path}"


@pytest.mark.parametrize(
    ("name", "extras"), [("cl100k_base", ["formats"]), ("llama3", ["hub"]), ("gpt2", ["formats", "hub"])]
)
def test_without_libraries_the_hint_names_them(
    name: str, extras: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "tiktoken_ext.openai_public", "huggingface_hub")
    with pytest.raises(TokenizerFileError, match=f"{name}: not found") as caught:
        Tokenizer.from_pretrained(name)
    install = " or ".join(map(install_hint, extras))
    assert str(caught.value.hint).endswith(f"{PUBLISHED[name].file_name}, or {install}")


def test_local_files_only_disables_downloads() -> None:
    for name in ("gpt2", "llama3"):
        with pytest.raises(TokenizerFileError, match="downloads are disabled"):
            Tokenizer.from_pretrained(name, local_files_only=True)


def test_gpt2_is_found_in_the_hub_cache(caches: Path, shared_data: Path) -> None:
    original = Tokenizer.load(shared_data / "r50k_base.tiktoken")
    put_into_hubs_cache(
        caches, "openai-community/gpt2", "tokenizer.json", huggingface.write(original.to_spec()).encode()
    )
    assert Tokenizer.from_pretrained("gpt2", local_files_only=True).fingerprint == original.fingerprint


@pytest.fixture
def small_llama3(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A small rank file that replaces Llama 3's, which is gated."""
    tokens = [bytes([i]) for i in range(256)] + [b" " * n for n in range(2, 300)]
    data = "".join(f"{base64.b64encode(token).decode()} {i}\n" for i, token in enumerate(tokens)).encode()
    digest = hashlib.sha256(data).hexdigest()
    file = replace(PUBLISHED["llama3"].file, sha256=digest, n_ranks=len(tokens))
    monkeypatch.setattr(ranks, "KNOWN_FILES", (file,))
    monkeypatch.setitem(PUBLISHED, "llama3", replace(PUBLISHED["llama3"], file=file))
    return data


def test_llama3s_special_tokens_follow_its_ranks() -> None:
    special = PUBLISHED["llama3"].file.special_tokens
    assert sorted(special.values()) == list(range(128_000, 128_256))
    # As they stand in the models' own configuration.
    names = "begin_of_text end_of_text start_header_id end_header_id reserved_special_token_4 eot_id"
    ids = [
        special[f"<|{name}|>"]
        for name in [*names.split(), *(f"reserved_special_token_{n}" for n in (5, 250))]
    ]
    assert ids == [128_000, 128_001, *range(128_006, 128_011), 128_255]


def test_llama3s_rank_file_is_recognized_by_content(caches: Path, small_llama3: bytes) -> None:
    path = caches / "Meta-Llama-3-8B" / "tokenizer.model"
    path.parent.mkdir()
    path.write_bytes(small_llama3)
    tokenizer = Tokenizer.load(path)
    assert tokenizer.pattern == NAMED_PATTERNS["llama3"]
    assert tokenizer.encode("<|eot_id|>   ") == [128_009, 257]
    assert Tokenizer.load(path.parent).fingerprint == tokenizer.fingerprint
    (caches / "own" / "tokenizers" / "llama3.tiktoken").write_bytes(small_llama3)
    assert Tokenizer.from_pretrained("llama3").fingerprint == tokenizer.fingerprint


def test_llama3_is_downloaded_from_the_hub(
    caches: Path, small_llama3: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(repository: str, file: str, revision: str | None = None) -> str:
        assert revision is None
        raise PermissionError(f"{repository} is gated")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda _url: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with pytest.raises(
        TokenizerFileError, match="Meta-Llama-3-8B could not be downloaded: PermissionError"
    ) as caught:
        Tokenizer.from_pretrained("llama3")
    assert "llama3.tiktoken" in str(caught.value.hint)
    path = put_into_hubs_cache(caches, "elsewhere", "tokenizer.model", small_llama3)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **_options: str(path))
    assert Tokenizer.from_pretrained("llama3").n_vocab == 128_256
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    put_into_hubs_cache(caches, "meta-llama/Llama-3.1-8B", "original/tokenizer.model", small_llama3)
    assert Tokenizer.from_pretrained("llama3").n_vocab == 128_256


@pytest.fixture
def spec() -> TokenizerSpec:
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"ab"}
    return TokenizerSpec(
        pattern=NAMED_PATTERNS["gpt2"], special_tokens={"<s>": 257}, vocab=vocab, merges=[(b"a", b"b")]
    )


def test_existing_paths_take_precedence_over_names(caches: Path, spec: TokenizerSpec) -> None:
    (caches / "gpt2").mkdir()
    (caches / "gpt2" / "tokenizer.json").write_text(huggingface.write(spec), encoding="utf-8")
    assert Tokenizer.from_pretrained("gpt2").n_vocab == 258
    assert Tokenizer.from_pretrained(Path("gpt2/tokenizer.json")).n_vocab == 258
    assert open_tokenizer("gpt2").n_vocab == 258


def test_a_repository_in_the_hubs_cache_is_loaded(caches: Path, spec: TokenizerSpec) -> None:
    from bytemill.formats import gpt2

    put_into_hubs_cache(caches, "me/small", "tokenizer.json", huggingface.write(spec).encode())
    assert Tokenizer.from_pretrained("me/small").to_spec() == spec
    vocab, merges = gpt2.write(spec)
    put_into_hubs_cache(caches, "me/old", "vocab.json", vocab.encode())
    put_into_hubs_cache(caches, "me/old", "merges.txt", merges.encode())
    assert Tokenizer.from_pretrained("me/old", local_files_only=True).to_spec() == spec
    # Without its configuration, which may be missing in the cache alone, the pattern would be a guess.
    with pytest.raises(TokenizerFileError, match="could not be downloaded"):
        Tokenizer.from_pretrained("me/old")
    put_into_hubs_cache(caches, "me/old", "tokenizer_config.json", b'{"tokenizer_class": "Qwen2Tokenizer"}')
    assert Tokenizer.from_pretrained("me/old").normalizer == "NFC"
    with pytest.raises(TokenizerFileError, match=r"me/old: .* not in the hub's cache"):
        Tokenizer.from_pretrained("me/old", revision="v2", local_files_only=True)


def test_a_repository_is_downloaded(
    caches: Path, spec: TokenizerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bytemill.formats import gpt2

    vocab, merges = gpt2.write(spec)
    files = {"tokenizer.json": huggingface.write(spec), "vocab.json": vocab, "merges.txt": merges}
    fetched: list[tuple[str, str, str | None]] = []

    def fetch(repository: str, file: str, revision: str | None = None) -> str:
        fetched.append((repository, file, revision))
        if file not in files:
            raise huggingface_hub.errors.EntryNotFoundError(file)
        path = caches / "fetched" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[file], encoding="utf-8")
        return str(path)

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda _url: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    assert Tokenizer.from_pretrained("me/small", revision="v2").to_spec() == spec
    assert fetched[0] == ("me/small", "tokenizer.json", "v2")
    files["chat_template.jinja"] = "{{ messages }}"
    metadata = Tokenizer.from_pretrained("me/small", revision="v2").metadata
    assert metadata is not None
    assert metadata.chat_template == "{{ messages }}"
    assert {file for _, file, _ in fetched} == {"tokenizer.json", *SIDECAR_FILES}
    assert {revision for _, _, revision in fetched} == {"v2"}
    for name in ("tokenizer.json", "chat_template.jinja"):
        del files[name]
        (caches / "fetched" / name).unlink()
    assert Tokenizer.from_pretrained("gpt2", revision="main").to_spec() == spec
    files["vocab.json"] = "{}"
    with pytest.raises(TokenizerFileError, match="is empty"):
        Tokenizer.from_pretrained("me/small")
    files.clear()
    with pytest.raises(TokenizerFileError, match="could not be downloaded from the hub") as caught:
        Tokenizer.from_pretrained("me/nothing")
    assert "cl100k_base" in str(caught.value.hint)


def test_a_repository_needs_huggingface_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "huggingface_hub")
    with pytest.raises(
        TokenizerFileError, match="me/small: no such file or folder, not a published name"
    ) as caught:
        Tokenizer.from_pretrained("me/small")
    assert str(caught.value.hint).startswith(install_hint("hub"))


@pytest.mark.parametrize(
    "name", ["a/b/c", "../x", "", "a b", "x\0y", "/nowhere/tokenizer.json", Path("me/small")]
)
def test_invalid_names_are_not_searched_on_the_hub(name: str | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", types.ModuleType("huggingface_hub"))
    with pytest.raises(TokenizerFileError, match="no such file or folder, and not the name"):
        Tokenizer.from_pretrained(name)


def test_o200k_harmony_is_refused() -> None:
    special = tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS.keys() - set(BY_TIKTOKEN)
    assert special == {"o200k_harmony"}
    with pytest.raises(TokenizerFileError, match="the id 200018 to two special tokens"):
        Tokenizer.from_pretrained("o200k_harmony")


def test_open_tokenizer_accepts_paths_and_published_names(caches: Path, rank_files: dict[str, bytes]) -> None:
    put_into_tiktokens_cache(caches, "gpt2", rank_files["r50k_base"])
    assert open_tokenizer("gpt2").n_vocab == 50257
    with pytest.raises(TokenizerFileError, match="me/small: no such file"):
        open_tokenizer("me/small")
