"""Decoding steps for a few rows, where the time is that of reading weights once: `kernels.decoding` in few kernels.

A block of a model is five kernels. Each computes what precedes its matrix product again in every program, because a
kernel of its own would cost more than the arithmetic:

1. The norm of the stream, then queries, keys and values.
2. Attention. The keys of a head are divided among programs, whose number is fixed but which read cached positions
   alone (Flash-Decoding; Dao et al. 2023). The programs of a head also normalize and rotate its query. The first one
   adds the new key and value to the cache, and counts them.
3. The sum of the parts of attention, then the output projection, added to the stream.
4. The norm of the stream, then the first matrix of the feed-forward network and its activation.
5. The second matrix, added to the stream.

For up to `_MOST_ROWS` rows a program holds a few rows of weights and multiplies them by every vector, in float32. For
more rows, products are `tl.dot`, and norms and sums of parts are kernels of their own.

If `OVERLAP` is set (compute capability 9.0), a kernel starts when all programs of the one before it have started, loads
its weights, and waits for the results of the one before (programmatic dependent launch). A kernel allows this only
after it has waited itself. What was written two kernels before may therefore be read without waiting.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# Triton has no types, and its functions are not Python's: a compiler reads them.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import cuda

from bytemill.lm.kernels.attention import sdpa
from bytemill.lm.kernels.triton.attention import causal_attention
from bytemill.lm.kernels.triton.layers import _norm_forward_kernel

if TYPE_CHECKING:
    from bytemill.lm.kernels.decoding import Heads, Norm, Projection

OVERLAP = False
"""Overlap the start of a kernel with the end of the one before it."""
_MOST_ROWS = 4
_WIDEN = tl.constexpr(triton.knobs.runtime.interpret)
_LEAST = tl.constexpr(-1e30)  # finite: −∞ − −∞ is not a number


def prompt_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """Compute causal attention by torch's kernel if there is no window, else by Triton's."""
    return sdpa(q, k, v, causal=True) if window is None else causal_attention(q, k, v, window)


@dataclass(frozen=True)
class _Parts:
    """Results of attention over parts of the keys, whose sum the next kernel computes."""

    mixed: Tensor
    """(n_rows, n_parts, n_heads · width): Σ exp2(s − m) v, not normalized."""
    statistics: Tensor
    """(2, n_rows, n_parts, n_heads): m, the maximum of the scores s, and Σ exp2(s − m)."""
    positions: Tensor
    heads: Heads


def _options(n_warps: int) -> dict[str, Any]:
    return {"OVERLAP": OVERLAP, "num_warps": n_warps} | ({"launch_pdl": True} if OVERLAP else {})


@triton.jit
def _wait(OVERLAP: tl.constexpr):
    """Wait for the results of the kernel before this one."""
    if OVERLAP:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()


@triton.jit
def _activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == "gelu":  # tanh(a) = 2 sigmoid(2 a) − 1
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    elif ACTIVATION == "gelu_exact":
        y = 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))
    elif ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    elif ACTIVATION == "relu2":
        y = tl.maximum(y, 0.0) * tl.maximum(y, 0.0)
    return y


@triton.jit
def _embed_kernel(
    ids_ptr,
    state_ptr,
    table_ptr,
    position_table_ptr,
    x_ptr,
    width,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    row, n_rows = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < width
    _wait(OVERLAP)
    position = tl.load(state_ptr + row) + 1
    tl.store(state_ptr + row, position)
    tl.store(state_ptr + n_rows + row, tl.load(state_ptr + n_rows + row) + 1)
    token = tl.maximum(tl.load(ids_ptr + row), 0)
    x = tl.load(table_ptr + token * width + columns, mask=is_inside, other=0.0).to(tl.float32)
    if position_table_ptr is not None:
        x += tl.load(position_table_ptr + position * width + columns, mask=is_inside, other=0.0).to(
            tl.float32
        )
    tl.store(x_ptr + row * width + columns, x, mask=is_inside)


def embed_next(ids: Tensor, state: Tensor, table: Tensor, position_table: Tensor | None) -> Tensor:
    """See `kernels.decoding.embed_next`."""
    width = table.shape[1]
    x = torch.empty(len(ids), width, device=table.device)
    block = triton.next_power_of_2(width)
    _embed_kernel[(len(ids),)](ids, state, table, position_table, x, width, BLOCK=block, **_options(4))
    return x


@triton.jit
def _key_parts(position, WINDOW: tl.constexpr, N_PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the first cached key that is attended to, the number of keys per part, and the number of parts."""
    first = position * 0
    if WINDOW > 0:
        first = tl.maximum(position - (WINDOW - 1), 0)
    n_keys = position - first
    n_blocks = (n_keys + BLOCK - 1) // BLOCK
    n_per_part = tl.maximum((n_blocks + N_PARTS - 1) // N_PARTS, 1) * BLOCK
    return first, n_per_part, tl.maximum((n_keys + n_per_part - 1) // n_per_part, 1)


@triton.jit
def _summed_parts(
    mixed_ptr,
    statistics_ptr,
    position,
    row,
    n_rows,
    columns,
    is_inside,
    WIDTH: tl.constexpr,
    N_HEADS: tl.constexpr,
    WINDOW: tl.constexpr,
    N_PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the result of attention of a row at `columns`."""
    _, _, n_parts = _key_parts(position, WINDOW, N_PARTS, BLOCK)
    statistics_ptr += row * N_PARTS * N_HEADS + columns // WIDTH
    mixed_ptr += row * N_PARTS * N_HEADS * WIDTH + columns
    maximum = columns * 0.0 + _LEAST
    for part in tl.static_range(N_PARTS):
        is_read = columns < tl.where(n_parts > part, N_HEADS * WIDTH, 0)
        maximum = tl.maximum(maximum, tl.load(statistics_ptr + part * N_HEADS, mask=is_read, other=_LEAST))
    total, mixed = columns * 0.0, columns * 0.0
    for part in tl.static_range(N_PARTS):
        is_read = columns < tl.where(n_parts > part, N_HEADS * WIDTH, 0)
        own = tl.load(statistics_ptr + part * N_HEADS, mask=is_read, other=_LEAST)
        share = tl.exp2(own - maximum)
        total += share * tl.load(
            statistics_ptr + (n_rows * N_PARTS + part) * N_HEADS, mask=is_read, other=0.0
        )
        mixed += share * tl.load(mixed_ptr + part * N_HEADS * WIDTH, mask=is_read, other=0.0)
    return mixed / tl.where(is_inside, total, 1.0)


@triton.jit
def _input(
    x_ptr,
    statistics_ptr,
    positions_ptr,
    row,
    n_rows,
    columns,
    N_IN: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    N_PARTS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    """Return `columns` of a row of x, or of the result of attention in `N_PARTS` parts."""
    is_inside = columns < N_IN
    if N_PARTS > 0:
        position = tl.load(positions_ptr + row)
        x = _summed_parts(
            x_ptr,
            statistics_ptr,
            position,
            row,
            n_rows,
            columns,
            is_inside,
            WIDTH,
            N_IN // WIDTH,
            WINDOW,
            N_PARTS,
            BLOCK_KEYS,
        )
    else:
        x = tl.load(x_ptr + row * N_IN + columns, mask=is_inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _weights(weight_ptr, outputs, columns, n_out, N_IN: tl.constexpr):
    is_inside = (outputs[:, None] < n_out) & (columns[None, :] < N_IN)
    return tl.load(
        weight_ptr + outputs[:, None].to(tl.int64) * N_IN + columns[None, :], mask=is_inside, other=0.0
    )


@triton.jit
def _vector_kernel(
    x_ptr,
    statistics_ptr,
    positions_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    y_ptr,
    n_rows,
    n_out,
    eps,
    soft_cap,
    N_IN: tl.constexpr,
    N_ROWS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    CENTRED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_CAP: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    N_PARTS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    outputs = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    columns = tl.arange(0, BLOCK_IN)
    weights = _weights(weight_ptr, outputs, columns, n_out, N_IN)
    if ACTIVATION == "swiglu":
        others = _weights(weight_ptr + n_out.to(tl.int64) * N_IN, outputs, columns, n_out, N_IN)
    _wait(OVERLAP)
    for row in tl.static_range(N_ROWS):
        x = _input(
            x_ptr,
            statistics_ptr,
            positions_ptr,
            row,
            n_rows,
            columns,
            N_IN,
            WIDTH,
            WINDOW,
            N_PARTS,
            BLOCK_KEYS,
        )
        if HAS_NORM:
            mean, scale = 0.0, 0.0
            if N_IN <= BLOCK_IN:
                if CENTRED:
                    mean = tl.sum(x, 0) / N_IN
                centred = tl.where(columns < N_IN, x - mean, 0.0)
                scale = tl.rsqrt(tl.sum(centred * centred, 0) / N_IN + eps)
            else:
                if CENTRED:
                    sums = tl.zeros([BLOCK_IN], tl.float32)
                    for start in range(0, N_IN, BLOCK_IN):
                        sums += tl.load(
                            x_ptr + row * N_IN + start + columns, mask=start + columns < N_IN, other=0.0
                        )
                    mean = tl.sum(sums, 0) / N_IN
                squares = tl.zeros([BLOCK_IN], tl.float32)
                for start in range(0, N_IN, BLOCK_IN):
                    is_inside = start + columns < N_IN
                    centred = tl.load(x_ptr + row * N_IN + start + columns, mask=is_inside, other=0.0) - mean
                    squares += tl.where(is_inside, centred * centred, 0.0)
                scale = tl.rsqrt(tl.sum(squares, 0) / N_IN + eps)
        y = tl.zeros([BLOCK_OUT], tl.float32)
        gate = tl.zeros([BLOCK_OUT], tl.float32)
        for start in tl.static_range(0, N_IN, BLOCK_IN):
            own = start + columns
            if start > 0:
                x = _input(
                    x_ptr,
                    statistics_ptr,
                    positions_ptr,
                    row,
                    n_rows,
                    own,
                    N_IN,
                    WIDTH,
                    WINDOW,
                    N_PARTS,
                    BLOCK_KEYS,
                )
            if HAS_NORM:
                is_inside = own < N_IN
                x = (x - mean) * scale * tl.load(norm_weight_ptr + own, mask=is_inside, other=0.0)
                if norm_bias_ptr is not None:
                    x += tl.load(norm_bias_ptr + own, mask=is_inside, other=0.0)
            if N_IN > BLOCK_IN and (row > 0 or start > 0):
                weights = _weights(weight_ptr, outputs, own, n_out, N_IN)
                if ACTIVATION == "swiglu":
                    others = _weights(weight_ptr + n_out.to(tl.int64) * N_IN, outputs, own, n_out, N_IN)
            if ACTIVATION == "swiglu":
                gate += tl.sum(weights.to(tl.float32) * x[None, :], 1)
                y += tl.sum(others.to(tl.float32) * x[None, :], 1)
            else:
                y += tl.sum(weights.to(tl.float32) * x[None, :], 1)
        _store_results(
            y,
            gate,
            bias_ptr,
            residual_ptr,
            y_ptr,
            row,
            outputs,
            outputs < n_out,
            n_out,
            soft_cap,
            ACTIVATION,
            HAS_CAP,
        )


@triton.jit
def _store_results(
    y,
    gate,
    bias_ptr,
    residual_ptr,
    y_ptr,
    rows,
    outputs,
    is_inside,
    n_out,
    soft_cap,
    ACTIVATION: tl.constexpr,
    HAS_CAP: tl.constexpr,
):
    """Add the bias, apply the activation, add the residual, and store; all arguments have the shape of the result."""
    if ACTIVATION == "swiglu":
        if bias_ptr is not None:
            gate += tl.load(bias_ptr + outputs, mask=is_inside, other=0.0)
            y += tl.load(bias_ptr + n_out + outputs, mask=is_inside, other=0.0)
        y = gate * tl.sigmoid(gate) * y
    else:
        if bias_ptr is not None:
            y += tl.load(bias_ptr + outputs, mask=is_inside, other=0.0)
        y = _activated(y, ACTIVATION)
    if HAS_CAP:
        y = soft_cap * (2 * tl.sigmoid(2 * y / soft_cap) - 1)
    offsets = rows * n_out + outputs
    if residual_ptr is not None:
        y += tl.load(residual_ptr + offsets, mask=is_inside, other=0.0)
    tl.store(y_ptr + offsets, y, mask=is_inside)


@triton.jit
def _product(a, b, sums):
    if _WIDEN:  # Triton's interpreter multiplies the bits of bfloat16 numbers as integers
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, tl.trans(b), sums, input_precision="ieee")


@triton.jit
def _dot_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    y_ptr,
    n_rows,
    n_out,
    soft_cap,
    N_IN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_CAP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    outputs = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    rows = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    _wait(OVERLAP)
    y = tl.zeros([BLOCK_ROWS, BLOCK_OUT], tl.float32)
    gate = tl.zeros([BLOCK_ROWS, BLOCK_OUT], tl.float32)
    for start in range(0, N_IN, BLOCK_IN):
        columns = start + tl.arange(0, BLOCK_IN)
        is_inside = (rows[:, None] < n_rows) & (columns[None, :] < N_IN)
        x = tl.load(x_ptr + rows[:, None] * N_IN + columns[None, :], mask=is_inside, other=0.0)
        weights = _weights(weight_ptr, outputs, columns, n_out, N_IN)
        if ACTIVATION == "swiglu":
            gate = _product(x, weights, gate)
            weights = _weights(weight_ptr + n_out.to(tl.int64) * N_IN, outputs, columns, n_out, N_IN)
        y = _product(x, weights, y)
    is_inside = (rows[:, None] < n_rows) & (outputs[None, :] < n_out)
    _store_results(
        y,
        gate,
        bias_ptr,
        residual_ptr,
        y_ptr,
        rows[:, None],
        outputs[None, :],
        is_inside,
        n_out,
        soft_cap,
        ACTIVATION,
        HAS_CAP,
    )


@triton.jit
def _sum_kernel(
    mixed_ptr,
    statistics_ptr,
    positions_ptr,
    y_ptr,
    N_IN: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    N_PARTS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    _wait(OVERLAP)
    y = _input(
        mixed_ptr,
        statistics_ptr,
        positions_ptr,
        row,
        tl.num_programs(0),
        columns,
        N_IN,
        WIDTH,
        WINDOW,
        N_PARTS,
        BLOCK_KEYS,
    )
    tl.store(y_ptr + row * N_IN + columns, y, mask=columns < N_IN)


def project(
    x: Tensor | _Parts, projection: Projection, residual: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """See `kernels.decoding.project`; `x` may be the result of `attend`."""
    source = x.mixed if isinstance(x, _Parts) else x
    n_rows, n_out = len(source), projection.n_results
    is_wide = n_rows <= _MOST_ROWS or residual is not None
    if out is None:
        dtype = torch.float32 if is_wide else projection.weight.dtype
        out = torch.empty(n_rows, n_out, device=source.device, dtype=dtype)
    if n_rows <= _MOST_ROWS:
        _project_vectors(x, projection, residual, out)
    else:
        _project_matrix(_prepared(x, projection), projection, residual, out)
    return out


def _part_options(x: Tensor | _Parts) -> dict[str, int]:
    if not isinstance(x, _Parts):
        return {"WIDTH": 1, "WINDOW": 0, "N_PARTS": 0, "BLOCK_KEYS": 1}
    n_parts, block = x.mixed.shape[1], _block_of_keys(x.heads)
    return {"WIDTH": x.heads.width, "WINDOW": x.heads.window or 0, "N_PARTS": n_parts, "BLOCK_KEYS": block}


def _project_vectors(
    x: Tensor | _Parts, projection: Projection, residual: Tensor | None, out: Tensor
) -> None:
    norm, n_out, n_in = projection.norm, projection.n_results, projection.weight.shape[1]
    source, statistics, positions = (
        (x.mixed, x.statistics, x.positions) if isinstance(x, _Parts) else (x, None, None)
    )
    block_in = min(4096, max(256, triton.next_power_of_2(n_in)))
    block_out = _block_of_outputs(n_out, block_in * (2 if projection.activation == "swiglu" else 1))
    _vector_kernel[(triton.cdiv(n_out, block_out),)](
        source,
        statistics,
        positions,
        None if norm is None else norm.weight,
        None if norm is None else norm.bias,
        projection.weight,
        projection.bias,
        residual,
        out,
        len(out),
        n_out,
        0.0 if norm is None else norm.eps,
        projection.soft_cap or 0.0,
        N_IN=n_in,
        N_ROWS=len(out),
        HAS_NORM=norm is not None,
        CENTRED=norm is not None and norm.centred,
        ACTIVATION=projection.activation,
        HAS_CAP=projection.soft_cap is not None,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        **_part_options(x),
        **_options(8 if block_in > 1024 else 4),
    )


def _block_of_outputs(n_out: int, block_in: int) -> int:
    """Return the rows of weights of a program: several for each vector that it reads, but work for all processors."""
    block = min(16, max(1, 32768 // block_in))  # at most 128 numbers per thread
    while block > 1 and n_out < 190 * block:
        block //= 2
    return block


def _prepared(x: Tensor | _Parts, projection: Projection) -> Tensor:
    """Return the rows that are multiplied by the weights, in their type."""
    dtype, n_in = projection.weight.dtype, projection.weight.shape[1]
    if isinstance(x, _Parts):
        y = torch.empty(len(x.mixed), n_in, device=x.mixed.device, dtype=dtype)
        block = min(256, triton.next_power_of_2(n_in))
        _sum_kernel[(len(y), triton.cdiv(n_in, block))](
            x.mixed, x.statistics, x.positions, y, N_IN=n_in, BLOCK=block, **_part_options(x), **_options(1)
        )
        return y
    return x.to(dtype) if projection.norm is None else normalize(x, projection.norm, dtype)


def normalize(x: Tensor, norm: Norm, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the norm of each row of `x`."""
    y = torch.empty(x.shape, device=x.device, dtype=dtype)
    statistics = torch.empty(2, len(x), device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    _norm_forward_kernel[(len(x),)](
        x, norm.weight, norm.bias, y, statistics, x.shape[1], norm.eps, CENTRED=norm.centred, BLOCK=block,
        num_warps=min(16, max(1, block // 256)),
    )  # fmt: skip
    return y


def _project_matrix(x: Tensor, projection: Projection, residual: Tensor | None, out: Tensor) -> None:
    n_out, n_in = projection.n_results, projection.weight.shape[1]
    block_rows = min(64, max(16, triton.next_power_of_2(len(x))))
    block_out = 64
    while block_out > 16 and n_out < 132 * block_out:
        block_out //= 2
    _dot_kernel[(triton.cdiv(n_out, block_out), triton.cdiv(len(x), block_rows))](
        x,
        projection.weight,
        projection.bias,
        residual,
        out,
        len(x),
        n_out,
        projection.soft_cap or 0.0,
        N_IN=n_in,
        ACTIVATION=projection.activation,
        HAS_CAP=projection.soft_cap is not None,
        BLOCK_ROWS=block_rows,
        BLOCK_OUT=block_out,
        BLOCK_IN=128 if x.element_size() == 2 else 32,
        num_stages=4,
        **_options(4),
    )


@triton.jit
def _head_of(
    ptr,
    norm_ptr,
    rotations_ptr,
    position,
    eps,
    columns,
    is_inside,
    WIDTH: tl.constexpr,
    HAS_ROTATION: tl.constexpr,
):
    """Load a new query or key, normalize it, and rotate it."""
    x = tl.load(ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    scale = 1.0
    if norm_ptr is not None:
        scale = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps)
        x = x * scale * tl.load(norm_ptr + columns, mask=is_inside, other=0.0)
    if HAS_ROTATION:
        partners = columns ^ 1
        other = tl.load(ptr + partners, mask=is_inside, other=0.0).to(tl.float32)
        if norm_ptr is not None:
            other = other * scale * tl.load(norm_ptr + partners, mask=is_inside, other=0.0)
        angles = rotations_ptr + position.to(tl.int64) * WIDTH + (columns // 2) * 2
        cos = tl.load(angles, mask=is_inside, other=0.0)
        sin = tl.load(angles + 1, mask=is_inside, other=0.0)
        x = x * cos + tl.where(columns % 2 == 0, -other, other) * sin
    return x


@triton.jit
def _attention_kernel(
    qkv_ptr,
    q_norm_ptr,
    k_norm_ptr,
    rotations_ptr,
    keys_ptr,
    values_ptr,
    positions_ptr,
    mixed_ptr,
    statistics_ptr,
    n_rows,
    capacity,
    eps,
    scale_log2,
    N_HEADS: tl.constexpr,
    N_KV_HEADS: tl.constexpr,
    HAS_ROTATION: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    N_PARTS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    row, head, part = tl.program_id(0) // N_HEADS, tl.program_id(0) % N_HEADS, tl.program_id(1)
    N_GROUPS: tl.constexpr = N_HEADS // N_KV_HEADS
    kv_head = head // N_GROUPS
    position = tl.load(positions_ptr + row).to(tl.int32)
    first, n_per_part, n_parts = _key_parts(position, WINDOW, N_PARTS, BLOCK_KEYS)
    _wait(OVERLAP)
    if part < n_parts:
        columns = tl.arange(0, BLOCK_WIDTH)
        is_inside = columns < WIDTH
        qkv_ptr += row * (N_HEADS + 2 * N_KV_HEADS) * WIDTH
        cache_offset = (row * N_KV_HEADS + kv_head).to(tl.int64) * capacity * WIDTH
        keys_ptr += cache_offset
        values_ptr += cache_offset
        q = _head_of(
            qkv_ptr + head * WIDTH,
            q_norm_ptr,
            rotations_ptr,
            position,
            eps,
            columns,
            is_inside,
            WIDTH,
            HAS_ROTATION,
        )
        q = q.to(keys_ptr.dtype.element_ty).to(tl.float32)
        maximum = scale_log2 * 0.0 + _LEAST
        total = scale_log2 * 0.0
        mixed = tl.zeros([BLOCK_WIDTH], tl.float32)
        if part == 0:
            new = qkv_ptr + (N_HEADS + kv_head) * WIDTH
            k = _head_of(
                new, k_norm_ptr, rotations_ptr, position, eps, columns, is_inside, WIDTH, HAS_ROTATION
            )
            k = k.to(keys_ptr.dtype.element_ty)
            v = tl.load(new + N_KV_HEADS * WIDTH + columns, mask=is_inside, other=0.0)
            v = v.to(values_ptr.dtype.element_ty)
            if head % N_GROUPS == 0:
                offsets = position.to(tl.int64) * WIDTH + columns
                tl.store(keys_ptr + offsets, k, mask=is_inside)
                tl.store(values_ptr + offsets, v, mask=is_inside)
            maximum = tl.sum(q * k.to(tl.float32), 0) * scale_log2
            total += 1.0
            mixed += v.to(tl.float32)
        begin = first + part * n_per_part
        end = tl.minimum(begin + n_per_part, position)
        for start in range(begin, end, BLOCK_KEYS):
            keys = start + tl.arange(0, BLOCK_KEYS)
            offsets = keys[:, None].to(tl.int64) * WIDTH + columns[None, :]
            is_read = (keys[:, None] < end) & is_inside[None, :]
            k = tl.load(keys_ptr + offsets, mask=is_read, other=0.0).to(tl.float32)
            v = tl.load(values_ptr + offsets, mask=is_read, other=0.0).to(tl.float32)
            scores = tl.where(keys < end, tl.sum(k * q[None, :], 1) * scale_log2, -float("inf"))
            larger = tl.maximum(maximum, tl.max(scores, 0))
            shrink = tl.exp2(maximum - larger)
            weights = tl.exp2(scores - larger)
            total = total * shrink + tl.sum(weights, 0)
            mixed = mixed * shrink + tl.sum(weights[:, None] * v, 0)
            maximum = larger
        index = (row * N_PARTS + part) * N_HEADS + head
        tl.store(mixed_ptr + index * WIDTH + columns, mixed, mask=is_inside)
        tl.store(statistics_ptr + index, maximum)
        tl.store(statistics_ptr + n_rows * N_PARTS * N_HEADS + index, total)


def _block_of_keys(heads: Heads) -> int:
    """Return the keys that a program reads at a time, 64 of 64 numbers."""
    return max(16, min(64, 4096 // triton.next_power_of_2(heads.width)))


def attend(qkv: Tensor, heads: Heads, positions: Tensor) -> _Parts:
    """See `kernels.decoding.attend`; returns the parts of the result."""
    n_rows, block = len(qkv), _block_of_keys(heads)
    n_parts = 1
    while n_parts < 8 and n_parts * n_rows * heads.n_heads < 96 and n_parts * block < heads.keys.shape[2]:
        n_parts *= 2
    mixed = torch.empty(n_rows, n_parts, heads.n_heads * heads.width, device=qkv.device)
    statistics = torch.empty(2, n_rows, n_parts, heads.n_heads, device=qkv.device)
    _attention_kernel[(n_rows * heads.n_heads, n_parts)](
        qkv,
        heads.q_norm,
        heads.k_norm,
        heads.rotations,
        heads.keys,
        heads.values,
        positions,
        mixed,
        statistics,
        n_rows,
        heads.keys.shape[2],
        heads.eps,
        math.log2(math.e) / math.sqrt(heads.width),
        N_HEADS=heads.n_heads,
        N_KV_HEADS=heads.n_kv_heads,
        HAS_ROTATION=heads.rotations is not None,
        WIDTH=heads.width,
        BLOCK_WIDTH=max(16, triton.next_power_of_2(heads.width)),
        WINDOW=heads.window or 0,
        N_PARTS=n_parts,
        BLOCK_KEYS=block,
        **_options(4),
    )
    return _Parts(mixed, statistics, positions, heads)


@triton.jit
def _logits(logits_ptr, allowed_ptr, row, ids, vocab_size):
    """Return logits, −∞ for ids that may not be chosen, and the logits as they are."""
    is_inside = ids < vocab_size
    x = tl.load(logits_ptr + row.to(tl.int64) * vocab_size + ids, mask=is_inside, other=-float("inf"))
    allowed = x
    if allowed_ptr is not None:
        allowed = tl.where(tl.load(allowed_ptr + ids, mask=is_inside, other=0) != 0, x, -float("inf"))
    return allowed, x


@triton.jit
def _block_sums_kernel(
    logits_ptr,
    allowed_ptr,
    blocks_ptr,
    vocab_size,
    temperature,
    IS_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Store the maximum of a block of logits, ∞ if one is not finite, and Σ exp((x − maximum) / temperature)."""
    row, block = tl.program_id(0), tl.program_id(1)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    _wait(OVERLAP)
    x, own = _logits(logits_ptr, allowed_ptr, row, ids, vocab_size)
    is_right = own < float("inf")
    if not IS_CUT:
        is_right = is_right & ((own > -float("inf")) | (ids >= vocab_size))
    maximum = tl.maximum(tl.max(tl.where(is_right, x, -float("inf")), 0), _LEAST)
    total = tl.sum(tl.exp((x - maximum) / temperature), 0)
    n_wrong = tl.sum(tl.where(is_right, 0, 1), 0)
    offset = blocks_ptr + (row * tl.num_programs(1) + block) * 2
    tl.store(offset, tl.where(n_wrong > 0, float("inf"), maximum))
    tl.store(offset + 1, total)


@triton.jit
def _choose_kernel(
    logits_ptr,
    allowed_ptr,
    blocks_ptr,
    uniforms_ptr,
    n_uniforms,
    indices_ptr,
    ids_ptr,
    vocab_size,
    n_blocks,
    temperature,
    IS_GREEDY: tl.constexpr,
    BLOCK: tl.constexpr,
    N_BLOCKS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    row = tl.program_id(0)
    blocks = tl.arange(0, N_BLOCKS)
    _wait(OVERLAP)
    offsets = blocks_ptr + (row * n_blocks + blocks) * 2
    maxima = tl.load(offsets, mask=blocks < n_blocks, other=_LEAST)
    maximum = tl.max(maxima, 0)
    is_wrong = maximum == float("inf")
    if IS_GREEDY:
        block = tl.min(tl.where(maxima == maximum, blocks, N_BLOCKS), 0)
        ids = block * BLOCK + tl.arange(0, BLOCK)
        x, _ = _logits(logits_ptr, allowed_ptr, row, ids, vocab_size)
        chosen = tl.min(tl.where(x == maximum, ids, vocab_size - 1), 0)
    else:
        sums = tl.load(offsets + 1, mask=blocks < n_blocks, other=0.0).to(tl.float64)
        sums = sums * tl.exp((maxima - maximum) / temperature).to(tl.float64)
        ends = tl.cumsum(sums, 0)
        total = tl.max(ends, 0)
        target = total * tl.load(uniforms_ptr + row * n_uniforms + tl.load(indices_ptr + row))
        # The first block whose end is above the target, or reaches the total.
        block = tl.sum(tl.where((ends <= target) & (ends < total), 1, 0), 0)
        before = tl.max(tl.where(blocks < block, ends, 0.0), 0)
        ids = block * BLOCK + tl.arange(0, BLOCK)
        x, _ = _logits(logits_ptr, allowed_ptr, row, ids, vocab_size)
        weights = tl.exp((x - maximum) / temperature)
        index = tl.sum(tl.where(before + tl.cumsum(weights.to(tl.float64), 0) <= target, 1, 0), 0)
        last = tl.max(
            tl.where(weights > 0, tl.arange(0, BLOCK), 0), 0
        )  # rounded sums may stay below the target
        chosen = block * BLOCK + tl.minimum(index, last)
    tl.store(ids_ptr + row, tl.where(is_wrong, -1, chosen).to(tl.int64))


def choose(
    logits: Tensor,
    uniforms: Tensor | None,
    indices: Tensor,
    temperature: float,
    allowed: Tensor | None,
    *,
    is_cut: bool = False,
    out: Tensor,
) -> None:
    """See `kernels.decoding.choose`."""
    n_rows, vocab_size = logits.shape
    n_blocks = triton.cdiv(vocab_size, 1024)
    blocks = torch.empty(n_rows, n_blocks, 2, device=logits.device)
    temperature = 1.0 if uniforms is None else temperature
    _block_sums_kernel[(n_rows, n_blocks)](
        logits, allowed, blocks, vocab_size, temperature, IS_CUT=is_cut, BLOCK=1024, **_options(4)
    )
    _choose_kernel[(n_rows,)](
        logits,
        allowed,
        blocks,
        uniforms,
        0 if uniforms is None else uniforms.shape[1],
        indices,
        out,
        vocab_size,
        n_blocks,
        temperature,
        IS_GREEDY=uniforms is None,
        BLOCK=1024,
        N_BLOCKS=triton.next_power_of_2(n_blocks),
        **_options(4),
    )
