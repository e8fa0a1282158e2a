"""RMS norm as one operator, forward and backward: what a fused kernel computes.

    rstd = 1 / √(mean of x² + ε)      n = x · rstd      y = n · weight
    g = dy · weight      dx = rstd · (g − n · mean of g · n)      dweight = Σ over rows of dy · n

`torch.ops.alpa_explore.rms_norm` and `rms_norm_backward` exist once this module is imported (Zhang and Sennrich, "Root
Mean Square Layer Normalization", 2019, arXiv 1910.07467). The last dims of x are normalised; those before them are
rows, for each of which the forward pass keeps one number, rstd. As torch does, it computes 16-bit inputs in fp32 and
rounds once, at the end. On CUDA it calls torch's kernels where x and weight have one dtype.
"""

import math
from typing import Any

import torch
from torch import Tensor

from alpa_explore.tracing.custom import gradients, like, operator, wide


@operator(
    lambda x, weight, eps, dims=1: (
        x.new_empty(x.shape),
        x.new_empty((*x.shape[:-dims], *(1,) * dims), dtype=wide(x.dtype)),
    )
)
def rms_norm(x: Tensor, weight: Tensor | None, eps: float, dims: int = 1) -> tuple[Tensor, Tensor]:
    """(y of the shape and dtype of x, rstd in fp32 or wider). The last `dims` dims of x, which are those of `weight`,
    are normalised, and of size 1 in rstd."""
    if _fits_fused(x, weight):
        y, rstd = torch.ops.aten._fused_rms_norm(x, x.shape[-dims:], weight, eps)
        return y.contiguous(), rstd
    in_full = x.to(wide(x.dtype))
    rstd = torch.rsqrt(in_full.square().mean(_last(dims), keepdim=True) + eps)
    y = in_full * rstd
    if weight is not None:
        y = y * weight.to(y.dtype)
    return y.to(x.dtype).contiguous(), rstd.contiguous()


@operator(lambda gradient, x, rstd, weight, dims=1: like(x, weight))
def rms_norm_backward(gradient: Tensor, x: Tensor, rstd: Tensor, weight: Tensor | None, dims: int = 1) -> list[Tensor]:
    """[dx] or, with a weight, [dx, dweight], of the shapes and dtypes of x and weight; `gradient` is that of y."""
    if _fits_fused(x, weight):
        mask = [True, weight is not None]
        made = torch.ops.aten._fused_rms_norm_backward(gradient, x, x.shape[-dims:], rstd, weight, mask)
        return [t.contiguous() for t in made[: sum(mask)]]
    n, dy = x.to(rstd.dtype) * rstd, gradient.to(rstd.dtype)
    g = dy if weight is None else dy * weight.to(dy.dtype)
    dx = rstd * (g - n * (g * n).mean(_last(dims), keepdim=True))
    found = [dx.to(x.dtype).contiguous()]
    if weight is not None:
        found.append((dy * n).reshape(-1, *weight.shape).sum(0).to(weight.dtype))
    return found


@gradients(rms_norm)
def _gradients(inputs: tuple[Any, ...], output: tuple[Tensor, Tensor], gradient: Tensor) -> list[Tensor]:
    x, weight, _, dims = inputs
    return list(rms_norm_backward(gradient, x, output[1], weight, dims))


def _last(dims: int) -> tuple[int, ...]:
    return tuple(range(-dims, 0))


def _fits_fused(x: Tensor, weight: Tensor | None) -> bool:
    return x.is_cuda and (weight is None or weight.dtype == x.dtype)


def fits(x: Tensor, normalised: tuple[int, ...], weight: Tensor | None) -> bool:
    """Whether the operator computes a call; others (nested tensors, shapes that do not match) are left to torch."""
    if x.is_nested or not x.is_floating_point() or not normalised or math.prod(x.shape) == 0:
        return False
    if tuple(x.shape[-len(normalised) :]) != normalised:
        return False
    return weight is None or (weight.is_floating_point() and tuple(weight.shape) == normalised)
