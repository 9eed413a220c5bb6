"""Chat templates in the formats of published families, written for the tests, and what they must make of conversations.

Expected texts are written by hand: `«` and `»` enclose the targets. None stands for a conversation that the family's
template rejects.
"""

from dataclasses import dataclass, field
from typing import Any

TOOL = {"type": "function", "function": {"name": "sky", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c00000001", "type": "function", "function": {"name": "sky", "arguments": {"at": "Rome"}}}


def said(*contents: str, first: str = "user") -> list[dict[str, Any]]:
    """Return messages of the user and the assistant in turn."""
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


SHAPES: dict[str, tuple[list[dict[str, Any]], list[Any] | None]] = {
    "system": ([{"role": "system", "content": "Be brief."}, *said("Hi", "Hello.")], None),
    "several turns": (said("1+1?", "2", "2+2?", "4"), None),
    "tools": (
        [
            {"role": "user", "content": "Sky?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c00000001", "name": "sky", "content": "blue"},
            {"role": "assistant", "content": "Blue."},
        ],
        [TOOL],
    ),
    "empty answer": (said("Hi", ""), None),
    "truncated": (said("1+1?", "2", "2+2?", "4 and so on"), None),
    "consecutive assistants": (
        [*said("Hi", "One."), {"role": "assistant", "content": "Two."}],
        None,
    ),
}
SCHEMA = (
    '{"type": "function", "function": {"name": "sky", "parameters": {"type": "object", "properties": {}}}}'
)


@dataclass(frozen=True)
class Family:
    """A template, its special tokens, and the text of each shape."""

    template: str
    special: list[str]
    texts: dict[str, str | None]
    roles: dict[str, str] = field(default_factory=dict[str, str])
    """`bos_token` and `eos_token`."""
    strips: bool = False
    """The template strips the contents."""
    around: tuple[str, str] = ("", "")
    """Text of the model before and after the content, up to the special token that ends the turn."""

    @property
    def end(self) -> str:
        """What ends a turn of the assistant that another message follows."""
        return self._ends[0]

    @property
    def last_end(self) -> str:
        """What ends the last message."""
        return self._ends[-1]

    @property
    def _ends(self) -> list[str]:
        text = self.texts["several turns"] or ""
        turns = [part.partition("»")[0] for part in text.split("«")[1:]]
        before, after = self.around
        return [
            turn.removeprefix(before).removeprefix(answer).removeprefix(after)
            for turn, answer in zip(turns, "24", strict=True)
        ]


def _shapes(*texts: str | None) -> dict[str, str | None]:
    return dict(zip(SHAPES, texts, strict=True))


CHATML = Family(
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content + '<|im_end|>' }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ["<|im_start|>", "<|im_end|>"],
    _shapes(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n«Hello.<|im_end|>»\n",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n«2<|im_end|>»\n"
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n«4<|im_end|>»\n",
        None,
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<|im_end|>»\n",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n«2<|im_end|>»\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«One.<|im_end|>»\n<|im_start|"
        ">assistant\n«Two.<|im_end|>»\n",
    ),
)

SMOLLM2 = Family(
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nYou are Smol.<|im_end|>\n"
    "{% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    ["<|im_start|>", "<|im_end|>"],
    {
        shape: text
        if text is None or shape == "system"
        else f"<|im_start|>system\nYou are Smol.<|im_end|>\n{text}"
        for shape, text in CHATML.texts.items()
    },
)

SMOLLM3 = Family(
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{% generation %}"
    "{{ '<think>\n\n</think>\n' + m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    ["<|im_start|>", "<|im_end|>", "<think>", "</think>"],
    {
        shape: text and text.replace("assistant\n«", "assistant\n«<think>\n\n</think>\n")
        for shape, text in CHATML.texts.items()
    },
    around=("<think>\n\n</think>\n", ""),
)

LLAMA2 = Family(
    "{% if messages[0].role == 'system' %}{% set system, turns = messages[0].content, messages[1:] %}"
    "{% else %}{% set system, turns = none, messages %}{% endif %}{% for m in turns %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if loop.first and system %}{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m.content %}"
    "{% else %}{% set content = m.content %}{% endif %}"
    "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    ["<s>", "</s>"],
    _shapes(
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] «Hello. </s>»",
        "<s>[INST] 1+1? [/INST] «2 </s>»<s>[INST] 2+2? [/INST] «4 </s>»",
        None,
        "<s>[INST] Hi [/INST] « </s>»",
        "<s>[INST] 1+1? [/INST] «2 </s>»",
        None,
    ),
    {"bos_token": "<s>", "eos_token": "</s>"},
    strips=True,
    around=("", " "),
)

_LLAMA3_USER = "<|start_header_id|>user<|end_header_id|>\n\n"
_LLAMA3_ANSWER = "<|start_header_id|>assistant<|end_header_id|>\n\n"
LLAMA3 = Family(
    "{{ bos_token }}{% if tools %}{{ '<|start_header_id|>system<|end_header_id|>\n\nTools:' }}"
    "{% for tool in tools %}{{ ' ' + tool | tojson }}{% endfor %}{{ '<|eot_id|>' }}{% endif %}"
    "{% for m in messages %}"
    '{% if m.tool_calls %}{{ \'<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "\' }}'
    "{% set f = m.tool_calls[0].function %}{{ f.name + '\", \"parameters\": ' + f.arguments | tojson + '}<|eot_id|>' }}"
    "{% elif m.role == 'tool' %}"
    "{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + m.content | tojson + '<|eot_id|>' }}"
    "{% else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
    "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    _shapes(
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        f"{_LLAMA3_USER}Hi<|eot_id|>{_LLAMA3_ANSWER}«Hello.<|eot_id|>»",
        f"<|begin_of_text|>{_LLAMA3_USER}1+1?<|eot_id|>{_LLAMA3_ANSWER}«2<|eot_id|>»"
        f"{_LLAMA3_USER}2+2?<|eot_id|>{_LLAMA3_ANSWER}«4<|eot_id|>»",
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nTools: {SCHEMA}<|eot_id|>"
        f'{_LLAMA3_USER}Sky?<|eot_id|>{_LLAMA3_ANSWER}«{{"name": "sky", "parameters": {{"at": "Rome"}}}}<|eot_id|>»'
        f'<|start_header_id|>ipython<|end_header_id|>\n\n"blue"<|eot_id|>{_LLAMA3_ANSWER}«Blue.<|eot_id|>»',
        f"<|begin_of_text|>{_LLAMA3_USER}Hi<|eot_id|>{_LLAMA3_ANSWER}«<|eot_id|>»",
        f"<|begin_of_text|>{_LLAMA3_USER}1+1?<|eot_id|>{_LLAMA3_ANSWER}«2<|eot_id|>»",
        f"<|begin_of_text|>{_LLAMA3_USER}Hi<|eot_id|>{_LLAMA3_ANSWER}«One.<|eot_id|>»{_LLAMA3_ANSWER}«Two.<|eot_id|>»",
    ),
    {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    strips=True,
)

LLAMA4 = Family(
    "{{ bos_token }}{% for m in messages %}{{ '<|header_start|>' + m.role + '<|header_end|>\n\n' }}"
    "{% if m.tool_calls %}{{ '<|python_start|>' + m.content + '<|python_end|>' }}{% for call in m.tool_calls %}"
    "{{ '{\"name\": \"' + call.function.name + '\", \"parameters\": ' + call.function.arguments | tojson + '}' }}"
    "{% endfor %}{% elif m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}{{ part.text if part.type == 'text' else '<|image|>' }}{% endfor %}"
    "{% endif %}"
    "{{ '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|header_start|>assistant<|header_end|>\n\n' }}{% endif %}",
    [
        *("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"),
        *("<|python_start|>", "<|python_end|>", "<|image|>"),
    ],
    {
        shape: text
        and text.replace("<|start_header_id|>", "<|header_start|>")
        .replace("<|end_header_id|>", "<|header_end|>")
        .replace("<|eot_id|>", "<|eot|>")
        for shape, text in LLAMA3.texts.items()
    }
    | {
        "tools": "<|begin_of_text|><|header_start|>user<|header_end|>\n\nSky?<|eot|>"
        "<|header_start|>assistant<|header_end|>\n\n«<|python_start|><|python_end|>"
        '{"name": "sky", "parameters": {"at": "Rome"}}<|eot|>»<|header_start|>tool<|header_end|>\n\nblue<|eot|>'
        "<|header_start|>assistant<|header_end|>\n\n«Blue.<|eot|>»"
    },
    {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot|>"},
)

QWEN3 = Family(
    "{% if tools %}{{ '<|im_start|>system\n# Tools' }}{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}{% set ns = namespace(last=messages | length - 1, open=true) %}"
    "{% for m in messages[::-1] %}{% if ns.open and m.role == 'user' %}"
    "{% set ns.open = false %}{% set ns.last = messages | length - loop.index %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role in ['user', 'system'] %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% elif m.role == 'assistant' %}{% set content, reasoning = m.content, m.reasoning_content or '' %}"
    "{% if not reasoning and '</think>' in content %}"
    "{% set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ '<|im_start|>assistant\n' }}"
    "{% if loop.index0 > ns.last and (loop.last or reasoning) %}"
    "{{ '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}{% else %}{{ content }}"
    "{% endif %}"
    "{% for call in m.tool_calls or [] %}{% if content or not loop.first %}{{ '\n' }}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{ call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"],
    _shapes(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n«Hello.<|im_end|>»\n",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n«2<|im_end|>»\n"
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n«4<|im_end|>»\n",
        f"<|im_start|>system\n# Tools\n{SCHEMA}<|im_end|>\n<|im_start|>user\nSky?<|im_end|>\n<|im_start|>assistant\n"
        '«<tool_call>\n{"name": "sky", "arguments": {"at": "Rome"}}\n</tool_call><|im_end|>»\n'
        "<|im_start|>user\n<tool_response>\nblue\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n«Blue.<|im_end|>»\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n«<|im_end|>»\n",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n«2<|im_end|>»\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«One.<|im_end|>»\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n«Two.<|im_end|>»\n",
    ),
)

GEMMA = Family(
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{% set first, turns = messages[0].content + '\n\n', messages[1:] %}"
    "{% else %}{% set first, turns = '', messages %}{% endif %}{% for m in turns %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (first if loop.first else '') }}"
    "{{ m.content | trim }}{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    ["<bos>", "<start_of_turn>", "<end_of_turn>"],
    _shapes(
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n«Hello.<end_of_turn>»\n",
        "<bos><start_of_turn>user\n1+1?<end_of_turn>\n<start_of_turn>model\n«2<end_of_turn>»\n"
        "<start_of_turn>user\n2+2?<end_of_turn>\n<start_of_turn>model\n«4<end_of_turn>»\n",
        None,
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n«<end_of_turn>»\n",
        "<bos><start_of_turn>user\n1+1?<end_of_turn>\n<start_of_turn>model\n«2<end_of_turn>»\n",
        None,
    ),
    {"bos_token": "<bos>"},
    strips=True,
)


def _mistral(before_user: str, after_user: str, before_answer: str, gap: str, *, tools: bool) -> Family:
    template = (
        "{{ bos_token }}{% if messages[0].role == 'system' %}"
        "{% set first, turns = messages[0].content + '\n\n', messages[1:] %}"
        "{% else %}{% set first, turns = '', messages %}{% endif %}"
        "{% set ns = namespace(user=true) %}{% for m in turns %}"
        "{% if m.role == 'user' or m.role == 'assistant' and not m.tool_calls %}{% if (m.role == 'user') != ns.user %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.user = not ns.user %}{% endif %}"
        "{% if m.role == 'user' %}"
        "{% if tools and loop.last or tools and turns[loop.index0 + 1].role != 'user' and loop.first %}"
        f"{{{{ '[AVAILABLE_TOOLS]{gap}' + tools | tojson + '[/AVAILABLE_TOOLS]' }}}}{{% endif %}}"
        f"{{{{ '{before_user}' + (first if loop.last or loop.first else '') + m.content + '{after_user}' }}}}"
        + (
            "{% elif m.tool_calls %}"
            f"{{{{ '[TOOL_CALLS]{gap}[' }}}}{{% for call in m.tool_calls %}}{{{{ call.function | tojson }}}}"
            "{{ '' if loop.last else ', ' }}{% endfor %}{{ ']' + eos_token }}"
            f"{{% elif m.role == 'tool' %}}{{{{ '[TOOL_RESULTS]{gap}' + m.content + '[/TOOL_RESULTS]' }}}}"
            if tools
            else ""
        )
        + f"{{% elif m.role == 'assistant' %}}{{{{ '{before_answer}' + m.content + eos_token }}}}"
        "{% else %}{{ raise_exception('unknown role ' + m.role) }}{% endif %}{% endfor %}"
    )

    def user(text: str) -> str:
        return f"{before_user}{text}{after_user}{before_answer}"

    call = '{"name": "sky", "arguments": {"at": "Rome"}}'
    special = ["<s>", "</s>", "[INST]", "[/INST]"]
    if tools:
        special += [
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_CALLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
        ]
    return Family(
        template,
        special if tools else special[:2],
        _shapes(
            f"<s>{user('Be brief.' + chr(10) * 2 + 'Hi')}«Hello.</s>»",
            f"<s>{user('1+1?')}«2</s>»{user('2+2?')}«4</s>»",
            f"<s>[AVAILABLE_TOOLS]{gap}[{SCHEMA}][/AVAILABLE_TOOLS]{before_user}Sky?{after_user}"
            f"«[TOOL_CALLS]{gap}[{call}]</s>»[TOOL_RESULTS]{gap}blue[/TOOL_RESULTS]{before_answer}«Blue.</s>»"
            if tools
            else None,
            f"<s>{user('Hi')}«</s>»",
            f"<s>{user('1+1?')}«2</s>»",
            None,
        ),
        {"bos_token": "<s>", "eos_token": "</s>"},
    )


PHI3 = Family(
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
    _shapes(
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n«Hello.<|end|>»\n<|endoftext|>",
        "<|user|>\n1+1?<|end|>\n<|assistant|>\n«2<|end|>»\n<|user|>\n2+2?<|end|>\n<|assistant|>\n«4<|end|"
        ">»\n<|endoftext|>",
        None,
        "<|user|>\nHi<|end|>\n<|assistant|>\n«<|end|>»\n<|endoftext|>",
        "<|user|>\n1+1?<|end|>\n<|assistant|>\n«2<|end|>»\n<|endoftext|>",
        "<|user|>\nHi<|end|>\n<|assistant|>\n«One.<|end|>»\n<|assistant|>\n«Two.<|end|>»\n<|endoftext|>",
    ),
    {"eos_token": "<|endoftext|>"},
)

_EOS = "<｜end▁of▁sentence｜>"
DEEPSEEK = Family(
    "{% set ns = namespace(tool=false, system='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.system = m.content %}{% endif %}{% endfor %}{{ bos_token + ns.system }}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.tool = false %}{{ '<｜User｜>' + m.content }}"
    "{% elif m.role == 'tool' %}{% set ns.tool = true %}"
    "{{ '<｜tool▁outputs▁begin｜>' + m.content + '<｜tool▁outputs▁end｜>' }}"
    "{% elif m.tool_calls %}{{ '<｜Assistant｜><｜tool▁calls▁begin｜>' }}{% for call in m.tool_calls %}"
    "{{ call.function.name + '\n```json\n' + call.function.arguments | tojson + '\n```<｜tool▁call▁end｜>' }}"
    "{% endfor %}"
    "{{ '<｜tool▁calls▁end｜>' + eos_token }}{% elif m.role == 'assistant' %}"
    "{{ ('' if ns.tool else '<｜Assistant｜>') + m.content.split('</think>')[-1] + eos_token }}"
    "{% set ns.tool = false %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt and not ns.tool %}{{ '<｜Assistant｜><think>\n' }}{% endif %}",
    [
        *("<｜begin▁of▁sentence｜>", _EOS, "<｜User｜>", "<｜Assistant｜>", "<｜tool▁outputs▁begin｜>"),
        *("<｜tool▁outputs▁end｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    ],
    _shapes(
        f"<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>«Hello.{_EOS}»",
        f"<｜begin▁of▁sentence｜><｜User｜>1+1?<｜Assistant｜>«2{_EOS}»<｜User｜>2+2?<｜Assistant｜>«4{_EOS}»",
        "<｜begin▁of▁sentence｜><｜User｜>Sky?<｜Assistant｜>«<｜tool▁calls▁begin｜>sky\n```json\n"
        f'{{"at": "Rome"}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>{_EOS}»'
        f"<｜tool▁outputs▁begin｜>blue<｜tool▁outputs▁end｜>«Blue.{_EOS}»",
        f"<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«{_EOS}»",
        f"<｜begin▁of▁sentence｜><｜User｜>1+1?<｜Assistant｜>«2{_EOS}»",
        f"<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«One.{_EOS}»<｜Assistant｜>«Two.{_EOS}»",
    ),
    {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": _EOS},
)

_FINAL = "<|start|>assistant<|channel|>final<|message|>"
GPT_OSS = Family(
    "{{ '<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>' }}"
    "{% if messages[0].role == 'system' %}{% set developer, turns = messages[0].content, messages[1:] %}"
    "{% else %}{% set developer, turns = '', messages %}{% endif %}{% if developer or tools %}"
    "{{ '<|start|>developer<|message|>' + developer }}{% for tool in tools or [] %}{{ 'type ' + tool.function.name }}"
    "{% endfor %}{{ '<|end|>' }}{% endif %}{% set ns = namespace(call=none) %}{% for m in turns %}"
    "{% if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    "{% elif m.role == 'tool' %}{% if ns.call is none %}{{ raise_exception('a result without a call') }}{% endif %}"
    "{{ '<|start|>functions.' + ns.call + ' to=assistant<|channel|>commentary<|message|"
    ">' + m.content | tojson + '<|end|>' }}"
    "{% elif m.tool_calls %}{% set ns.call = m.tool_calls[0].function.name %}{% if m.thinking %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant to=functions.' + ns.call + '<|channel|>commentary json<|message|>' }}"
    "{{ m.tool_calls[0].function.arguments | tojson + '<|call|>' }}"
    "{% else %}{% if loop.last and m.thinking %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% set ns.call = none %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
    ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"],
    {
        shape: text and f"<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>{text}"
        for shape, text in _shapes(
            "<|start|>developer<|message|>Be brief.<|end|><|start|>user<|message|>Hi<|end|>"
            f"{_FINAL}«Hello.<|return|>»",
            f"<|start|>user<|message|>1+1?<|end|>{_FINAL}«2<|end|>»"
            f"<|start|>user<|message|>2+2?<|end|>{_FINAL}«4<|return|>»",
            "<|start|>developer<|message|>type sky<|end|><|start|>user<|message|>Sky?<|end|>"
            '<|start|>assistant« to=functions.sky<|channel|>commentary json<|message|>{"at": "Rome"}<|call|>»'
            '<|start|>functions.sky to=assistant<|channel|>commentary<|message|>"blue"<|end|>'
            f"{_FINAL}«Blue.<|return|>»",
            f"<|start|>user<|message|>Hi<|end|>{_FINAL}«<|return|>»",
            f"<|start|>user<|message|>1+1?<|end|>{_FINAL}«2<|return|>»",
            f"<|start|>user<|message|>Hi<|end|>{_FINAL}«One.<|end|>»{_FINAL}«Two.<|return|>»",
        ).items()
    },
)

ZEPHYR = Family(
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}",
    ["<s>", "</s>"],
    _shapes(
        "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\n«Hello.</s>»\n",
        "<|user|>\n1+1?</s>\n<|assistant|>\n«2</s>»\n<|user|>\n2+2?</s>\n<|assistant|>\n«4</s>»\n",
        None,
        "<|user|>\nHi</s>\n<|assistant|>\n«</s>»\n",
        "<|user|>\n1+1?</s>\n<|assistant|>\n«2</s>»\n",
        "<|user|>\nHi</s>\n<|assistant|>\n«One.</s>»\n<|assistant|>\n«Two.</s>»\n",
    ),
    {"bos_token": "<s>", "eos_token": "</s>"},
)

FAMILIES: dict[str, Family] = {
    "ChatML": CHATML,
    "SmolLM 2": SMOLLM2,
    "SmolLM 3": SMOLLM3,
    "Llama 2": LLAMA2,
    "Llama 3": LLAMA3,
    "Llama 4": LLAMA4,
    "Qwen 3": QWEN3,
    "Gemma": GEMMA,
    "Mistral v1": _mistral("[INST] ", " [/INST]", " ", "", tools=False),
    "Mistral v3": _mistral("[INST] ", "[/INST]", " ", " ", tools=True),
    "Mistral tekken": _mistral("[INST]", "[/INST]", "", "", tools=True),
    "Phi 3": PHI3,
    "DeepSeek R1": DEEPSEEK,
    "gpt-oss": GPT_OSS,
    "Zephyr": ZEPHYR,
}
