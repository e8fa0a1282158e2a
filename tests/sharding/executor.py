"""Runs an operator under a strategy: shard the inputs, run the steps of each device, recombine the outputs.

It has no knowledge of any operator: everything that a device runs is in the LocalCall.
"""

import itertools

import torch

from alpa_explore.sharding.local.local_call import LocalCollective, Reduction, localize
from alpa_explore.sharding.reshard import StepKind
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
    left = {c: list(call.steps) for c, call in calls.items()}
    while any(left.values()):
        for c, call in calls.items():
            while left[c] and not isinstance(left[c][0], LocalCollective):
                step = left[c].pop(0)
                if call.draws is not None:
                    torch.manual_seed(hash(tuple(c[axis] for axis in call.draws)))
                values[c].update(zip(step.outputs, run(step, values[c]), strict=True))
        if any(left.values()):
            (step,) = {steps.pop(0) for steps in left.values()}  # a device with more steps would wait for ever
            exchange(step, values)
    assert len({frozenset(known) for known in values.values()}) == 1, "all devices make the same values"
    return {c: [values[c][v] for v in call.outputs] for c, call in calls.items()}


def exchange(step, values):
    """Run a collective on all devices, group by group."""
    groups = {}
    for c in sorted(values):
        groups.setdefault(tuple(x for axis, x in enumerate(c) if axis not in step.axes), []).append(c)
    for group in groups.values():
        given = [values[c][step.source] for c in group]
        if step.sizes:
            sent, taken = ([values[c][v].tolist() for c in group] for v in step.sizes)
            chunks = [piece.split(sizes) for piece, sizes in zip(given, sent, strict=True)]
            results = [torch.cat(of_device) for of_device in zip(*chunks, strict=True)]
            assert taken == [list(of_device) for of_device in zip(*sent, strict=True)]
        else:
            results = collective(step, given)
        for c, result in zip(group, results, strict=True):
            values[c][step.target] = result


def collective(step, given):
    """The result on each device of a group, by its definition on the whole tensor."""
    count = len(given)
    if step.kind is StepKind.ALL_GATHER:
        return [torch.cat(given, step.joined)] * count
    if step.kind is StepKind.ALL_TO_ALL:
        chunks = [piece.chunk(count, step.cut) for piece in given]
        return [torch.cat(of_device, step.joined) for of_device in zip(*chunks, strict=True)]
    if step.kind is StepKind.PERMUTE:
        chunks = torch.cat(given, step.cut).chunk(len(step.order), step.cut)
        return list(torch.cat([chunks[i] for i in step.order], step.cut).chunk(count, step.cut))
    total = torch.stack(given).amax(0) if step.reduction is Reduction.MAXIMUM else sum(given[1:], given[0])
    return [total] * count if step.kind is StepKind.ALL_REDUCE else list(total.chunk(count, step.cut))


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
