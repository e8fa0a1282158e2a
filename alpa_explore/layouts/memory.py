"""Peak memory of a Megatron layout: the bytes of its fullest device.

With φ parameters on a device, P stages, n microbatches, and A the activation bytes of one layer and microbatch,

    peak = 16 φ + held · kept + A + logits,        held of stage s of P: min(P − s, n)  (1F1B)

16 bytes per parameter: weight and gradient in half precision, the weight and Adam's two moments in single precision.
With recomputation a layer keeps only its input (`kept` = 2 b s h bytes on every tensor-parallel rank), and A is needed
for one layer at a time; without it all layers keep A. With a = heads and t tensor-parallel ranks

    A = b s h (10 + 24 / t + 5 a s / (h t))

(Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, eq. 2). The last stage
has logits in half and single precision, and their gradient. Fragmentation is not counted, so the real peak is somewhat
higher.
"""

from __future__ import annotations

from alpa_explore.layouts.layout import Layout

BYTES_A_PARAMETER = 16
LOGIT_BYTES = 2 + 4 + 4


def device_bytes(layout: Layout) -> float:
    """The maximum over the first stage, which holds most microbatches, and the last stage, which has the logits."""
    last = layout.pipeline - 1
    return max(_stage_bytes(layout, stage) for stage in {0, last})


def _stage_bytes(layout: Layout, stage: int) -> float:
    t, hidden, tokens = layout.tensor, layout.hidden, layout.tokens
    first, last = stage == 0, stage == layout.pipeline - 1
    layers = layout.layers // layout.pipeline
    table = layout.vocabulary * hidden if first or last else 0
    parameters = (12 * hidden**2 * layers + table) / t
    whole = tokens * hidden * (10 + 24 / t + 5 * layout.heads * layout.sequence / (hidden * t))
    kept, working = (2 * tokens * hidden, whole) if layout.recompute else (whole, 0.0)
    held = min(layout.pipeline - stage, layout.microbatches)
    logits = tokens * layout.vocabulary / t * LOGIT_BYTES if last else 0.0
    return BYTES_A_PARAMETER * parameters + held * layers * kept + working + logits
