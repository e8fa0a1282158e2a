"""How the least costs of blocks change with the price of a byte and with the microbatches held: the bytes of their best
choices, without the choices.

With price λ and h microbatches held, the least cost of a block in some states is

    C(λ, h) = min over its choices of ( seconds + λ · (weight bytes + h · activation bytes) )

so where one choice is the best around (λ, h), weight bytes + h · activation bytes = ∂C/∂λ, and λ · activation bytes =
∂C/∂h. C is piecewise linear in either: a difference of two tables is the slope itself, but for rounding and where the
best choice changes in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.composition.block_subproblem import BlockSubproblem, Price
from alpa_explore.intra_op.composition.block_tables import BlockTable, BlockTables
from alpa_explore.intra_op.composition.within_memory import tuning
from alpa_explore.numerics.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSlopes:
    """Of the best choices of a block without shared nodes, [prices, left, right] each; 0 where no choice is legal."""

    held_bytes: Floats
    """Weight bytes + held · activation bytes, with as many microbatches held as each price has."""
    more_bytes: Floats
    """Activation bytes of a microbatch; 0 where they were not asked for."""


def block_slopes(
    tables: BlockTables, blocks: Sequence[BlockSubproblem], *, more_held: bool
) -> dict[BlockTable, BlockSlopes]:
    """For the table of each block, which must not be too wide to contract, the bytes of its best choices; with
    `more_held` also those of each microbatch. Prices must be positive."""
    contracted = tables.of_blocks(blocks)
    assert contracted is not None, "the caller has the tables of all blocks"
    prices = tables.prices
    nudged = [p._replace(memory_price=p.memory_price * (1 + tuning.SLOPE_STEP)) for p in prices]
    if more_held:
        nudged += [p._replace(microbatches_held=p.microbatches_held * (1 + tuning.SLOPE_STEP)) for p in prices]
    others = BlockTables(tables.cutter, nudged, np.inf, completing=False).of_blocks(blocks)
    assert others is not None, "what can be contracted at one price can be at any"
    pairs = dict(zip(contracted, others, strict=True))
    return {table: _slopes(table.costs, other.costs, prices) for table, other in pairs.items()}


def _slopes(costs: Floats, nudged: Floats, prices: Sequence[Price]) -> BlockSlopes:
    memory_price, held = (
        np.array([getattr(p, name) for p in prices])[:, None, None] for name in ("memory_price", "microbatches_held")
    )
    count = len(prices)
    legal = np.isfinite(costs)

    def slope(at: Floats, step: Floats) -> Floats:
        difference = np.zeros_like(costs)
        np.subtract(at, costs, out=difference, where=legal)
        return np.asarray(difference / step)

    held_bytes = slope(nudged[:count], memory_price * tuning.SLOPE_STEP)
    if len(nudged) == count:
        return BlockSlopes(held_bytes=held_bytes, more_bytes=np.zeros_like(costs))
    more_bytes = slope(nudged[count:], memory_price * held * tuning.SLOPE_STEP)
    return BlockSlopes(held_bytes=held_bytes, more_bytes=more_bytes)
