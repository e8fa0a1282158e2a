"""What each mesh axis may do at each node of a stage: a strategy seen as one *option* an axis.

An option is what one axis does to all tensors of a node: a split of an operator (or none), a placement of a source, a
weight or an accumulator. A strategy is one option for each axis, so `labels[k, m]` is the option that strategy k puts
on axis m; not every combination of options is a strategy (a dim that is used up, a heavy operator left undivided).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.stage.stage_problem import Edge, Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Ints
from alpa_explore.sharding.spec import PARTIAL, Spec

Option = tuple[int, ...]
"""A placement for each tensor of the node: inputs, then outputs; one entry for a source, a weight, an accumulator."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeOptions:
    """The options of one node."""

    options: tuple[Option, ...]
    labels: Ints
    """[strategies, axes] -> position in `options`."""
    at_axis: tuple[Ints, ...]
    """For each axis the options that some strategy puts there, ascending."""
    strategy_of: dict[tuple[int, ...], int]
    """An option for each axis -> the strategy, where it is one."""


def node_options(problem: StageProblem) -> tuple[NodeOptions, ...]:
    """The options of every node of `problem`."""
    return tuple(_options([_columns(specs) for specs in _specs(problem, node)]) for node in problem.nodes)


def _specs(problem: StageProblem, node: Node) -> list[tuple[Spec, ...]]:
    """For each strategy of `node` the specs of all its tensors."""
    if node.priced is not None:
        return [(*s.inputs, *s.outputs) for s in node.priced.strategies]
    graph = problem.stage.layered.graph
    if node.kind is NodeKind.SOURCE:
        tensor = node.subject
    elif node.kind is NodeKind.WEIGHT:
        tensor = graph.parameters[node.subject].tensor
    else:
        tensor = graph.parameters[node.subject].gradient
    partial = node.kind is NodeKind.ACCUMULATOR
    every = problem.model.reshard(graph.tensors[tensor]).specs
    return [(spec,) for spec in every if partial or PARTIAL not in spec]


def _columns(specs: Sequence[Spec]) -> tuple[Option, ...]:
    return tuple(zip(*specs, strict=True))


def _options(strategies: list[tuple[Option, ...]]) -> NodeOptions:
    number: dict[Option, int] = {}
    rows = [[number.setdefault(option, len(number)) for option in columns] for columns in strategies]
    labels = np.array(rows, dtype=np.int64).reshape(len(strategies), -1)
    return NodeOptions(
        options=tuple(number),
        labels=labels,
        at_axis=tuple(np.unique(column) for column in labels.T),
        strategy_of={tuple(row): k for k, row in enumerate(rows)},
    )


def placements(problem: StageProblem, edge: Edge, options: NodeOptions, *, reads: bool) -> dict[int, int]:
    """For each option of the edge's reader (`reads`) or maker what it does to the edge's tensor."""
    specs = problem.model.reshard(problem.stage.layered.graph.tensors[edge.tensor]).specs
    positions = edge.target_specs if reads else edge.source_specs
    return {
        int(option): specs[position][axis]
        for row, position in zip(options.labels, positions.tolist(), strict=True)
        for axis, option in enumerate(row)
    }


def nearest_strategies(
    problem: ShardingProblem, nodes: Sequence[NodeOptions], wanted: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], int]:
    """A strategy for each node, and at how many nodes what is `wanted` of the axes is no strategy.

    Such a node takes a strategy that satisfies as many axes as possible, the cheapest of these.
    """
    choices, impossible = [], 0
    for costs, node, labels in zip(problem.node_costs, nodes, wanted, strict=True):
        found = node.strategy_of.get(labels)
        if found is None:
            impossible += 1
            satisfied = (node.labels == np.array(labels)).sum(axis=1)
            found = int(np.lexsort((costs, -satisfied))[0])
        choices.append(found)
    return tuple(choices), impossible
