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

from alpa_explore.tracing.custom import gradients, like, operator


def every(like: Tensor, h: Tensor, times: int = 1) -> Tensor:
    """Empty, with so many times the hidden numbers for each sample and step."""
    return like.new_empty((*like.shape[:2], times * h.shape[1]))


@operator(lambda gates, weight, h, c, reverse: (every(gates, h), *like(c), every(gates, h), *like(gates)))
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


@operator(lambda gradient, weight, cells, active, c, *_: tuple(like(active, c, c)))
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


@operator(lambda gates, weight, bias, h, reverse: (every(gates, h), every(gates, h, 4)))
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


@operator(lambda gradient, weight, made, active, h, reverse: (every(active, h, 3), every(active, h, 3), *like(h)))
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


@operator(lambda gates, *_: gates.new_empty(gates.shape))
def rnn_recurrence(gates: Tensor, weight: Tensor, h: Tensor, reverse: bool, relu: bool) -> Tensor:
    """Every h, of the shape of `gates` [n, t, hidden]; `weight` [hidden, hidden], `h` [n, hidden]."""
    made = torch.empty_like(gates, memory_format=torch.contiguous_format)
    for step in _steps(gates, reverse):
        h = torch.addmm(gates[:, step], h, weight.t())
        h = h.relu() if relu else h.tanh()
        made[:, step] = h
    return made


@operator(lambda gradient, *_: (*like(gradient), gradient.new_empty((gradient.shape[0], gradient.shape[2]))))
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


@gradients(lstm_recurrence, made=(0, 1))
def _of_lstm(
    inputs: tuple[Any, ...], output: tuple[Tensor, ...], gradient: Tensor | None, last: Tensor | None
) -> tuple[Tensor, ...]:
    _, weight, h, c, reverse = inputs
    made, _, cells, active = output
    gradient = torch.zeros_like(made) if gradient is None else gradient
    dgates, dh, dc = lstm_recurrence_backward(gradient, weight, cells, active, c, last, reverse)
    return dgates, _weight_gradient(dgates, h, made, reverse), dh, dc


@gradients(gru_recurrence)
def _of_gru(inputs: tuple[Any, ...], output: tuple[Tensor, Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    _, weight, bias, h, reverse = inputs
    dgates, inner, dh = gru_recurrence_backward(gradient, weight, *output, h, reverse)
    dbias = None if bias is None else inner.sum((0, 1))
    return dgates, _weight_gradient(inner, h, output[0], reverse), dbias, dh


@gradients(rnn_recurrence)
def _of_rnn(inputs: tuple[Any, ...], made: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    _, weight, h, reverse, relu = inputs
    dgates, dh = rnn_recurrence_backward(gradient, weight, made, reverse, relu)
    return dgates, _weight_gradient(dgates, h, made, reverse), dh


def _weight_gradient(dgates: Tensor, h: Tensor, made: Tensor, reverse: bool) -> Tensor:
    """Σ over samples and steps of (gradient of the gates) ⊗ (h before the step): one product."""
    first = h.unsqueeze(1)
    before = torch.cat([made[:, 1:], first] if reverse else [first, made[:, :-1]], 1)
    return dgates.flatten(0, 1).t() @ before.flatten(0, 1)
