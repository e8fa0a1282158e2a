"""The step of an optimizer as software runs it: what it keeps of each weight, and the bytes that it moves.

A fused kernel reads gradient and state once and writes weight and state. Torch's `foreach`, and the kernels of each
weight ('plain'), pass over the tensors several times (`FOREACH`). In plain PyTorch 16-bit weights with a master copy
also have their gradients cast to it, and the updated weights cast back; frameworks for large models do so in the
fused kernel. States of 'bfloat16' are what torch's own optimizers keep of such weights, without a master copy; those
of '8-bit' are moments of a byte with a float32 scale for each block (Dettmers et al., "8-bit Optimizers via Block-wise
Quantization", ICLR 2022, arXiv 2110.02861), of one fused kernel.
"""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.cluster import Software
from alpa_explore.graph import TrainingGraph
from alpa_explore.units import DTYPE_BYTES

FOREACH = {"adam": 18, "adamw": 20, "sgd": 3, "sgd_momentum": 8}
"""Numbers that the kernels of a `foreach` step read and write for each element; those of each weight do the same."""
BLOCK = 256
"""Elements of 8-bit moments that share a scale."""


def as_software_updates(graph: TrainingGraph, software: Software) -> TrainingGraph:
    """`graph` with the optimizer states and steps of its software."""
    if not software.plain_loop and software.states == "float32":
        return graph
    operators, parameters = list(graph.operators), []
    for parameter in graph.parameters:
        weight, step = graph.tensors[parameter.tensor], graph.operators[parameter.update]
        optimizer, element = step.kind.partition(".")[2], DTYPE_BYTES[weight.dtype]
        moments = parameter.state_bytes_per_element // max(element, 4) - (element < 4)
        moved = round(weight.elements * step_bytes(optimizer, moments, element, software))
        operators[step.index] = replace(step, bytes_accessed=moved)
        parameters.append(replace(parameter, state_bytes_per_element=state_bytes(moments, element, software)))
    return replace(graph, operators=tuple(operators), parameters=tuple(parameters))


def state_bytes(moments: float, element: int, software: Software) -> float:
    """Bytes of optimizer state for each number of a weight, itself of `element` bytes: its moments, and the master copy
    of 16 bits."""
    if software.states == "8-bit":
        return moments * (1 + 4 / BLOCK)
    if element >= 4 or software.states == "bfloat16":
        return moments * element
    return 4 * moments + 4


def step_bytes(optimizer: str, moments: float, element: int, software: Software) -> float:
    """Bytes that a step moves for each number of a weight of `element` bytes."""
    state = state_bytes(moments, element, software)
    has_master = element < 4 and software.states == "float32"
    if software.states == "8-bit" or not software.plain_loop:
        return (2 if has_master else 3) * element + 2 * state  # the gradient is read and the weight written, else read
    numbers = 3 + 2 * moments if software.update == "fused" else FOREACH[optimizer]
    return (4 if has_master else element) * numbers + has_master * 2 * (4 + element)
