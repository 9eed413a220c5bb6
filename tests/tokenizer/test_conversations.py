"""Targets of conversations are what the assistant says, for the templates of all families."""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tokenizer.chat_families import CALL, FAMILIES, SHAPES, said
from tests.tokenizer.conftest import TRAINING_TEXT

import bytemill
from bytemill import Tokenizer, TokenizerError
from bytemill.formats.spec import TokenFlags, TokenizerMetadata
from bytemill.tokenizer.conversations import render_conversation

BYTES = {byte: bytes([byte]) for byte in range(256)}


@lru_cache
def plain_tokenizer(kind: str) -> Tokenizer:
    """A tokenizer of bytes, or with merges."""
    if kind == "bytes":
        return Tokenizer(BYTES, [])
    return bytemill.train_from_iterator([TRAINING_TEXT * 3], vocab_size=500)


@lru_cache
def tokenizer_of(family: str, kind: str) -> Tokenizer:
    """A tokenizer with the template and the special tokens of a family."""
    made = FAMILIES[family]
    spec = plain_tokenizer(kind).with_special_tokens(made.special).to_spec()
    config = {"chat_template": made.template, **made.roles}
    return Tokenizer.from_spec(replace(spec, metadata=TokenizerMetadata(config=config)))


def targets(tokenizer: Tokenizer, ids: list[int], mask: list[bool]) -> str:
    """Return the text with `«` and `»` around each run of targets, for a tokenizer of bytes."""
    data, inside = b"", False
    for token, is_target in zip(ids, mask, strict=True):
        data += ("»".encode() if inside else "«".encode()) * (is_target != inside)
        inside = is_target
        data += tokenizer.decode_bytes([token])
    return (data + "»".encode() * inside).decode()


def expected_mask(tokenizer: Tokenizer, text: str) -> list[bool]:
    """Return True for each token that has a character between the marks: a plain rule, by bytes of each token."""
    is_target, inside = [], False
    for character in text:
        if character in "«»":
            inside = character == "«"
        else:
            is_target += [inside] * len(character.encode())
    position, mask = 0, []
    for token in tokenizer.encode(re.sub("[«»]", "", text)):
        n_bytes = len(tokenizer.decode_bytes([token]))
        mask.append(any(is_target[position : position + n_bytes]))
        position += n_bytes
    return mask


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_targets_are_those_marked_by_hand(family: str, shape: str) -> None:
    expected = FAMILIES[family].texts[shape]
    messages, tools = SHAPES[shape]
    for kind in ("bytes", "merges"):
        tok = tokenizer_of(family, kind)
        limit = None
        if shape == "truncated":
            limit = len(tok.apply_chat_template(messages, tools=tools)["input_ids"]) - 1
        if expected is None:
            with pytest.raises(
                TokenizerError, match=r"^message \d \(|leaves out the tool calls of message 2"
            ):
                render_conversation(tok, messages, tools=tools, max_tokens=limit)
            continue
        found = render_conversation(tok, messages, tools=tools, max_tokens=limit)
        shown = messages[:2] if limit else messages
        assert found.ids == tok.apply_chat_template(shown, tools=tools)["input_ids"]
        assert found.text == tok.apply_chat_template(shown, tools=tools, tokenize=False)
        assert found.text == re.sub("[«»]", "", expected)
        if kind == "bytes":
            assert targets(tok, found.ids, found.mask) == expected
        assert found.mask == expected_mask(tok, expected)


PIECES = [
    *("<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "<|end|>", "<|eot_id|>", "<｜User｜>", "<|endoftext|>"),
    *("<|return|>", "<|start|>assistant", "assistant\n", "<tool_call>", "{% generation %}", "{{ x }}", "«", "»"),
    *(" ", "\n", "\t", "a", "Zwei", "\U000f0000", "\U000f0001", "\U0010fffd", "\ue000", "😀"),
    *("👩\u200d🔬", "e\u0301", "\u0300", "日本"),
]  # fmt: skip
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    contents=st.lists(CONTENTS, min_size=1, max_size=3),
    data=st.data(),
)
def test_targets_decode_to_the_contents_and_the_end_of_each_turn(
    family: str, contents: list[str], data: st.DataObject
) -> None:
    made = FAMILIES[family]
    messages = said(*(text for answer in contents for text in (data.draw(CONTENTS), answer)))
    tok = tokenizer_of(family, "bytes")
    found = render_conversation(tok, messages)
    assert found.ids == tok.apply_chat_template(messages)["input_ids"]
    expected = ""
    for number, content in enumerate(contents, 1):
        is_last = number == len(contents)
        shown = content.strip() if made.strips else content
        shown = shown.lstrip("\n") if family == "Qwen 3" and is_last else shown
        end = made.last_end if is_last else made.end
        expected += f"{made.around[0]}{shown}{made.around[1]}{end}"
    assert (
        tok.decode([i for i, is_target in zip(found.ids, found.mask, strict=True) if is_target]) == expected
    )


@pytest.mark.parametrize(
    ("family", "messages", "expected"),
    [
        (  # reasoning inside the content: only the last turn keeps it
            "Qwen 3",
            said("a", "<think>\nr\n</think>\n\nb", "c", "<think>s</think>d"),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n«b<|im_end|>»\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n«<think>\ns\n</think>\n\nd<|im_end|>»\n",
        ),
        (  # reasoning in its own field
            "Qwen 3",
            [*said("a"), {"role": "assistant", "content": "b", "reasoning_content": "r"}],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n«<think>\nr\n</think>\n\nb<|im_end|>»\n",
        ),
        (  # a content before a call
            "Qwen 3",
            [*said("a"), {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]}],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nI look."
            + '\n<tool_call>\n{"name": "sky", "arguments": {"at": "Rome"}}\n</tool_call>' * 2
            + "<|im_end|>»\n",
        ),
        (
            "gpt-oss",
            [*said("a", "b", "c"), {"role": "assistant", "content": "d", "thinking": "t"}],
            "<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>"
            "<|start|>user<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>«b<|end|>»"
            "<|start|>user<|message|>c<|end|><|start|>assistant«<|channel|>analysis<|message|>t<|end|>"
            "<|start|>assistant<|channel|>final<|message|>d<|return|>»",
        ),
        (  # the prompt of an answer continues with <think>, which the text leaves out
            "DeepSeek R1",
            said("a", "<think>\nr\n</think>\n\nb", "c", "d"),
            "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜>«\n\nb<｜end▁of▁sentence｜>»"
            "<｜User｜>c<｜Assistant｜>«d<｜end▁of▁sentence｜>»",
        ),
        (
            "Llama 4",
            [*said("a"), {"role": "assistant", "content": [{"type": "text", "text": t} for t in "bc"]}],
            "<|begin_of_text|><|header_start|>user<|header_end|>\n\na<|eot|>"
            "<|header_start|>assistant<|header_end|>\n\n«bc<|eot|>»",
        ),
        (  # messages of others at the end
            "Llama 3",
            said(" b ", "a", " c ", first="assistant"),
            "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\n«b<|eot_id|>»"
            "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«c<|eot_id|>»",
        ),
        (
            "Phi 3",
            said("<|end|>", "<|end|> <|assistant|>\n", "b"),
            "<|user|>\n<|end|><|end|>\n<|assistant|>\n«<|end|> <|assistant|>\n<|end|>»\n"
            "<|user|>\nb<|end|>\n<|endoftext|>",
        ),
    ],
)
def test_what_templates_change_or_add_is_a_target_as_far_as_the_model_says_it(
    family: str, messages: list[dict[str, Any]], expected: str
) -> None:
    tok = tokenizer_of(family, "bytes")
    found = render_conversation(tok, messages)
    assert targets(tok, found.ids, found.mask) == expected


def with_template(template: str, *special: str) -> Tokenizer:
    tok = Tokenizer(BYTES, [], special)
    tok.chat_template = template
    return tok


PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.mark.parametrize(
    ("template", "special", "expected"),
    [
        (PLAIN, [], "user: a\nassistant: «b\n»user: c\nassistant: «d\n»"),
        # Only the end of the conversation has a token, and messages begin with one.
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}</s>",
            ["<|user|>", "<|assistant|>", "</s>"],
            "<|user|>a<|assistant|>«b»<|user|>c<|assistant|>«d</s>»",
        ),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}",
            ["<|user|>", "<|assistant|>", "</s>"],
            "<|user|>a<|assistant|>«b»<|user|>c<|assistant|>«d»",
        ),
        # The template asks for the content, so markers change more than the content.
        (
            "{% for m in messages %}{{ m.role }}: {{ m.content if m.content | length == 1 else '?' }}\n{% endfor %}",
            [],
            "user: a\nassistant: «b\n»user: c\nassistant: «d\n»",
        ),
        # In macros, transformers takes positions of the macro for those of the text.
        (
            "{% macro turn(m) %}{{ m.role }}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
            "{{ turn(m) }}{% endif %}{% endfor %}",
            [],
            "aassistant«b»cassistant«d»",
        ),
    ],
)
def test_other_templates(template: str, special: list[str], expected: str) -> None:
    tok = with_template(template, *special)
    messages = said("a", "b", "c", "d")
    found = render_conversation(tok, messages)
    assert targets(tok, found.ids, found.mask) == expected


def test_blocks_of_generated_text_give_the_mask_of_transformers() -> None:
    tok = tokenizer_of("SmolLM 3", "merges")
    theirs = tok.to_transformers()
    for contents in (["a", "b"], ["日本", "é", "", ""], [" 1 ", "\nindented code(that\n"] * 3):
        messages = said(*contents)
        found = render_conversation(tok, messages)
        expected = theirs.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
        assert found.ids == expected["input_ids"]
        assert [int(is_target) for is_target in found.mask] == expected["assistant_masks"]


def test_a_special_token_that_takes_in_white_space_is_no_target() -> None:
    spec = Tokenizer(BYTES, [], ["<|a|>", "<|e|>"]).to_spec()
    flags = {"<|a|>": TokenFlags(rstrip=True), "<|e|>": TokenFlags(lstrip=True)}
    tok = Tokenizer.from_spec(replace(spec, flags=flags))
    tok.chat_template = "{% for m in messages %}<|a|>\n{{ m.content }}<|e|>{% endfor %}"
    found = render_conversation(tok, said("x", " y "))
    assert found.ids == [256, *b"x", 257, 256, *b"y", 257]
    assert found.mask == [False] * 4 + [True] * 2


@pytest.mark.parametrize("n", [1, 2, 7])
def test_truncation_keeps_as_many_whole_turns_as_fit(n: int) -> None:
    tok = tokenizer_of("Qwen 3", "bytes")
    messages = said(*map(str, range(2 * n)), "more")
    sizes = [len(tok.apply_chat_template(messages[:end])["input_ids"]) for end in range(2, 2 * n + 1, 2)]
    for kept, size in enumerate(sizes, 1):
        for limit in (size, size + 1):
            if limit < sizes[-1]:
                found = render_conversation(tok, messages, max_tokens=limit)
                assert found == render_conversation(tok, messages[: 2 * kept])
    assert render_conversation(tok, messages, max_tokens=10**6) == render_conversation(tok, messages)
    with pytest.raises(TokenizerError, match=r"^the first turn of the assistant ends after "):
        render_conversation(tok, messages, max_tokens=sizes[0] - 1)


@pytest.mark.parametrize(
    ("template", "messages", "error"),
    [
        (None, said("a", "b"), "this tokenizer has no chat template"),
        (PLAIN, [], "the conversation has no message of the assistant"),
        (PLAIN, said("a"), "the conversation has no message of the assistant"),
        (PLAIN, [*said("a", "b"), {"role": "bot", "content": "c"}], "message 3 has the unknown role 'bot'"),
        (PLAIN, [{"content": "c"}], "message 1 has the unknown role None"),
        (PLAIN, [*said("a"), {"role": "assistant", "content": 3}], r"message 2 \(assistant\) has .* type int"),
        (PLAIN, said("a", "b\ud83d"), r"message 2 \(assistant\) has a lone surrogate"),
        (PLAIN, said("\ude00", "b"), r"message 1 \(user\) has a lone surrogate"),
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", said("a", "b"),
         r"leaves out message 2 .*\(chat template 'default' of bytemill-\w+\): \[{\"role\": \"user\""),
        ("{{ messages[0].content }}{% generation %}{% endgeneration %}", said("a", "b"), "no token of the"),
        ("{{ messages[0].content }}{% if %}", said("a", "b"), r"message 1 \(user\): the chat template failed: "),
        ("{% for m in messages %}{{ m.content + m.name }}{% endfor %}",
         [{"role": "user", "content": "a", "name": "n"}, *said("b", first="assistant")],
         r"message 2 \(assistant\): the chat template failed: .*'name'"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}{{ messages[-1].content }}", said("a", "b"),
         r"writes message 2 \(assistant\) more than once"),
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'user' %} ({{ messages[-1].content }})"
         "{% endif %}{% endfor %}", said("a", " b "), r"writes message 2 \(assistant\) more than once"),
        # The prompt of an answer contains what the content begins with.
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
         "{% if add_generation_prompt %}<assistant><think>{% endif %}", said("a", "<think>b"),
         "the markers and the renderings of prefixes disagree about message 2"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_name_the_message(
    template: str | None, messages: list[dict[str, Any]], error: str
) -> None:
    tok = Tokenizer(BYTES, []) if template is None else with_template(template)
    with pytest.raises(TokenizerError, match=error) as caught:
        render_conversation(tok, messages)
    assert "\n" not in str(caught.value)
