"""Matrix products: M, N and batch dims are spatial, K is reduced. All are heavy: replicated only if nothing else is
legal."""

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
    """bias + (M, K) × (K, N). With K sharded only the first device of the axis adds the bias (sharding.local)."""
    return from_factors(f"{'mn'[2 - len(inputs[0].shape) :]},mk,kn->mn", inputs, outputs)


def baddbmm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """bias + batched product; the bias as in addmm."""
    return from_factors(f"{'bmn'[3 - len(inputs[0].shape) :]},bmk,bkn->bmn", inputs, outputs)


def grouped_mm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Each expert's rows times its matrix: (S, K), (E, K, N), ends of the experts' rows -> (S, N). Which rows belong to
    which expert depends on values, so neither S nor E is sharded."""
    return from_factors(".k,.kn,.->.n", inputs, outputs)


def grouped_mm_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(x, weight, ends, dy) -> (dx, dweight)."""
    return from_factors(".k,.kn,.,.n->.k,.kn", inputs, outputs)


_GROUPED = {(2, 3): ".k,.kn,.->.n", (3, 2): ".mk,k.,.->m.", (2, 2): "m.,.n,.->.mn", (3, 3): "bmk,bkn->bmn"}
"""Ranks of the two operands -> equation. The third input holds the end of each expert's rows; which rows belong to an
expert depends on its values, so that dim is never sharded. The product of two rank-3 operands has no such input."""
_ALIGNMENT_BYTES = 16


def aten_grouped_mm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """torch's own grouped product, forward and backward. The kernel requires strides that are multiples of 16 bytes, so
    shards of a dim are multiples of that too. With a bias (which torch does not support yet) it is not sharded."""
    equation = _GROUPED[len(inputs[0].shape), len(inputs[1].shape)]
    if equation.count(",") + 1 != len(inputs):
        return ()
    elements_together = _ALIGNMENT_BYTES // DTYPE_BYTES[inputs[0].dtype]
    splits = from_factors(equation, inputs, outputs)
    return tuple(
        s if s.factor == "b" else replace(s, size=s.size // elements_together)
        for s in splits
        if s.factor == "b" or (s.size % elements_together == 0 and s.size > elements_together)
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
