"""Files beside a tokenizer.json, or beside vocab.json and merges.txt, add what they add in transformers."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bytemill
from bytemill import Tokenizer
from bytemill.errors import PreTokenizerWarning, TokenizerFileError
from bytemill.formats.huggingface.exchange import without_special_tokens

N = 285
"""Number of tokens; the last one is <|endoftext|>."""
CORPUS = "Hello the world def f(x): return 12345 the the then hello world 12 the 12"
TEXTS = [
    "Hello the <extra> world <pad> x", "<|endoftext|> the", "WE'LL go\n\n\nx  <|endoftext|> ",
    "def f(x):\n        return 12345", "A\u030a e\u0301 Å", " th the<s>x</s><mask>",
]  # fmt: skip
CONFIG = "tokenizer_config.json"


def token(content: str, **flags: bool) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"content": content} | plain | flags


SIDECARS: dict[str, dict[str, Any]] = {
    "none": {},
    "tokens by id": {
        CONFIG: {
            "added_tokens_decoder": {
                f"{N}": token("<extra>"),
                f"{N + 1}": token("<pad>", lstrip=True, special=False, normalized=True),
            }
        }
    },
    "other flags": {CONFIG: {"added_tokens_decoder": {f"{N - 1}": token("<|endoftext|>", rstrip=True)}}},
    "further tokens": {CONFIG: {"additional_special_tokens": ["<extra>", "<pad>"]}},
    "an ordinary token": {CONFIG: {"extra_special_tokens": ["<extra>", "th"]}},
    "named tokens": {
        CONFIG: {
            "extra_special_tokens": {"image_token": "<extra>"},
            "bos_token": "<extra>",
            "eos_token": None,
        }
    },
    "a named token with flags": {
        CONFIG: {"pad_token": {"__type": "AddedToken", **token("<extra>", lstrip=True)}}
    },
    "added_tokens.json": {
        "added_tokens.json": {"<extra>": N, "<pad>": N + 1},
        CONFIG: {"pad_token": "<pad>"},
    },
    "special_tokens_map.json": {
        "special_tokens_map.json": {"pad_token": "<extra>", "additional_special_tokens": ["<pad>"]},
        CONFIG: {"pad_token": "<pad>"},
    },
    "a map beside tokens by id": {
        "special_tokens_map.json": {"pad_token": "<extra>"},
        CONFIG: {"added_tokens_decoder": {f"{N}": token("<pad>")}},
    },
    "a prefix": {CONFIG: {"add_prefix_space": True}},
    "ends": {CONFIG: {"add_bos_token": True, "add_eos_token": True, "bos_token": "<|endoftext|>"}},
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The files of one tokenizer in two formats."""
    folder = tmp_path_factory.mktemp("bases")
    tokenizer = bytemill.train_from_iterator([CORPUS] * 3, N, ["<|endoftext|>"])
    tokenizer.save(folder / "tokenizer.json")
    tokenizer.save(folder / "vocab.json", format="gpt2")
    read = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    return {"json": {"tokenizer.json": read.pop("tokenizer.json")}, "pair": read}


def folder_of(folder: Path, *files: dict[str, Any], name: str | None = None) -> Path:
    folder.mkdir(parents=True)
    joined = {file: content for each in files for file, content in each.items()}
    if name is not None:
        joined[CONFIG] = {**joined.get(CONFIG, {}), "tokenizer_class": name}
    for file, content in joined.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / file).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("base", "name"),
    [
        *(
            ("pair", name)
            for name in ("GPT2TokenizerFast", "Qwen2Tokenizer", "GPTNeoXTokenizer", "BartTokenizer")
        ),
        *(("json", name) for name in (None, "GPT2Tokenizer")),
    ],
)
def test_ids_are_those_of_transformers(
    transformers: ModuleType, bases: dict[str, dict[str, str]], tmp_path: Path, base: str, name: str | None
) -> None:
    load: Any = transformers.AutoTokenizer.from_pretrained
    for case, files in SIDECARS.items():
        if (name, case) == ("Qwen2Tokenizer", "a prefix"):
            continue
        folder = folder_of(tmp_path / case, bases[base], files, name=name)
        theirs, ours = load(folder), Tokenizer.load(folder)
        for text in TEXTS:
            assert ours(text)["input_ids"] == theirs(text)["input_ids"], case
            assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], case
        roles = {role: str(value) for role, value in theirs.special_tokens_map.items()}
        assert ours.special_tokens_map == roles, case
        assert (len(ours), ours.pad_token_id) == (len(theirs), theirs.pad_token_id), case
        ours.save(tmp_path / f"{case}, saved/")
        again = Tokenizer.load(tmp_path / f"{case}, saved")
        assert again.fingerprint == ours.fingerprint, case
        assert again(TEXTS)["input_ids"] == ours(TEXTS)["input_ids"], case


def test_files_by_path_in_a_folder_are_read_like_the_folder(
    bases: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", bases["pair"], SIDECARS["tokens by id"], name="Qwen2Tokenizer")
    whole = Tokenizer.load(folder)
    assert whole.encode("12<extra>") != Tokenizer.from_files(
        folder / "vocab.json", folder / "merges.txt"
    ).encode("12<extra>")
    for path in (folder / "vocab.json", folder / "merges.txt"):
        assert Tokenizer.load(path).fingerprint == whole.fingerprint
    explicit = Tokenizer.load(folder, special_tokens=["<mine>"], pattern="gpt2")
    assert explicit.special_tokens == {**whole.special_tokens, "<mine>": N + 2}
    assert explicit.pattern == Tokenizer.load(folder, pattern="gpt2").pattern != whole.pattern


def test_the_model_tells_the_class_of_two_files(bases: dict[str, dict[str, str]], tmp_path: Path) -> None:
    config = {"config.json": {"model_type": "qwen3"}}
    found = Tokenizer.load(folder_of(tmp_path / "qwen3", bases["pair"], config))
    expected = Tokenizer.load(folder_of(tmp_path / "class", bases["pair"], name="Qwen2Tokenizer"))
    assert found.fingerprint == expected.fingerprint
    assert found.eos_token == "<|endoftext|>"
    plain = Tokenizer.load(folder_of(tmp_path / "plain", bases["pair"]))
    assert (plain.pattern, plain.metadata) == (bytemill.Pattern.named("gpt2").expression, None)


@pytest.mark.parametrize(
    ("base", "files", "name", "said"),
    [
        ("pair", {}, "FooTokenizer", "belong to FooTokenizer, whose pattern is unknown"),
        ("pair", {}, "PreTrainedTokenizerFast", "belong to PreTrainedTokenizerFast"),
        ("pair", {"config.json": {"model_type": "new"}}, None, "belong to the class for new"),
        ("pair", {CONFIG: {"add_prefix_space": True}}, "Qwen2Tokenizer", "add_prefix_space is true"),
        ("json", {CONFIG: {"split_special_tokens": True}}, None, "split_special_tokens is true"),
        ("json", {"added_tokens.json": {"<x>": N + 5}}, None, f"'<x>' has id {N + 5} .* gives it {N}"),
        ("json", {"added_tokens.json": {"<x>": "1"}}, None, r"added_tokens.json\['<x>'\] is '1', not an id"),
        (
            "json",
            {CONFIG: {"added_tokens_decoder": {"x": {}}}},
            None,
            r"added_tokens_decoder\['x'\] is not an id",
        ),
        ("json", {CONFIG: {"added_tokens_decoder": []}}, None, "added_tokens_decoder is an array"),
        (
            "json",
            {CONFIG: {"added_tokens_decoder": {"5": token("a") | {"lstrip": 1}}}},
            None,
            "lstrip is 1, not true or false",
        ),
    ],
)
def test_what_is_not_understood_is_refused(
    bases: dict[str, dict[str, str]],
    tmp_path: Path,
    base: str,
    files: dict[str, Any],
    name: str | None,
    said: str,
) -> None:
    with pytest.raises(TokenizerFileError, match=said):
        Tokenizer.load(folder_of(tmp_path / "m", bases[base], files, name=name))


def test_a_class_that_contradicts_the_tokenizer_json_is_a_warning(
    bases: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", bases["json"], name="Qwen2Tokenizer")
    with pytest.warns(PreTokenizerWarning, match="otherwise than Qwen2Tokenizer"):
        found = Tokenizer.load(folder)
    assert found.pattern == bytemill.Pattern.named("gpt2").expression


def test_tokens_taken_away_do_not_come_back(bases: dict[str, dict[str, str]], tmp_path: Path) -> None:
    config = {CONFIG: {"extra_special_tokens": {"image_token": "<extra>"}}}
    ours = Tokenizer.load(folder_of(tmp_path / "m", bases["json"], config, name="GPT2Tokenizer"))
    assert ours.special_tokens == {"<|endoftext|>": N - 1, "<extra>": N}
    shortened = Tokenizer.from_spec(without_special_tokens(ours.to_spec(), ours.special_tokens))
    shortened.save(tmp_path / "shortened/")
    assert Tokenizer.load(tmp_path / "shortened").special_tokens == {}
