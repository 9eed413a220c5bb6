"""The settings file beside a rank file works for `tiktoken.Encoding` and for bytemill."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiktoken as oracle
from tiktoken.load import load_tiktoken_bpe

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerFileError
from bytemill.formats import registry, tiktoken
from bytemill.formats.spec import TokenizerSpec

MakeSpec = Callable[..., TokenizerSpec]


@pytest.fixture
def rank_file(make_spec: MakeSpec, tmp_path: Path) -> Path:
    path = tmp_path / "t.tiktoken"
    path.write_text(tiktoken.write(make_spec()))
    return path


def say(rank_file: Path, text: str) -> None:
    tiktoken.settings_file(rank_file).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pattern": NAMED_PATTERNS["cl100k"], "special_tokens": {"<b>": 262, "<a b>": 261}},
        {"pattern": None, "special_tokens": {}},
        {"pattern": r"\w+|\W", "special_tokens": {"<|日|>": 400}},
    ],
)
def test_ranks_and_settings_give_the_same_ids_in_tiktoken(
    make_spec: MakeSpec, rank_file: Path, fields: dict[str, Any]
) -> None:
    spec = make_spec(**fields)
    say(rank_file, tiktoken.settings_text(spec, "t"))
    arguments: Any = json.loads(tiktoken.settings_file(rank_file).read_text(encoding="utf-8"))
    assert ("explicit_n_vocab" in arguments) is (400 not in spec.special_tokens.values())
    theirs = oracle.Encoding(**arguments, mergeable_ranks=load_tiktoken_bpe(str(rank_file)))
    ours = Tokenizer.load(rank_file)
    assert (ours.pattern, ours.special_tokens) == (spec.pattern, spec.special_tokens)
    assert ours.fingerprint == Tokenizer.from_spec(spec).fingerprint
    text = 'abab ab é"\\ ab' + "<|endoftext|><a b><b><|日|>" + " \n日本\t"
    assert ours.encode(text) == theirs.encode(text, allowed_special="all")
    assert tiktoken.settings_text(ours.to_spec(), "t") == tiktoken.settings_text(spec, "t")


def test_explicit_arguments_override_the_settings_file(make_spec: MakeSpec, rank_file: Path) -> None:
    say(rank_file, tiktoken.settings_text(make_spec(), "t"))
    assert Tokenizer.load(rank_file, pattern="cl100k").pattern == NAMED_PATTERNS["cl100k"]
    assert Tokenizer.load(rank_file, pattern="cl100k").special_tokens == {"<|endoftext|>": 261}
    assert Tokenizer.load(rank_file, special_tokens={"<x>": 300}).special_tokens == {"<x>": 300}
    say(rank_file, "{")
    both: dict[str, Any] = {"pattern": None, "special_tokens": ["<x>", "<y>"]}
    assert Tokenizer.load(rank_file, **both).special_tokens == {"<x>": 261, "<y>": 262}


def test_the_config_of_a_model_gives_pattern_and_special_tokens(rank_file: Path) -> None:
    with pytest.raises(TokenizerFileError, match="not a published one") as caught:
        Tokenizer.load(rank_file)
    assert "pattern=" in (caught.value.hint or "")
    assert "tokenizer_config.json" in (caught.value.hint or "")
    config = rank_file.with_name("tokenizer_config.json")
    added = {"300": {"content": "[gMASK]", "special": True}, "301": {"content": "<sop>", "special": True}}
    config.write_text(json.dumps({"tokenizer_class": "ChatGLM4Tokenizer", "added_tokens_decoder": added}))
    tok = Tokenizer.load(rank_file)
    assert tok.pattern == NAMED_PATTERNS["llama3"]
    assert tok.special_tokens == {"[gMASK]": 300, "<sop>": 301}
    assert tok.encode("[gMASK]<sop>ab") == [300, 301, 256 + 0]
    config.write_text(json.dumps({"tokenizer_class": "TikTokenTokenizer", "pat_str": r"\S+|\s"}))
    assert Tokenizer.load(rank_file).pattern == r"\S+|\s"
    config.write_text(json.dumps({"tokenizer_class": "TikTokenTokenizer"}))
    with pytest.raises(TokenizerFileError, match="not a published one"):
        Tokenizer.load(rank_file)
    folder = rank_file.parent / "model"
    folder.mkdir()
    rank_file.rename(folder / "tiktoken.model")
    assert Tokenizer.load(folder, pattern="gpt2").encode("ab") == [256]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", r"t.tiktoken.json: the file is empty"),
        ("{", "t.tiktoken.json: not valid JSON at line 1 column 2"),
        ("[" * 100_000, "t.tiktoken.json: not a tokenizer: its JSON is nested too deeply"),
        ("[]", "t.tiktoken.json is an array, not an object"),
        ({"pat_str": None}, "pat_str is null, not a regular expression"),
        ({"pat_str": "("}, r"pat_str: pattern '\('"),
        ({"special_tokens": ["<x>"]}, "special_tokens is an array"),
        ({"special_tokens": {"<x>": "300"}}, r"special_tokens\['<x>'\] is '300', not an id"),
        ({"special_tokens": {"<x>": 2**32}}, r"special_tokens\['<x>'\] is 4294967296"),
        ({"explicit_n_vocab": -1}, "explicit_n_vocab is -1"),
        ({"explicit_n_vocab": 300}, "t.tiktoken has 262 tokens including special tokens; .* says 300"),
    ],
)
def test_damaged_settings_are_refused(
    make_spec: MakeSpec, rank_file: Path, settings: str | dict[str, Any], said: str
) -> None:
    if isinstance(settings, dict):
        settings = json.dumps(json.loads(tiktoken.settings_text(make_spec(), "t")) | settings)
    say(rank_file, settings)
    with pytest.raises(TokenizerFileError, match=said):
        Tokenizer.load(rank_file)


def test_a_rank_file_truncated_at_a_line_is_detected(make_spec: MakeSpec, rank_file: Path) -> None:
    say(rank_file, tiktoken.settings_text(make_spec(), "t"))
    rank_file.write_text("".join(rank_file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(TokenizerFileError, match=r"has 261 tokens including special tokens; .* says 262"):
        Tokenizer.load(rank_file)


def test_published_ranks_need_no_settings(shared_data: Path) -> None:
    path = shared_data / "r50k_base.tiktoken"
    spec = registry.read(path)
    text = path.read_text()
    assert tiktoken.is_published(text, spec)
    assert not tiktoken.is_published(text, replace(spec, pattern=NAMED_PATTERNS["cl100k"]))
    assert not tiktoken.is_published(text, replace(spec, special_tokens={}))
    assert not tiktoken.is_published(text.rsplit("\n", 2)[0] + "\n", spec)
