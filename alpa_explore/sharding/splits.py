"""The splits of an operator: from its rule, else from discovery, else none.

Discovery is a pass over a captured graph: all that comes after it reads what an operator carries.
"""

from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.graph import Operator, Tensor, TrainingGraph
from alpa_explore.sharding.rules import HEAVY
from alpa_explore.sharding.scans import rule_of
from alpa_explore.sharding.strategy import Coverage


def splits_for(operator: Operator, tensors: Sequence[Tensor]) -> Coverage:
    """The splits of `operator`, from its rule or else from discovery, which has run before (`with_discovered_splits`);
    `tensors` are those of its graph. All code that needs splits calls this function."""
    rule = rule_of(operator.kind)
    if rule is not None:
        inputs = tuple(tensors[t] for t in operator.inputs)
        outputs = tuple(tensors[t] for t in operator.outputs)
        return Coverage(rule(operator, inputs, outputs), operator.kind in HEAVY, "rule")
    assert isinstance(operator.discovered, Coverage), f"{operator.kind} has no rule, and discovery has not run"
    return operator.discovered


def with_discovered_splits(graph: TrainingGraph) -> TrainingGraph:
    """The graph whose operators without a rule carry the splits that running them on small inputs establishes."""
    if all(o.discovered is not None or rule_of(o.kind) is not None for o in graph.operators):
        return graph
    # Imported here because it imports torch, which a graph with rules for all its operators does not need.
    from alpa_explore.sharding.discovery.discover import discover

    return replace(
        graph,
        operators=tuple(
            o if rule_of(o.kind) else replace(o, discovered=discover(o, graph.tensors)) for o in graph.operators
        ),
    )
