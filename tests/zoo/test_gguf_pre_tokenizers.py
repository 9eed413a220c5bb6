"""GGUF files with every pre-tokenizer of llama.cpp that is known, against Hugging Face's library with the same pattern.

The patterns themselves are checked with llama.cpp's own texts and ids in `test_zoo`.
"""

import copy
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers

from bytemill import Tokenizer, TokenizerError
from bytemill.formats.gguf_models import as_file
from bytemill.formats.gguf_pre_tokenizers import PRE_TOKENIZERS
from bytemill.formats.huggingface.pre_tokenizers import to_pre_tokenizer

from .odd_files import added, byte_level
from .test_odd_files import texts

FILLER = "ă"
"""Stands for a control character that some vocabularies lack."""


def files(name: str, path: Path, *, lacks_a_byte: bool) -> Any:
    """Write a GGUF file, and return Hugging Face's tokenizer of the same parts."""
    document = copy.deepcopy(byte_level())
    model = document["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    merges = [" ".join(merge) for merge in model["merges"]]
    if lacks_a_byte:
        at = tokens.index(FILLER)
        tokens[at], kinds[at] = "[PAD]", gguf.TokenType.UNUSED
        del model["vocab"][FILLER]
    document["added_tokens"] = []
    for token, is_special in (("<|end|>", True), ("<user>", False)):
        document["added_tokens"].append(added(token, len(tokens), special=is_special))
        model["vocab"][token] = len(tokens)
        tokens.append(token)
        kinds.append(gguf.TokenType.CONTROL if is_special else gguf.TokenType.USER_DEFINED)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    known = PRE_TOKENIZERS[name]
    document["pre_tokenizer"] = to_pre_tokenizer(known.pattern)
    model["ignore_merges"] = known.ignore_merges
    return tokenizers.Tokenizer.from_buffer(as_file(document))


QUICK = ("gpt-2", "llama-bpe", "deepseek-v3", "falcon", "superbpe", "exaone-moe")
ALONE = ("superbpe", "tiny_aya", "cohere2moe")
"""Names whose pattern no tokenizer.json has, because Oniguruma has no equivalent expression."""
FEW = {known.pattern: name for name, known in reversed(PRE_TOKENIZERS.items()) if name not in ALONE}.values()
"""One name for each other pattern."""


@pytest.mark.parametrize("name", ALONE)
def test_a_pattern_that_a_tokenizer_json_cannot_have_is_not_written_to_one(name: str) -> None:
    with pytest.raises(TokenizerError):
        to_pre_tokenizer(PRE_TOKENIZERS[name].pattern)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FEW]
)
@pytest.mark.parametrize("lacks_a_byte", [False, True])
def test_every_pattern_splits_as_in_the_library(name: str, tmp_path: Path, *, lacks_a_byte: bool) -> None:
    path = tmp_path / "t.gguf"
    theirs = files(name, path, lacks_a_byte=lacks_a_byte)
    ours = Tokenizer.load(path)
    for text in [
        *texts(),
        "a\x03b !\x03! \x03 <user><|end|>",
        "1234567 12 ١٢٣ x1y22z333 x" + " " * 700 + "y",
    ]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
