"""Routed experts on a shard: which experts a device holds, and the rows that it sends to others and takes from them.

Where devices along an axis share no tokens and no experts, rows travel to the device that holds their expert and back.
Every device first tells the others how many come (`counts`); the all-to-alls of rows are then as large as they are.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from alpa_explore.graph import Argument, Ref
from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.sharding.local.steps import LocalCall, Shard, StepWriter


def experts(shard: Shard, steps: StepWriter) -> LocalCall:
    """(tokens, chosen, weights, matrices, biases, gate…, first expert, number of all, whether the last bias is added)
    -> (combined, rows, hidden)."""
    held = _Held(shard)
    if not held.group:
        return _alone(shard, steps, held)
    tokens, chosen, weights, *given = steps.arguments[:-3]
    rows, travel = _sent(steps, held, tokens, chosen)
    arrived = travel.go(rows)
    made, rows, hidden = steps.call_all(
        "alpa_explore.experts_computed.default", (arrived, travel.counts, *given, held.last_bias), {}, 3
    )
    combined = held.placed(steps, travel.back(made), chosen, weights)
    return steps.finish([combined, rows, hidden])


def experts_backward(shard: Shard, steps: StepWriter) -> LocalCall:
    """(dy, chosen, weights, rows, hidden, matrices, biases, gate…, …) -> (dtokens, dweights, of matrices, of
    biases)."""
    held = _Held(shard)
    if not held.group:
        return _alone(shard, steps, held)
    gradient, chosen, weights, rows, hidden, *given = steps.arguments[:-3]
    dy, travel = _sent(steps, held, gradient, chosen)
    of_rows = steps.call_all("alpa_explore.experts_sent.default", (weights, chosen, held.firsts, held.own), {}, 3)[0]
    made = steps.call_all(
        "alpa_explore.experts_computed_backward.default",
        (travel.go(dy), travel.go(of_rows), rows, hidden, travel.counts, *given, held.last_bias),
        {},
        len(shard.outputs),
    )
    dtokens = held.placed(steps, travel.back(made[0]), chosen, None)
    dweights = held.placed(steps, travel.back(made[1]), chosen, None, summed=False)
    return steps.finish([dtokens, dweights, *made[2:]])


def _alone(shard: Shard, steps: StepWriter, held: _Held) -> LocalCall:
    """Without exchanges: the operator itself, with its first expert."""
    arguments = (*steps.arguments[:-3], held.first, steps.arguments[-2], held.last_bias)
    return steps.finish(steps.call_all(shard.operator.kind, arguments, {}, len(shard.outputs)))


class _Held:
    """The experts of a device, and of those with which it exchanges rows."""

    def __init__(self, shard: Shard) -> None:
        place = ROUTED[packet(shard.operator.kind)].matrices
        spec = shard.strategy.inputs[place]
        self.own = shard.input_shape(place)[0]
        self.first = shard.block(spec, 0) * self.own
        self.last_bias = not any(c and placement > 0 for c, placement in zip(shard.coordinate, spec, strict=True))
        """Where the inner width is divided, one of the devices adds it."""
        self.group = shard.synced_axes()
        """The axes along which rows travel."""
        sizes = [range(shard.mesh_shape[axis]) for axis in self.group]
        devices = (dict(zip(self.group, places, strict=True)) for places in itertools.product(*sizes))
        coordinates = (tuple(there.get(axis, at) for axis, at in enumerate(shard.coordinate)) for there in devices)
        self.firsts = tuple(replace(shard, coordinate=c).block(spec, 0) * self.own for c in coordinates)
        """The first expert of each device of the group, in the order of its collectives."""

    def placed(self, steps: StepWriter, rows: Ref, chosen: Argument, weights: Argument, *, summed: bool = True) -> Ref:
        return steps.call("alpa_explore.experts_placed.default", rows, chosen, weights, self.firsts, self.own, summed)


class _Travel:
    """All-to-alls of rows, and back."""

    def __init__(self, steps: StepWriter, held: _Held, counts: Ref, sizes: Ref) -> None:
        self._steps, self._axes = steps, held.group
        self.counts = steps.exchange(counts, held.group)
        self._sizes = sizes, steps.call("aten.sum.dim_IntList", self.counts, (1,))

    def go(self, rows: Ref) -> Ref:
        """To the devices that hold the experts."""
        return self._steps.exchange(rows, self._axes, self._sizes)

    def back(self, rows: Ref) -> Ref:
        """To the devices that sent them."""
        return self._steps.exchange(rows, self._axes, self._sizes[::-1])


def _sent(steps: StepWriter, held: _Held, tokens: Argument, chosen: Argument) -> tuple[Ref, _Travel]:
    rows, counts, sizes = steps.call_all(
        "alpa_explore.experts_sent.default", (tokens, chosen, held.firsts, held.own), {}, 3
    )
    return rows, _Travel(steps, held, counts, sizes)
