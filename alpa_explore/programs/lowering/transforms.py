"""The classic kinds of parallelism as choices for a stage: each mesh axis is given a kind, and a solver chooses the
rest.

data     operators that can shard the batch shard it along the axis; weights and optimizer state are replicated
zero     as data, but every device stores and updates only its piece of the optimizer state
tensor   no operator shards the batch along the axis, and the inputs are replicated; weights are sharded

The exact solver chooses what the kinds leave open (which dim of a weight, where to reshard). Pipeline parallelism is
several stages; kinds are combined by giving each its own mesh axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from alpa_explore.errors import OptionError, ProgramError
from alpa_explore.graph import TensorKind
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.axis_options import Option, batch_options
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Flags
from alpa_explore.plans.describe import node_specs
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.sharding.strategy import Strategy

Kind: TypeAlias = Literal["data", "zero", "tensor"]
KINDS = ("data", "zero", "tensor")


def divided(problem: StageProblem, kinds: Sequence[Kind]) -> tuple[int, ...]:
    """The cheapest choices that parallelise a stage by these kinds, one for each axis of its mesh.

    OptionError for an unknown kind or another number of axes; ProgramError where no choices are legal.
    """
    axes = len(problem.model.mesh.shape)
    if len(kinds) != axes or not set(kinds) <= set(KINDS):
        raise OptionError(
            "Every mesh axis needs exactly one kind of parallelism",
            found=f"{', '.join(kinds) or 'nothing'} for {axes} axes",
            remedy=f"Name one of {', '.join(KINDS)} for each axis.",
        )
    batch = batch_options(problem)
    base = problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)
    costs = []
    for v, (node, cost) in enumerate(zip(problem.nodes, base.node_costs, strict=True)):
        allowed = np.ones(len(cost), dtype=np.bool_)
        for axis, kind in enumerate(kinds):
            fits = allowed & _fitting(problem, node, batch.get(v), axis, kind)
            allowed = fits if fits.any() else allowed  # a node that no kind of strategy fits is unconstrained
        costs.append(np.where(allowed, cost, FORBIDDEN))
    solution = solve(
        ShardingProblem(name=base.name, node_costs=tuple(costs), edges=base.edges, edge_costs=base.edge_costs)
    )
    if solution.status is Status.INFEASIBLE or solution.objective >= FORBIDDEN:
        raise ProgramError(
            "The stage has no legal choice with these kinds of parallelism",
            found=f"{', '.join(kinds)} on {problem.model.mesh}",
            remedy="Choose other kinds, a smaller axis, or more samples in a microbatch.",
        )
    return solution.choices


def _fitting(problem: StageProblem, node: Node, batch: frozenset[Option] | None, axis: int, kind: Kind) -> Flags:
    """Which strategies of a node follow the kind of an axis, as a mask."""
    graph = problem.stage.layered.graph
    if node.kind is NodeKind.SOURCE:
        if graph.tensors[node.subject].kind is not TensorKind.INPUT:
            return np.ones(len(node.microbatch_seconds), dtype=np.bool_)
        allowed_placements = (REPLICATE,) if kind == "tensor" else (0,)
        return np.array([spec[axis] in allowed_placements for spec in node_specs(problem, node)])
    if node.kind is NodeKind.WEIGHT:
        return np.array([kind != "data" or s[axis] == REPLICATE for s in node_specs(problem, node)])
    assert node.priced is not None or node.kind is NodeKind.ACCUMULATOR, "operators and updates are priced"
    if node.priced is None:
        return np.ones(len(node.microbatch_seconds), dtype=np.bool_)
    strategies = node.priced.strategies
    if node.kind is NodeKind.UPDATE:
        whole = np.array([s.outputs[0][axis] == REPLICATE for s in strategies])
        return {"data": whole, "zero": ~whole, "tensor": np.ones(len(whole), dtype=np.bool_)}[kind]
    if batch is None:
        return np.ones(len(strategies), dtype=np.bool_)
    cuts = np.array([_option(s, axis) in batch for s in strategies])
    return ~cuts if kind == "tensor" else cuts


def _option(strategy: Strategy, axis: int) -> Option:
    return tuple(spec[axis] for spec in (*strategy.inputs, *strategy.outputs))
