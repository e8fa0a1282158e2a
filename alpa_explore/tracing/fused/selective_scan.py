"""The selective scan of Mamba as one operator, forward and backward: a linear recurrence whose factors depend on the
input.

Of each channel, with Δ = softplus(delta + bias) and a state h of some numbers, of which a row of `a` is the decay,

    h_t = e^(Δ_t a) h_{t-1} + Δ_t x_t b_t        y_t = h_t · c_t + d x_t        result = y · silu(z)

(Gu and Dao 2023, arXiv 2312.00752). `torch.ops.alpa_explore.selective_scan` and `selective_scan_backward` exist once
this module is imported. As the fused kernels do, the backward pass keeps nothing but the inputs and goes through the
steps again. Samples and channels are independent, but all channels of a sample read the same b and c. 16-bit inputs are
computed in fp32.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from alpa_explore.tracing.custom import gradients, like, operator, wide

_Optional = Tensor | None


@operator(
    lambda x, delta, a, *_: (
        x.new_empty(x.shape),
        x.new_empty((*x.shape[:2], a.shape[1]), dtype=wide(x.dtype, a.dtype)),
    )
)
def selective_scan(
    x: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: _Optional,
    z: _Optional,
    bias: _Optional,
    softplus: bool,
) -> tuple[Tensor, Tensor]:
    """(the result in the dtype of x, the last state [n, channels, states] in the computed one).

    `x`, `delta` and `z` are [n, channels, t], `a` [channels, states], `b` and `c` [n, states, t], `d` and `bias`
    [channels]; without `softplus` Δ is delta + bias.
    """
    width = wide(x.dtype, a.dtype)
    u, decay, b, c = (t.to(width) for t in (x, a, b, c))
    step_sizes = _step_sizes(delta, bias, softplus, width)
    made = torch.empty_like(u, memory_format=torch.contiguous_format)
    state = u.new_zeros((*u.shape[:2], decay.shape[1]))
    for step in range(u.shape[2]):
        state = _next(state, u, step_sizes, decay, b, step)
        made[:, :, step] = (state @ c[:, :, step, None]).squeeze(2)
    if d is not None:
        made = made + u * d.to(width).unsqueeze(1)
    if z is not None:
        made = made * functional.silu(z.to(width))
    return made.to(x.dtype), state


@operator(lambda gradient, last, *inputs: like(*inputs[:-1]))
def selective_scan_backward(
    gradient: Tensor,
    last: _Optional,
    x: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: _Optional,
    z: _Optional,
    bias: _Optional,
    softplus: bool,
) -> list[Tensor]:
    """The gradients of all tensors that are given, in their order; `gradient` is that of the result, `last` that of
    the last state (None: zero)."""
    width = wide(x.dtype, a.dtype)
    given = [t for t in (x, delta, a, b, c, d, z, bias) if t is not None]
    u, decay, b, c = (t.to(width) for t in (x, a, b, c))
    step_sizes = _step_sizes(delta, bias, softplus, width)
    dy, steps = gradient.to(width), range(x.shape[2])
    states = [u.new_zeros((*u.shape[:2], decay.shape[1]))]
    for step in steps:
        states.append(_next(states[-1], u, step_sizes, decay, b, step))
    extra: list[Tensor] = []  # of d, z and bias
    if z is not None:
        y = torch.stack([(states[step + 1] @ c[:, :, step, None]).squeeze(2) for step in steps], 2)
        y = y if d is None else y + u * d.to(width).unsqueeze(1)
        gate = z.to(width).sigmoid()
        extra.append(dy * y * gate * (1 + z.to(width) * (1 - gate)))
        dy = dy * z.to(width) * gate
    if d is not None:
        extra.insert(0, (dy * u).sum((0, 2)))
    dx = torch.zeros_like(dy) if d is None else dy * d.to(width).unsqueeze(1)
    dstep, db, dc, da = torch.empty_like(dy), torch.empty_like(b), torch.empty_like(c), torch.zeros_like(decay)
    dh = torch.zeros_like(states[0]) if last is None else last.to(width)
    for step in reversed(steps):
        size, now = step_sizes[:, :, step, None], u[:, :, step, None]
        dc[:, :, step] = (dy[:, :, step, None] * states.pop()).sum(1)
        dh = dh + dy[:, :, step, None] * c[:, None, :, step]
        kept = dh * torch.exp(size * decay)
        of_exponent, of_input = kept * states[-1], (dh @ b[:, :, step, None]).squeeze(2)
        da += (of_exponent * size).sum(0)
        db[:, :, step] = (dh * (size * now)).sum(1)
        dx[:, :, step] += of_input * step_sizes[:, :, step]
        dstep[:, :, step] = of_input * u[:, :, step] + (of_exponent * decay).sum(2)
        dh = kept
    if softplus:
        dstep = dstep * -torch.expm1(-step_sizes)  # of softplus, from its result
    if bias is not None:
        extra.append(dstep.sum((0, 2)))
    found = (dx, dstep, da, db, dc, *extra)
    return [of.to(t.dtype).contiguous() for of, t in zip(found, given, strict=True)]


def _next(state: Tensor, u: Tensor, step_sizes: Tensor, decay: Tensor, b: Tensor, step: int) -> Tensor:
    size = step_sizes[:, :, step, None]
    return torch.exp(size * decay) * state + (size * u[:, :, step, None]) * b[:, None, :, step]


def _step_sizes(delta: Tensor, bias: _Optional, softplus: bool, dtype: torch.dtype) -> Tensor:
    """Δ."""
    size = delta.to(dtype) if bias is None else delta.to(dtype) + bias.to(dtype).unsqueeze(1)
    return functional.softplus(size) if softplus else size


@gradients(selective_scan, made=(0, 1))
def _gradients(
    inputs: tuple[Any, ...], output: tuple[Tensor, Tensor], gradient: _Optional, last: _Optional
) -> tuple[_Optional, ...]:
    gradient = torch.zeros_like(output[0]) if gradient is None else gradient
    found = iter(selective_scan_backward(gradient, last, *inputs))
    return tuple(None if t is None else next(found) for t in inputs[:-1])
