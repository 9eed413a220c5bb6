"""Calls, padding, truncation and chat templates have the results of transformers."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokenizer, TokenizerError
from bytemill.datasets import DECLARATION

SPECIAL = ["<s>", "</s>", "<pad>", "<sep>", "<|user|>"]
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
    "pair": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<sep>", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": "</s>", "type_id": 1}},
    ],
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def template(ids: dict[str, int]) -> dict[str, Any]:
    names = ("<s>", "</s>", "<sep>")
    tokens = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names}
    return TEMPLATE | {"special_tokens": tokens}


def post_processors(ids: dict[str, int]) -> dict[str, Any]:
    ends = {"sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]]}
    roberta = {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": True} | ends
    return {
        "none": None,
        "byte level": BYTE_LEVEL,
        "byte level with a space": BYTE_LEVEL | {"add_prefix_space": True},
        "template": template(ids),
        "sequence": {"type": "Sequence", "processors": [BYTE_LEVEL, template(ids)]},
        "roberta": roberta,
        "bert": {"type": "BertProcessing"} | ends,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a tokenizer whose post-processor is still to be chosen."""
    text = (DECLARATION / "udhr_eng.txt").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("model")
    bytemill.train_from_iterator([text], vocab_size=400, special_tokens=SPECIAL).save(f"{path}/")
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "sep_token": "<sep>",
        "model_max_length": 40,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module", autouse=True)
def _transformers(transformers: ModuleType) -> None:
    """Every test needs the library; importing it takes seconds, so once."""


def pair_of(folder: Path, name: str, **config: Any) -> tuple[Tokenizer, Any]:
    """The tokenizers of bytemill and of transformers for a folder with a post-processor and more settings."""
    from transformers import PreTrainedTokenizerFast

    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    document["post_processor"] = post_processors(ids)[name]
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | config
    target = folder / f"{name} {sorted(config)}"
    target.mkdir(exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    settings.pop("tokenizer_class")
    theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
    return Tokenizer.load(target), PreTrainedTokenizerFast(tokenizer_object=theirs, **settings)


texts = st.text(st.sampled_from("ab e\n\t é日 humanrights"), max_size=30) | st.sampled_from(
    ["", "All human beings", " are born free <s> and equal in dignity", "日本 <|user|>", "  ", "x" * 60]
)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 4))
    batch = draw(st.booleans())
    several = st.lists(texts, min_size=n, max_size=n)
    arguments: dict[str, Any] = {"text": draw(several) if batch else draw(texts)}
    if draw(st.booleans()):
        arguments["text_pair"] = draw(several) if batch else draw(texts)
    arguments |= {
        "add_special_tokens": draw(st.booleans()),
        "padding": draw(st.sampled_from([False, True, "longest", "max_length", "do_not_pad"])),
        "truncation": draw(st.sampled_from([None, False, True, "longest_first", "do_not_truncate"])),
        "max_length": draw(st.none() | st.integers(6, 30)),
        "pad_to_multiple_of": draw(st.sampled_from([None, 8])),
        "padding_side": draw(st.sampled_from([None, "left", "right"])),
        "return_token_type_ids": draw(st.sampled_from([None, True])),
        "return_attention_mask": draw(st.sampled_from([None, False])),
        "return_special_tokens_mask": draw(st.booleans()),
        "return_offsets_mapping": draw(st.booleans()),
        "return_length": draw(st.booleans()),
    }
    return arguments


@pytest.mark.parametrize(
    "name", ["none", "byte level", "byte level with a space", "template", "sequence", "roberta", "bert"]
)
@pytest.mark.filterwarnings("ignore")
def test_a_call_has_the_results_of_transformers(folder: Path, name: str) -> None:
    ours, theirs = pair_of(folder, name)

    @given(calls())
    @example({"text": ["a", " human  rights "], "return_offsets_mapping": True, "padding": True})
    def check(arguments: dict[str, Any]) -> None:
        try:
            expected = theirs(**arguments)
        except ValueError:
            with pytest.raises(TokenizerError):
                ours(**arguments)
            return
        found = ours(**arguments)
        assert set(found) == set(expected)
        for key, values in found.items():
            theirs_of_key = expected[key]
            if key == "offset_mapping":
                theirs_of_key = json.loads(json.dumps(theirs_of_key))
                values = json.loads(json.dumps(values))  # noqa: PLW2901
            assert values == theirs_of_key, key

    check()


@pytest.mark.filterwarnings("ignore")
def test_sides_and_input_names_come_from_the_configuration(folder: Path) -> None:
    config = {
        "padding_side": "left",
        "truncation_side": "left",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    ours, theirs = pair_of(folder, "template", **config)
    batch = ["All human beings are born free and equal", "a"]
    settings: list[dict[str, Any]] = [
        {"max_length": 9, "truncation": True},
        {"max_length": 12, "padding": "max_length"},
    ]
    for arguments in settings:
        assert ours(batch, **arguments) == dict(theirs(batch, **arguments))


@pytest.mark.parametrize("strategy", ["only_first", "only_second"])
@pytest.mark.filterwarnings("ignore")
def test_one_text_of_a_pair_is_cut(folder: Path, strategy: Any) -> None:
    ours, theirs = pair_of(folder, "template")
    pair = ("All human beings are born", "free and equal in dignity")
    limit = len(ours(*pair)["input_ids"]) - 3
    expected = theirs(*pair, max_length=limit, truncation=strategy)
    assert ours(*pair, max_length=limit, truncation=strategy)["input_ids"] == expected["input_ids"]
    with pytest.raises(TokenizerError, match="is too short to remove"):
        ours("a", "b", max_length=2, truncation=strategy)


def test_tensors_have_a_row_for_each_text(folder: Path) -> None:
    ours, theirs = pair_of(folder, "template")
    for text in ("All human beings", ["All human beings", "a"]):
        arrays = ours(text, padding=True, return_tensors="np", return_offsets_mapping=True)
        tensors = ours(text, padding=True, return_tensors="pt")
        expected = theirs(text, padding=True, return_tensors="pt")
        assert tensors.keys() == expected.keys()
        for key in tensors:
            assert torch.equal(tensors[key], expected[key])
            assert np.array_equal(arrays[key], tensors[key].numpy())
            assert arrays[key].dtype == np.int64
        assert arrays.offset_mapping.shape == (*arrays.input_ids.shape, 2)
        assert tensors.to("cpu") is tensors
    with pytest.raises(TokenizerError, match="do not make a tensor"):
        ours(["a b c", "a"], return_tensors="np")
    with pytest.raises(AttributeError, match="labels"):
        _ = arrays.labels


def test_roles_of_special_tokens_come_from_the_files(folder: Path) -> None:
    ours, theirs = pair_of(folder, "template")
    assert (ours.bos_token, ours.eos_token, ours.pad_token) == ("<s>", "</s>", "<pad>")
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    assert ours.pad_token_id == theirs.pad_token_id
    assert ours.special_tokens_map == theirs.special_tokens_map


@pytest.mark.parametrize("clean_up", [False, True])
def test_decoding_has_the_texts_of_transformers(folder: Path, clean_up: bool) -> None:
    ours, theirs = pair_of(folder, "none")
    ids = ours.encode("All human beings , are born !<s> don 't")
    for skip in (False, True):
        expected = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=clean_up)
        found = ours.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=clean_up)
        assert found == expected


def test_padding_without_a_padding_token_is_an_error() -> None:
    ours = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<end>"])
    with pytest.raises(TokenizerError, match="has no padding token"):
        ours(["ab", "a"], padding=True)
    with pytest.raises(TokenizerError, match="'<none>' is not a special token"):
        ours.pad_token = "<none>"
    ours.pad_token = "<end>"
    assert ours(["ab", "a"], padding=True)["input_ids"] == [[97, 98], [97, 256]]


CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no ' + m.role) }}{% endif %}\n"
    "<|{{ m.role }}|>{{ m.content | trim if cut else m.content }}"
    "{% if m.tool_calls is defined %}{{ m.tool_calls | tojson }}{% endif %}{{ eos_token }}{% endfor %}"
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}"
    "{% for d in documents or [] %}{{ loop.index }}{{ d.title }}{% break %}{% endfor %}"
    "{% generation %}{% if add_generation_prompt %}<|assistant|>{% endif %}{% endgeneration %}"
)
MESSAGES = [
    {"role": "user", "content": "Grüße <b>&</b> "},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "ä", "arguments": {"x": 1.5}}]},
    {"role": "assistant", "content": "The answer is "},
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_generation_prompt": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "cut": True},
        {"documents": [{"title": "A", "text": "x"}, {"title": "B", "text": "y"}]},
        {"continue_final_message": True},
        {"continue_final_message": True, "cut": True},
    ],
)
def test_chat_templates_render_as_in_transformers(folder: Path, options: dict[str, Any]) -> None:
    ours, theirs = pair_of(folder, "template", chat_template=CHAT)
    assert theirs.chat_template == CHAT
    assert ours.apply_chat_template(MESSAGES, tokenize=False, **options) == theirs.apply_chat_template(
        MESSAGES, tokenize=False, **options
    )
    assert ours.apply_chat_template(MESSAGES, **options) == dict(
        theirs.apply_chat_template(MESSAGES, **options)
    )
    batch = [MESSAGES, MESSAGES[:1]] if "continue_final_message" not in options else [MESSAGES, MESSAGES[2:]]
    found = ours.apply_chat_template(batch, padding=True, return_tensors="np", return_dict=False, **options)
    expected = theirs.apply_chat_template(
        batch, padding=True, return_tensors="np", return_dict=False, **options
    )
    assert np.array_equal(found, expected)


def test_functions_become_schemas_as_in_transformers(folder: Path) -> None:
    def weather(city: str) -> str:
        """Return the weather.

        Args:
            city: Name of the city.
        """
        return city

    ours, theirs = pair_of(folder, "template", chat_template=CHAT)
    arguments: dict[str, Any] = {"tools": [weather], "tokenize": False}
    assert ours.apply_chat_template(MESSAGES, **arguments) == theirs.apply_chat_template(
        MESSAGES, **arguments
    )
    with pytest.raises(TypeError, match="a tool is a JSON schema or a function, not int"):
        ours.apply_chat_template(MESSAGES, tools=[1])


def test_one_of_several_templates_is_named() -> None:
    ours = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    with pytest.raises(TokenizerError, match="has no chat template"):
        ours.apply_chat_template(MESSAGES)
    several = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    from dataclasses import replace

    from bytemill.formats.spec import TokenizerMetadata

    metadata = TokenizerMetadata(config={"chat_template": several})
    ours = Tokenizer.from_spec(replace(ours.to_spec(), metadata=metadata))
    render: dict[str, Any] = {"tokenize": False}
    assert ours.apply_chat_template(MESSAGES, **render) == "D"
    assert ours.apply_chat_template(MESSAGES, tools=[], **render) == "T"
    assert ours.apply_chat_template(MESSAGES, chat_template="tool_use", **render) == "T"
    assert ours.apply_chat_template(MESSAGES, chat_template="other {{ 1 }}", **render) == "other 1"


MARKED = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
)
CHATS = [
    [
        {"role": "user", "content": "Are all human beings born free?"},
        {"role": "assistant", "content": "日本 é yes"},
        {"role": "user", "content": "<s>"},
        {"role": "assistant", "content": " "},
    ],
    [{"role": "assistant", "content": "all"}, {"role": "user", "content": ""}],
]


@pytest.mark.parametrize("trims", ["byte level", "none"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_tensors": "np", "padding": True},
        {"return_tensors": "pt", "padding": "max_length", "max_length": 90},
        {"truncation": True, "max_length": 20},
        {"tokenizer_kwargs": {"return_offsets_mapping": True}},
        {"tokenizer_kwargs": {"padding_side": "left", "return_length": True}, "padding": True},
    ],
)
def test_masks_of_what_the_assistant_says_are_those_of_transformers(
    folder: Path, trims: str, options: dict[str, Any]
) -> None:
    ours, theirs = pair_of(folder, trims)
    for chat in (CHATS[0], CHATS[1], CHATS):
        arguments: dict[str, Any] = {**options, "chat_template": MARKED}
        found = ours.apply_chat_template(chat, return_assistant_tokens_mask=True, **arguments)
        expected = theirs.apply_chat_template(chat, return_assistant_tokens_mask=True, **arguments)
        plain = {name: np.asarray(value, dtype=object).tolist() for name, value in found.items()}
        assert plain == {name: np.asarray(value, dtype=object).tolist() for name, value in expected.items()}
        assert "assistant_masks" in found
        without = ours.apply_chat_template(chat, **arguments)
        assert without.keys() == found.keys() - {"assistant_masks"}


def test_a_template_without_generation_has_an_empty_mask() -> None:
    ours = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    masked: dict[str, Any] = {"return_assistant_tokens_mask": True}
    with pytest.warns(UserWarning, match="has no {% generation %}"):
        found = ours.apply_chat_template(CHATS[1], chat_template="{{ messages[0].content }}", **masked)
    assert found["assistant_masks"] == [0, 0, 0]


THINKING = "{% if enable_thinking is defined and enable_thinking %}T{% endif %}{{ messages[0].content }}"
BREAKS = "{% for m in messages %}{% generation %}{% break %}{% endgeneration %}{% endfor %}"
CONTINUED = {"continue_final_message": True}
MASKED = {"return_assistant_tokens_mask": True}
FAILED = "the chat template failed: "
BAD = {"role": "bad", "content": ""}


@pytest.mark.parametrize(
    ("source", "messages", "options", "error", "said"),
    [
        (CHAT, [], {}, TokenizerError, "the conversation is empty"),
        (CHAT, [BAD], {}, TokenizerError, f"{FAILED}no bad"),
        ("{% if %}", MESSAGES, {}, TokenizerError, FAILED),
        ("{{ messages[9].role }}", MESSAGES, {}, TokenizerError, FAILED),
        ("{{ 1 + 'a' }}", MESSAGES, {}, TokenizerError, f"{FAILED}TypeError"),
        ("{{ ''.__class__.__mro__ }}", MESSAGES, {}, TokenizerError, f"{FAILED}.*unsafe"),
        ("{{ messages.append(1) }}", MESSAGES, {}, TokenizerError, FAILED),
        (BREAKS, CHATS[1], {}, TokenizerError, f"{FAILED}SyntaxError"),
        ("x", MESSAGES, CONTINUED, TokenizerError, "leaves the last message out"),
        ("x", MESSAGES, CONTINUED | {"add_generation_prompt": True}, TokenizerError, "exclude each other"),
        ("x", MESSAGES[:2], CONTINUED, TokenizerError, "no text to continue"),
        *(
            (MARKED, CHATS[1], MASKED | more, TokenizerError, "return_assistant_tokens_mask")
            for more in ({"tokenize": False}, {"return_dict": False}, CONTINUED)
        ),
        (
            THINKING,
            CHATS[1],
            {"add_generation_promt": True},
            TypeError,
            "did you mean 'add_generation_prompt'",
        ),
        (THINKING, CHATS[1], {"enable_thinkin": True}, TypeError, "did you mean 'enable_thinking'"),
        *(
            (THINKING, CHATS[1], options, TypeError, f"unexpected keyword argument '{name}'")
            for name, options in (
                ("sanitize_control_tokens", {"sanitize_control_tokens": True}),
                ("messages", {"messages": []}),
                ("pading", {"tokenizer_kwargs": {"pading": True}}),
            )
        ),
        (
            THINKING,
            CHATS[1],
            {"continue_final_message": "reasoning"},
            TypeError,
            "must be True or False, not 'rea",
        ),
    ],
)
def test_chats_that_cannot_be_rendered_are_errors(
    source: str, messages: list[dict[str, Any]], options: dict[str, Any], error: type[Exception], said: str
) -> None:
    ours = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    with pytest.raises(error, match=said):
        ours.apply_chat_template(messages, chat_template=source, **options)
    used = ours.apply_chat_template(CHATS[1], chat_template=THINKING, tokenize=False, enable_thinking=True)
    assert used == "Tall"


def test_unknown_arguments_of_the_constructor_of_transformers_are_errors() -> None:
    ours = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<pad>"])
    assert ours.to_transformers(pad_token="<pad>", image_token="<pad>").pad_token == "<pad>"
    with pytest.raises(TypeError, match="'model_max_lenght'; did you mean 'model_max_length'"):
        ours.to_transformers(model_max_lenght=5)
