"""Tensors created without input values: every dim along which entries do not depend on their index can be sharded."""

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import Splits, Tensors, along, each_dim, each_plane, kinds
from alpa_explore.sharding.spec import REPLICATE


def uniform(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """full, zeros, ones, new_zeros, …: each device creates its own shard. An input gives only its dtype; where it has
    the same dim, it is sharded like the output, so that it is not gathered needlessly."""
    rows = [
        (tuple(d if t.shape[d : d + 1] == (size,) else REPLICATE for t in inputs), (d,), size)
        for d, size in enumerate(outputs[0].shape)
    ]
    return along(inputs, outputs, rows)


def whole(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """arange, eye, literals: small, and values depend on the index. Every device creates the whole tensor."""
    return ()


RANDOM = tuple(
    """
    aten.native_dropout.default aten.bernoulli.default aten.bernoulli.p aten.rand.default aten.rand_like.default
    aten.randn.default aten.randn_like.default aten.randint.default aten.randint.low aten.exponential.default
    aten.uniform.default aten.normal_functional.default
    """.split()
)
"""Kinds that draw random numbers."""
RULES = {
    **kinds("full zeros ones empty.memory_format new_zeros new_ones new_full new_empty", uniform),
    **kinds("arange arange.start arange.start_step eye eye.m scalar_tensor", whole),
    "constant.literal": whole,
    **kinds("tril triu", each_plane),
    **dict.fromkeys(RANDOM, each_dim),
}
