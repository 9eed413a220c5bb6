"""Uploading to a hub on this machine, and opening what was uploaded."""

import pytest
from tests.datasets.stub_hub import Hub, hub  # noqa: F401  (a fixture)

import bytemill as bm
from bytemill.analysis.model_card import push_tokenizer, tokenizer_card
from bytemill.errors import OutputError


@pytest.fixture
def tokenizer() -> bm.Tokenizer:
    return bm.train_from_iterator(
        ["the cat sat on the mat, and the cat ate the rat | `x`"] * 9, 270, ["<|end|>"]
    )


def test_what_is_pushed_opens_by_its_name(
    hub: Hub,  # noqa: F811
    tokenizer: bm.Tokenizer,
) -> None:
    pushed = push_tokenizer(tokenizer, "me/mine", private=True, message="First")
    assert pushed.url == f"{hub.url}/me/mine"
    assert pushed.files == sorted(hub.repositories["me/mine"])
    assert {"README.md", "tokenizer.json", "tokenizer_config.json"} <= set(pushed.files)
    assert (hub.private, hub.messages) == ({"me/mine"}, ["First"])
    opened = bm.Tokenizer.from_pretrained("me/mine")
    assert opened.fingerprint == tokenizer.fingerprint


def test_a_card_that_is_there_is_kept(
    hub: Hub,  # noqa: F811
    tokenizer: bm.Tokenizer,
) -> None:
    hub.repositories["me/mine"] = {"README.md": b"written by hand"}
    pushed = push_tokenizer(tokenizer, "me/mine")
    assert pushed.kept_card
    assert "README.md" not in pushed.files
    assert hub.repositories["me/mine"]["README.md"] == b"written by hand"
    assert not push_tokenizer(tokenizer, "me/mine", replace_card=True).kept_card
    assert b"# mine" in hub.repositories["me/mine"]["README.md"]


def test_a_card_says_what_is_known(tokenizer: bm.Tokenizer) -> None:
    card = tokenizer_card(tokenizer, "me/mine")
    assert card.startswith("---\nlibrary_name: tokenizers\n")
    assert "| special tokens | `<|end|>` (269) |" in card
    assert f"| fingerprint | `{tokenizer.fingerprint}` |" in card
    assert "| trained on | 477 bytes of text, " in card
    assert 'Tokenizer.from_pretrained("me/mine")' in card
    assert all(
        row.count(" | ") == 1 for row in card.splitlines() if row.startswith("| ") and "special" not in row
    )


def test_refusals_say_what_to_do(
    hub: Hub,  # noqa: F811
    tokenizer: bm.Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.status = 401
    with pytest.raises(OutputError, match="cannot upload to me/mine: ") as caught:
        push_tokenizer(tokenizer, "me/mine")
    assert caught.value.hint is not None
    assert "hf auth login" in caught.value.hint
    with pytest.raises(OutputError, match="'no/such/name' is no name of a repository"):
        push_tokenizer(tokenizer, "no/such/name")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(OutputError, match="cannot upload to me/mine") as caught:
        push_tokenizer(tokenizer, "me/mine")
    assert "HF_ENDPOINT" in (caught.value.hint or "")
