"""What a mesh axis is for, when a person says it: data parallelism, sharded data parallelism, tensor parallelism.

A role leaves each decision of a stage some of its strategies. On an axis for

- DATA, operators that can cut the batch do; weights, gradients (or their addends) and optimizer state are whole;
- SHARDED_DATA (ZeRO-3), operators do the same; weights, gradients and optimizer state are stored in pieces;
- TENSOR, no operator cuts the batch: heavy ones, which are never repeated, must cut a dim of a weight.

Where nothing would be left (a bias that does not divide), the strategies that keep most axes' roles are.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from alpa_explore.intra_op.formulations.axis_options import NodeOptions, Option, node_options
from alpa_explore.intra_op.formulations.batch_share import batch_options
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Flags
from alpa_explore.sharding.spec import PARTIAL, REPLICATE


class Role(enum.Enum):
    """The use of one mesh axis."""

    DATA = "data"
    SHARDED_DATA = "sharded data"
    TENSOR = "tensor"


def strategies_left(problem: StageProblem, roles: Sequence[Role]) -> dict[int, tuple[int, ...]]:
    """For each node the strategies that keep to `roles`, one for each axis; free nodes left out."""
    assert len(roles) == len(problem.model.mesh.shape), "a role for each axis"
    batch = batch_options(problem)
    left = {}
    for v, (node, options) in enumerate(zip(problem.nodes, node_options(problem), strict=True)):
        kept = np.zeros(len(options.labels), dtype=np.int64)
        for axis, role in enumerate(roles):
            kept += _keeps(node, options, role, batch.get(v, frozenset()))[options.labels[:, axis]]
        best = np.flatnonzero(kept == kept.max())
        if len(best) < len(kept):
            left[v] = tuple(best.tolist())
    return left


def _keeps(node: Node, options: NodeOptions, role: Role, batch: frozenset[Option]) -> Flags:
    """For each option of the node whether it keeps to the role."""
    return np.array([_keeps_option(node, option, role, batch) for option in options.options], dtype=bool)


def _keeps_option(node: Node, option: Option, role: Role, batch: frozenset[Option]) -> bool:
    if node.kind is NodeKind.SOURCE:
        return True
    if node.kind is NodeKind.OPERATOR:
        if not batch:
            return True
        return (option not in batch) if role is Role.TENSOR else (option in batch)
    stored = option[_reads(node)]
    if role is Role.DATA:
        return stored == REPLICATE or (node.kind is NodeKind.ACCUMULATOR and stored == PARTIAL)
    return role is Role.TENSOR or stored >= 0


def _reads(node: Node) -> int:
    """Position in an option of what is stored: the first output of an update, the one tensor of others."""
    return len(node.priced.strategies[0].inputs) if node.priced is not None else 0
