"""Tensors created without input values: every dim along which entries do not depend on their index can be sharded."""

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, along
from alpa_explore.sharding.spec import REPLICATE


def uniform(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """full, zeros, ones, new_zeros, …: each device creates its own shard. An input gives only its dtype; where it has
    the same dim, it is sharded like the output, so that it is not gathered needlessly."""
    rows = [
        (tuple(d if t.shape[d : d + 1] == (size,) else REPLICATE for t in inputs), (d,), size)
        for d, size in enumerate(outputs[0].shape)
    ]
    return along(inputs, outputs, rows)


def whole(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """arange, eye, literals: small, and values depend on the index. Every device creates the whole tensor."""
    return ()


def batched_triangle(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """tril, triu: the last two dims are the matrix."""
    rank = len(inputs[0].shape)
    return along(inputs, outputs, [((d,), (d,), inputs[0].shape[d]) for d in range(rank - 2)])


def drawn(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """native_dropout, rand, uniform, …: entries are independent; each device draws the numbers of its own shard."""
    shape = outputs[0].shape
    return along(inputs, outputs, [((d,) * len(inputs), (d,) * len(outputs), size) for d, size in enumerate(shape)])


RANDOM = tuple(
    """
    aten.native_dropout.default aten.bernoulli.default aten.bernoulli.p aten.rand.default aten.rand_like.default
    aten.randn.default aten.randn_like.default aten.randint.default aten.randint.low aten.exponential.default
    aten.uniform.default aten.normal_functional.default
    """.split()
)
"""Kinds that draw random numbers."""
RULES = {
    **dict.fromkeys(
        (
            "aten.full.default",
            "aten.zeros.default",
            "aten.ones.default",
            "aten.empty.memory_format",
            "aten.new_zeros.default",
            "aten.new_ones.default",
            "aten.new_full.default",
            "aten.new_empty.default",
        ),
        uniform,
    ),
    **dict.fromkeys(
        (
            "aten.arange.default",
            "aten.arange.start",
            "aten.arange.start_step",
            "aten.eye.default",
            "aten.eye.m",
            "aten.scalar_tensor.default",
            "constant.literal",
        ),
        whole,
    ),
    **dict.fromkeys(("aten.tril.default", "aten.triu.default"), batched_triangle),
    **dict.fromkeys(RANDOM, drawn),
}
