"""How an operator can be divided: by its rule, else by what discovery shows, else not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.graph import Operator, Tensor, TrainingGraph
from alpa_explore.graph.counts import is_matrix_product
from alpa_explore.graph.signature import operator_signature
from alpa_explore.sharding.discovery.discoveries import DiscoveryRecords, recorded_discovery
from alpa_explore.sharding.rules import HEAVY, RULES
from alpa_explore.sharding.strategy import Split


@dataclass(frozen=True, slots=True)
class Coverage:
    """How an operator is covered."""

    splits: tuple[Split, ...]
    heavy: bool
    how: str
    """'rule'; 'discovered' when no rule knows the kind, but running it showed how it divides; else 'replicated'."""
    reason: str = ""
    """Why it is replicated."""


def splits_for(operator: Operator, tensors: Sequence[Tensor]) -> Coverage:
    """The splits of `operator`; `tensors` are those of its graph. The only door: a rule first, then discovery."""
    inputs = tuple(tensors[t] for t in operator.inputs)
    outputs = tuple(tensors[t] for t in operator.outputs)
    rule = RULES.get(operator.kind)
    if rule is not None:
        return Coverage(rule(operator, inputs, outputs), operator.kind in HEAVY, "rule")
    found = recorded_discovery(operator_signature(operator, tensors))
    if found is None:
        # Imported here because it takes torch, which a graph with rules for all its operators does not need.
        from alpa_explore.sharding.discovery.discover import discover

        found = discover(operator, inputs, outputs)
    if not found.splits:
        return Coverage((), False, "replicated", found.reason)
    return Coverage(found.splits, is_matrix_product(operator.kind), "discovered")


def discover_all(graph: TrainingGraph) -> DiscoveryRecords:
    """The discoveries of all operators of `graph` that no rule knows; those that are missing are made now."""
    unruled = {operator_signature(o, graph.tensors): o for o in graph.operators if o.kind not in RULES}
    if not unruled:
        return ()
    # Imported here because it takes torch, which a graph with rules for all its operators does not need.
    from alpa_explore.sharding.discovery.discover import discover

    return tuple(
        (signature, discover(o, [graph.tensors[t] for t in o.inputs], [graph.tensors[t] for t in o.outputs]))
        for signature, o in unruled.items()
    )
