"""Tensors that fused kernels of the backward pass compute again from what is held, as in SwiGLU: its kernel reads the
gate and computes the activation again, which is never held.

Such a tensor is pointwise in one tensor that is held, and only fused kernels of its own layer read it in the backward
pass. That costs no traffic: the bytes of the kernels are as they are without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from alpa_explore.cost.fusion import is_fusible
from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.graph.counts import is_view


def recomputed_in_kernel(
    graph: TrainingGraph,
    layer_of: Sequence[int],
    storage: Sequence[int],
    held: Sequence[Sequence[int]],
    recomputed: Collection[int],
) -> frozenset[int]:
    """Of the (storage) tensors that the layers hold, those that need not be held; `recomputed` are the forward
    operators that run again, which are kernels of their own."""
    all_held = {t for of_layer in held for t in of_layer}
    candidates = {}
    for tensor in all_held:
        producer = graph.tensors[tensor].producer
        if producer is None or len(graph.operators[producer].inputs) != 1:
            continue
        if is_fusible(graph.operators[producer], graph) and storage[graph.operators[producer].inputs[0]] in all_held:
            candidates[tensor] = producer
    readers: dict[int, set[int]] = defaultdict(set)
    for operator in graph.operators:
        if not is_view(operator.kind) and (operator.phase is Phase.BACKWARD or operator.index in recomputed):
            for base in {storage[t] for t in operator.inputs} & candidates.keys():
                readers[base].add(operator.index)
    return frozenset(
        tensor
        for tensor, producer in candidates.items()
        if all(
            graph.operators[r].phase is Phase.BACKWARD
            and is_fusible(graph.operators[r], graph)
            and layer_of[r] == layer_of[producer]
            for r in readers[tensor]
        )
    )
