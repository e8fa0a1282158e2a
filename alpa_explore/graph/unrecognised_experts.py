"""Routed experts that capture does not know: products of rows that are sorted by expert, which follow no tensor dim.

Captured as one operator (`tracing.experts`), tokens and experts can be divided. Written as a sort and grouped products,
neither can: every device of a stage sorts all tokens and holds their rows. What that costs is said in the warnings of a
plan.
"""

from __future__ import annotations

from alpa_explore import units
from alpa_explore.graph import counts
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Operator

_GROUPED = frozenset(
    {"aten._grouped_mm", "transformers.grouped_mm_fallback", "transformers.grouped_mm_fallback_backward"}
)
_SHOWN = 2
"""Modules that the warning names."""


def unrecognised_experts_warnings(graph: TrainingGraph) -> tuple[str, ...]:
    """One sentence if `graph` has grouped products, else none."""
    products = [o for o in graph.operators if counts.packet(o.kind) in _GROUPED]
    if not products:
        return ()
    modules = tuple(dict.fromkeys(o.module or "the model itself" for o in products))
    shown = ", ".join(modules[:_SHOWN]) + (", …" if len(modules) > _SHOWN else "")
    share = sum(o.flops for o in products) / max(sum(o.flops for o in graph.operators), 1)
    rows = units.bytes_(sum(_row_bytes(graph, o) for o in products))
    return (
        f"Routed experts are not recognised ({shown}): every device of a stage sorts all tokens and moves all of their "
        f"rows, {rows} for a microbatch, and their products ({share:.0%} of the FLOPs) can be divided neither by "
        "tokens nor by experts: call alpa_explore.models.routed_experts.routed_experts.",
    )


def _row_bytes(graph: TrainingGraph, product: Operator) -> int:
    """Bytes of the rows that a product reads and writes: those of its tensors of two dims."""
    tensors = [graph.tensors[t] for t in (*product.inputs, *product.outputs)]
    return sum(t.bytes for t in tensors if len(t.shape) == 2)
