"""tiktoken's table of OpenAI models and their encodings."""

from __future__ import annotations

ENCODING_NAMES = (
    "gpt2",
    "r50k_base",
    "p50k_base",
    "p50k_edit",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
)

HARMONY_SPECIAL_TOKENS: dict[str, int] = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|reserved_200000|>": 200000,
    "<|reserved_200001|>": 200001,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|reserved_200004|>": 200004,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    **{f"<|reserved_{i}|>": i for i in (200009, 200010, 200011)},
    "<|call|>": 200012,
    **{f"<|reserved_{i}|>": i for i in range(200013, 201088)},
}
"""Special tokens of o200k_harmony, besides those of o200k_base. Id 200018 is also o200k_base's `<|endofprompt|>`."""

_MODELS: dict[str, str] = {
    "gpt2": "gpt2 gpt-2",
    "r50k_base": (
        "davinci curie babbage ada "
        "text-davinci-001 text-curie-001 text-babbage-001 text-ada-001 "
        "text-similarity-davinci-001 text-similarity-curie-001 text-similarity-babbage-001 text-similarity-ada-001 "
        "text-search-davinci-doc-001 text-search-curie-doc-001 text-search-babbage-doc-001 text-search-ada-doc-001 "
        "code-search-babbage-code-001 code-search-ada-code-001"
    ),
    "p50k_base": (
        "text-davinci-002 text-davinci-003 code-davinci-001 code-davinci-002 code-cushman-001 code-cushman-002 "
        "davinci-codex cushman-codex"
    ),
    "p50k_edit": "text-davinci-edit-001 code-davinci-edit-001",
    "cl100k_base": (
        "gpt-4 gpt-3.5-turbo gpt-3.5 gpt-35-turbo davinci-002 babbage-002 "
        "text-embedding-ada-002 text-embedding-3-small text-embedding-3-large"
    ),
    "o200k_base": "o1 o3 o4-mini gpt-5 gpt-4.1 gpt-4o",
}
_ENCODING_OF = {model: name for name, models in _MODELS.items() for model in models.split()}

# Prefixes of model families: dated versions, deployments, fine-tuned models. Where prefixes with different encodings
# overlap, the longer one comes first.
_PREFIXES: dict[str, str] = {
    "o200k_harmony": "gpt-oss-",
    "o200k_base": "o1- o3- o4-mini- gpt-5 gpt-4.5- gpt-4.1- chatgpt-4o- gpt-4o- ft:gpt-4o",
    "cl100k_base": "gpt-4- gpt-3.5-turbo- gpt-35-turbo- ft:gpt-4 ft:gpt-3.5-turbo ft:davinci-002 ft:babbage-002",
}


def encoding_name_for_model(model_name: str) -> str:
    """Return the name of a model's encoding. Raises KeyError for an unknown model.

    >>> encoding_name_for_model("gpt-4o-mini")
    'o200k_base'
    """
    if model_name in _ENCODING_OF:
        return _ENCODING_OF[model_name]
    for name, prefixes in _PREFIXES.items():
        if model_name.startswith(tuple(prefixes.split())):
            return name
    raise KeyError(f"unknown model {model_name!r}: use get_encoding with the name of an encoding")
