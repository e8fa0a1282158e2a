"""The options of each mesh axis at each node of a stage: a strategy seen as one *option* per axis.

An option is the placement of all tensors of a node on one axis: a split of an operator (or none), a placement of a
source, a weight or an accumulator. A strategy is one option for each axis; `labels[k, m]` is the option of strategy k
on axis m. Not every combination of options is a strategy: a dim may be too short for both axes, a heavy operator must
be divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.stage.edge import Edge
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
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
    """For each axis the options that some strategy has there, ascending."""
    strategy_of: dict[tuple[int, ...], int]
    """An option for each axis -> the strategy, for those combinations that are one."""


def node_options(problem: StageProblem) -> tuple[NodeOptions, ...]:
    """The options of every node of `problem`."""
    # Equal nodes share what they choose from.
    found: dict[tuple[int, bool], NodeOptions] = {}
    options = []
    for node in problem.nodes:
        partial = node.kind is NodeKind.ACCUMULATOR
        key = (id(node.priced if node.priced is not None else _table_specs(problem, node)), partial)
        if key not in found:
            found[key] = _options([_columns(specs) for specs in _specs(problem, node)])
        options.append(found[key])
    return tuple(options)


def _table_specs(problem: StageProblem, node: Node) -> tuple[Spec, ...]:
    """The legal specs of the tensor of a node that is no operator."""
    graph = problem.stage.layered.graph
    if node.kind is NodeKind.SOURCE:
        tensor = node.subject
    elif node.kind is NodeKind.WEIGHT:
        tensor = graph.parameters[node.subject].tensor
    else:
        tensor = graph.parameters[node.subject].gradient
    return problem.model.reshard(graph.tensors[tensor]).specs


def _specs(problem: StageProblem, node: Node) -> list[tuple[Spec, ...]]:
    """For each strategy of `node` the specs of all its tensors."""
    if node.priced is not None:
        return [(*s.inputs, *s.outputs) for s in node.priced.strategies]
    partial = node.kind is NodeKind.ACCUMULATOR
    return [(spec,) for spec in _table_specs(problem, node) if partial or PARTIAL not in spec]


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
    """For each option of the reader of an edge (`reads`), or of its producer, the placement of the tensor of the
    edge."""
    specs = problem.model.reshard(problem.stage.layered.graph.tensors[edge.tensor]).specs
    positions = edge.target_specs if reads else edge.source_specs
    return {
        int(option): specs[position][axis]
        for row, position in zip(options.labels, positions.tolist(), strict=True)
        for axis, option in enumerate(row)
    }


def nearest_strategies(
    problem: ShardingProblem, nodes: Sequence[NodeOptions], requested: Sequence[tuple[int, ...]]
) -> tuple[Choices, int]:
    """A strategy for each node, and the number of nodes whose `requested` options (one per axis) are not a strategy.

    Such a node takes the cheapest of the strategies that agree with the request on as many axes as possible.
    """
    choices, impossible = [], 0
    for costs, node, labels in zip(problem.node_costs, nodes, requested, strict=True):
        strategy = node.strategy_of.get(labels)
        if strategy is None:
            impossible += 1
            agreeing_axes = (node.labels == np.array(labels)).sum(axis=1)
            strategy = int(np.lexsort((costs, -agreeing_axes))[0])
        choices.append(strategy)
    return tuple(choices), impossible
