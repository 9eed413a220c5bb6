"""Exports of models that answer: end tokens, chat template and names of special tokens, as other programs read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from gguf import GGUFWriter, TokenType

import bytemill
from bytemill import Tokenizer
from bytemill.errors import TokenizerError
from bytemill.formats.gguf import add_tokenizer
from bytemill.lm.interchange.architectures import ends_of
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.training.config import resolve
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.lm.training.trainer import train
from bytemill.shards import encode_conversations
from bytemill.tokenizer.conversations import end_of_turn
from tests.lm.conftest import TINY
from tests.lm.interchange.test_gguf_export import read

if TYPE_CHECKING:
    from pathlib import Path

TEXT, START, TURN, PAD = SPECIAL = ("<|endoftext|>", "<start>", "<turn>", "<pad>")
TEMPLATE = (
    "{% for m in messages %}<start>{{ m.role }}\n{{ m.content }}<turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant\n{% endif %}"
)
MESSAGES = [
    {"role": "user", "content": "a?"},
    {"role": "assistant", "content": "b."},
    {"role": "user", "content": "c"},
]
VOCAB = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
IDS = {token: 257 + number for number, token in enumerate(SPECIAL)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `base` on documents and the run `chat`, which tunes it on conversations."""
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], SPECIAL, pattern="gpt2")
    tokenizer.chat_template = TEMPLATE
    (folder / "tok").mkdir()
    tokenizer.save(folder / "tok")
    config = json.loads((folder / "tok/tokenizer_config.json").read_text())
    (folder / "tok/tokenizer_config.json").write_text(json.dumps({**config, "pad_token": PAD}))
    tokenizer = Tokenizer.load(folder / "tok")
    documents = bytemill.Corpus.from_texts(["a text. " * 20, "another one. " * 20])
    bytemill.encode_corpus(tokenizer, documents, folder / "text")
    rows = "".join(json.dumps({"prompt": "a?", "response": "b."}) + "\n" for _ in range(8))
    (folder / "rows.jsonl").write_text(rows)
    encode_conversations(tokenizer, folder / "rows.jsonl", folder / "chats")
    values = {
        **TINY,
        "model.context_length": 64,
        "data.tokenizer": str(folder / "tok"),
        "data.train": str(folder / "text"),
        "training.steps": 1,
        "run.folder": str(folder / "base"),
    }
    train(resolve([("test", values)], n_vocab=261))
    tuned = {
        "data.train": str(folder / "chats"),
        "data.packing": "documents",
        "training.document_mask": True,
        "training.init_from": str(folder / "base"),
        "tuning.method": "sft",
        "run.folder": str(folder / "chat"),
    }
    train(resolve([("test", values | tuned)], n_vocab=261))
    return folder


def test_a_run_keeps_the_tokenizer_with_its_names_and_its_template(runs: Path) -> None:
    tokenizer = find_saved_model(runs / "chat").tokenizer()
    original = Tokenizer.load(runs / "tok")
    assert tokenizer.metadata == original.metadata
    assert (tokenizer.eos_token, tokenizer.pad_token) == (TEXT, PAD)
    assert end_of_turn(tokenizer) == TURN


@pytest.mark.parametrize(("run", "stops"), [("base", (TEXT, TURN)), ("chat", (TURN, TEXT))])
def test_transformers_ends_an_answer_where_the_turn_ends(
    transformers: Any, runs: Path, tmp_path: Path, run: str, stops: tuple[str, ...]
) -> None:
    exported = export_model(runs / run, tmp_path / "hf")
    assert exported.eos_token == stops[0]
    for name in ("config.json", "generation_config.json"):
        written = json.loads((tmp_path / "hf" / name).read_text())
        assert written["eos_token_id"] == [IDS[token] for token in stops]
        assert written["pad_token_id"] == IDS[PAD]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert (theirs.eos_token, theirs.pad_token) == (stops[0], PAD)
    ours = Tokenizer.load(runs / "tok")
    for prompt in (False, True):
        options: dict[str, Any] = {"add_generation_prompt": prompt, "return_dict": False}
        assert theirs.apply_chat_template(MESSAGES, **options) == ours.apply_chat_template(
            MESSAGES, **options
        )
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    prompt_ids = torch.tensor([ours.encode("<start>user\na?<turn>\n<start>assistant\n")])
    for end in stops:  # which the model is made to say after "ab"
        said = [97, 98, IDS[end], 99]

        def force(ids: torch.Tensor, scores: torch.Tensor, said: list[int] = said) -> torch.Tensor:
            forced = torch.full_like(scores, -torch.inf)
            forced[:, said[ids.shape[1] - prompt_ids.shape[1]]] = 0
            return forced

        answer = model.generate(prompt_ids, max_new_tokens=4, do_sample=False, logits_processor=[force])
        assert answer[0, prompt_ids.shape[1] :].tolist() == said[:3]


def test_gguf_has_the_template_and_the_end_of_a_turn(runs: Path, tmp_path: Path) -> None:
    for run, eos in (("base", TEXT), ("chat", TURN)):
        export_model(runs / run, tmp_path / f"{run}.gguf")
        fields, _ = read(tmp_path / f"{run}.gguf")
        assert fields["tokenizer.chat_template"] == TEMPLATE
        names = {"eos": eos, "eot": TURN, "padding": PAD}
        for name, token in names.items():
            assert fields[f"tokenizer.ggml.{name}_token_id"] == IDS[token]
    imported = import_model(tmp_path / "chat.gguf", tmp_path / "imported").tokenizer
    assert imported is not None
    assert (imported.eos_token, imported.pad_token, imported.chat_template) == (TURN, PAD, TEMPLATE)
    again = export_model(tmp_path / "imported", tmp_path / "hf")
    assert again.eos_token == TURN
    written = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert written["eos_token_id"] == [IDS[TURN], IDS[TEXT]]


def test_an_explicit_end_token_is_the_only_one(runs: Path, tmp_path: Path) -> None:
    export_model(runs / "chat", tmp_path / "hf", eos_token=TEXT)
    written = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert written["eos_token_id"] == IDS[TEXT]


def test_names_that_a_template_uses_stay(runs: Path, tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    tokenizer = Tokenizer.load(runs / "tok")
    tokenizer.chat_template = template
    assert ends_of(tokenizer, IDS[PAD]).stops == (TEXT, PAD)
    # Without a name the template writes nothing, and an export with one would write something.
    nameless = Tokenizer(VOCAB, [(b"a", b"b")], ["<END>"])
    nameless.chat_template = template
    nameless.save(tmp_path / "nameless.json")
    values = {**TINY, "training.steps": 1, "data.tokenizer": str(tmp_path / "nameless.json")}
    documents = bytemill.Corpus.from_texts(["a text. " * 20])
    bytemill.encode_corpus(nameless, documents, tmp_path / "text", documents="<END>")
    values |= {"data.train": str(tmp_path / "text"), "run.folder": str(tmp_path / "run")}
    train(resolve([("test", values)], n_vocab=258))
    (tmp_path / "run/chat_template.jinja").write_text(template)
    with pytest.raises(TokenizerError, match=r"the chat template uses the names .* ends texts with '<END>'"):
        export_model(tmp_path / "run", tmp_path / "hf")


def test_the_token_before_every_text_is_read_from_gguf(tmp_path: Path) -> None:
    spec = Tokenizer(VOCAB, [(b"a", b"b")], ["<s>", "</s>"], pattern="llama3").to_spec()
    for adds in (False, True):
        writer = GGUFWriter(tmp_path / "tok.gguf", "llama")
        add_tokenizer(writer, spec, eos_token="</s>", adds_bos=adds)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        found = Tokenizer.load(tmp_path / "tok.gguf")
        # The other name was chosen when the file was written.
        assert (found.bos_token, found.eos_token) == (None, "</s>")
        assert found("a")["input_ids"] == [97]
        (tmp_path / "tok.gguf").write_bytes(
            (tmp_path / "tok.gguf").read_bytes().replace(b"chosen_names", b"chosen_xxxxx")
        )
        found = Tokenizer.load(tmp_path / "tok.gguf")
        assert found("a")["input_ids"] == [257, 97] if adds else [97]


def test_sentencepiece_in_gguf_has_the_token_before_every_text(tmp_path: Path) -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "\u2581a"]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    kinds += [TokenType.NORMAL] * 3
    for adds in (None, False, True):
        writer = GGUFWriter(tmp_path / "tok.gguf", "llama")
        writer.add_tokenizer_model("llama")
        writer.add_token_list(pieces)
        writer.add_token_types(kinds)
        writer.add_token_scores([0.0] * 259 + [-3.0, -2.0, -1.0])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        if adds is not None:
            writer.add_add_bos_token(adds)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        found = Tokenizer.load(tmp_path / "tok.gguf")
        assert found.encode("a") == [261]
        found.save(f"{tmp_path / str(adds)}/")
        for each in (found, Tokenizer.load(tmp_path / str(adds))):
            assert each("a")["input_ids"] == ([261] if adds is False else [1, 261])
            assert (each.bos_token, each.eos_token) == ("<s>", "</s>")
