"""The time mix of RWKV as one operator, forward and backward: a mean of values, weighted by keys that decay.

With weights e^key, a decay for every step and a bonus for the step itself, of each channel

    y_t = (P_t + e^(first + k_t) v_t) / (Q_t + e^(first + k_t))
    P_{t+1} = e^decay P_t + e^k_t v_t        Q_{t+1} = e^decay Q_t + e^k_t        P_0 = Q_0 = 0

(RWKV-4, Peng et al. 2023, arXiv 2305.13048). P and Q are kept as p e^m and q e^m, m the largest exponent so far, so
that nothing overflows. `torch.ops.alpa_explore.wkv` and `wkv_backward` exist once this module is imported. As the fused
kernels do, the backward pass keeps nothing but the inputs and goes through the steps again. Samples and channels are
independent. 16-bit inputs are computed in fp32.
"""

import torch
from torch import Tensor

from alpa_explore.tracing.custom import gradients, like, operator, wide

_NONE = -1e38
"""The exponent before the first step: no weight at all."""


@operator(lambda decay, first, key, value: key.new_empty(key.shape))
def wkv(decay: Tensor, first: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """y, of the shape and dtype of `key`. `decay` (below zero) and `first` [c]; `key` and `value` [n, t, c]."""
    made = torch.empty_like(key, memory_format=torch.contiguous_format)
    w, u, k, v = _wide(decay, first, key, value)
    p, q, m = _begin(k)
    for step in range(k.shape[1]):
        old, new = _shares(m, k[:, step] + u)
        made[:, step] = (old * p + new * v[:, step]) / (old * q + new)
        p, q, m = _next(p, q, m, w, k[:, step], v[:, step])
    return made


@operator(lambda gradient, *others: tuple(like(*others)))
def wkv_backward(
    gradient: Tensor, decay: Tensor, first: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of decay, first, key and value; `gradient` is that of y.

    dp and dq are those of p and q for a given m: y depends on P and Q alone, and so not on m.
    """
    w, u, k, v, dy = _wide(decay, first, key, value, gradient)
    states = [_begin(k)]
    for step in range(k.shape[1] - 1):
        states.append(_next(*states[-1], w, k[:, step], v[:, step]))
    dk, dv, dw, du = torch.empty_like(k), torch.empty_like(v), torch.zeros_like(w), torch.zeros_like(u)
    dp = dq = torch.zeros_like(k[:, 0])
    for step in range(k.shape[1] - 1, -1, -1):
        p, q, m = states.pop()
        now, read = k[:, step], v[:, step]
        kept, added = _shares(m + w, now)
        old, new = _shares(m, now + u)
        whole = old * q + new
        y, g = (old * p + new * read) / whole, dy[:, step] / whole
        at_once, later = g * new * (read - y), (dp * read + dq) * added
        dk[:, step], dv[:, step] = at_once + later, g * new + dp * added
        du, dw = du + at_once.sum(0), dw + ((dp * p + dq * q) * kept).sum(0)
        dp, dq = dp * kept + g * old, dq * kept - g * y * old
    return dw.to(decay.dtype), du.to(first.dtype), dk.to(key.dtype).contiguous(), dv.to(value.dtype).contiguous()


_State = tuple[Tensor, Tensor, Tensor]
"""p, q and m, [n, c]."""


def _begin(k: Tensor) -> _State:
    zero = torch.zeros_like(k[:, 0])
    return zero, zero, torch.full_like(zero, _NONE)


def _next(p: Tensor, q: Tensor, m: Tensor, w: Tensor, now: Tensor, read: Tensor) -> _State:
    kept, added = _shares(m + w, now)
    return kept * p + added * read, kept * q + added, torch.maximum(m + w, now)


def _shares(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """e^a and e^b, both divided by the larger of them."""
    top = torch.maximum(a, b)
    return torch.exp(a - top), torch.exp(b - top)


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the dtype in which all of them are computed."""
    return tuple(t.to(wide(*(other.dtype for other in tensors))) for t in tensors)


@gradients(wkv)
def _gradients(inputs: tuple[Tensor, ...], output: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = wkv_backward(gradient, *inputs)
    return found
