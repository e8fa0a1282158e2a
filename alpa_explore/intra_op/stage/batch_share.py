"""How much of a stage is pure data parallelism: the share of operators at which every mesh axis splits the batch.

The batch dim is traced through the graph: it is dim 0 of the activations and gradients that enter the stage, and a
split of the batch dim of an input makes the dims that it splits in the outputs batch dims. A table of an earlier stage
(of positions, in zig-zag order) enters it, too, and has no batch dim.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore.graph import TensorKind
from alpa_explore.intra_op.stage.axis_options import NodeOptions, Option
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.sharding.splits import splits_for


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
        if graph.tensors[t].kind in (TensorKind.INPUT, TensorKind.VALUE)
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
