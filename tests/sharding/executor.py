"""Runs an operator under a strategy: shard the inputs, run the steps of each device, recombine the outputs.

It has no knowledge of any operator: everything that a device runs is in the LocalCall.
"""

import itertools

import torch

from alpa_explore.sharding.local.local_call import AllReduce, Reduction, localize
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.tracing.aten import run_operator

OPTIMIZERS = {
    "optimizer.adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "optimizer.adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "optimizer.sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "optimizer.sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


def run(operator, values):
    """One call; an optimizer takes its first step."""
    if operator.kind not in OPTIMIZERS:
        return run_operator(operator, values)
    parameter = torch.nn.Parameter(values[operator.inputs[0]].clone())
    parameter.grad = values[operator.inputs[1]].clone()
    OPTIMIZERS[operator.kind]([parameter]).step()
    return (parameter.detach(),)


def pieces(value, spec, mesh_shape):
    """{coordinate: local tensor}; the addends of a pending sum are random and add up to the value. Replicas are
    equal."""
    shards = {(): value}
    for axis, placement in enumerate(spec):
        size = mesh_shape[axis] if placement != REPLICATE else 1
        shards = {
            (*coordinate, i): part.contiguous()
            for coordinate, piece in shards.items()
            for i, part in enumerate(_parts(piece, placement, size))
        }
    place = [range(size) if p != REPLICATE else [0] * size for size, p in zip(mesh_shape, spec, strict=True)]
    every = itertools.product(*map(range, mesh_shape))
    return {c: shards[tuple(place[axis][i] for axis, i in enumerate(c))] for c in every}


def _parts(piece, placement, size):
    if placement == REPLICATE:
        return [piece]
    if placement == PARTIAL:
        finite = piece[torch.isfinite(piece)]
        # As large as the value itself: with larger addends it would be lost to rounding.
        scale = finite.abs().mean() if finite.numel() else 1.0
        addends = [torch.randn_like(piece) * scale for _ in range(size - 1)]
        return [*addends, piece - sum(addends)]
    assert piece.shape[placement] % size == 0
    return torch.chunk(piece, size, dim=placement) if piece.shape[placement] else [piece] * size


def whole(local, spec, mesh_shape, *, defined=True):
    """The tensor of these shards; replicas must be equal bit for bit (where their values are defined)."""
    for axis in reversed(range(len(mesh_shape))):
        groups = {}
        for coordinate, piece in sorted(local.items()):
            groups.setdefault(coordinate[:axis], []).append(piece)
        if spec[axis] >= 0:
            local = {c: torch.cat(parts, dim=spec[axis]) for c, parts in groups.items()}
        elif spec[axis] == PARTIAL:
            local = {c: sum(parts[1:], parts[0]) for c, parts in groups.items()}
        else:
            for parts in groups.values() if defined else ():
                for part in parts[1:]:
                    torch.testing.assert_close(part, parts[0], rtol=0, atol=0, equal_nan=True)
            local = {c: parts[0] for c, parts in groups.items()}
    return local[()]


def run_locally(calls, inputs, mesh_shape):
    """{coordinate: outputs} of {coordinate: LocalCall} on {coordinate: local inputs}, all devices step by step."""
    values = {c: dict(enumerate(given)) for c, given in inputs.items()}
    (count,) = {len(call.steps) for call in calls.values()}  # a device with more steps would wait for ever
    for number in range(count):
        steps = {c: call.steps[number] for c, call in calls.items()}
        if any(isinstance(step, AllReduce) for step in steps.values()):
            (step,) = set(steps.values())
            all_reduce(step, values)
            continue
        for c, step in steps.items():
            call = calls[c]
            if call.draws is not None:
                torch.manual_seed(hash(tuple(c[axis] for axis in call.draws)))
            values[c].update(zip(step.outputs, run(step, values[c]), strict=True))
    return {c: [values[c][v] for v in call.outputs] for c, call in calls.items()}


def all_reduce(step, values):
    def group(coordinate):
        return tuple(x for axis, x in enumerate(coordinate) if axis not in step.axes)

    combined = {}
    combine = torch.maximum if step.reduction is Reduction.MAXIMUM else torch.add
    for c, known in values.items():
        given = known[step.source]
        combined[group(c)] = combine(combined[group(c)], given) if group(c) in combined else given
    for c, known in values.items():
        known[step.target] = combined[group(c)]


def run_sharded(operator, tensors, values, strategy, mesh_shape, *, defined=True):
    """Outputs of `operator` (its inputs are in `values`, by tensor index) computed shard by shard under `strategy`."""
    cut = [pieces(values[t], spec, mesh_shape) for t, spec in zip(operator.inputs, strategy.inputs, strict=True)]
    coordinates = list(itertools.product(*map(range, mesh_shape)))
    calls = {c: localize(operator, tensors, strategy, mesh_shape, c) for c in coordinates}
    made = run_locally(calls, {c: [piece[c] for piece in cut] for c in coordinates}, mesh_shape)
    return tuple(
        whole({c: made[c][o] for c in coordinates}, spec, mesh_shape, defined=defined)
        for o, spec in enumerate(strategy.outputs)
    )


def assert_equal(value, expected, message):
    """Same shape and dtype, and equal up to the rounding of that dtype."""
    assert (value.shape, value.dtype) == (expected.shape, expected.dtype), message
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(expected.dtype, 2e-2)
    finite = expected[torch.isfinite(expected)] if expected.is_floating_point() else expected.new_zeros(0)
    # Sums cancel: the error is proportional to the largest entries, not to each entry.
    size = float(finite.abs().max()) if finite.numel() else 0.0
    torch.testing.assert_close(
        value, expected, rtol=tolerance, atol=tolerance * (0.1 + size), equal_nan=True, msg=lambda m: f"{message}: {m}"
    )
