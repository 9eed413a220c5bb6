"""The public names of the package."""

import bytemill


def test_dir_lists_exactly_the_public_names() -> None:
    assert dir(bytemill) == sorted(bytemill.__all__)
    assert all(hasattr(bytemill, name) for name in bytemill.__all__)


def test_tokenizers_have_one_family_of_loaders() -> None:
    loaders = {name for name in dir(bytemill.Tokenizer) if name.startswith(("load", "open", "read", "from_"))}
    conversions = {"from_huggingface", "from_spec", "from_tiktoken"}
    assert loaders - conversions == {"load", "from_files", "from_pretrained"}
