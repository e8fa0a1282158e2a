"""Routed experts as one operator, forward and backward: sort by expert, products of each expert's rows, combine.

    rows = tokens sorted by expert      hidden = rows · up      inner = gate(hidden)      y = Σ weight · (inner · down)
    u = dy · downᵀ      dweight = Σ inner ∘ u      dhidden = gate'(weight · u)      drows = dhidden · upᵀ

`torch.ops.alpa_explore.experts` and `experts_backward` exist once this module is imported; the words are those of
`models.routed_experts`, which is what they compute. T tokens each choose k of E experts; no row is dropped or padded
(Gale et al., "MegaBlocks", 2022, arXiv 2211.15841). What the forward pass keeps are rows and hidden: those of a device
that holds some of the experts are as many as were routed to it, which no shape says beforehand. They are written as
[T, experts of the device, share of k · width], which has their elements when the load is even.

A device that holds the experts from `first` on leaves out the rows of all others, so the results of several devices add
up; `total` is the number of all experts. `last_bias`: whether it adds the bias of the down projection (where the inner
width is divided, one device does). Sums over experts are in fp32 or wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from alpa_explore.models.routed_experts import Gate

aten = torch.ops.aten
_ALIGNMENT_BYTES = 16
"""Of the rows that torch's grouped product takes."""
_GATE = "str activation, str layout, bool inputs_first, float limit, float alpha, float shift"
_SHARD = "int first, int total, bool last_bias"


class _Routes(NamedTuple):
    """Which rows the experts of this device compute."""

    order: torch.Tensor
    """[rows]: places in the flat [T · k], by expert and then by token."""
    counts: list[int]
    """Rows of each expert."""


@torch.library.custom_op(
    "alpa_explore::experts",
    mutates_args=(),
    schema="(Tensor tokens, Tensor chosen, Tensor weights, Tensor[] matrices, Tensor[] biases,"
    f" {_GATE}, {_SHARD}) -> (Tensor, Tensor, Tensor)",
)
def experts(
    tokens: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    matrices: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    activation: str,
    layout: str,
    inputs_first: bool,
    limit: float,
    alpha: float,
    shift: float,
    first: int,
    total: int,
    last_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y [T, M], rows, hidden): tokens [T, M], chosen [T, k] of integers, weights [T, k], and matrices and biases as
    `models.routed_experts` has them."""
    gate = Gate(activation, layout, limit, alpha, shift)
    routes = _routes(chosen, first, len(matrices[0]))
    rows = tokens[routes.order // chosen.shape[1]]
    hidden = _hidden(rows, routes, matrices, biases, inputs_first)
    made = _products(gate.inner(hidden), matrices[-1], routes, flipped=not inputs_first)
    if biases and last_bias:
        made = made + _each_row(biases[-1], routes)
    weighted = made.to(_wide(made.dtype)) * weights.reshape(-1)[routes.order, None]
    combined = _added(weighted, routes, chosen).to(tokens.dtype)
    kept = _kept_shapes(tokens, chosen, matrices, inputs_first, total)
    return combined, _packed(rows, kept[0]), _packed(hidden, kept[1])


@torch.library.custom_op(
    "alpa_explore::experts_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor chosen, Tensor weights, Tensor rows, Tensor hidden, Tensor[] matrices,"
    f" Tensor[] biases, {_GATE}, {_SHARD}) -> Tensor[]",
)
def experts_backward(
    gradient: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    rows: torch.Tensor,
    hidden: torch.Tensor,
    matrices: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    activation: str,
    layout: str,
    inputs_first: bool,
    limit: float,
    alpha: float,
    shift: float,
    first: int,
    total: int,
    last_bias: bool,
) -> list[torch.Tensor]:
    """[dtokens, dweights, a gradient for each matrix, one for each bias]; `gradient` is that of y."""
    gate = Gate(activation, layout, limit, alpha, shift)
    routes = _routes(chosen, first, len(matrices[0]))
    inner_width = sum(m.shape[2 if inputs_first else 1] for m in matrices[:-1])
    rows, hidden = rows.reshape(-1, gradient.shape[-1]), hidden.reshape(-1, inner_width)
    dy = gradient[routes.order // chosen.shape[1]]
    weight = weights.reshape(-1)[routes.order, None].to(_wide(dy.dtype))
    scaled = (dy * weight).to(dy.dtype)
    unweighted = _products(dy, matrices[-1], routes, flipped=inputs_first)
    inner = gate.inner(hidden)
    dweights = (inner.to(weight.dtype) * unweighted).sum(-1, keepdim=True)
    if biases and last_bias:
        dweights = dweights + (_each_row(biases[-1], routes) * dy.to(weight.dtype)).sum(-1, keepdim=True)
    dhidden = _gate_backward(gate, (unweighted * weight).to(dy.dtype), hidden)
    ups = _divided(dhidden, matrices, inputs_first)
    drows = torch.zeros(len(dy), 1, dtype=weight.dtype, device=dy.device)
    for part, matrix in zip(ups, matrices, strict=False):
        drows = drows + _products(part, matrix, routes, flipped=inputs_first)
    made = [
        _added(drows, routes, chosen).to(gradient.dtype),
        _added(dweights, routes, chosen, summed=False).view(chosen.shape).to(weights.dtype),
    ]
    sides = [*((rows, part) for part in ups), (inner, scaled)]
    made += [_matrix_gradient(given, part, routes, flipped=not inputs_first) for given, part in sides]
    made += [_sums(part, routes).to(bias.dtype) for (_, part), bias in zip(sides, biases, strict=False)]
    return made


@experts.register_fake
def _shapes(
    tokens: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    matrices: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    activation: str,
    layout: str,
    inputs_first: bool,
    limit: float,
    alpha: float,
    shift: float,
    first: int,
    total: int,
    last_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kept = _kept_shapes(tokens, chosen, matrices, inputs_first, total)
    return tokens.new_empty(tokens.shape), tokens.new_empty(kept[0]), tokens.new_empty(kept[1])


@experts_backward.register_fake
def _backward_shapes(
    gradient: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    rows: torch.Tensor,
    hidden: torch.Tensor,
    matrices: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    *options: Any,
    **named: Any,
) -> list[torch.Tensor]:
    return [t.new_empty(t.shape) for t in (gradient, weights, *matrices, *biases)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _, chosen, weights, matrices, biases, *ctx.options = inputs
    ctx.count = len(matrices)
    ctx.save_for_backward(chosen, weights, *output[1:], *matrices, *biases)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: torch.Tensor | None, *_: None) -> tuple[Any, ...]:
    chosen, weights, rows, hidden, *given = ctx.saved_tensors
    matrices, biases = given[: ctx.count], given[ctx.count :]
    nothing = (None,) * len(ctx.options)
    if gradient is None:
        return (None, None, None, [None] * len(matrices), [None] * len(biases), *nothing)
    made = torch.ops.alpa_explore.experts_backward(
        gradient, chosen, weights, rows, hidden, matrices, biases, *ctx.options
    )
    dtokens, dweights, *others = made
    return (dtokens, None, dweights, others[: ctx.count], others[ctx.count :], *nothing)


experts.register_autograd(_differentiate, setup_context=_keep)


def _routes(chosen: torch.Tensor, first: int, count: int) -> _Routes:
    own = chosen.reshape(-1) - first
    own = torch.where((own >= 0) & (own < count), own, count)
    counts = torch.bincount(own, minlength=count + 1)[:count].tolist()
    return _Routes(torch.argsort(own, stable=True)[: sum(counts)], counts)


def _hidden(
    rows: torch.Tensor,
    routes: _Routes,
    matrices: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    inputs_first: bool,
) -> torch.Tensor:
    """The products with the up projections, one after the other."""
    products = [_products(rows, up, routes, flipped=not inputs_first) for up in matrices[:-1]]
    if biases:
        products = [p + _each_row(b, routes) for p, b in zip(products, biases, strict=False)]
    return products[0] if len(products) == 1 else torch.cat(products, -1)


def _divided(hidden: torch.Tensor, matrices: Sequence[torch.Tensor], inputs_first: bool) -> Sequence[torch.Tensor]:
    """The inverse: what belongs to each up projection."""
    return torch.split(hidden, [m.shape[2 if inputs_first else 1] for m in matrices[:-1]], -1)


def _products(rows: torch.Tensor, matrices: torch.Tensor, routes: _Routes, *, flipped: bool) -> torch.Tensor:
    """Rows of every expert times its matrix [in, out]; `flipped`: [out, in]."""
    if flipped:
        matrices = matrices.transpose(1, 2)
    if _fits_grouped(rows, matrices):
        return functional.grouped_mm(rows, matrices, offs=_ends(routes, rows))
    made = rows.new_empty(len(rows), matrices.shape[2])
    for part, matrix, out in zip(
        torch.split(rows, routes.counts), matrices, torch.split(made, routes.counts), strict=True
    ):
        torch.mm(part, matrix, out=out)
    return made


def _matrix_gradient(given: torch.Tensor, part: torch.Tensor, routes: _Routes, *, flipped: bool) -> torch.Tensor:
    """For every expert givenᵀ · part, [E, in, out]; `flipped`: [E, out, in]."""
    left, right = (part, given) if flipped else (given, part)
    if _fits_grouped(left, right):
        return functional.grouped_mm(left.t(), right, offs=_ends(routes, left))
    made = left.new_empty(len(routes.counts), left.shape[1], right.shape[1])
    for a, b, out in zip(torch.split(left, routes.counts), torch.split(right, routes.counts), made, strict=True):
        torch.mm(a.t(), b, out=out)
    return made


def _fits_grouped(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether torch's grouped kernel takes these operands: 16-bit on CUDA, with aligned rows."""
    if not left.is_cuda or left.dtype is not torch.bfloat16:
        return False
    aligned = _ALIGNMENT_BYTES // left.element_size()
    return all(size % aligned == 0 for size in (left.shape[-1], *right.shape[-2:]))


def _ends(routes: _Routes, rows: torch.Tensor) -> torch.Tensor:
    return torch.tensor(routes.counts, device=rows.device).cumsum(0).to(torch.int32)


def _each_row(bias: torch.Tensor, routes: _Routes) -> torch.Tensor:
    """The bias of the expert of every row."""
    return bias.repeat_interleave(torch.tensor(routes.counts, device=bias.device), 0)


def _sums(part: torch.Tensor, routes: _Routes) -> torch.Tensor:
    """For every expert the sum of its rows."""
    return torch.stack([rows.sum(0, dtype=_wide(part.dtype)) for rows in torch.split(part, routes.counts)])


def _added(part: torch.Tensor, routes: _Routes, chosen: torch.Tensor, *, summed: bool = True) -> torch.Tensor:
    """Rows at their places [T · k, width], zeros elsewhere; the places of a token `summed`, in order."""
    placed = part.new_zeros(chosen.numel(), part.shape[1])
    placed[routes.order] = part
    return placed.view(*chosen.shape, -1).sum(1) if summed else placed


def _gate_backward(gate: Gate, dinner: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """The gradient of `hidden`, given that of `gate.inner(hidden)`."""
    given, up = gate.parts(hidden)
    cut = given.clamp(max=gate.limit) if gate.limit else given
    if up is None:
        dgate = dinner
        dup = None
    else:
        cut_up = up.clamp(-gate.limit, gate.limit) if gate.limit else up
        dgate = dinner * (cut_up + gate.shift)
        dup = dinner * (gate._replace(layout="plain").inner(given))
        if gate.limit:
            dup = dup * (up.abs() <= gate.limit)
    dgate = _activation_backward(gate.activation, dgate, cut * gate.alpha)
    if gate.limit:
        dgate = dgate * (given <= gate.limit)
    return gate.joined(dgate, dup)


def _activation_backward(name: str, dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    match name:
        case "silu":
            made: torch.Tensor = aten.silu_backward(dy, x)
        case "gelu":
            made = aten.gelu_backward(dy, x)
        case "gelu_tanh":
            made = aten.gelu_backward(dy, x, approximate="tanh")
        case "relu":
            made = aten.threshold_backward(dy, x, 0)
        case _:
            assert name == "relu2", name
            made = dy * 2 * functional.relu(x)
    return made


def _kept_shapes(
    tokens: torch.Tensor, chosen: torch.Tensor, matrices: Sequence[torch.Tensor], inputs_first: bool, total: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of rows and hidden, with an even load."""
    own = len(matrices[0])
    widths = (tokens.shape[1], sum(m.shape[2 if inputs_first else 1] for m in matrices[:-1]))
    shares = (math.ceil(chosen.shape[1] * width / total) for width in widths)
    one, other = ((len(tokens), own, share) for share in shares)
    return one, other


def _packed(rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """In the shape of an even load where it has its elements."""
    return rows.view(shape) if rows.numel() == math.prod(shape) else rows


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
