"""The decoder of GPUs: a token of every row is one CUDA graph, from the last ids to the next ones.

Nothing in the loop waits for the GPU. The ids stay there for the next step, and arrive on the CPU while it runs.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bytemill.lm.generation.core_decoder import has_known_parts
from bytemill.lm.kernels.decoding import (
    Heads,
    Norm,
    Projection,
    attend_to_prompt,
    cut_off,
    embed,
    normalize,
    project,
)
from bytemill.lm.tensors import is_sharded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from torch import Tensor

    from bytemill.lm.generation.sampling import SamplingParameters
    from bytemill.lm.model import TransformerLM

_N_UNIFORMS = 256
"""Random numbers of each row that are drawn at once."""


@dataclass(frozen=True)
class _Block:
    """One block of the model, in the type of the decoder."""

    qkv: Projection
    heads: Heads
    output: Projection
    after_attention: Norm | None
    up: Projection
    down: Projection
    after_ffn: Norm | None


class GraphDecoder:
    """Generates tokens of several rows, in a type and on a cache of its own.

    The first ids come from `read`, the next ones from `advance`, and both from `fetch`. On a GPU, the second `advance`
    captures a graph, which all later ones replay. On other devices the same operations run one by one.

    Args:
        model: A model that `supports` accepts. Its weights are copied if they have another type.
        capacity: Maximum number of tokens per row in the cache.
        dtype: Type of matrix products and of the cache; sums and the residual stream are float32.
        parameters: How to sample.
        generators: Generator of each row on the CPU, of which each id takes one number, as in `sampling.draw`.
        excluded_ids: Ids that are never chosen.
    """

    def __init__(
        self,
        model: TransformerLM,
        capacity: int,
        dtype: torch.dtype,
        parameters: SamplingParameters,
        generators: Sequence[torch.Generator],
        *,
        excluded_ids: Collection[int] = (),
    ) -> None:
        config, n_rows = model.config, len(generators)
        self._device = device = model.lm_head.weight.device
        self._operations: Any = model.kernels.decoding
        self._generators = generators
        self._parameters = parameters
        temperature = np.float32(min(parameters.temperature, float(np.finfo(np.float32).max)))
        # GPUs divide by the smallest numbers inexactly, and below this all that is not the maximum is 0 anyway.
        self._temperature = max(float(temperature), 1e-30) if temperature > 0 else 0.0
        table = model.token_embeddings.weight.detach().to(dtype)
        self._table = table
        self._position_table: Any = None
        if config.position == "learned":
            self._position_table = model.position_embeddings.weight.detach().to(dtype)
        elif config.position == "sinusoidal":
            self._position_table = model.sinusoids
        self._blocks = [_block(block, n_rows, capacity, dtype) for block in model.layers]
        head = table if config.tied_embeddings else model.lm_head.weight.detach().to(dtype)
        final = _norm(model.ln_final) if config.has_final_norm else None
        self._head = Projection(head, norm=final, soft_cap=config.logit_soft_cap)
        # The inputs and results of the graph. The state is the position of the last token of each row, and the index
        # of its last random number.
        self._ids = torch.zeros(n_rows, dtype=torch.int64, device=device)
        self._state = torch.zeros(2, n_rows, dtype=torch.int64, device=device)
        self._logits = torch.empty(n_rows, config.vocab_size, device=device)
        self._uniforms, self._allowed = None, None
        if self._temperature > 0:
            self._uniforms = torch.empty(n_rows, _N_UNIFORMS, dtype=torch.float64, device=device)
        if excluded_ids:
            self._allowed = torch.ones(config.vocab_size, dtype=torch.bool)
            self._allowed[sorted(excluded_ids)] = False
            self._allowed = self._allowed.to(device)
        self._n_drawn = 0
        self._n_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_fetched = 0
        self._events = [torch.cuda.Event(), torch.cuda.Event()] if device.type == "cuda" else []
        self._host_ids = torch.empty(2, n_rows, dtype=torch.int64, pin_memory=device.type == "cuda")

    @staticmethod
    def supports(model: TransformerLM, parameters: SamplingParameters) -> bool:
        """Return True for a model of known parts with kernels for decoding steps.

        Sampling that depends on earlier tokens is left to NumPy: penalties of repetition need all of them.
        """
        return (
            model.kernels.decoding is not None
            and model.lm_head.weight.dtype in {torch.float32, torch.bfloat16, torch.float16}
            and parameters.repetition_penalty == 1
            and parameters.no_repeat_ngram == 0
            and has_known_parts(model)
            and not any(is_sharded(parameter) for parameter in model.parameters())
        )

    @torch.inference_mode()
    def read(self, rows: Sequence[Sequence[int]]) -> None:
        """Empty the cache, read rows of equal length, and choose the next ids."""
        with self._on_device():
            read = rows[:1] if all(row == rows[0] for row in rows) else rows
            ids = torch.tensor(read, device=self._device)
            x = embed(ids, torch.arange(ids.shape[1], device=self._device), self._table, self._position_table)
            attend = partial(attend_to_prompt, attention=self._operations.prompt_attention)
            x = self._stream(x, attend, project, normalize)[:, -1]
            logits = self._logits if len(read) == len(rows) else self._logits[:1].clone()
            self._logits.copy_(self._operations.project(x.contiguous(), self._head, out=logits))
            self._state[0] = ids.shape[1] - 1
            self._prepare_numbers(0)
            self._state[1] = self._n_drawn % _N_UNIFORMS
            self._choose()
        self._n_drawn += 1

    @torch.inference_mode()
    def advance(self) -> None:
        """Append the last ids to the rows, and choose the next ones."""
        self._prepare_numbers(-1)
        with self._on_device():
            if self._graph is not None:
                self._graph.replay()
            elif self._device.type == "cuda" and self._n_steps > 0:  # the first step compiles the kernels
                self._graph = torch.cuda.CUDAGraph()
                # Other threads may use the GPU meanwhile.
                stream = torch.cuda.Stream()  # of this device; the default one is that of the first graph's
                with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                    self._step()
                self._graph.replay()
            else:
                self._step()
        self._n_steps += 1
        self._n_drawn += 1

    @torch.inference_mode()
    def fetch(self, *, with_logits: bool) -> Fetched:
        """Start to copy the chosen ids to the CPU. Two fetches may be under way at a time.

        Args:
            with_logits: Keep the logits too, on the GPU.
        """
        host = self._host_ids[self._n_fetched % 2]
        self._n_fetched += 1
        with self._on_device():
            host.copy_(self._ids, non_blocking=True)
            event = None
            if self._events:
                event = self._events[self._n_fetched % 2]
                event.record()
            return Fetched(host, event, self._logits.clone() if with_logits else None)

    def _on_device(self) -> Any:
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()

    def _step(self) -> None:
        operations, state = self._operations, self._state
        x = operations.embed_next(self._ids, state, self._table, self._position_table)
        attend = partial(operations.attend, positions=state[0])
        x = self._stream(x, attend, operations.project, operations.normalize)
        operations.project(x, self._head, out=self._logits)
        self._choose()

    def _stream(
        self,
        x: Tensor,
        attend: Callable[[Tensor, Heads], Any],
        project: Callable[..., Tensor],
        normalize: Callable[[Tensor, Norm], Tensor],
    ) -> Tensor:
        """Return the result of the blocks."""
        for block in self._blocks:
            x = project(attend(project(x, block.qkv), block.heads), block.output, x)
            x = x if block.after_attention is None else normalize(x, block.after_attention)
            x = project(project(x, block.up), block.down, x)
            x = x if block.after_ffn is None else normalize(x, block.after_ffn)
        return x

    def _choose(self) -> None:
        logits, temperature, own = self._logits, self._temperature, self._parameters
        is_cut = self._uniforms is not None and (own.top_k > 0 or own.top_p < 1 or own.min_p > 0)
        if is_cut:
            logits = cut_off(
                logits, temperature, self._allowed, top_k=own.top_k, top_p=own.top_p, min_p=own.min_p
            )
            temperature = 1.0
        self._operations.choose(
            logits, self._uniforms, self._state[1], temperature, self._allowed, is_cut=is_cut, out=self._ids
        )

    def _prepare_numbers(self, index: int) -> None:
        """Draw new random numbers if the old ones are used up, and set the index of the last one to `index`."""
        if self._uniforms is None or self._n_drawn % _N_UNIFORMS:
            return
        numbers = [
            torch.rand(_N_UNIFORMS, dtype=torch.float64, generator=generator)
            for generator in self._generators
        ]
        self._uniforms.copy_(torch.stack(numbers))
        self._state[1] = index


@dataclass(frozen=True)
class Fetched:
    """Ids that are on their way to the CPU."""

    host: Tensor
    event: torch.cuda.Event | None
    logits: Tensor | None
    """(n_rows, vocab_size), on the device, without exclusions."""

    def ids(self) -> list[int]:
        """Wait for the ids; −1 stands for logits that are not finite."""
        if self.event is not None:
            self.event.synchronize()
        return cast("list[int]", self.host.tolist())  # pyright: ignore[reportUnknownMemberType]


def _norm(module: Any) -> Norm:
    weight, bias = module.weight.detach().float(), getattr(module, "bias", None)
    return Norm(weight, None if bias is None else bias.detach().float(), module.eps, hasattr(module, "bias"))


def _joined(modules: Sequence[Any], dtype: torch.dtype, **options: Any) -> Projection:
    """Return the projection whose results are those of `modules`, one after the other."""
    weights = [module.weight.detach().to(dtype) for module in modules]
    biases = [module.bias.detach().float() for module in modules if module.bias is not None]
    weight = torch.cat(weights) if len(weights) > 1 else weights[0].contiguous()
    return Projection(weight, torch.cat(biases) if biases else None, **options)


def _block(block: Any, n_rows: int, capacity: int, dtype: torch.dtype) -> _Block:
    attention, ffn = block.attn, block.ffn
    before = (_norm(block.ln1), _norm(block.ln2)) if block.pre_norm else (None, None)
    after = (None, None) if block.pre_norm else (_norm(block.ln1), _norm(block.ln2))
    shape = (n_rows, attention.n_kv_heads, capacity, attention.d_head)
    norms: list[Any] = [attention.q_norm, attention.k_norm] if attention.has_qk_norm else []
    heads = Heads(
        attention.n_heads,
        attention.n_kv_heads,
        attention.d_head,
        attention.window,
        None if attention.rope is None else attention.rope.rotations,
        *([norm.weight.detach().float() for norm in norms] or (None, None)),
        eps=norms[0].eps if norms else 0.0,
        keys=torch.zeros(shape, dtype=dtype, device=attention.q_proj.weight.device),
        values=torch.zeros(shape, dtype=dtype, device=attention.q_proj.weight.device),
    )
    is_gated = hasattr(ffn, "w3")
    return _Block(
        qkv=_joined((attention.q_proj, attention.k_proj, attention.v_proj), dtype, norm=before[0]),
        heads=heads,
        output=_joined((attention.output_proj,), dtype),
        after_attention=after[0],
        up=_joined(
            (ffn.w1, ffn.w3) if is_gated else (ffn.w1,),
            dtype,
            norm=before[1],
            activation="swiglu" if is_gated else ffn.activation,
        ),
        down=_joined((ffn.w2,), dtype),
        after_ffn=after[1],
    )
