"""Architectures of other programs: options, names of tensors, tokenizers, and a model in their terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from bytemill.errors import ModelConfigError, NotFiniteError, TokenizerError
from bytemill.formats.gguf_names import BEGIN_NAMES, END_NAMES
from bytemill.formats.gguf_pre_tokenizers import PRE_TOKENIZERS, same_split
from bytemill.formats.huggingface.exchange import default_config, with_bos, write_folder
from bytemill.formats.spec import TokenizerMetadata
from bytemill.lm.device import memory_errors
from bytemill.lm.model import TransformerLM
from bytemill.lm.tensors import not_finite
from bytemill.tokenizer.chat import variables_of
from bytemill.tokenizer.conversations import PROBE, end_of_turn
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bytemill.formats.spec import TokenizerSpec
    from bytemill.lm.model_config import ModelConfig
    from bytemill.lm.training.saved_model import SavedModel


_NO_OPTIONS: dict[str, tuple[Any, ...]] = {
    "norm_position": ("pre",),
    "logit_soft_cap": (None,),
    "attention.sliding_window": (None,),
    "attention.qk_norm": (False,),
}
_LLAMA: dict[str, tuple[Any, ...]] = {
    "norm": ("rms",),
    "position": ("rotary",),
    "feed_forward": ("swiglu",),
    "rope.fraction": (1.0,),
    "bias": (False,),
    "attention.qkv_bias": (False,),
    **_NO_OPTIONS,
}
_ANY_WINDOW: dict[str, tuple[Any, ...]] = {"attention.sliding_window": ()}
EXPRESSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {
        "norm": ("layer",),
        "position": ("learned",),
        "feed_forward": ("gelu", "gelu_exact", "relu", "relu2"),
        **_NO_OPTIONS,
    },
    "qwen2": {**_LLAMA, **_ANY_WINDOW, "attention.qkv_bias": (True,)},
    "llama": {**_LLAMA, "bias": (False, True), "attention.qkv_bias": ()},
    "mistral": {**_LLAMA, **_ANY_WINDOW},
    "qwen3": {**_LLAMA, **_ANY_WINDOW, "attention.qk_norm": (True,)},
}
"""Per architecture of transformers the values that it has of each option; () stands for all."""
_LLAMA_CPP_QWEN: dict[str, tuple[Any, ...]] = {
    "attention.sliding_window": (None,),
    "rope.scaling": (None, "linear"),
}
GGUF_EXPRESSED = {
    "gpt2": {**EXPRESSED["gpt2"], "feed_forward": ("gelu",)},
    "qwen2": {**EXPRESSED["qwen2"], **_LLAMA_CPP_QWEN},
    "llama": EXPRESSED["llama"],
    "qwen3": {**EXPRESSED["qwen3"], **_LLAMA_CPP_QWEN},
}
"""The same for llama.cpp."""


def check_supported(config: ModelConfig, spec: TokenizerSpec | None = None, *, gguf: bool = False) -> str:
    """Return the first architecture that expresses a model exactly.

    Args:
        config: Shape of the model.
        spec: Tokenizer that is exported beside it; transformers must give its ids.
        gguf: Ask for an architecture of llama.cpp instead of transformers.

    Raises:
        ModelConfigError: None does; the message names the options that the nearest one lacks.
    """
    table = GGUF_EXPRESSED if gguf else EXPRESSED
    lacking = {name: list(_lacking(name, allowed, config)) for name, allowed in table.items()}
    nearest = min(lacking, key=lambda name: len(lacking[name]))
    if lacking[nearest]:
        program = "llama.cpp" if gguf else "transformers"
        raise ModelConfigError(
            f"no architecture of {program} has the options of this model; the nearest, {nearest}, lacks "
            + ", ".join(lacking[nearest]),
            hint=f"architectures: {', '.join(table)}",
        )
    exact = [name for name, options in lacking.items() if not options]
    if gguf or spec is None:
        return exact[0]
    for name in exact:
        if keeps_ids(name, spec):
            return name
    raise ModelConfigError(
        f"only the architecture {exact[0]} of transformers has the options of this model, and transformers reads every "
        f"tokenizer beside it with the pattern and the normalizer of {exact[0]}, which this tokenizer does not have",
        hint="add --no-tokenizer, and load the tokenizer.json of the model with transformers.PreTrainedTokenizerFast("
        "tokenizer_file=PATH)",
    )


def with_zero_biases(config: ModelConfig, architecture: str) -> ModelConfig:
    """Return the shape of the exported model: with biases that the architecture has and the model does not."""
    if architecture == "gpt2":
        return config.replace(bias=True, norm_bias=True)
    if architecture == "llama" and config.attention.qkv_bias:
        return config.replace(bias=True)
    return config


def _lacking(name: str, allowed: dict[str, tuple[Any, ...]], config: ModelConfig) -> Iterable[str]:
    own = config.to_flat()
    for option, values in allowed.items():
        value = own[option]
        if option == "attention.qkv_bias" and config.bias:
            continue  # all linear layers have one
        if values and value not in values:
            yield f"{option} {value!r}"
    yield from config.unknown_options()
    is_divided = config.d_model % config.num_heads == 0
    if name == "gpt2":
        if config.n_kv_heads != config.num_heads:
            yield f"attention.num_kv_heads {config.n_kv_heads} with num_heads {config.num_heads}"
        if config.d_head * config.num_heads != config.d_model:
            yield f"attention.head_dim {config.d_head} with d_model {config.d_model} and num_heads {config.num_heads}"
    elif name == "llama" and not is_divided:
        yield f"d_model {config.d_model} that num_heads {config.num_heads} does not divide"


Layout = Literal["gpt2", "nanogpt", "llama", "gguf-gpt2", "gguf-llama", "gguf-qwen"]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Entry:
    """A tensor of another format, and the tensors of this package that it holds."""

    theirs: str
    ours: tuple[str, ...]
    """Several tensors are stacked along their first dimension."""
    is_transposed: bool = False
    """Stored as (d_in, d_out)."""
    d_head: int | None = None
    """Width of the heads whose rows are stored as two halves. The rotary embedding of the other format rotates row i
    with row i + d_head / 2, this package's row 2i with row 2i + 1."""

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape in the other format, for this package's `shapes`."""
        own = [shapes[name] for name in self.ours]
        stacked = (sum(shape[0] for shape in own), *own[0][1:])
        return stacked[::-1] if self.is_transposed else stacked

    def to_ours(self, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Split the other format's tensor into tensors of `shapes`, in float32."""
        tensor = (tensor.T if self.is_transposed else tensor).float()
        parts: Sequence[Tensor] = torch.split(tensor, [shapes[name][0] for name in self.ours])
        if self.d_head is not None:
            order = torch.arange(self.d_head).view(2, -1).T.reshape(-1)
            parts = [_reordered(part, order) for part in parts]
        return {name: part.contiguous() for name, part in zip(self.ours, parts, strict=True)}

    def to_theirs(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the other format's tensor."""
        parts = [state[name].detach() for name in self.ours]
        if self.d_head is not None:
            order = torch.arange(self.d_head).view(-1, 2).T.reshape(-1)
            parts = [_reordered(part, order) for part in parts]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        return (tensor.T if self.is_transposed else tensor).contiguous()


def entries(layout: Layout, config: ModelConfig) -> list[Entry]:
    """Return an entry for each tensor of a model in another format."""
    shapes = tensor_shapes(config)
    is_gpt2 = layout in ("gpt2", "nanogpt", "gguf-gpt2")
    names = _GPT2_NAMES if is_gpt2 else _LLAMA_NAMES
    if layout.startswith("gguf"):
        names = {**_GGUF_NAMES, "w1": "ffn_up"} if is_gpt2 else _GGUF_NAMES
    qkv = [(name, (f"attn.{name}",)) for name in ("q_proj", "k_proj", "v_proj")]
    if is_gpt2:
        qkv = [("qkv", tuple(ours for _, (ours,) in qkv))]
    halves = config.d_head if layout in ("llama", "gguf-qwen") and config.position == "rotary" else None
    result: list[Entry] = []

    def add(theirs: str, ours: tuple[str, ...]) -> None:
        for kind in ("weight", "bias"):
            own = tuple(f"{name}.{kind}" for name in ours)
            if own[0] in shapes:
                is_matrix = len(shapes[own[0]]) == 2 and own[0].startswith("layers")
                is_rotated = ours[0].rpartition(".")[2] in ("q_proj", "k_proj", "q_norm", "k_norm")
                result.append(
                    Entry(
                        f"{theirs}.{kind}",
                        own,
                        is_transposed=layout == "gpt2" and is_matrix,
                        d_head=halves if is_rotated else None,
                    )
                )

    for ours in ("token_embeddings", "position_embeddings"):
        add(names[ours], (ours,))
    for number in range(config.num_layers):
        block = names["layers"].format(number)
        parts = [(name, (f"{folder}.{name}" if folder else name,)) for folder, name in _PARTS]
        for name, ours in [*qkv, *parts]:
            add(f"{block}.{names[name]}", tuple(f"layers.{number}.{own}" for own in ours))
    add(names["ln_final"], ("ln_final",))
    if not config.tied_embeddings:
        add(names["lm_head"], ("lm_head",))
    return result


def tensor_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of each tensor of a model; tied tensors are listed once, under their first name."""
    model = TransformerLM(config, device="meta")
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _reordered(rows: Tensor, order: Tensor) -> Tensor:
    """Reorder the rows of each head."""
    return rows.view(-1, len(order), *rows.shape[1:])[:, order].reshape(rows.shape)


_PARTS = (
    *(("attn", name) for name in ("q_norm", "k_norm", "output_proj")),
    *(("", name) for name in ("ln1", "ln2")),
    *(("ffn", name) for name in ("w1", "w2", "w3")),
)
# Names without the prefix "transformer." of GPT-2 or "model." of Llama. Absent: the architecture has no such tensor.
_GPT2_NAMES = {
    "token_embeddings": "wte",
    "position_embeddings": "wpe",
    "layers": "h.{}",
    "ln_final": "ln_f",
    "lm_head": "lm_head",
    "qkv": "attn.c_attn",
    "q_norm": "",
    "k_norm": "",
    "output_proj": "attn.c_proj",
    "ln1": "ln_1",
    "ln2": "ln_2",
    "w1": "mlp.c_fc",
    "w2": "mlp.c_proj",
    "w3": "",
}
_LLAMA_NAMES = {
    "token_embeddings": "embed_tokens",
    "position_embeddings": "",
    "layers": "layers.{}",
    "ln_final": "norm",
    "lm_head": "lm_head",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "output_proj": "self_attn.o_proj",
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}
_GGUF_NAMES = {
    "token_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "layers": "blk.{}",
    "ln_final": "output_norm",
    "lm_head": "output",
    "qkv": "attn_qkv",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "output_proj": "attn_output",
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "w1": "ffn_gate",
    "w2": "ffn_down",
    "w3": "ffn_up",
}


_GENERAL_CLASS = "PreTrainedTokenizerFast"
"""The class of transformers that reads a tokenizer.json as it is."""
_OWN_CLASSES = {"qwen2": "Qwen2Tokenizer"}
"""Model types whose tokenizer transformers 5 reads with this class, whatever tokenizer_config.json says. It takes
tokens and merges from tokenizer.json, and has a pattern, a normalizer and an end token of its own."""
_PROBE = "It's 12345 naïve \u00e9 e\u0301 birds,\n\n  and\tI'LL see the 犬\u3000they’d 3.14 \r\n snake_case  "


@dataclass(frozen=True)
class Ends:
    """Special tokens around a text; None if the tokenizer has none."""

    bos: str | None = None
    eos: str | None = None
    """The token that the files of the tokenizer name."""
    adds_bos: bool = False
    """Whether `bos` began every text that the model was trained on, and is put before every text."""
    stops: tuple[str, ...] = ()
    """All tokens that end generated text, `eos` first: with a chat template the end of a turn and that of a text."""
    turn: str | None = None
    """The token that ends an answer in the chat template."""
    pad: str | None = None
    """The token that fills batches."""

    def ids(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the ids under the names that transformers has for them: one id, or a list of several."""
        known = tokenizer.special_tokens
        stops = [known[token] for token in self.stops]
        return {
            "bos_token_id": None if self.bos is None else known[self.bos],
            "eos_token_id": stops if len(stops) > 1 else next(iter(stops), None),
            **({} if self.pad is None else {"pad_token_id": known[self.pad]}),
        }


def ends_of(
    tokenizer: Tokenizer,
    separator: int | None = None,
    bos_id: int | None = None,
    eos_token: str | None = None,
    *,
    is_tuned: bool = False,
) -> Ends:
    """Choose the tokens that begin and end a text.

    The beginning is the token that began every training document, else the one that the tokenizer's files name.
    The end of a text is the separator of the documents that the model was trained on, else the token that the
    tokenizer's files name, else one with a usual name. With a chat template, the token that ends an answer ends
    generated text too. It is the first one of a tuned model.

    Args:
        tokenizer: The tokenizer.
        separator: Id of the token between documents in the training data, if there was one.
        bos_id: Id of the token at the start of every training document, if there was one.
        eos_token: The only token that ends a text.
        is_tuned: The model was tuned to answer.

    Raises:
        TokenizerError: `eos_token` is not a special token.
    """
    known = tokenizer.special_tokens
    if eos_token is not None and eos_token not in known:
        raise TokenizerError(
            f"{eos_token!r} is not a special token of the tokenizer",
            hint=f"name one of {', '.join(known)}" if known else "leave out --eos-token",
        )
    by_id = {token_id: token for token, token_id in known.items()}
    between, first = (None if token_id is None else by_id.get(token_id) for token_id in (separator, bos_id))
    begins = (first, tokenizer.bos_token, *BEGIN_NAMES, between)
    turn, pad = end_of_turn(tokenizer), tokenizer.pad_token
    texts = [token for token in (between, tokenizer.eos_token, *END_NAMES) if token in known]
    if eos_token is not None:
        stops = [eos_token]
    elif turn is None:
        stops = texts[:1]
    else:
        of_text = [token for token in texts if token != turn][:1]
        is_first = is_tuned or texts[:1] == [turn]
        stops = [turn, *of_text] if is_first else [*of_text, turn]
    named = tokenizer.eos_token
    if eos_token is None and turn is not None and named in known and _template_uses(tokenizer, "eos_token"):
        stops = list(dict.fromkeys((named, *stops)))
    return Ends(
        bos=next((token for token in begins if token in known), None),
        eos=next(iter(stops), None),
        adds_bos=first is not None,
        stops=tuple(stops),
        turn=turn if turn in stops else None,
        pad=pad if pad in known else None,
    )


def _template_uses(tokenizer: Tokenizer, variable: str) -> bool:
    template = tokenizer.chat_template
    sources = template.values() if isinstance(template, dict) else [template] if template else []
    return any(variable in variables_of(source) for source in sources)


def keeps_ids(model_type: str, spec: TokenizerSpec) -> bool:
    """Return whether transformers gives the ids of a tokenizer.json beside a model of this type."""
    if model_type not in _OWN_CLASSES:
        return True
    return (
        same_split(spec.pattern, PRE_TOKENIZERS[model_type].pattern)
        and spec.normalizer == (("NFC",),)
        and spec.ranks is None
        and not spec.ignore_merges
        and "<|endoftext|>" in spec.special_tokens
    )


def write_tokenizer(tokenizer: Tokenizer, ends: Ends, folder: Path, model_type: str) -> None:
    """Write tokenizer.json and its sidecar files, with the class that reads it and the tokens around a text.

    Raises:
        TokenizerError: The format cannot represent the tokenizer.
        OutputError: A file cannot be written.
    """
    spec = tokenizer.to_spec()
    if ends.adds_bos and ends.bos is not None:
        spec = with_bos(spec, ends.bos)
    metadata = spec.metadata or TokenizerMetadata()
    named = {} if ends.eos is None else {"eos_token": ends.eos}
    config = default_config(spec) if metadata.config is None else metadata.config
    tokens_map = metadata.special_tokens_map
    metadata = replace(
        metadata,
        config={
            **config,
            "tokenizer_class": _OWN_CLASSES.get(model_type, _GENERAL_CLASS),
            **named,
        },
        special_tokens_map=None if tokens_map is None else {**tokens_map, **named},
    )
    write_folder(replace(spec, metadata=metadata), folder)
    written = Tokenizer.load(folder)
    if written.encode(_PROBE) != tokenizer.encode(_PROBE):
        raise TokenizerError(f"{folder / 'tokenizer.json'} gives other ids than the tokenizer of the model")
    if tokenizer.chat_template is not None and _rendered(written) != _rendered(tokenizer):
        raise TokenizerError(
            f"the chat template uses the names of special tokens, and the model ends texts with {ends.eos!r}, which is "
            "not the end token of its tokenizer",
            hint="write the tokens into the template, in place of {{ eos_token }} and {{ bos_token }}",
        )


def _rendered(tokenizer: Tokenizer) -> str | None:
    try:
        return tokenizer.apply_chat_template(PROBE, tokenize=False)
    except TokenizerError:
        return None  # it rejects the conversation, or is no template


OnProgress = Callable[[int, int], None]
"""Called with the bytes of weights that are written, and their total."""


def no_progress(_done: int, _total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class ModelToExport:
    """Weights, read to the CPU, and the tokenizer."""

    saved: SavedModel
    state: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    ends: Ends

    def entries(self, layout: Layout, architecture: str) -> list[Entry]:
        """Return an entry for each tensor of the other format."""
        return entries(layout, with_zero_biases(self.saved.config.model, architecture))

    def tensor(self, entry: Entry) -> Tensor:
        """Return a tensor of the other format. Biases that this model does not have are zero."""
        state = dict(self.state)
        for name in entry.ours:
            if name not in state:  # a bias has the width of the rows of its weight
                state[name] = torch.zeros(len(state[name.replace(".bias", ".weight")]))
        return entry.to_theirs(state)

    def shapes(self, architecture: str) -> dict[str, tuple[int, ...]]:
        """Return this package's shapes, with the biases that the architecture has."""
        return tensor_shapes(with_zero_biases(self.saved.config.model, architecture))


def read_model(
    saved: SavedModel, tokenizer: Tokenizer | None, ends: Ends, dtype: torch.dtype
) -> ModelToExport:
    """Read the weights of a trained or imported model.

    Args:
        saved: The model.
        tokenizer: Its tokenizer.
        ends: The tokens around a text.
        dtype: Type that the weights are to be stored in.

    Raises:
        NotFiniteError: The weights are not finite, or not in this type.
        CheckpointError: The weights are damaged.
        NotEnoughMemoryError: The weights do not fit into memory.
    """
    with memory_errors("close other programs"):
        # Without initial values, which take longer to sample than the weights to read.
        model = TransformerLM(saved.config.model, device="meta").to_empty(device="cpu")
        if saved.config.model.tied_embeddings:
            model.lm_head.weight = model.token_embeddings.weight
        saved.load_weights(model)
        for name, parameter in model.named_parameters():
            values = parameter.detach()
            if not bool(torch.isfinite(values).all()):
                raise not_finite(model)
            if not bool(torch.isfinite(values.to(dtype)).all()):
                raise NotFiniteError(
                    f"{name} has values up to {float(values.abs().max()):g}, which "
                    f"{str(dtype).removeprefix('torch.')} cannot hold",
                    hint="choose --precision bfloat16 or float32",
                )
    return ModelToExport(saved, dict(model.named_parameters()), tokenizer, ends)
