"""Roles of mesh axes: data parallelism, sharded data parallelism, tensor parallelism.

A role restricts the strategies of each node of a stage's sharding problem. On an axis with the role

- DATA, operators that can shard the batch do; weights, gradients (or their partial sums) and optimizer state are
  replicated;
- SHARDED_DATA (ZeRO-3), operators do the same; weights, gradients and optimizer state are sharded;
- TENSOR, no operator shards the batch: heavy ones, which are never replicated, must shard a dim of a weight.

A node without a strategy that follows all roles (a bias whose size is not divisible) keeps those that follow the most.
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
    """What one mesh axis is used for."""

    DATA = "data"
    SHARDED_DATA = "sharded data"
    TENSOR = "tensor"


def strategies_for_roles(problem: StageProblem, roles: Sequence[Role]) -> dict[int, tuple[int, ...]]:
    """Node -> the strategies that follow `roles` (one for each axis); without the nodes that keep all of them."""
    assert len(roles) == len(problem.model.mesh.shape), "a role for each axis"
    batch = batch_options(problem)
    permitted = {}
    for v, (node, options) in enumerate(zip(problem.nodes, node_options(problem), strict=True)):
        followed = np.zeros(len(options.labels), dtype=np.int64)
        for axis, role in enumerate(roles):
            followed += _follows(node, options, role, batch.get(v, frozenset()))[options.labels[:, axis]]
        best = np.flatnonzero(followed == followed.max())
        if len(best) < len(followed):
            permitted[v] = tuple(best.tolist())
    return permitted


def _follows(node: Node, options: NodeOptions, role: Role, batch: frozenset[Option]) -> Flags:
    """For each option of the node, whether it follows the role."""
    return np.array([_option_follows(node, option, role, batch) for option in options.options], dtype=bool)


def _option_follows(node: Node, option: Option, role: Role, batch: frozenset[Option]) -> bool:
    if node.kind is NodeKind.SOURCE:
        return True
    if node.kind is NodeKind.OPERATOR:
        if not batch:
            return True
        return (option not in batch) if role is Role.TENSOR else (option in batch)
    stored = option[_stored_position(node)]
    if role is Role.DATA:
        return stored == REPLICATE or (node.kind is NodeKind.ACCUMULATOR and stored == PARTIAL)
    return role is Role.TENSOR or stored >= 0


def _stored_position(node: Node) -> int:
    """Position in an option of the stored tensor: the first output of an update, the only tensor of other nodes."""
    return len(node.priced.strategies[0].inputs) if node.priced is not None else 0
