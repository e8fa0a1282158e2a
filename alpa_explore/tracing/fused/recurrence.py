"""The recurrence of one layer and direction of an LSTM, a GRU or a plain RNN as one operator, forward and backward.

The product of all inputs with their weights stays outside, as does that which gives the gradient of `weight`: both run
over all steps at once. The operators take its result, `gates` [samples, steps, gates · hidden], and go through the
steps, each of which needs the one before. Samples are independent.

    LSTM   i, f, o = σ(·), g = tanh(·) of gates + h weightᵀ;  c = f c + i g;  h = o tanh c
    GRU    r, z = σ(·) of gates + u, u = h weightᵀ + bias;  n = tanh(gates + r u);  h = n + z (h − n)
    RNN    h = tanh or relu of gates + h weightᵀ

`torch.ops.alpa_explore.lstm_recurrence`, `gru_recurrence`, `rnn_recurrence` and their `…_backward` exist once this
module is imported. The order of the gates is torch's (Hochreiter and Schmidhuber 1997; Cho et al. 2014). `reverse` goes
from the last step to the first.
"""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op(
    "alpa_explore::lstm_recurrence",
    mutates_args=(),
    schema="(Tensor gates, Tensor weight, Tensor h, Tensor c, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)",
)
def lstm_recurrence(
    gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(every h [n, t, hidden], the last c [n, hidden], every c, every i, f, g, o [n, t, 4 hidden]).

    `gates` [n, t, 4 hidden], `weight` [4 hidden, hidden]; `h` and `c` [n, hidden] are those before the first step.
    """
    made = gates.new_empty((*gates.shape[:2], h.shape[1]))
    cells, active = torch.empty_like(made), torch.empty_like(gates, memory_format=torch.contiguous_format)
    for step in _steps(gates, reverse):
        i, f, g, o = torch.addmm(gates[:, step], h, weight.t()).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        made[:, step], cells[:, step], active[:, step] = h, c, torch.cat([i, f, g, o], 1)
    return made, c.clone(), cells, active


@torch.library.custom_op(
    "alpa_explore::lstm_recurrence_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor weight, Tensor cells, Tensor active, Tensor c, Tensor? last, bool reverse)"
    " -> (Tensor, Tensor, Tensor)",
)
def lstm_recurrence_backward(
    gradient: Tensor, weight: Tensor, cells: Tensor, active: Tensor, c: Tensor, last: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of gates, h and c; `gradient` is that of every h, `last` that of the last c (None: zero)."""
    found = torch.empty_like(active)
    dh, dc = torch.zeros_like(c), torch.zeros_like(c) if last is None else last
    steps = _steps(gradient, not reverse)
    for step, before in zip(steps, (*steps[1:], None), strict=True):
        i, f, g, o = active[:, step].chunk(4, 1)
        dh = dh + gradient[:, step]
        bent = cells[:, step].tanh()
        dc = dc + dh * o * (1 - bent * bent)
        held = c if before is None else cells[:, before]
        di, df, dg, do = dc * g * i * (1 - i), dc * held * f * (1 - f), dc * i * (1 - g * g), dh * bent * o * (1 - o)
        found[:, step] = torch.cat([di, df, dg, do], 1)
        dh, dc = found[:, step] @ weight, dc * f
    return found, dh, dc.clone()


@torch.library.custom_op(
    "alpa_explore::gru_recurrence",
    mutates_args=(),
    schema="(Tensor gates, Tensor weight, Tensor? bias, Tensor h, bool reverse) -> (Tensor, Tensor)",
)
def gru_recurrence(
    gates: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """(every h [n, t, hidden], every r, z, n and the third part of u [n, t, 4 hidden]).

    `gates` [n, t, 3 hidden], `weight` [3 hidden, hidden], `bias` [3 hidden]; `h` [n, hidden] is that before the first
    step.
    """
    hidden = h.shape[1]
    made, active = gates.new_empty((*gates.shape[:2], hidden)), gates.new_empty((*gates.shape[:2], 4 * hidden))
    for step in _steps(gates, reverse):
        u = h @ weight.t() if bias is None else torch.addmm(bias, h, weight.t())
        r, z = (gates[:, step, : 2 * hidden] + u[:, : 2 * hidden]).sigmoid().chunk(2, 1)
        n = (gates[:, step, 2 * hidden :] + r * u[:, 2 * hidden :]).tanh()
        h = n + z * (h - n)
        made[:, step], active[:, step] = h, torch.cat([r, z, n, u[:, 2 * hidden :]], 1)
    return made, active


@torch.library.custom_op(
    "alpa_explore::gru_recurrence_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor weight, Tensor made, Tensor active, Tensor h, bool reverse)"
    " -> (Tensor, Tensor, Tensor)",
)
def gru_recurrence_backward(
    gradient: Tensor, weight: Tensor, made: Tensor, active: Tensor, h: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of gates, of u [n, t, 3 hidden] and of h; `gradient` is that of every h, `made`."""
    found = active.new_empty((*active.shape[:2], 3 * h.shape[1]))
    inner, dh = torch.empty_like(found), torch.zeros_like(h)
    steps = _steps(gradient, not reverse)
    for step, before in zip(steps, (*steps[1:], None), strict=True):
        r, z, n, u = active[:, step].chunk(4, 1)
        dh = dh + gradient[:, step]
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * u * r * (1 - r), dh * ((h if before is None else made[:, before]) - n) * z * (1 - z)
        found[:, step], inner[:, step] = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
        dh = torch.addmm(dh * z, inner[:, step], weight)
    return found, inner, dh


@torch.library.custom_op(
    "alpa_explore::rnn_recurrence",
    mutates_args=(),
    schema="(Tensor gates, Tensor weight, Tensor h, bool reverse, bool relu) -> Tensor",
)
def rnn_recurrence(gates: Tensor, weight: Tensor, h: Tensor, reverse: bool, relu: bool) -> Tensor:
    """Every h, of the shape of `gates` [n, t, hidden]; `weight` [hidden, hidden], `h` [n, hidden]."""
    made = torch.empty_like(gates, memory_format=torch.contiguous_format)
    for step in _steps(gates, reverse):
        h = torch.addmm(gates[:, step], h, weight.t())
        h = h.relu() if relu else h.tanh()
        made[:, step] = h
    return made


@torch.library.custom_op(
    "alpa_explore::rnn_recurrence_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor weight, Tensor made, bool reverse, bool relu) -> (Tensor, Tensor)",
)
def rnn_recurrence_backward(
    gradient: Tensor, weight: Tensor, made: Tensor, reverse: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of gates and of h; `gradient` is that of every h, `made`."""
    found = torch.empty_like(made)
    dh = gradient.new_zeros((gradient.shape[0], gradient.shape[2]))
    for step in _steps(gradient, not reverse):
        h, dh = made[:, step], dh + gradient[:, step]
        found[:, step] = dh * (h > 0) if relu else dh * (1 - h * h)
        dh = found[:, step] @ weight
    return found, dh


def _steps(gates: Tensor, reverse: bool) -> range:
    count = gates.shape[1]
    return range(count - 1, -1, -1) if reverse else range(count)


@lstm_recurrence.register_fake
def _lstm_shapes(gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    every = (*gates.shape[:2], h.shape[1])
    return gates.new_empty(every), c.new_empty(c.shape), gates.new_empty(every), gates.new_empty(gates.shape)


@lstm_recurrence_backward.register_fake
def _lstm_backward_shapes(
    gradient: Tensor, weight: Tensor, cells: Tensor, active: Tensor, c: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    return active.new_empty(active.shape), c.new_empty(c.shape), c.new_empty(c.shape)


@gru_recurrence.register_fake
def _gru_shapes(gates: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    return tuple(gates.new_empty((*gates.shape[:2], size * h.shape[1])) for size in (1, 4))


@gru_recurrence_backward.register_fake
def _gru_backward_shapes(
    gradient: Tensor, weight: Tensor, made: Tensor, active: Tensor, h: Tensor, _: bool
) -> tuple[Tensor, ...]:
    shape = (*active.shape[:2], 3 * h.shape[1])
    return active.new_empty(shape), active.new_empty(shape), h.new_empty(h.shape)


@rnn_recurrence.register_fake
def _rnn_shapes(gates: Tensor, *_: Any) -> Tensor:
    return gates.new_empty(gates.shape)


@rnn_recurrence_backward.register_fake
def _rnn_backward_shapes(gradient: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return gradient.new_empty(gradient.shape), gradient.new_empty((gradient.shape[0], gradient.shape[2]))


def _keep_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, h, c, ctx.reverse = inputs
    made, _, cells, active = output
    ctx.save_for_backward(weight, h, c, made, cells, active)
    ctx.mark_non_differentiable(cells, active)
    ctx.set_materialize_grads(False)


def _differentiate_lstm(ctx: Any, gradient: Tensor | None, last: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    weight, h, c, made, cells, active = ctx.saved_tensors
    if gradient is None and last is None:
        return (None,) * 5
    gradient = torch.zeros_like(made) if gradient is None else gradient
    dgates, dh, dc = torch.ops.alpa_explore.lstm_recurrence_backward(
        gradient, weight, cells, active, c, last, ctx.reverse
    )
    return dgates, _weight_gradient(dgates, h, made, ctx.reverse), dh, dc, None


def _keep_gru(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, bias, h, ctx.reverse = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(weight, h, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate_gru(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 5
    weight, h, made, active = ctx.saved_tensors
    dgates, inner, dh = torch.ops.alpa_explore.gru_recurrence_backward(gradient, weight, made, active, h, ctx.reverse)
    dbias = inner.sum((0, 1)) if ctx.biased else None
    return dgates, _weight_gradient(inner, h, made, ctx.reverse), dbias, dh, None


def _keep_rnn(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, weight, h, ctx.reverse, ctx.relu = inputs
    ctx.save_for_backward(weight, h, output)


def _differentiate_rnn(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    weight, h, made = ctx.saved_tensors
    dgates, dh = torch.ops.alpa_explore.rnn_recurrence_backward(gradient, weight, made, ctx.reverse, ctx.relu)
    return dgates, _weight_gradient(dgates, h, made, ctx.reverse), dh, None, None


def _weight_gradient(dgates: Tensor, h: Tensor, made: Tensor, reverse: bool) -> Tensor:
    """Σ over samples and steps of (gradient of the gates) ⊗ (h before the step): one product."""
    first = h.unsqueeze(1)
    before = torch.cat([made[:, 1:], first] if reverse else [first, made[:, :-1]], 1)
    return dgates.flatten(0, 1).t() @ before.flatten(0, 1)


lstm_recurrence.register_autograd(_differentiate_lstm, setup_context=_keep_lstm)
gru_recurrence.register_autograd(_differentiate_gru, setup_context=_keep_gru)
rnn_recurrence.register_autograd(_differentiate_rnn, setup_context=_keep_rnn)
