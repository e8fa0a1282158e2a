"""A synthetic joint graph of a deep transformer as a sharding problem, for timing: plausible costs, not real ones.

A block has attention and a two-layer MLP, forward and backward, with weight, accumulator and update nodes for every
parameter (about 115 nodes). A placement per mesh axis is R, S0, S1, S2 or P (pending sum); an operator has a few legal
rows (inputs → output) per axis, and a strategy is one row for each of the two axes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.numerics.arrays import Floats

R, S0, S1, S2, P = range(5)
AXES = (8, 8)
SECONDS_PER_BYTE = (1 / 25e9, 1 / 150e9)
HIDDEN, TOKENS = 2048, 8192
ACTIVATION = TOKENS * HIDDEN * 2.0

Rows = tuple[tuple[tuple[int, ...], int], ...]
Backward = Callable[[int], int]
"""Adds the backward operators of a part of the model: gradient of its output -> gradient of its input."""
SAME: Rows = tuple(((p,), p) for p in (R, S0, S1, S2))
LINEAR: Rows = (*SAME, ((P,), P))
ADD: Rows = tuple(((p, p), p) for p in (R, S0, S1, S2, P))
BOTH: Rows = tuple(((p, p), p) for p in (R, S0, S1, S2))
NORM: Rows = (((R, R), R), ((S0, R), S0), ((S1, R), S1))
SCALE: Rows = (*NORM, ((S2, S0), S2))
MATMUL: Rows = (((S0, R), S0), ((S1, R), S1), ((R, S1), S2), ((S2, S0), P))
MATMUL_T: Rows = (((S0, R), S0), ((S1, R), S1), ((R, S0), S2), ((S2, S1), P))
WEIGHT_GRAD: Rows = (((S0, S0), P), ((S1, S1), P), ((S2, R), S0), ((R, S2), S1))
BIAS_GRAD: Rows = (((R,), R), ((S0,), P), ((S1,), P), ((S2,), S0))
ATTENTION: Rows = (((S0, S0), S0), ((S2, S2), S2), ((S1, R), S1))
FREE: Rows = (((), R), ((), S0), ((), S1))
ANY: Rows = (((), R), ((), S0), ((), S1), ((), S2))


class _Builder:
    def __init__(self) -> None:
        self.costs: list[Floats] = []
        self.outputs: list[list[tuple[int, int]]] = []
        self.bytes: list[float] = []
        self.edges: list[tuple[int, int]] = []
        self.matrices: list[Floats] = []
        self.tables: dict[tuple[object, ...], Floats] = {}

    def node(self, rows: Rows, inputs: tuple[int, ...], size: float, seconds: float = 0.0) -> int:
        strategies = list(product(rows, repeat=2))
        # An axis splits the work of an operator when it splits any operand.
        split = [
            np.prod([n for n, row in zip(AXES, pair, strict=True) if set(row[0]) | {row[1]} != {R}])
            for pair in strategies
        ]
        self.costs.append(seconds / np.array(split) + 2e-6)
        self.outputs.append([(x[1], y[1]) for x, y in strategies])
        self.bytes.append(size)
        node = len(self.costs) - 1
        for place, source in enumerate(inputs):
            placements = [(x[0][place], y[0][place]) for x, y in strategies]
            self.connect(source, node, placements)
        return node

    def connect(self, source: int, reader: int, placements: list[tuple[int, int]]) -> None:
        key = (tuple(self.outputs[source]), tuple(placements), self.bytes[source])
        if key not in self.tables:
            self.tables[key] = np.array(
                [[_reshard(a, b, self.bytes[source]) for b in placements] for a in self.outputs[source]]
            )
        self.edges.append((source, reader))
        self.matrices.append(self.tables[key])


def chain_of_blocks(blocks: int) -> ShardingProblem:
    """The problem for `blocks` transformer blocks."""
    b = _Builder()
    x = b.node(ANY, (), ACTIVATION)
    matmul = 2.0 * TOKENS * HIDDEN * HIDDEN / 1e14
    touch = 3 * ACTIVATION / 1e12
    backward_steps: list[Backward] = []
    for _ in range(blocks):
        x = _block(b, x, matmul, touch, backward_steps)
    grad = b.node(SAME, (x,), ACTIVATION, touch)
    for step in reversed(backward_steps):
        grad = step(grad)
    return ShardingProblem(
        name=f"chain of {blocks} blocks", node_costs=tuple(b.costs), edges=tuple(b.edges), edge_costs=tuple(b.matrices)
    )


def _block(b: _Builder, x: int, matmul: float, touch: float, backward_steps: list[Backward]) -> int:
    def parameter(size: float) -> int:
        return b.node(FREE, (), size)

    def update(weight: int, gradient: int) -> None:
        accumulator = b.node((*FREE, ((), P)), (), b.bytes[weight])
        b.connect(gradient, accumulator, b.outputs[accumulator])
        step = b.node(tuple(((p, p), p) for p in (R, S0, S1)), (accumulator, weight), b.bytes[weight], 1e-5)
        b.connect(step, weight, b.outputs[weight])

    weights = HIDDEN * HIDDEN * 2.0

    def linear(value: int, wide: int) -> tuple[int, Backward]:
        weight, bias = parameter(weights * wide), parameter(HIDDEN * 2.0)
        view = b.node(LINEAR, (weight,), weights * wide)
        product_ = b.node(MATMUL, (value, view), ACTIVATION * wide, matmul * wide)
        out = b.node(SCALE, (product_, bias), ACTIVATION * wide, touch)

        def back(grad: int) -> int:
            update(bias, b.node(BIAS_GRAD, (grad,), HIDDEN * 2.0, touch))
            update(weight, b.node(WEIGHT_GRAD, (value, grad), weights * wide, matmul * wide))
            back_view = b.node(LINEAR, (weight,), weights * wide)
            return b.node(MATMUL_T, (grad, back_view), ACTIVATION, matmul * wide)

        return out, back

    def norm(value: int) -> tuple[int, Backward]:
        gain = parameter(HIDDEN * 2.0)
        out = b.node(NORM, (value, gain), ACTIVATION, touch)

        def back(grad: int) -> int:
            update(gain, b.node(BIAS_GRAD, (grad,), HIDDEN * 2.0, touch))
            scaled = b.node(NORM, (grad, gain), ACTIVATION, touch)
            return b.node(tuple(((p, p), p) for p in (R, S0, S1)), (scaled, value), ACTIVATION, touch)

        return out, back

    n1, back_n1 = norm(x)
    qkv, back_qkv = linear(n1, 3)
    q, k, v = (b.node(LINEAR, (b.node(LINEAR, (qkv,), ACTIVATION),), ACTIVATION) for _ in range(3))
    scores = b.node(ATTENTION, (q, k), 4 * ACTIVATION, matmul)
    soft = b.node(tuple(((p,), p) for p in (R, S0, S1, S2)), (scores,), 4 * ACTIVATION, 4 * touch)
    mixed = b.node(ATTENTION, (soft, v), ACTIVATION, matmul)
    merged = b.node(LINEAR, (mixed,), ACTIVATION)
    out, back_out = linear(merged, 1)
    y = b.node(ADD, (x, out), ACTIVATION, touch)
    n2, back_n2 = norm(y)
    up, back_up = linear(n2, 4)
    active = b.node(SAME, (up,), 4 * ACTIVATION, 4 * touch)
    down, back_down = linear(active, 4)
    z = b.node(ADD, (y, down), ACTIVATION, touch)

    def back(grad: int) -> int:
        g = back_down(grad)
        g = b.node(BOTH, (g, up), 4 * ACTIVATION, 4 * touch)
        grad = b.node(ADD, (grad, back_n2(back_up(g))), ACTIVATION, touch)
        g = b.node(LINEAR, (back_out(grad),), ACTIVATION)
        gv = b.node(ATTENTION, (soft, g), ACTIVATION, matmul)
        gs = b.node(ATTENTION, (g, v), 4 * ACTIVATION, matmul)
        gs = b.node(BOTH, (gs, soft), 4 * ACTIVATION, 4 * touch)
        gq, gk = b.node(ATTENTION, (gs, k), ACTIVATION, matmul), b.node(ATTENTION, (gs, q), ACTIVATION, matmul)
        views = [b.node(LINEAR, (part,), ACTIVATION) for part in (gq, gk, gv)]
        joined = b.node(ADD, (b.node(ADD, (views[0], views[1]), ACTIVATION), views[2]), 3 * ACTIVATION, touch)
        return b.node(ADD, (grad, back_n1(back_qkv(joined))), ACTIVATION, touch)

    backward_steps.append(back)
    return z


def _reshard(a: tuple[int, int], b: tuple[int, int], size: float) -> float:
    seconds = 0.0
    for axis, (source, target) in enumerate(zip(a, b, strict=True)):
        other = a[1 - axis]
        local = size / (AXES[1 - axis] if other in (S0, S1, S2) else 1)
        moved = local * SECONDS_PER_BYTE[axis] * (AXES[axis] - 1) / AXES[axis]
        if source == target or (source == R and target != P):
            continue
        if target == P:
            return FORBIDDEN
        if source == P:
            seconds += 2e-5 + moved * (2 if target == R else 1)
        elif target == R:
            seconds += 1e-5 + moved
        else:
            seconds += 1e-5 + moved / AXES[axis]
    return seconds
