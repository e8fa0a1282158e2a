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

In steps, between which rows travel to the devices that hold their experts, and come back:

    experts_sent       tokens, chosen -> rows by destination and expert, and how many there are
    experts_computed   rows that arrived -> their results, and what the backward pass needs; and its backward
    experts_placed     rows that came back -> tokens

Between the steps are all-to-alls (`sharding.local.routed`). The devices hold `own` experts each, from `firsts` on; rows
of other experts are left out. Rows arrive by sender, and for each sender by expert: `counts` [senders, own].
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from alpa_explore.graph import Operator
from alpa_explore.tracing.custom import gradients, like, operator, wide
from alpa_explore.tracing.experts import rows as of_device
from alpa_explore.tracing.experts.rows import on_device, placed, results, routes

GATE = "str activation, str layout, bool inputs_first, float limit, float alpha, float shift"
"""In the schemas of operators."""
_SHARD = "int first, int total, bool last_bias"


def _empty(
    tokens: Tensor, chosen: Tensor, matrices: Sequence[Tensor], options: tuple[Any, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    kept = _kept_shapes(tokens, chosen, matrices, options[2], options[-2])
    return tokens.new_empty(tokens.shape), tokens.new_empty(kept[0]), tokens.new_empty(kept[1])


@operator(
    lambda tokens, chosen, weights, matrices, biases, *options: _empty(tokens, chosen, matrices, options),
    "experts(Tensor tokens, Tensor chosen, Tensor weights, Tensor[] matrices, Tensor[] biases,"
    f" {GATE}, {_SHARD}) -> (Tensor, Tensor, Tensor)",
)
def experts(
    tokens: Tensor, chosen: Tensor, weights: Tensor, matrices: Sequence[Tensor], biases: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """(y [T, M], rows, hidden): tokens [T, M], chosen [T, k] of integers, weights [T, k], and matrices and biases as
    `models.routed_experts` has them."""
    *gate, first, total, last_bias = options
    own = on_device(matrices, biases, (*gate,), last_bias=last_bias)
    found = routes(chosen, (first,), len(matrices[0]))
    rows = tokens[found.order // chosen.shape[1]]
    made, hidden = results(rows, found.counts, own)
    weighted = made.to(wide(made.dtype)) * weights.reshape(-1)[found.order, None]
    combined = placed(weighted, found, chosen).sum(1).to(tokens.dtype)
    kept = _kept_shapes(tokens, chosen, matrices, own.inputs_first, total)
    return combined, _packed(rows, kept[0]), _packed(hidden, kept[1])


@operator(
    lambda gradient, chosen, weights, rows, hidden, matrices, biases, *options: like(
        gradient, weights, *matrices, *biases
    ),
    "experts_backward(Tensor gradient, Tensor chosen, Tensor weights, Tensor rows, Tensor hidden, Tensor[] matrices,"
    f" Tensor[] biases, {GATE}, {_SHARD}) -> Tensor[]",
)
def experts_backward(
    gradient: Tensor,
    chosen: Tensor,
    weights: Tensor,
    rows: Tensor,
    hidden: Tensor,
    matrices: Sequence[Tensor],
    biases: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    """[dtokens, dweights, a gradient for each matrix, one for each bias]; `gradient` is that of y."""
    *gate, first, _, last_bias = options
    own = on_device(matrices, biases, (*gate,), last_bias=last_bias)
    found = routes(chosen, (first,), len(matrices[0]))
    dy = gradient[found.order // chosen.shape[1]]
    weight = weights.reshape(-1)[found.order, None].to(wide(dy.dtype))
    rows, hidden = rows.reshape(-1, gradient.shape[-1]), hidden.reshape(-1, sum(own.hidden_widths))
    made = of_device.gradients(dy, weight, rows, hidden, found.counts, own)
    dtokens = placed(made.rows, found, chosen).sum(1).to(gradient.dtype)
    dweights = placed(made.weights, found, chosen).squeeze(-1).to(weights.dtype)
    return [dtokens, dweights, *made.matrices, *made.biases]


@gradients(experts)
def _gradients(inputs: tuple[Any, ...], output: tuple[Tensor, ...], gradient: Tensor) -> tuple[Any, ...]:
    _, chosen, weights, matrices, biases, *options = inputs
    made = experts_backward(gradient, chosen, weights, *output[1:], matrices, biases, *options)
    dtokens, dweights, *others = made
    return dtokens, None, dweights, others[: len(matrices)], others[len(matrices) :]


def experts_in_all(operator: Operator) -> int:
    """How many experts the tokens of an operator choose among; 0 for operators without routed experts."""
    routed = operator.kind in ("alpa_explore.experts.default", "alpa_explore.experts_backward.default")
    return cast(int, operator.arguments[-2]) if routed else 0


def _kept_shapes(
    tokens: Tensor, chosen: Tensor, matrices: Sequence[Tensor], inputs_first: bool, total: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of rows and hidden, with an even load."""
    own = len(matrices[0])
    widths = (tokens.shape[1], sum(m.shape[2 if inputs_first else 1] for m in matrices[:-1]))
    shares = (math.ceil(chosen.shape[1] * width / total) for width in widths)
    one, other = ((len(tokens), own, share) for share in shares)
    return one, other


def _packed(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """In the shape of an even load where it has its elements."""
    return rows.view(shape) if rows.numel() == math.prod(shape) else rows


def _sent_shapes(tokens: Tensor, chosen: Tensor, firsts: Sequence[int], own: int) -> tuple[Tensor, Tensor, Tensor]:
    width = 1 if tokens.shape == chosen.shape else tokens.shape[1]
    counts = chosen.new_empty(len(firsts), own, dtype=torch.int64)
    return tokens.new_empty(chosen.numel(), width), counts, counts.new_empty(len(firsts))


@operator(_sent_shapes, "experts_sent(Tensor tokens, Tensor chosen, int[] firsts, int own) -> (Tensor, Tensor, Tensor)")
def sent(tokens: Tensor, chosen: Tensor, firsts: Sequence[int], own: int) -> tuple[Tensor, Tensor, Tensor]:
    """(rows [R, width], counts [devices, own], rows for each device [devices]). `tokens` may also be [T, k], one value
    for each choice: rows [R, 1]."""
    found = routes(chosen, firsts, own)
    whole = tokens.shape == chosen.shape
    rows = tokens.reshape(-1, 1)[found.order] if whole else tokens[found.order // chosen.shape[1]]
    counts = torch.tensor(found.counts, device=chosen.device).view(-1, own)
    return rows, counts, counts.sum(1)


@operator(
    lambda arrived, counts, matrices, biases, activation, layout, inputs_first, *_: (
        *like(arrived, arrived),
        arrived.new_empty(len(arrived), sum(m.shape[2 if inputs_first else 1] for m in matrices[:-1])),
    ),
    "experts_computed(Tensor arrived, Tensor counts, Tensor[] matrices, Tensor[] biases,"
    f" {GATE}, bool last_bias) -> (Tensor, Tensor, Tensor)",
)
def computed(
    arrived: Tensor, counts: Tensor, matrices: Sequence[Tensor], biases: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """(results in the order of arrival, rows and hidden by expert)."""
    own = on_device(matrices, biases, options[:-1], last_bias=options[-1])
    order = _by_expert(counts)
    rows = arrived[order]
    made, hidden = results(rows, counts.sum(0).tolist(), own)
    return _in_order(made, order), rows, hidden


@operator(
    lambda gradient, weights, rows, hidden, counts, matrices, biases, *_: like(gradient, weights, *matrices, *biases),
    "experts_computed_backward(Tensor gradient, Tensor weights, Tensor rows, Tensor hidden, Tensor counts, Tensor[]"
    f" matrices, Tensor[] biases, {GATE}, bool last_bias) -> Tensor[]",
)
def computed_backward(
    gradient: Tensor,
    weights: Tensor,
    rows: Tensor,
    hidden: Tensor,
    counts: Tensor,
    matrices: Sequence[Tensor],
    biases: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    """[of rows, of weights, of each matrix, of each bias]. `gradient` [R, M] and `weights` [R, 1], as their gradients,
    are in the order of arrival; rows and hidden are by expert."""
    own = on_device(matrices, biases, options[:-1], last_bias=options[-1])
    order = _by_expert(counts)
    weight = weights[order].to(wide(gradient.dtype))
    rows, hidden = rows.reshape(-1, gradient.shape[1]), hidden.reshape(-1, sum(own.hidden_widths))
    made = of_device.gradients(gradient[order], weight, rows, hidden, counts.sum(0).tolist(), own)
    dweights = _in_order(made.weights, order).to(weights.dtype)
    return [_in_order(made.rows.to(gradient.dtype), order), dweights, *made.matrices, *made.biases]


@operator(
    lambda rows, chosen, weights, firsts, own, summed: rows.new_empty(
        (len(chosen), rows.shape[1]) if summed else chosen.shape
    ),
    "experts_placed(Tensor rows, Tensor chosen, Tensor? weights, int[] firsts, int own, bool summed) -> Tensor",
)
def put(rows: Tensor, chosen: Tensor, weights: Tensor | None, firsts: Sequence[int], own: int, summed: bool) -> Tensor:
    """[T, width], the sum over each token's experts, times `weights` [T, k] where given; not `summed`: [T, k] of rows
    of one number. `rows` are in the order in which they were sent."""
    places = placed(rows, routes(chosen, firsts, own), chosen)
    if not summed:
        return places.squeeze(-1)
    places = places.to(wide(rows.dtype))
    return (places if weights is None else places * weights.unsqueeze(-1)).sum(1).to(rows.dtype)


def _by_expert(counts: Tensor) -> Tensor:
    """The rows that arrived, by expert and then by sender."""
    senders, own = counts.shape
    expert = torch.arange(own, device=counts.device).repeat(senders)
    return torch.argsort(expert.repeat_interleave(counts.flatten()), stable=True)


def _in_order(rows: Tensor, order: Tensor) -> Tensor:
    """Undo taking rows in an order."""
    return torch.empty_like(rows).index_copy_(0, order, rows)
