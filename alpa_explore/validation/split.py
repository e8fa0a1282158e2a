"""Which configurations figures are fitted to, and which are held out.

A configuration is everything that decides on a run but its measured values. The digest of its columns decides on the
side, so that repetitions of a run, and the same run in another file, are on the same side whatever the order of rows.
"""

from __future__ import annotations

from hashlib import sha256

from alpa_explore.validation.runs.rows import MeasuredRow

SIDES = ("fit", "held-out")
Configuration = tuple[object, ...]


def configuration(row: MeasuredRow) -> Configuration:
    """All that decides on a run: model, batch, machine, layout, precision, software."""
    a = row.architecture
    return (
        *(a.kind, a.layers, a.hidden, a.heads, a.kv_heads, a.ffn, a.vocabulary, a.tied, row.sequence),
        *(row.global_batch, row.micro_batch, row.devices, row.gpu_type, row.devices_per_node),
        *(row.tensor, row.pipeline, row.data, row.chunks, row.zero_stage),
        *(row.recompute, row.precision, row.schedule, row.framework),
        # Absent where they say nothing, so that other configurations stay on their side.
        *((a.experts, a.chosen_experts, row.expert, row.expert_tensor) if a.experts > 1 else ()),
        *((row.context,) if row.context > 1 else ()),
    )


def side(row: MeasuredRow) -> str:
    """'fit' or 'held-out', half of all configurations each."""
    return SIDES[sha256(repr(configuration(row)).encode()).digest()[0] % 2]
