"""Runs an operator the way its strategy says: pieces, local calls, sums over axes, recombination."""

import itertools

import torch

from alpa_explore.sharding.local import Recipe, localize
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.tracing.aten import flatten_outputs, overload, run_operator, to_torch


def pieces(value, spec, mesh_shape):
    """{coordinate: local tensor}; the addends of a pending sum are random and add up to the value."""
    found = {(): value}
    for axis, placement in enumerate(spec):
        after = {}
        for coordinate, piece in found.items():
            size = mesh_shape[axis]
            if placement >= 0:
                parts = torch.chunk(piece, size, dim=placement)
            elif placement == PARTIAL:
                # As large as the value itself: larger addends would drown it in rounding.
                scale = piece[torch.isfinite(piece)].abs().mean()
                parts = [torch.randn_like(piece) * scale for _ in range(size - 1)]
                parts.append(piece - sum(parts))
            else:
                parts = [piece] * size
            after.update({(*coordinate, i): part.contiguous() for i, part in enumerate(parts)})
        found = after
    return found


def whole(local, spec, mesh_shape):
    """The tensor that the pieces stand for; replicas must agree."""
    for axis in reversed(range(len(mesh_shape))):
        groups = {}
        for coordinate, piece in local.items():
            groups.setdefault(coordinate[:axis], []).append(piece)
        if spec[axis] >= 0:
            local = {c: torch.cat(parts, dim=spec[axis]) for c, parts in groups.items()}
        elif spec[axis] == PARTIAL:
            local = {c: sum(parts[1:], parts[0]) for c, parts in groups.items()}
        else:
            for parts in groups.values():
                for part in parts[1:]:
                    torch.testing.assert_close(part, parts[0], rtol=1e-3, atol=1e-4, equal_nan=True)
            local = {c: parts[0] for c, parts in groups.items()}
    return local[()]


def run_sharded(operator, tensors, values, strategy, mesh_shape):
    """Outputs of `operator` computed piece by piece under `strategy`."""
    cut = [pieces(values[t], spec, mesh_shape) for t, spec in zip(operator.inputs, strategy.inputs, strict=True)]
    coordinates = list(itertools.product(*map(range, mesh_shape)))
    calls = {c: localize(operator, tensors, strategy, mesh_shape, c) for c in coordinates}
    local = {c: [piece[c] for piece in cut] for c in coordinates}
    recipe = calls[coordinates[0]].recipe
    if recipe in (Recipe.CALL, Recipe.MASKED_LOOKUP, Recipe.MASKED_SCATTER):
        made = {c: _call(calls[c], local[c]) for c in coordinates}
    else:
        made = _with_sums(recipe, calls, local, mesh_shape)
    return tuple(
        whole({c: made[c][o] for c in coordinates}, spec, mesh_shape) for o, spec in enumerate(strategy.outputs)
    )


def _call(call, inputs):
    operator = call.operator
    inputs = [torch.zeros_like(t) if i in call.zeroed else t for i, t in enumerate(inputs)]
    if call.recipe is Recipe.MASKED_LOOKUP:
        table, indices = inputs
        mine = (indices >= call.first_row) & (indices < call.first_row + call.rows)
        found = table[torch.where(mine, indices - call.first_row, 0)]
        return (found * mine.unsqueeze(-1),)
    if call.recipe is Recipe.MASKED_SCATTER:
        gradient, indices = inputs
        mine = (indices >= call.first_row) & (indices < call.first_row + call.rows)
        padding = operator.arguments[3]
        mine &= indices != padding
        rows = torch.where(mine, indices - call.first_row, 0).flatten()
        made = torch.zeros(call.rows, gradient.shape[-1], dtype=gradient.dtype)
        return (made.index_add(0, rows, (gradient * mine.unsqueeze(-1)).flatten(0, -2)),)
    named = dict(zip(operator.inputs, inputs, strict=True))
    return run_operator(operator, named)


def _summed(values, axes, mesh_shape):
    """All-reduce of {coordinate: tensor} over `axes`."""
    groups = {}
    for coordinate, value in values.items():
        rest = tuple(x for a, x in enumerate(coordinate) if a not in axes)
        groups[rest] = groups.get(rest, 0) + value
    return {c: groups[tuple(x for a, x in enumerate(c) if a not in axes)] for c in values}


def _with_sums(recipe, calls, local, mesh_shape):
    first = next(iter(calls.values()))
    axes = first.axes
    if recipe is Recipe.GLOBAL_NLL:
        made = {}
        for c, call in calls.items():
            arguments = [
                to_torch(a, dict(zip(call.operator.inputs, local[c], strict=True))) for a in call.operator.arguments
            ]
            arguments[3] = 2  # sum
            made[c] = flatten_outputs(overload(call.operator.kind)(*arguments))
        weight = _summed({c: m[1] for c, m in made.items()}, axes, mesh_shape)
        mean = first.operator.arguments[3] == 1
        return {c: (m[0] / weight[c] if mean else m[0], weight[c]) for c, m in made.items()}
    if recipe is Recipe.GLOBAL_BATCH_NORM:
        eps = first.operator.arguments[-1]
        x = {c: t[0] for c, t in local.items()}
        dims = [d for d in range(next(iter(x.values())).dim()) if d != 1]
        count = _summed({c: torch.tensor(float(v.numel() // v.shape[1])) for c, v in x.items()}, axes, mesh_shape)
        total = _summed({c: v.sum(dims) for c, v in x.items()}, axes, mesh_shape)
        square = _summed({c: v.square().sum(dims) for c, v in x.items()}, axes, mesh_shape)
        made = {}
        for c, v in x.items():
            mean = total[c] / count[c]
            rstd = (square[c] / count[c] - mean.square() + eps).rsqrt()
            shape = [1, -1] + [1] * (v.dim() - 2)
            y = (v - mean.view(shape)) * rstd.view(shape)
            vectors = local[c][1:3]
            if len(vectors) == 2:
                y = y * vectors[0].view(shape) + vectors[1].view(shape)
            made[c] = (y, mean, rstd)
        return made
    assert recipe is Recipe.GLOBAL_BATCH_NORM_BACKWARD
    made = {}
    refs = list(first.operator.arguments[2:7])
    places = {}
    position = 2
    for name, given in zip(("weight", "running_mean", "running_var", "mean", "rstd"), refs, strict=True):
        if given is not None:
            places[name] = position
            position += 1
    dy = {c: t[0] for c, t in local.items()}
    x = {c: t[1] for c, t in local.items()}
    dims = [d for d in range(next(iter(x.values())).dim()) if d != 1]
    shape = [1, -1] + [1] * (len(dims) - 1)
    hat = {c: (v - local[c][places["mean"]].view(shape)) * local[c][places["rstd"]].view(shape) for c, v in x.items()}
    count = _summed({c: torch.tensor(float(v.numel() // v.shape[1])) for c, v in x.items()}, axes, mesh_shape)
    bias = _summed({c: v.sum(dims) for c, v in dy.items()}, axes, mesh_shape)
    weight = _summed({c: (v * hat[c]).sum(dims) for c, v in dy.items()}, axes, mesh_shape)
    mask = first.operator.arguments[9]
    for c, v in dy.items():
        scale = local[c][places["rstd"]].view(shape)
        if "weight" in places:
            scale = scale * local[c][places["weight"]].view(shape)
        centred = v - bias[c].view(shape) / count[c] - hat[c] * weight[c].view(shape) / count[c]
        every = (scale * centred, weight[c], bias[c])
        made[c] = tuple(t for t, wanted in zip(every, mask, strict=True) if wanted)
    return made
