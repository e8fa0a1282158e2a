"""Predict the seconds of one training iteration of a Megatron layout.

The host issues kernels while the device executes them; the slower of the two determines the time. With f, b the device
seconds of a layer's forward and backward pass of one microbatch and F, B those of the host, a layer that is recomputed
in the backward pass takes (`_pace` is a soft maximum)

    layer = pace(F, f) + pace(F + B, f + b).

A matrix product takes the larger of its arithmetic and memory times (`_product`), any other kernel its memory time; a
tensor-parallel layer all-reduces activations twice in each pass (`_sum_inside`). Stage i of the pipeline takes t_i for
a microbatch: its layers, the embedding on the first stage, the vocabulary product and the loss on the last, and sends
to its neighbours; replicas of a stage that share nodes slow each other down (`_disturbance`). With n microbatches in
1F1B an iteration takes

    Σ t_i + (n − 1) · max t_i + gradient sum + tied embedding + update + overhead.

Counts follow Megatron-LM (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021): column then row products, fused softmax, activations sent between stages in parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpa_explore.layouts.layout import Layout
from alpa_explore.layouts.machine import Machine

HALF = 2
"""Bytes of an element in half precision."""
FORWARD_KERNELS, BACKWARD_KERNELS = 35, 50
"""Kernels that the host issues for a layer."""
UNFUSED_KERNELS = 18
"""Additional kernels of a pass where the fused softmax does not apply."""
UPDATE_BYTES = 30
"""Bytes that an update reads and writes per parameter: the norm reads the gradient (2); Adam reads gradient, weight and
two moments (14), and writes the last three (12) and the weight in half precision (2)."""
_SHARPNESS = 5.0
"""Exponent of the soft maximum of host and device: 1 is the sum, infinity the maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTime:
    """The predicted time of an iteration, in parts."""

    layer_seconds: float
    """One layer and microbatch: forward and backward, including recomputation."""
    layer_host_seconds: float
    """Host time of the same kernels."""
    layer_device_seconds: float
    """Device time of the same kernels and collectives."""
    slowest_stage_seconds: float
    """Time of the slowest stage for one microbatch."""
    pipeline_seconds: float
    """All microbatches through all stages."""
    gradient_sum_seconds: float
    update_seconds: float
    """The optimizer step, and the fixed overhead of an iteration."""

    @property
    def seconds(self) -> float:
        """The whole iteration."""
        return self.pipeline_seconds + self.gradient_sum_seconds + self.update_seconds


def iteration_time(layout: Layout, machine: Machine) -> IterationTime:
    """Evaluate the formula of this module."""
    layer, host, device = _layer(layout, machine)
    first, last = _embedding(layout, machine), _head(layout, machine)
    inside = layer * (layout.layers // layout.pipeline) + machine.software.microbatch_seconds
    send = 2 * _send(layout, machine)  # activation one way, gradient the other, at each border
    if layout.pipeline == 1:
        slowest = total = inside + first + last
    else:
        ends = [inside + first + send, inside + last + send]
        between = inside + 2 * send
        slowest = max(*ends, between) if layout.pipeline > 2 else max(ends)
        total = sum(ends) + (layout.pipeline - 2) * between
    disturbed = _disturbance(layout, machine)
    slowest, total = disturbed * slowest, disturbed * total
    parameters = _parameters_of_device(layout)
    return IterationTime(
        layer_seconds=layer,
        layer_host_seconds=host,
        layer_device_seconds=device,
        slowest_stage_seconds=slowest,
        pipeline_seconds=total + (layout.microbatches - 1) * slowest,
        gradient_sum_seconds=_gradient_sum(layout, machine, parameters) + _tied_embedding(layout, machine),
        update_seconds=parameters * UPDATE_BYTES / machine.memory_rate + machine.software.iteration_seconds,
    )


def _pace(host: float, device: float) -> float:
    """Soft maximum: (host^q + device^q)^(1/q), without overflow."""
    high, low = max(host, device), min(host, device)
    return high * float((1.0 + (low / high) ** _SHARPNESS) ** (1.0 / _SHARPNESS))


def _product(machine: Machine, m: float, n: float, k: float, count: float = 1, efficiency: float = 1.0) -> float:
    """Seconds of `count` products [m, k] × [k, n]: the larger of arithmetic and memory time."""
    arithmetic = 2 * m * n * k / (machine.device.peak("float16") * machine.software.matmul_efficiency * efficiency)
    return count * max(arithmetic, HALF * (m * n + m * k + n * k) / machine.memory_rate)


def _layer(layout: Layout, machine: Machine) -> tuple[float, float, float]:
    """(seconds, host seconds, device seconds) of one layer and microbatch."""
    tokens, hidden, t, software = layout.tokens, layout.hidden, layout.tensor, machine.software
    heads, width = layout.heads // t, hidden // layout.heads
    products = (
        _product(machine, tokens, 3 * hidden / t, hidden)
        + _product(machine, tokens, hidden, hidden / t)
        + _product(machine, tokens, 4 * hidden / t, hidden)
        + _product(machine, tokens, hidden, 4 * hidden / t)
        + _product(machine, layout.sequence, layout.sequence, width, layout.micro_batch * heads)
        + _product(machine, layout.sequence, width, layout.sequence, layout.micro_batch * heads)
    )
    scores = layout.micro_batch * heads * layout.sequence**2 * software.attention_traffic
    # Bytes per element that kernels other than products read and write: on every rank for the whole activation (norms
    # 8, dropout and residual 14; backward 36), for the activation divided by t (GELU 16, copies of heads 4; backward
    # 28), for the attention probabilities (softmax 4, dropout 5; backward 11).
    forward_bytes = tokens * hidden * (22 + 20 / t) + 9 * scores
    backward_bytes = tokens * hidden * (36 + 28 / t) + 11 * scores
    sums = 2 * _sum_inside(layout, machine)
    forward = products + forward_bytes / machine.memory_rate + sums
    backward = 2 * products + backward_bytes / machine.memory_rate + sums
    # Megatron's fused softmax needs a multiple of four (sample, head) pairs on a device.
    unfused = UNFUSED_KERNELS if (layout.micro_batch * heads) % 4 else 0
    issue = 2 * software.collective_launch_seconds if t > 1 else 0.0
    host_forward = (FORWARD_KERNELS + unfused) * software.forward_launch_seconds + issue
    host_backward = (BACKWARD_KERNELS + unfused) * software.backward_launch_seconds + issue
    if layout.recompute:
        seconds = _pace(host_forward, forward) + _pace(host_forward + host_backward, forward + backward)
        return seconds, 2 * host_forward + host_backward, 2 * forward + backward
    seconds = _pace(host_forward, forward) + _pace(host_backward, backward)
    return seconds, host_forward + host_backward, forward + backward


def _sum_inside(layout: Layout, machine: Machine) -> float:
    """Seconds of the all-reduce of one activation among the tensor-parallel devices."""
    t, software = layout.tensor, machine.software
    if t == 1:
        return 0.0
    rate = software.collective_bandwidth
    if t > machine.devices_per_node:
        rate = min(rate, machine.network_rate)
    held = layout.tokens * layout.hidden * HALF
    return software.collective_latency_seconds * math.log2(t) + 2 * (t - 1) / t * held / rate


def _embedding(layout: Layout, machine: Machine) -> float:
    """Seconds of the look-up and of its gradient, a table that is zeroed, filled and summed over microbatches."""
    table = layout.vocabulary / layout.tensor * layout.hidden
    return (table + layout.tokens * layout.hidden) * HALF * 4 / machine.memory_rate


def _head(layout: Layout, machine: Machine) -> float:
    """Seconds of the vocabulary product and the loss.

    The product runs once forward and twice backward; the loss makes 8 passes over fp32 logits and 2 in half precision.

    Megatron pads the vocabulary only where it shards it; an unpadded width prevents the fast kernels of the product.
    """
    columns = layout.vocabulary / layout.tensor
    unaligned = layout.tensor == 1 and layout.vocabulary % 8 != 0
    efficiency = machine.software.unaligned_efficiency if unaligned else 1.0
    logits_bytes = layout.tokens * columns * (2 * HALF + 2 * HALF + 8 * 4)
    return (
        3 * _product(machine, layout.tokens, columns, layout.hidden, efficiency=efficiency)
        + logits_bytes / machine.memory_rate
    )


def _send(layout: Layout, machine: Machine) -> float:
    """Seconds to send one activation to the next stage. Across nodes each tensor-parallel device sends its part."""
    held = layout.tokens * layout.hidden * HALF
    per_node = machine.devices_per_node
    if layout.tensor * layout.data >= per_node and layout.devices > per_node:
        part = held / min(layout.tensor, per_node)
        return machine.between_nodes.latency_seconds + part / (machine.network_rate / per_node)
    return held / machine.software.collective_bandwidth


def _disturbance(layout: Layout, machine: Machine) -> float:
    """Factor on the time of a stage: 1 + c · log₂(nodes of the stage) where a node holds at least two of its replicas.

    In the measured runs, layouts with 2 or 4 tensor-parallel devices become slower with the number of nodes, those with
    8 do not. A possible explanation: a replica that fills its nodes has their hosts and adapters for itself; replicas
    that share them delay each other, the slowest one determines the time, and the maximum of k delays with an
    exponential tail grows like log k. On one node the effect is part of the other figures.
    """
    if 2 * layout.tensor > machine.devices_per_node:
        return 1.0
    nodes = max(1.0, layout.tensor * layout.data / machine.devices_per_node)
    return 1.0 + machine.software.shared_node_slowdown * math.log2(nodes)


def _parameters_of_device(layout: Layout) -> float:
    """Parameters of a device of the first stage, which has the embedding."""
    layers = 12 * layout.hidden**2 * (layout.layers // layout.pipeline)
    return (layers + layout.vocabulary * layout.hidden) / layout.tensor


def _gradient_sum(layout: Layout, machine: Machine, parameters: float) -> float:
    """Seconds of the all-reduce of gradients among replicas. Across nodes the rings of a node share its network."""
    d, rate = layout.data, machine.software.collective_bandwidth
    if d == 1:
        return 0.0
    if layout.tensor * d > machine.devices_per_node:
        rate = min(rate, machine.network_rate / min(layout.tensor, machine.devices_per_node))
    return 2 * (d - 1) / d * parameters * HALF / rate


def _tied_embedding(layout: Layout, machine: Machine) -> float:
    """Seconds of the all-reduce of the embedding's gradient between the first and the last stage, which share it."""
    if layout.pipeline == 1:
        return 0.0
    rate = machine.software.collective_bandwidth
    if layout.devices > machine.devices_per_node:
        rate = machine.network_rate / machine.devices_per_node
    return 2 * layout.vocabulary * layout.hidden / layout.tensor * HALF / rate
