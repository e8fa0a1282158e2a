"""Attention and routed experts as plain PyTorch runs them: what autograd keeps beside the tensors of the graph.

The graph has one operator for each, as fused kernels compute them. `torch.nn.functional.scaled_dot_product_attention`
has none with a window: it is given a mask of all scores in the dtype of the queries, a copy in every call, and as many
heads of keys and values as of queries. Sinks are not in its arguments, so a model spells such attention out and keeps
the shares of all scores. Experts are two grouped products with kernels around them (transformers' `grouped_mm`).
"""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.graph import Operator, Phase, Ref, Tensor, TrainingGraph
from alpa_explore.graph.counts import ROUTED, attention_window, matrix_shapes, packet
from alpa_explore.units import DTYPE_BYTES

_ATTENTION = "alpa_explore.attention"
_MASK, _SINK, _LIMIT = 3, 12, 8
"""Places of arguments."""
_INDEX_BYTES = 8
_PERMUTATIONS = 3
"""Kept for every row of experts: its place among the sorted rows, its token, and its place among the unsorted ones."""


def as_plain_pytorch(graph: TrainingGraph) -> TrainingGraph:
    """`graph` with the bytes that its operators keep in plain PyTorch."""
    differentiated = {o.forward for o in graph.operators if o.phase is Phase.BACKWARD}
    operators = []
    for operator in graph.operators:
        kept = 0
        if operator.index in differentiated:
            inputs = [graph.tensors[t] for t in operator.inputs]
            if packet(operator.kind) == _ATTENTION:
                kept = _attention_bytes(operator, inputs, graph)
            elif packet(operator.kind) in ROUTED:
                kept = _expert_bytes(operator, inputs)
        operators.append(replace(operator, kept_bytes=kept) if kept else operator)
    return replace(graph, operators=tuple(operators))


def _attention_bytes(operator: Operator, inputs: list[Tensor], graph: TrainingGraph) -> int:
    query, key, value = inputs[:3]
    samples, heads, rows, _ = query.shape
    shared, columns, width = key.shape[1], key.shape[2], key.shape[3] + value.shape[3]
    element = DTYPE_BYTES[query.dtype]
    repeated = samples * (heads - shared) * columns * width * element
    arguments = operator.arguments
    mask = arguments[_MASK]
    if len(arguments) > _SINK and arguments[_SINK] is not None:
        # The shares of all scores and the sink, and where in each row the largest is.
        return samples * heads * rows * ((columns + 1) * element + _INDEX_BYTES) + repeated
    if attention_window(_ATTENTION, arguments):
        return rows * columns * element + repeated
    if isinstance(mask, Ref) and graph.tensors[mask.tensor].dtype == "bool":
        return graph.tensors[mask.tensor].elements * element
    return 0


def _expert_bytes(operator: Operator, inputs: list[Tensor]) -> int:
    """Beside rows and hidden values: what the gate computes, the inner values and the results of each row; weights and
    places of rows."""
    name, tokens, chosen = packet(operator.kind), inputs[0], inputs[ROUTED[packet(operator.kind)].chosen]
    *ups, down = matrix_shapes(name, [t.shape for t in inputs], operator.arguments)
    width = tokens.shape[1]
    inner = down[1] * down[2] // width
    gated = sum(up[1] * up[2] for up in ups) > inner * width
    # The activation of the gate; with limits both sides of the gate too, and the factor of the activation.
    of_gate = 4 if operator.arguments[_LIMIT] else 1 if gated else 0
    element = DTYPE_BYTES[tokens.dtype]
    each_row = ((of_gate + 1) * inner + width + 1) * element + _PERMUTATIONS * _INDEX_BYTES
    return chosen.elements * each_row
