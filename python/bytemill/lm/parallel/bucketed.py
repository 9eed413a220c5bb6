"""Average gradients in buckets while the backward pass computes the others (Li et al. 2020).

Messages per step: about B / bucket size. Bytes sent by each process: 2 (n − 1) / n · B, hidden behind the backward pass
but for the last bucket. Each process holds all weights, gradients and optimizer state.

The backward pass completes gradients about in the reverse order of the parameters, so buckets are filled in that order.
A hook on each parameter copies its gradient into its bucket, and the gradient is a view of the bucket from then on. A
complete bucket is sent at once, but never before the one ahead of it: all processes must send in one order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from bytemill.lm.parallel.base import DataParallel

if TYPE_CHECKING:
    from typing import Self

    from torch.nn import Module

    from bytemill.lm.model import TransformerLM

_MIB = 2**20


@dataclass
class _Bucket:
    views: dict[Tensor, Tensor]
    """Parameter -> its gradient in the buffer."""
    buffer: Tensor
    missing: set[Tensor] = field(default_factory=set[Tensor])
    """Parameters whose gradient is not in the buffer yet."""
    message: Any = None


class BucketedParallel(DataParallel):
    """All-reduce buckets of gradients during the backward pass.

    Args:
        module: The module to train.
        bucket_mb: Size of a bucket in MiB; 0 puts each parameter into one of its own, None all into one.
    """

    def __init__(self, module: Module, bucket_mb: float | None = 25.0) -> None:
        super().__init__(module)
        self._buckets: list[_Bucket] = []
        self._bucket_of: dict[Tensor, _Bucket] = {}
        self._n_sent = 0
        if self.count == 1:
            return
        for parameters in _in_buckets(
            self.trained[::-1], math.inf if bucket_mb is None else bucket_mb * _MIB
        ):
            bucket = _make_bucket(parameters)
            self._buckets.append(bucket)
            for parameter in parameters:
                self._bucket_of[parameter] = bucket
                parameter.register_post_accumulate_grad_hook(self._gradient_is_complete)

    @classmethod
    def of_model(cls, model: TransformerLM, *, bucket_mb: float, dtype: torch.dtype) -> Self:
        del dtype
        return cls(model, bucket_mb)

    def _gradient_is_complete(self, parameter: Tensor) -> None:
        """Put the gradient into its bucket, and send the buckets that are complete."""
        if not self.is_exchanging:
            return
        bucket = self._bucket_of[parameter]
        if parameter not in bucket.missing:
            raise RuntimeError("a second backward pass began before finish() was called")
        self._fill(bucket, parameter)
        while self._n_sent < len(self._buckets) and not self._buckets[self._n_sent].missing:
            self._send_next()

    def _fill(self, bucket: _Bucket, parameter: Tensor) -> None:
        view = bucket.views[parameter]
        if parameter.grad is None:
            view.zero_()
        else:
            torch.mul(parameter.grad, 1 / self.count, out=view)
        parameter.grad = view
        bucket.missing.remove(parameter)

    def _send_next(self) -> None:
        bucket = self._buckets[self._n_sent]
        bucket.message = dist.all_reduce(bucket.buffer, async_op=True)
        self._n_sent += 1

    @torch.no_grad()
    def finish(self) -> None:
        for bucket in self._buckets[self._n_sent :]:  # those with parameters that took no part in the loss
            for parameter in list(bucket.missing):
                self._fill(bucket, parameter)
            self._send_next()
        for bucket in self._buckets:
            bucket.message.wait()
            bucket.message, bucket.missing = None, set(bucket.views)
        self._n_sent = 0


def _in_buckets(parameters: list[Any], most_bytes: float) -> list[list[Any]]:
    """Divide parameters, in order, into lists of one type and at most this size, or of one parameter."""
    result: list[list[Any]] = []
    n_bytes = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        is_like = bool(result) and (parameter.dtype, parameter.device) == (
            result[-1][0].dtype,
            result[-1][0].device,
        )
        if not is_like or n_bytes + size > most_bytes:
            result.append([])
            n_bytes = 0
        result[-1].append(parameter)
        n_bytes += size
    return result


def _make_bucket(parameters: list[Any]) -> _Bucket:
    buffer = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
    views: dict[Tensor, Tensor] = {}
    start = 0
    for parameter in parameters:
        views[parameter] = buffer[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    return _Bucket(views, buffer, set(views))
