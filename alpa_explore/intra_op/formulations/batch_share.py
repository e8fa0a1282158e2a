"""How much of a stage is pure data parallelism: the share of operators whose every mesh axis cuts the batch.

The batch is followed through the graph: it is dim 0 of the activations and gradients that enter the stage, and a split
that cuts it in an input carries it to the dims that the split cuts in the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore.graph import TensorKind
from alpa_explore.intra_op.formulations.axis_options import NodeOptions, Option
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.sharding.splits import splits_for


def chosen_options(nodes: Sequence[NodeOptions], choices: Sequence[int]) -> tuple[tuple[Option, ...], ...]:
    """For each node the option that its chosen strategy puts on each axis."""
    return tuple(
        tuple(node.options[f] for f in node.labels[c].tolist()) for node, c in zip(nodes, choices, strict=True)
    )


def batch_share(problem: StageProblem, options: Sequence[Sequence[Option]]) -> float:
    """Of the operators that can cut the batch, the share at which every axis does; 0 where there are none."""
    batch = batch_options(problem)
    cut = [all(o in batch[v] for o in options[v]) for v in batch]
    return sum(cut) / len(cut) if cut else 0.0


def batch_options(problem: StageProblem) -> dict[int, frozenset[Option]]:
    """For each operator node that can cut the batch the options that do."""
    graph, stage = problem.stage.layered.graph, problem.stage
    dim_of = {
        t: 0
        for t in stage.sources
        if graph.tensors[t].kind in (TensorKind.INPUT, TensorKind.VALUE) and graph.tensors[t].shape
    }
    found = {}
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
            found[v] = frozenset((*split.inputs, *split.outputs) for split in splits)
    return found
