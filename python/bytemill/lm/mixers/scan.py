"""A recurrence of matrices with decay, token by token and in chunks.

With keys k, values v, queries q and decays aₜ = exp(gₜ) ≤ 1 of each head:

    Sₜ = aₜ Sₜ₋₁ + kₜ vₜᵀ,    yₜ = Sₜᵀ qₜ

Without decay this is linear attention (Katharopoulos et al. 2020), with decay Mamba-2 (Dao & Gu 2024). The sum over
earlier tokens gives the second form: yₜ = Σⱼ≤ₜ exp(gⱼ₊₁ + … + gₜ) (qₜ · kⱼ) vⱼ. Within a chunk that is a masked matrix
product; what lies before the chunk is in the state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bytemill.lm.mixers.state import chunks


def decays(log_decay: Tensor, document_starts: Tensor | None, first: int) -> tuple[Tensor, Tensor]:
    """Return the decay between the tokens of a chunk, and from the state before the chunk to each token.

    Args:
        log_decay: (batch, n_heads, n_tokens) of the chunk, at most 0.
        document_starts: (batch, n_tokens), position of the first token of each token's document; what lies before
            decays to 0.
        first: Position of the first token of the chunk.

    Returns:
        (batch, n_heads, n_tokens, n_tokens), 0 above the diagonal; and (batch, n_heads, n_tokens).
    """
    n_tokens = log_decay.shape[-1]
    total = log_decay.cumsum(-1)
    tokens = torch.arange(n_tokens, device=log_decay.device)
    mask = tokens <= tokens[:, None]
    carried = total.exp()
    if document_starts is not None:
        starts = document_starts[:, None] - first
        mask = mask & (tokens >= starts[..., None])
        carried = carried.masked_fill(starts >= 0, 0)
    # Masked before exp, which would overflow above the diagonal.
    between = (total[..., :, None] - total[..., None, :]).masked_fill(~mask, -torch.inf)
    return between.exp(), carried


def read_and_write(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor, *, between: Tensor, carried: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute a chunk: what its queries read from it and from the state, and the state after it.

    Args:
        q: Queries (batch, n_heads, n_tokens, d_k).
        k: Keys, of the same shape.
        v: Values that are written, (batch, n_heads, n_tokens, d_v).
        state: The state before the chunk.
        between: Decay between its tokens; see `decays`.
        carried: Decay from the state to each token.
    """
    result = (q @ k.mT * between) @ v + carried[..., None] * (q @ state)
    to_end = between[:, :, -1, :, None]
    return result, carried[:, :, -1, None, None] * state + (k * to_end).mT @ v


def chunked_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor,
    *,
    chunk: int,
    document_starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute all tokens, a chunk at a time.

    Args:
        q: Queries (batch, n_heads, n_tokens, d_k).
        k: Keys, of the same shape.
        v: Values (batch, n_heads, n_tokens, d_v).
        log_decay: (batch, n_heads, n_tokens), at most 0.
        state: The state before the first token, (batch, n_heads, d_k, d_v).
        chunk: Number of tokens of a chunk.
        document_starts: See `decays`.

    Returns:
        The results, of the shape of the values, and the state after the last token.
    """
    results: list[Tensor] = []
    for own in chunks(q.shape[2], chunk):
        starts = None if document_starts is None else document_starts[:, own]
        between, carried = decays(log_decay[:, :, own], starts, own.start)
        result, state = read_and_write(
            q[:, :, own], k[:, :, own], v[:, :, own], state, between=between, carried=carried
        )
        results.append(result)
    return torch.cat(results, dim=2), state


def recurrent_scan(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute one token after another; arguments and results are those of `chunked_scan`."""
    results: list[Tensor] = []
    for t in range(q.shape[2]):
        decay = log_decay[:, :, t, None, None].exp()
        state = decay * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        results.append((q[:, :, t, None, :] @ state)[:, :, 0])
    return torch.stack(results, dim=2), state


def scan_flops(n_tokens: int, chunk: int, n_heads: int, d_k: int, d_v: int) -> int:
    """Return the FLOPs of the products of `chunked_scan` for one sequence."""
    lengths = [own.stop - own.start for own in chunks(n_tokens, chunk)]
    return n_heads * sum(2 * n * n * (d_k + d_v) + 4 * n * d_k * d_v for n in lengths)
