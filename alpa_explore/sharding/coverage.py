"""How the operators of a graph are covered: by a rule, by discovery, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.arguments import checked
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.operator import operator_signature
from alpa_explore.sharding.scans import rule_of
from alpa_explore.sharding.splits import splits_for, with_discovered_splits
from alpa_explore.sharding.strategy import Coverage

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
    coverage_by_signature: dict[tuple[object, ...], Coverage] = {}
    factors: dict[tuple[str, str, str], dict[str, None]] = {}
    counts: dict[tuple[str, str, str], int] = {}
    flops: dict[tuple[str, str, str], int] = {}
    for operator in graph.operators:
        signature = operator_signature(operator, graph.tensors)
        if signature not in coverage_by_signature:
            coverage_by_signature[signature] = splits_for(operator, graph.tensors)
        operator_coverage = coverage_by_signature[signature]
        key = (operator.kind, operator_coverage.how, operator_coverage.reason)
        factors.setdefault(key, {}).update(dict.fromkeys(s.factor for s in operator_coverage.splits))
        counts[key] = counts.get(key, 0) + 1
        flops[key] = flops.get(key, 0) + operator.flops
    total = sum(flops.values()) or 1
    records = [
        KindCoverage(
            kind=kind,
            how=how,
            count=counts[kind, how, reason],
            flops=flops[kind, how, reason],
            flops_share=flops[kind, how, reason] / total,
            factors=tuple(factors[kind, how, reason]),
            reason=reason,
        )
        for kind, how, reason in counts
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
