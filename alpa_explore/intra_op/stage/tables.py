"""Tables: what the forward pass computes from numbers and vectors alone, as rotary tables and causal masks, and the
buffers that it puts into zig-zag order.

Neither data nor trained parameters reach a table. Frameworks compute it whole on every device, and so does a plan: its
operators have one strategy, replicated. A device that reads a shard cuts it out at no cost. Without this rule a model
that computes its rotary table in the first layer would tie that layer to every other one.
"""

from __future__ import annotations

from collections.abc import Collection

from alpa_explore.graph import GIVEN_KINDS, Operator, Phase, TrainingGraph
from alpa_explore.intra_op.stage import tuning
from alpa_explore.sharding.rules.creation import RANDOM

_ZIGZAG = "alpa_explore.zigzag.default"


def table_operators(graph: TrainingGraph, constrained: Collection[int]) -> frozenset[int]:
    """The forward operators that make tables. Those in `constrained`, for which the user names a spec, are none, nor is
    what is computed from them."""
    tables: set[int] = set()
    for operator in graph.operators:
        if (
            operator.phase is Phase.FORWARD
            and operator.index not in constrained
            and _makes_table(graph, operator, tables)
        ):
            tables.add(operator.index)
    return frozenset(tables)


def _makes_table(graph: TrainingGraph, operator: Operator, tables: Collection[int]) -> bool:
    outputs = [graph.tensors[t] for t in operator.outputs]
    if operator.kind in RANDOM or any(t.bytes > tuning.LARGEST_TABLE_BYTES for t in outputs):
        return False
    if not operator.inputs:
        # Larger tensors of one number, as an accumulator of zeros with a row for every token, are made in shards.
        return all(len(t.shape) <= 1 for t in outputs)
    for tensor in (graph.tensors[t] for t in operator.inputs):
        # Other buffers may be weights that are not trained.
        is_given = tensor.kind in GIVEN_KINDS and (len(tensor.shape) <= 1 or operator.kind == _ZIGZAG)
        if not is_given and tensor.producer not in tables:
            return False
    return True
