"""Matrix products: M and N are spatial, K is summed, batch dims are spatial. Heavy: never replicated if avoidable."""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, from_factors
from alpa_explore.units import DTYPE_BYTES

_BATCH = "bcdefg"


def mm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(M, K) × (K, N)."""
    return from_factors("mk,kn->mn", inputs, outputs)


def matmul(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(…, M, K) × (…, K, N) with equal batch dims (bmm, and the 4-D products of attention)."""
    batch = _BATCH[: len(outputs[0].shape) - 2]
    return from_factors(f"{batch}mk,{batch}kn->{batch}mn", inputs, outputs)


def addmm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """bias + (M, K) × (K, N). Under a K split only the first device of the axis adds the bias (sharding.local)."""
    return from_factors(f"{'mn'[2 - len(inputs[0].shape) :]},mk,kn->mn", inputs, outputs)


def baddbmm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """bias + batched product; the bias as in addmm."""
    return from_factors(f"{'bmn'[3 - len(inputs[0].shape) :]},bmk,bkn->bmn", inputs, outputs)


def grouped_mm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """rows × one matrix an expert: (S, K), (E, K, N), ends of the experts' rows -> (S, N). Rows and experts are tied to
    each other by values, so they stay whole."""
    return from_factors(".k,.kn,.->.n", inputs, outputs)


def grouped_mm_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(x, weight, ends, dy) -> (dx, dweight)."""
    return from_factors(".k,.kn,.,.n->.k,.kn", inputs, outputs)


_GROUPED = {(2, 3): ".k,.kn,.->.n", (3, 2): ".mk,k.,.->m.", (2, 2): "m.,.n,.->.mn", (3, 3): "bmk,bkn->bmn"}
"""Ranks of both operands -> dims. Rows of one operand belong to experts, up to the third input's ends of each expert's
rows: those stay whole. Only products of equal rank 3 have no ends."""
_ALIGNMENT_BYTES = 16


def aten_grouped_mm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """torch's own grouped product, forward and backward. The kernel wants strides of whole 16 bytes, so pieces of a dim
    are no smaller than that; with a bias (which torch does not support yet) nothing is divided."""
    equation = _GROUPED[len(inputs[0].shape), len(inputs[1].shape)]
    if equation.count(",") + 1 != len(inputs):
        return ()
    together = _ALIGNMENT_BYTES // DTYPE_BYTES[inputs[0].dtype]
    every = from_factors(equation, inputs, outputs)
    return tuple(
        s if s.factor == "b" else replace(s, size=s.size // together)
        for s in every
        if s.factor == "b" or (s.size % together == 0 and s.size > together)
    )


RULES = {
    "aten.mm.default": mm,
    "aten.bmm.default": matmul,
    "aten.matmul.default": matmul,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": baddbmm,
    "aten._grouped_mm.default": aten_grouped_mm,
    "transformers.grouped_mm_fallback.default": grouped_mm,
    "transformers.grouped_mm_fallback_backward.default": grouped_mm_backward,
}
HEAVY = frozenset(RULES)
