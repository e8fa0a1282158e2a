"""Routed experts in steps: rows travel to the devices that hold their experts, are computed there, and come back.

    experts_sent       tokens, chosen -> rows by destination and expert, and how many there are
    experts_computed   rows that arrived -> their results, and what the backward pass needs; and its backward
    experts_placed     rows that came back -> tokens

Between the steps are all-to-alls (`sharding.local.routed`). The devices hold `own` experts each, from `firsts` on; rows
of other experts are left out. Rows arrive by sender, and for each sender by expert: `counts` [senders, own].
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from alpa_explore.tracing.custom import like, operator, wide
from alpa_explore.tracing.experts.rows import gradients, on_device, placed, results, routes
from alpa_explore.tracing.experts.whole import GATE


def _sent_shapes(tokens: Tensor, chosen: Tensor, firsts: Sequence[int], own: int) -> tuple[Tensor, Tensor, Tensor]:
    width = 1 if tokens.shape == chosen.shape else tokens.shape[1]
    counts = chosen.new_empty(len(firsts), own, dtype=torch.int64)
    return tokens.new_empty(chosen.numel(), width), counts, counts.new_empty(len(firsts))


@operator("experts_sent(Tensor tokens, Tensor chosen, int[] firsts, int own) -> (Tensor, Tensor, Tensor)", _sent_shapes)
def sent(tokens: Tensor, chosen: Tensor, firsts: Sequence[int], own: int) -> tuple[Tensor, Tensor, Tensor]:
    """(rows [R, width], counts [devices, own], rows for each device [devices]). `tokens` may also be [T, k], one value
    for each choice: rows [R, 1]."""
    found = routes(chosen, firsts, own)
    whole = tokens.shape == chosen.shape
    rows = tokens.reshape(-1, 1)[found.order] if whole else tokens[found.order // chosen.shape[1]]
    counts = torch.tensor(found.counts, device=chosen.device).view(-1, own)
    return rows, counts, counts.sum(1)


@operator(
    "experts_computed(Tensor arrived, Tensor counts, Tensor[] matrices, Tensor[] biases,"
    f" {GATE}, bool last_bias) -> (Tensor, Tensor, Tensor)",
    lambda arrived, counts, matrices, biases, activation, layout, inputs_first, *_: (
        *like(arrived, arrived),
        arrived.new_empty(len(arrived), sum(m.shape[2 if inputs_first else 1] for m in matrices[:-1])),
    ),
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
    "experts_computed_backward(Tensor gradient, Tensor weights, Tensor rows, Tensor hidden, Tensor counts, Tensor[]"
    f" matrices, Tensor[] biases, {GATE}, bool last_bias) -> Tensor[]",
    lambda gradient, weights, rows, hidden, counts, matrices, biases, *_: like(gradient, weights, *matrices, *biases),
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
    made = gradients(gradient[order], weight, rows, hidden, counts.sum(0).tolist(), own)
    dweights = _in_order(made.weights, order).to(weights.dtype)
    return [_in_order(made.rows.to(gradient.dtype), order), dweights, *made.matrices, *made.biases]


@operator(
    "experts_placed(Tensor rows, Tensor chosen, Tensor? weights, int[] firsts, int own, bool summed) -> Tensor",
    lambda rows, chosen, weights, firsts, own, summed: rows.new_empty(
        (len(chosen), rows.shape[1]) if summed else chosen.shape
    ),
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
