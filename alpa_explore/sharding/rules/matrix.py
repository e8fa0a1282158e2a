"""Matrix products: M, N and batch dims are spatial, K is reduced. All are heavy: replicated only if nothing else is
legal."""

from dataclasses import replace

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import Splits, Tensors, einsum, from_factors, kinds
from alpa_explore.units import DTYPE_BYTES

_BATCH = "bcdefg"


def matmul(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(…, M, K) × (…, K, N) with equal batch dims (bmm, and the 4-D products of attention)."""
    batch = _BATCH[: len(outputs[0].shape) - 2]
    return from_factors(f"{batch}mk,{batch}kn->{batch}mn", inputs, outputs)


_GROUPED = {(2, 3): ".k,.kn,.->.n", (3, 2): ".mk,k.,.->m.", (2, 2): "m.,.n,.->.mn", (3, 3): "bmk,bkn->bmn"}
"""Ranks of the two operands -> equation. The third input holds the end of each expert's rows; which rows belong to an
expert depends on its values, so that dim is never sharded. The product of two rank-3 operands has no such input."""
_ALIGNMENT_BYTES = 16


def aten_grouped_mm(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
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
    **kinds("mm", einsum("mk,kn->mn")),
    **kinds("bmm matmul", matmul),
    # With K sharded only the first device of the axis adds the bias (sharding.local).
    **kinds("addmm", einsum("mn,mk,kn->mn")),
    **kinds("baddbmm", einsum("bmn,bmk,bkn->bmn")),
    **kinds("_grouped_mm", aten_grouped_mm),
    # Each expert's rows times its matrix. Which rows belong to which expert depends on values, so neither is sharded.
    **kinds("grouped_mm_fallback", einsum(".k,.kn,.->.n"), "transformers"),
    **kinds("grouped_mm_fallback_backward", einsum(".k,.kn,.,.n->.k,.kn"), "transformers"),
}
HEAVY = frozenset(RULES)
