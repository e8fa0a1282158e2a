"""How the operators of a graph are covered: by a rule, by discovery, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.signature import operator_signature
from alpa_explore.sharding.rules import RULES
from alpa_explore.sharding.splits import Coverage, splits_for

_ORDER = ("replicated", "discovered", "rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCoverage:
    """All operators of one kind that are covered alike."""

    kind: str
    """'aten.mm.default', …"""
    how: str
    """'rule'; 'discovered' by running the operator; 'replicated': every device does all of it."""
    count: int
    """Operators of the graph."""
    flops: int
    """Of all of them, for one microbatch."""
    flops_share: float
    """Of the FLOPs of the whole graph, 0 … 1."""
    factors: tuple[str, ...]
    """The loop dims by which they can be divided; 'sum' is a pending sum that passes through."""
    reason: str
    """Why they are replicated, empty otherwise."""


def coverage(graph: TrainingGraph) -> tuple[KindCoverage, ...]:
    """One record for each kind of operator of `graph` (two where shapes decide); what needs attention comes first."""
    known: dict[tuple[object, ...], Coverage] = {}
    factors: dict[tuple[str, str, str], dict[str, None]] = {}
    counts: dict[tuple[str, str, str], int] = {}
    flops: dict[tuple[str, str, str], int] = {}
    for operator in graph.operators:
        signature = operator_signature(operator, graph.tensors)
        if signature not in known:
            known[signature] = splits_for(operator, graph.tensors)
        found = known[signature]
        key = (operator.kind, found.how, found.reason)
        factors.setdefault(key, {}).update(dict.fromkeys(s.factor for s in found.splits))
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
    """A sentence for each kind of operator of `graph` that is replicated because nobody knows how to divide it."""
    if all(operator.kind in RULES for operator in graph.operators):
        return ()
    return tuple(
        f"{r.kind} has no sharding rule and is replicated ({r.count:,} operator{'s' if r.count > 1 else ''}, "
        f"{units.percent(r.flops_share)} of the FLOPs): {r.reason}."
        for r in coverage(graph)
        if r.how == "replicated"
    )
