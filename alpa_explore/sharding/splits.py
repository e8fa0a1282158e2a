"""The splits of an operator: from its rule, else from discovery, else none.

Discovery is a pass over a captured graph: all that comes after it reads what an operator carries. `coverage` says how
the operators of a graph are covered: by a rule, by discovery, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpa_explore import units
from alpa_explore.arguments import checked
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


_ORDER = ("replicated", "discovered", "rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCoverage:
    """The operators of one kind that are covered in the same way."""

    kind: str
    """'aten.mm.default', …"""
    how: str
    """'rule'; 'discovered' by running the operator; 'replicated': every device computes all of it."""
    count: int
    """Number of these operators in the graph."""
    flops: int
    """FLOPs of all of them, for one microbatch."""
    flops_share: float
    """Their share of the FLOPs of the whole graph, 0 … 1."""
    factors: tuple[str, ...]
    """Names of their factors (the loop dims that can be divided); 'sum' is a pending sum that passes through."""
    reason: str
    """Why they are replicated; empty otherwise."""


@checked("graph")
def coverage(graph: TrainingGraph) -> tuple[KindCoverage, ...]:
    """A record for each operator kind of `graph` (several where coverage depends on shapes), replicated kinds first."""
    graph = with_discovered_splits(graph)
    found: dict[object, Coverage] = {}
    alike: dict[tuple[str, str, str], list[tuple[Operator, Coverage]]] = defaultdict(list)
    for operator, signature in zip(graph.operators, graph.signatures, strict=True):
        one = found[signature] = found.get(signature) or splits_for(operator, graph.tensors)
        alike[operator.kind, one.how, one.reason].append((operator, one))
    total = sum(operator.flops for operator in graph.operators) or 1
    records = [
        KindCoverage(
            kind=kind,
            how=how,
            count=len(members),
            flops=(flops := sum(operator.flops for operator, _ in members)),
            flops_share=flops / total,
            factors=tuple(dict.fromkeys(split.factor for _, one in members for split in one.splits)),
            reason=reason,
        )
        for (kind, how, reason), members in alike.items()
    ]
    return tuple(sorted(records, key=lambda r: (_ORDER.index(r.how), -r.flops, r.kind, r.reason)))


def replicated_warnings(graph: TrainingGraph) -> tuple[str, ...]:
    """A sentence for each operator kind of `graph` that is replicated because it has neither a rule nor discovered
    splits."""
    if all(rule_of(operator.kind) for operator in graph.operators):
        return ()
    return tuple(
        f"{r.kind} has no sharding rule and is replicated ({r.count:,} operator{'s' if r.count > 1 else ''}, "
        f"{units.percent(r.flops_share)} of the FLOPs): {r.reason}."
        for r in coverage(graph)
        if r.how == "replicated"
    )
