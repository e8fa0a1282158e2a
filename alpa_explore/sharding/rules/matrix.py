"""Matrix products: M and N are spatial, K is summed, batch dims are spatial. Heavy: never replicated if avoidable."""

from __future__ import annotations

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, from_factors

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


RULES = {
    "aten.mm.default": mm,
    "aten.bmm.default": matmul,
    "aten.matmul.default": matmul,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": baddbmm,
    "transformers.grouped_mm_fallback.default": grouped_mm,
    "transformers.grouped_mm_fallback_backward.default": grouped_mm_backward,
}
HEAVY = frozenset(RULES)
