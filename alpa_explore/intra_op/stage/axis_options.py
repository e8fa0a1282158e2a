"""The options of each mesh axis at each node of a stage: a strategy seen as one *option* per axis.

An option is the placement of all tensors of a node on one axis: a split of an operator (or none), a placement of a
source, a weight or an accumulator. A strategy is one option for each axis; `labels[k, m]` is the option of strategy k
on axis m. Not every combination of options is a strategy: a dim may be too short for both axes, a heavy operator must
be divided.

`batch_share` is how much of a stage is pure data parallelism: the share of operators at which every mesh axis splits
the batch. The batch dim is traced through the graph: it is dim 0 of the activations and gradients that enter the stage,
and a split of the batch dim of an input makes the dims that it splits in the outputs batch dims. A table of an earlier
stage (of positions, in zig-zag order) enters it, too, and has no batch dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.graph import TensorKind
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.stage.edge import Edge
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Ints
from alpa_explore.sharding.spec import PARTIAL, Spec
from alpa_explore.sharding.splits import splits_for

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


def chosen_options(nodes: Sequence[NodeOptions], choices: Sequence[int]) -> tuple[tuple[Option, ...], ...]:
    """For each node the options of its chosen strategy, one for each axis."""
    return tuple(
        tuple(node.options[f] for f in node.labels[c].tolist()) for node, c in zip(nodes, choices, strict=True)
    )


def batch_share(problem: StageProblem, options: Sequence[Sequence[Option]]) -> float:
    """Of the operators that can split the batch, the share at which every axis does; 0 where there are none."""
    splitting = batch_options(problem)
    pure = [all(option in splitting[v] for option in options[v]) for v in splitting]
    return sum(pure) / len(pure) if pure else 0.0


def batch_options(problem: StageProblem) -> dict[int, frozenset[Option]]:
    """For each operator node that can split the batch, the options that do."""
    graph, stage = problem.stage.layered.graph, problem.stage
    dim_of = {
        t: 0
        for t in stage.sources
        if graph.tensors[t].kind in (TensorKind.INPUT, TensorKind.VALUE, TensorKind.RETURNED)
        and graph.tensors[t].shape
        and graph.from_inputs(t)
    }
    options = {}
    for v, node in enumerate(problem.nodes):
        if node.kind is not NodeKind.OPERATOR:
            continue
        operator = graph.operators[node.subject]
        splits = [
            split
            for split in splits_for(operator, graph.tensors).splits
            if any(p >= 0 and dim_of.get(t) == p for t, p in zip(operator.inputs, split.inputs, strict=True))
        ]
        for split in splits:
            for tensor, placement in zip(operator.outputs, split.outputs, strict=True):
                if placement >= 0:
                    dim_of.setdefault(tensor, placement)
        if splits:
            options[v] = frozenset((*split.inputs, *split.outputs) for split in splits)
    return options
