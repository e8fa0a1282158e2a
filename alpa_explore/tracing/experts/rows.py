"""What a device computes of rows that are sorted by expert: products with each expert's matrices, gate, gradients.

Rows are [R, width]; `counts` says how many of them each expert of the device has, in order. Matrices, biases and the
gate are those of `models.routed_experts`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from alpa_explore.models.routed_experts import Gate
from alpa_explore.tracing.custom import wide

_ALIGNMENT_BYTES = 16
"""Of the rows that torch's grouped product takes."""


class Experts(NamedTuple):
    """The experts of one device."""

    matrices: Sequence[Tensor]
    biases: Sequence[Tensor]
    gate: Gate
    inputs_first: bool
    last_bias: bool
    """Whether the device adds the bias of the down projection."""

    @property
    def hidden_widths(self) -> list[int]:
        """Of the products with the up projections."""
        return [m.shape[2 if self.inputs_first else 1] for m in self.matrices[:-1]]


def on_device(
    matrices: Sequence[Tensor],
    biases: Sequence[Tensor],
    gate: tuple[str, str, bool, float, float, float],
    *,
    last_bias: bool,
) -> Experts:
    """The experts of a device, from the arguments `whole.GATE` of operators."""
    activation, layout, inputs_first, *numbers = gate
    return Experts(matrices, biases, Gate(activation, layout, *numbers), inputs_first, last_bias)


class Gradients(NamedTuple):
    """Of `results`."""

    rows: Tensor
    weights: Tensor
    """[R, 1], of the weights with which the results are combined."""
    matrices: list[Tensor]
    biases: list[Tensor]


def results(rows: Tensor, counts: list[int], experts: Experts) -> tuple[Tensor, Tensor]:
    """(what the experts make of the rows [R, M], the products with the up projections one after the other)."""
    products = [_products(rows, up, counts, flipped=not experts.inputs_first) for up in experts.matrices[:-1]]
    if experts.biases:
        products = [p + _each_row(b, counts) for p, b in zip(products, experts.biases, strict=False)]
    hidden = products[0] if len(products) == 1 else torch.cat(products, -1)
    made = _products(experts.gate.inner(hidden), experts.matrices[-1], counts, flipped=not experts.inputs_first)
    if experts.biases and experts.last_bias:
        made = made + _each_row(experts.biases[-1], counts)
    return made, hidden


def gradients(
    dy: Tensor, weights: Tensor, rows: Tensor, hidden: Tensor, counts: list[int], experts: Experts
) -> Gradients:
    """`dy` is the gradient of the combined tokens, for every row; `weights` [R, 1] in fp32 or wider, as the gradients
    of rows and weights are."""
    first = experts.inputs_first
    scaled = (dy * weights).to(dy.dtype)
    unweighted = _products(dy, experts.matrices[-1], counts, flipped=first)
    inner, of_gate = torch.func.vjp(experts.gate.inner, hidden)  # type: ignore[misc]  # three values with has_aux alone
    dweights = (inner.to(weights.dtype) * unweighted).sum(-1, keepdim=True)
    if experts.biases and experts.last_bias:
        dweights = dweights + (_each_row(experts.biases[-1], counts) * dy.to(weights.dtype)).sum(-1, keepdim=True)
    (dhidden,) = of_gate((unweighted * weights).to(dy.dtype))
    ups = torch.split(dhidden, experts.hidden_widths, -1)
    drows = torch.zeros(len(dy), 1, dtype=weights.dtype, device=dy.device)
    for part, matrix in zip(ups, experts.matrices, strict=False):
        drows = drows + _products(part, matrix, counts, flipped=first)
    sides = [*((rows, part) for part in ups), (inner, scaled)]
    return Gradients(
        drows,
        dweights,
        [_matrix_gradient(given, part, counts, flipped=not first) for given, part in sides],
        [_sums(part, counts).to(bias.dtype) for (_, part), bias in zip(sides, experts.biases, strict=False)],
    )


class Routes(NamedTuple):
    """Which rows some experts compute."""

    order: Tensor
    """[R]: places in the flat [T · k], by expert and then by token."""
    counts: list[int]
    """Rows of each expert."""


def routes(chosen: Tensor, firsts: Sequence[int], own: int) -> Routes:
    """The rows of `own` experts from each of `firsts` on, in this order; `chosen` [T, k] are the experts of tokens."""
    flat, count = chosen.reshape(-1), len(firsts) * own
    key = torch.full_like(flat, count)
    for number, first in enumerate(firsts):
        key = torch.where((flat >= first) & (flat < first + own), flat - first + number * own, key)
    counts = torch.bincount(key, minlength=count + 1)[:count].tolist()
    return Routes(torch.argsort(key, stable=True)[: sum(counts)], counts)


def placed(rows: Tensor, found: Routes, chosen: Tensor) -> Tensor:
    """[T, k, width]: the rows at their places, zeros elsewhere."""
    places = rows.new_zeros(chosen.numel(), rows.shape[1])
    places[found.order] = rows
    return places.view(*chosen.shape, -1)


def _products(rows: Tensor, matrices: Tensor, counts: list[int], *, flipped: bool) -> Tensor:
    """Rows of every expert times its matrix [in, out]; `flipped`: [out, in]."""
    if flipped:
        matrices = matrices.transpose(1, 2)
    if _fits_grouped(rows, matrices):
        return functional.grouped_mm(rows, matrices, offs=_ends(counts, rows))
    made = rows.new_empty(len(rows), matrices.shape[2])
    for part, matrix, out in zip(torch.split(rows, counts), matrices, torch.split(made, counts), strict=True):
        torch.mm(part, matrix, out=out)
    return made


def _matrix_gradient(given: Tensor, part: Tensor, counts: list[int], *, flipped: bool) -> Tensor:
    """For every expert givenᵀ · part, [E, in, out]; `flipped`: [E, out, in]."""
    left, right = (part, given) if flipped else (given, part)
    if _fits_grouped(left, right):
        return functional.grouped_mm(left.t(), right, offs=_ends(counts, left))
    made = left.new_empty(len(counts), left.shape[1], right.shape[1])
    for a, b, out in zip(torch.split(left, counts), torch.split(right, counts), made, strict=True):
        torch.mm(a.t(), b, out=out)
    return made


def _fits_grouped(left: Tensor, right: Tensor) -> bool:
    """Whether torch's grouped kernel takes these operands: 16-bit on CUDA, with aligned rows."""
    if not left.is_cuda or left.dtype is not torch.bfloat16:
        return False
    aligned = _ALIGNMENT_BYTES // left.element_size()
    return all(size % aligned == 0 for size in (left.shape[-1], *right.shape[-2:]))


def _ends(counts: list[int], rows: Tensor) -> Tensor:
    return torch.tensor(counts, device=rows.device).cumsum(0).to(torch.int32)


def _each_row(bias: Tensor, counts: list[int]) -> Tensor:
    """The bias of the expert of every row."""
    return bias.repeat_interleave(torch.tensor(counts, device=bias.device), 0)


def _sums(part: Tensor, counts: list[int]) -> Tensor:
    """For every expert the sum of its rows."""
    return torch.stack([rows.sum(0, dtype=wide(part.dtype)) for rows in torch.split(part, counts)])
