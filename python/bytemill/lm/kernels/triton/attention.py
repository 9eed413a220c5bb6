"""Attention without stored weights: FlashAttention-2 (Dao 2023), forward and backward.

For queries qᵢ, keys kⱼ and values vⱼ of one head, with scores sᵢⱼ = qᵢ·kⱼ / √d and weights
wᵢⱼ = exp(sᵢⱼ) / Σⱼ exp(sᵢⱼ), the result is yᵢ = Σⱼ wᵢⱼ vⱼ.

**Forward.** A program holds a block of queries and reads the keys and values block by block. It keeps for each query
the maximum m of the scores so far, the sum l = Σ exp(s − m) and the unnormalized result a = Σ exp(s − m) v. When a
block raises the maximum to m', l and a take the factor exp(m − m'). At the end y = a / l, and L = m + log l is saved:
one number per query, from which every weight follows as w = exp(s − L).

**Backward.** Let gᵢ be the gradient of yᵢ. From y = Σ w v and the derivative of softmax,

    dvⱼ = Σᵢ wᵢⱼ gᵢ,    dwᵢⱼ = gᵢ·vⱼ,    dsᵢⱼ = wᵢⱼ (dwᵢⱼ − Σₖ wᵢₖ dwᵢₖ) = wᵢⱼ (gᵢ·vⱼ − gᵢ·yᵢ),

    dqᵢ = Σⱼ dsᵢⱼ kⱼ / √d,    dkⱼ = Σᵢ dsᵢⱼ qᵢ / √d.

The sum over k became gᵢ·yᵢ, which needs no weights. dq sums over keys, and dk and dv sum over queries, so two kernels
compute the weights again: one holds a block of queries as above, the other a block of keys. No two programs add to the
same number, so the result does not depend on their order.

**Groups.** With fewer heads of keys than of queries, the program of a query head reads the keys of its group. In the
other kernel, a program of a key head goes through all query heads of its group, and sums their gradients in registers.

**Visible keys.** Query i sees the keys from firstᵢ to i. firstᵢ is 0, or the start of a sliding window or of the
query's document. It never decreases with i, so a block of queries reads the keys from the first of its first query to
its end, and a block of keys reads the queries up to the last one that sees its last key. Blocks outside are skipped.
Without a causal mask, every query sees all keys. Tokens past the end are read as 0: no query sees them as keys, and as
queries their g is 0.

Exponentials are powers of two, which the hardware computes: the scores are multiplied by log₂ e, and L is in base 2.
Matrix products are in the type of the inputs, and everything else is float32.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# Triton has no types, and its functions are not Python's: a compiler reads them.

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bytemill.lm.tensors import narrowed

# Triton's interpreter multiplies the bits of bfloat16 numbers as integers.
_WIDEN = tl.constexpr(triton.knobs.runtime.interpret)


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int | None = None, document_starts: Tensor | None = None
) -> Tensor:
    """Compute softmax(q kᵀ / √d + causal mask) v.

    Under autocast, the products are in its type.

    Args:
        q: Queries (batch, n_heads, n_tokens, d).
        k: Keys (batch, n_kv_heads, n_tokens, d); groups of query heads share them.
        v: Values, of the shape of the keys.
        window: A token attends to itself and the window − 1 tokens before it; by default to all.
        document_starts: (batch, n_tokens), position of the first token of each token's document; it attends to none
            before that.
    """
    q, k, v = narrowed(q), narrowed(k), narrowed(v)
    return attend(q, k, v, first_keys(q, window, document_starts), is_causal=True)[0]


def first_keys(q: Tensor, window: int | None, document_starts: Tensor | None) -> Tensor:
    """Return the first key that each query sees, (batch or 1, n_tokens) int32; see `causal_attention`."""
    positions = torch.arange(q.shape[-2], device=q.device, dtype=torch.int32)
    first = torch.zeros_like(positions) if window is None else (positions - (window - 1)).clamp_min(0)
    return first[None] if document_starts is None else torch.maximum(first, document_starts.to(torch.int32))


@triton.jit
def _load(ptr, tokens, token_stride, n_tokens, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    """Load rows of one head: (block, BLOCK_WIDTH), 0 outside of it."""
    columns = tl.arange(0, BLOCK_WIDTH)
    is_inside = (tokens[:, None] < n_tokens) & (columns[None, :] < WIDTH)
    return tl.load(ptr + tokens[:, None] * token_stride + columns[None, :], mask=is_inside, other=0.0)


@triton.jit
def _store(ptr, rows, tokens, token_stride, n_tokens, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    columns = tl.arange(0, BLOCK_WIDTH)
    is_inside = (tokens[:, None] < n_tokens) & (columns[None, :] < WIDTH)
    tl.store(ptr + tokens[:, None] * token_stride + columns[None, :], rows, mask=is_inside)


@triton.jit
def _product(a, b):
    """Compute a b in float32, of operands of one type."""
    if _WIDEN:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _scores(q, k, queries, keys, first, n_tokens, scale_log2, CAUSAL: tl.constexpr):
    """Compute q kᵀ log₂ e / √d; −∞ where a query does not see a key."""
    last = queries if CAUSAL else tl.zeros_like(queries) + n_tokens - 1
    is_visible = (keys[None, :] <= last[:, None]) & (keys[None, :] >= first[:, None])
    return tl.where(is_visible, _product(q, tl.trans(k)) * scale_log2, -float("inf"))


@triton.jit
def _forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    first_ptr,
    y_ptr,
    log_sum_ptr,
    n_tokens,
    scale_log2,
    first_batch,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    N_HEADS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    begin = tl.program_id(0) * BLOCK
    batch, head = (tl.program_id(1) // N_HEADS).to(tl.int64), tl.program_id(1) % N_HEADS
    q_ptr += batch * q_batch + head * q_head
    k_ptr += batch * k_batch + head // N_GROUPS * k_head
    v_ptr += batch * v_batch + head // N_GROUPS * v_head
    y_ptr += (batch * n_tokens * N_HEADS + head) * WIDTH
    log_sum_ptr += (batch * N_HEADS + head) * n_tokens
    first_ptr += batch * first_batch

    queries = begin + tl.arange(0, BLOCK)
    q = _load(q_ptr, queries, q_token, n_tokens, WIDTH, BLOCK_WIDTH)
    first = tl.load(first_ptr + queries, mask=queries < n_tokens, other=0)
    maximum = tl.full([BLOCK], -1e30, tl.float32)  # finite: −∞ − −∞ is not a number
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, BLOCK_WIDTH], tl.float32)
    end = begin + BLOCK if CAUSAL else n_tokens
    for start in range(tl.load(first_ptr + begin) // BLOCK * BLOCK, end, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        k = _load(k_ptr, keys, k_token, n_tokens, WIDTH, BLOCK_WIDTH)
        v = _load(v_ptr, keys, v_token, n_tokens, WIDTH, BLOCK_WIDTH)
        scores = _scores(q, k, queries, keys, first, n_tokens, scale_log2, CAUSAL)
        larger = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(maximum - larger)
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None] + _product(weights.to(v.dtype), v)
        maximum = larger
    _store(y_ptr, mixed / total[:, None], queries, N_HEADS * WIDTH, n_tokens, WIDTH, BLOCK_WIDTH)
    tl.store(log_sum_ptr + queries, maximum + tl.log2(total), mask=queries < n_tokens)


@triton.jit
def _queries_kernel(
    g_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    first_ptr,
    y_ptr,
    log_sum_ptr,
    d_q_ptr,
    along_ptr,
    n_tokens,
    scale,
    scale_log2,
    first_batch,
    g_batch,
    g_head,
    g_token,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    N_HEADS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Compute dq of a block of queries, and g·y for the other kernel."""
    begin = tl.program_id(0) * BLOCK
    batch, head = (tl.program_id(1) // N_HEADS).to(tl.int64), tl.program_id(1) % N_HEADS
    g_ptr += batch * g_batch + head * g_head
    q_ptr += batch * q_batch + head * q_head
    k_ptr += batch * k_batch + head // N_GROUPS * k_head
    v_ptr += batch * v_batch + head // N_GROUPS * v_head
    y_ptr += (batch * n_tokens * N_HEADS + head) * WIDTH
    d_q_ptr += (batch * n_tokens * N_HEADS + head) * WIDTH
    log_sum_ptr += (batch * N_HEADS + head) * n_tokens
    along_ptr += (batch * N_HEADS + head) * n_tokens
    first_ptr += batch * first_batch

    queries = begin + tl.arange(0, BLOCK)
    q = _load(q_ptr, queries, q_token, n_tokens, WIDTH, BLOCK_WIDTH)
    g = _load(g_ptr, queries, g_token, n_tokens, WIDTH, BLOCK_WIDTH)
    y = _load(y_ptr, queries, N_HEADS * WIDTH, n_tokens, WIDTH, BLOCK_WIDTH)
    along = tl.sum(g.to(tl.float32) * y.to(tl.float32), 1)
    tl.store(along_ptr + queries, along, mask=queries < n_tokens)
    first = tl.load(first_ptr + queries, mask=queries < n_tokens, other=0)
    log_sum = tl.load(log_sum_ptr + queries, mask=queries < n_tokens, other=0.0)
    d_q = tl.zeros([BLOCK, BLOCK_WIDTH], tl.float32)
    end = begin + BLOCK if CAUSAL else n_tokens
    for start in range(tl.load(first_ptr + begin) // BLOCK * BLOCK, end, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        k = _load(k_ptr, keys, k_token, n_tokens, WIDTH, BLOCK_WIDTH)
        v = _load(v_ptr, keys, v_token, n_tokens, WIDTH, BLOCK_WIDTH)
        weights = tl.exp2(
            _scores(q, k, queries, keys, first, n_tokens, scale_log2, CAUSAL) - log_sum[:, None]
        )
        d_scores = weights * (_product(g, tl.trans(v)) - along[:, None])
        d_q += _product(d_scores.to(k.dtype), k)
    _store(d_q_ptr, d_q * scale, queries, N_HEADS * WIDTH, n_tokens, WIDTH, BLOCK_WIDTH)


@triton.jit
def _keys_kernel(
    g_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    first_ptr,
    end_ptr,
    log_sum_ptr,
    along_ptr,
    d_k_ptr,
    d_v_ptr,
    n_tokens,
    scale,
    scale_log2,
    first_batch,
    g_batch,
    g_head,
    g_token,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    N_HEADS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Compute dk and dv of a block of keys, of the queries of all heads of the group."""
    N_KV_HEADS: tl.constexpr = N_HEADS // N_GROUPS
    begin = tl.program_id(0) * BLOCK
    batch, kv_head = (tl.program_id(1) // N_KV_HEADS).to(tl.int64), tl.program_id(1) % N_KV_HEADS
    d_k_ptr += (batch * n_tokens * N_KV_HEADS + kv_head) * WIDTH
    d_v_ptr += (batch * n_tokens * N_KV_HEADS + kv_head) * WIDTH
    first_ptr += batch * first_batch

    keys = begin + tl.arange(0, BLOCK)
    k = _load(k_ptr + batch * k_batch + kv_head * k_head, keys, k_token, n_tokens, WIDTH, BLOCK_WIDTH)
    v = _load(v_ptr + batch * v_batch + kv_head * v_head, keys, v_token, n_tokens, WIDTH, BLOCK_WIDTH)
    end = tl.load(end_ptr + batch * first_batch + tl.minimum(begin + BLOCK, n_tokens) - 1)
    d_k = tl.zeros([BLOCK, BLOCK_WIDTH], tl.float32)
    d_v = tl.zeros([BLOCK, BLOCK_WIDTH], tl.float32)
    for head in range(kv_head * N_GROUPS, (kv_head + 1) * N_GROUPS):
        row = (batch * N_HEADS + head) * n_tokens
        for start in range(begin if CAUSAL else 0, end, BLOCK):
            queries = start + tl.arange(0, BLOCK)
            q = _load(q_ptr + batch * q_batch + head * q_head, queries, q_token, n_tokens, WIDTH, BLOCK_WIDTH)
            g = _load(g_ptr + batch * g_batch + head * g_head, queries, g_token, n_tokens, WIDTH, BLOCK_WIDTH)
            first = tl.load(first_ptr + queries, mask=queries < n_tokens, other=0)
            log_sum = tl.load(log_sum_ptr + row + queries, mask=queries < n_tokens, other=0.0)
            along = tl.load(along_ptr + row + queries, mask=queries < n_tokens, other=0.0)
            weights = tl.exp2(
                _scores(q, k, queries, keys, first, n_tokens, scale_log2, CAUSAL) - log_sum[:, None]
            )
            d_v += _product(tl.trans(weights.to(g.dtype)), g)
            d_scores = weights * (_product(g, tl.trans(v)) - along[:, None])
            d_k += _product(tl.trans(d_scores.to(q.dtype)), q)
    _store(d_k_ptr, d_k * scale, keys, N_KV_HEADS * WIDTH, n_tokens, WIDTH, BLOCK_WIDTH)
    _store(d_v_ptr, d_v, keys, N_KV_HEADS * WIDTH, n_tokens, WIDTH, BLOCK_WIDTH)


@torch.library.custom_op("bytemill::attend", mutates_args=())
def attend(q: Tensor, k: Tensor, v: Tensor, first: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Return y, (batch, n_heads, n_tokens, d), and L in base 2, (batch, n_heads, n_tokens); `first` as in `first_keys`.

    Without a causal mask, all of `first` must be 0.
    """
    q, k, v = (_rows(t) for t in (q, k, v))
    y, log_sum = _empty_results(q, k, v, first, is_causal)
    batch, n_heads, n_tokens, width = q.shape
    if q.numel():
        sizes = _sizes(q, k, is_causal)
        _forward_kernel[(triton.cdiv(n_tokens, sizes["BLOCK"]), batch * n_heads)](
            q,
            k,
            v,
            first,
            y,
            log_sum,
            n_tokens,
            math.log2(math.e) / math.sqrt(width),
            _batch_stride(first),
            *q.stride()[:3],
            *k.stride()[:3],
            *v.stride()[:3],
            **sizes,
        )
    return y, log_sum


@attend.register_fake
def _empty_results(q: Tensor, k: Tensor, v: Tensor, first: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    del k, v, first, is_causal
    return _empty_heads(q), torch.empty(q.shape[:3], device=q.device)


@torch.library.custom_op("bytemill::attend_backward", mutates_args=())
def attend_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    first: Tensor,
    y: Tensor,
    log_sum: Tensor,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    g, q, k, v = (_rows(t) for t in (gradient, q, k, v))
    d_q, d_k, d_v = (_empty_heads(t) for t in (q, k, v))
    y = y.transpose(1, 2).contiguous()
    batch, n_heads, n_tokens, width = q.shape
    if not q.numel():
        return d_q, d_k, d_v
    along = torch.empty_like(log_sum)
    positions = torch.arange(n_tokens, device=q.device, dtype=torch.int32).expand_as(first).contiguous()
    end = torch.searchsorted(first, positions, right=True, out_int32=True)
    scale = 1 / math.sqrt(width)
    sizes = _sizes(q, k, is_causal)
    n_blocks = triton.cdiv(n_tokens, sizes["BLOCK"])
    numbers = (
        n_tokens,
        scale,
        scale * math.log2(math.e),
        _batch_stride(first),
        *(stride for t in (g, q, k, v) for stride in t.stride()[:3]),
    )
    _queries_kernel[(n_blocks, batch * n_heads)](g, q, k, v, first, y, log_sum, d_q, along, *numbers, **sizes)
    _keys_kernel[(n_blocks, batch * k.shape[1])](
        g, q, k, v, first, end, log_sum, along, d_k, d_v, *numbers, **sizes
    )
    return d_q, d_k, d_v


@attend_backward.register_fake
def _empty_gradients(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    first: Tensor,
    y: Tensor,
    log_sum: Tensor,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    del gradient, first, y, log_sum, is_causal
    return _empty_heads(q), _empty_heads(k), _empty_heads(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.is_causal = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *attend_backward(gradient, *ctx.saved_tensors, ctx.is_causal), None, None


attend.register_autograd(_backward, setup_context=_save)


def _rows(x: Tensor) -> Tensor:
    """Return `x` with the numbers of each row next to each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _empty_heads(x: Tensor) -> Tensor:
    """Return a new tensor in the shape of `x`, (batch, n_tokens, n_heads, d) in memory: joining heads needs no copy."""
    batch, n_heads, n_tokens, width = x.shape
    return torch.empty(batch, n_tokens, n_heads, width, device=x.device, dtype=x.dtype).transpose(1, 2)


def _batch_stride(first: Tensor) -> int:
    return first.shape[1] if first.shape[0] > 1 else 0


def _sizes(q: Tensor, k: Tensor, is_causal: bool) -> dict[str, Any]:
    """Return the sizes that the kernels are compiled for."""
    width = q.shape[-1]
    block_width = max(16, triton.next_power_of_2(width))
    return {
        "N_HEADS": q.shape[1],
        "N_GROUPS": q.shape[1] // k.shape[1],
        "WIDTH": width,
        "BLOCK_WIDTH": block_width,
        "CAUSAL": is_causal,
        # The blocks and their copies for pipelining stay below 99 KiB, the shared memory of the smaller GPUs, and four
        # warps of the kernel of keys would move 800 bytes of registers to memory where heads are wider than 64.
        "BLOCK": 64 if q.element_size() == 2 and width <= 128 else 32,
        "num_warps": 4 if block_width <= 64 else 8,
        "num_stages": 2,
    }
