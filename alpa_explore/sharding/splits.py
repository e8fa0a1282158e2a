"""The splits of an operator: from its rule, else from discovery, else none."""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.graph import Operator, Tensor, TrainingGraph
from alpa_explore.graph.counts import is_matrix_product
from alpa_explore.graph.operator import operator_signature
from alpa_explore.sharding.discovery.discoveries import DiscoveryRecords, recorded_discovery
from alpa_explore.sharding.rules import HEAVY
from alpa_explore.sharding.scans import rule_of
from alpa_explore.sharding.strategy import Split


@dataclass(frozen=True, slots=True)
class Coverage:
    """The splits of an operator and where they come from."""

    splits: tuple[Split, ...]
    heavy: bool
    """Whether its work must not be replicated along a mesh axis that could divide it."""
    how: str
    """'rule'; 'discovered' when the kind has no rule and running the operator established splits; else 'replicated'."""
    reason: str = ""
    """Why it is replicated; empty otherwise."""


def splits_for(operator: Operator, tensors: Sequence[Tensor]) -> Coverage:
    """The splits of `operator`, from its rule or else from discovery; `tensors` are those of its graph.

    All code that needs splits calls this function.
    """
    inputs = tuple(tensors[t] for t in operator.inputs)
    outputs = tuple(tensors[t] for t in operator.outputs)
    rule = rule_of(operator.kind)
    if rule is not None:
        return Coverage(rule(operator, inputs, outputs), operator.kind in HEAVY, "rule")
    discovered = recorded_discovery(operator_signature(operator, tensors))
    if discovered is None:
        # Imported here because it imports torch, which a graph with rules for all its operators does not need.
        from alpa_explore.sharding.discovery.discover import discover

        discovered = discover(operator, inputs, outputs)
    if not discovered.splits:
        return Coverage((), False, "replicated", discovered.reason)
    return Coverage(discovered.splits, is_matrix_product(operator.kind), "discovered")


def discover_all(graph: TrainingGraph) -> DiscoveryRecords:
    """The discovery records of all operators of `graph` without a rule; operators without a record are discovered
    now."""
    without_rule = {operator_signature(o, graph.tensors): o for o in graph.operators if rule_of(o.kind) is None}
    if not without_rule:
        return ()
    # Imported here because it imports torch, which a graph with rules for all its operators does not need.
    from alpa_explore.sharding.discovery.discover import discover

    return tuple(
        (signature, discover(o, [graph.tensors[t] for t in o.inputs], [graph.tensors[t] for t in o.outputs]))
        for signature, o in without_rule.items()
    )
