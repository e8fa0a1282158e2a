"""A plan as PyTorch code: a device mesh for each stage, and the DTensor placements of weights and operators.

A spec lists for every tensor dim the mesh axes that divide it; DTensor has a placement for every mesh axis. So axis a
is `Shard(dim)` where dim is divided by a, `Partial()` where a sum over a is pending, else `Replicate()`. Several axes
that divide one dim are ordered row-major in both.
"""

from __future__ import annotations

import pprint
import textwrap

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.plans.printable import printable
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.text import layers_phrase, sentence
from alpa_explore.plans.value import PlanValue

_HEAD = '''"""{title}

{summary}

Start it with torchrun on {devices} devices. Every rank calls `stage_meshes`, then `distribute(model, meshes)`, which
gives it the weights of its own stages as DTensors. Stages run one after the other as a pipeline (see
torch.distributed.pipelining); {batches} microbatches of {samples} samples make an iteration.
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

R, P = Replicate(), Partial()
S0, S1, S2, S3, S4, S5 = (Shard(dim) for dim in range(6))

'''
_TAIL = '''

def stage_meshes(device_type="cuda"):
    """The device mesh of each stage. Every rank makes all of them, in this order."""
    return [DeviceMesh(device_type, torch.tensor(ranks).reshape(shape)) for ranks, shape in MESHES]


def stages_of(rank):
    """The stages that a rank runs: one, or several in turn where the schedule interleaves."""
    return [stage for stage, (ranks, _) in enumerate(MESHES) if rank in ranks]


def distribute(model, meshes, rank=None):
    """Stage -> name -> DTensor for the weights of `rank` (this one), divided as they are stored between iterations.

    Every rank must hold the same `model`: each keeps its own share, nothing is sent.
    """
    return {
        stage: {
            name: distribute_tensor(model.get_parameter(name).detach(), meshes[stage], stored, src_data_rank=None)
            for name, (stored, _) in WEIGHTS[stage].items()
        }
        for stage in stages_of(torch.distributed.get_rank() if rank is None else rank)
    }
'''


def torch_code(plan: PlanValue) -> str:
    """The source of a Python module. OptionError where the plan lacks strategies or the specs of stored weights."""
    stages = plan.interleaved or plan.stages
    for stage in stages:
        updates = {o.name for o in stage.operators if o.phase == "update"}
        if not stage.operators or updates - {f"update_{name}" for name in _stored(stage)}:
            raise OptionError(
                "The plan does not record all strategies and specs",
                found=f"stage {stage.index} without strategies, or a plan file of an earlier version",
                remedy="Plan again: solved problems are cached, so that is quick.",
            )
    head = _HEAD.format(
        title=f"{printable(plan.model.name)} on {printable(str(plan.cluster))}, as alpa_explore planned it.".replace(
            '"', "'"
        ),
        summary=textwrap.fill(printable(sentence(plan)).replace('"', "'"), 118),
        devices=plan.cluster.devices,
        batches=plan.options.num_microbatches,
        samples=plan.model.samples,
    ).replace("\\", "/")
    parts = [
        head,
        "# For each stage: the ranks of its devices, and the shape of its mesh.\n",
        f"MESHES = {_written([(list(s.devices), _shape(s)) for s in stages])}\n\n",
        "# For each stage: weight -> (placements in which it is stored, placements of its optimizer state).\n",
        "WEIGHTS = [\n",
        *(_weights(stage) for stage in stages),
        "]\n\n",
        "# For each stage, in order: forward operator, its kind, placements of its inputs and of its outputs.\n",
        "FORWARD = [\n",
        *(_forward(stage) for stage in stages),
        "]\n",
        _TAIL,
    ]
    return "".join(parts)


def placements(spec: str, axes: int) -> str:
    """'S01R+P2' on three axes -> '(S0, S0, P)': the placement of each mesh axis, as the generated code writes it."""
    whole, _, pending = spec.partition("+P")
    placement = ["R"] * max(axes, 1)
    dim = -1
    for letter in whole:
        if letter in "SR":
            dim += 1
        elif letter.isdecimal():
            placement[int(letter)] = f"S{dim}"
    for letter in pending:
        if letter.isdecimal():
            placement[int(letter)] = "P"
    return f"({', '.join(placement)}{',' if len(placement) == 1 else ''})"


def _shape(stage: PlanStage) -> tuple[int, ...]:
    return tuple(size for size in stage.logical_mesh if size > 1) or (1,)


def _axes(stage: PlanStage) -> int:
    return sum(size > 1 for size in stage.logical_mesh)


def _stored(stage: PlanStage) -> dict[str, str]:
    """Parameter -> the spec in which it is stored between iterations."""
    return {t.name: t.spec for t in stage.tensors if t.role == "weight"}


def _weights(stage: PlanStage) -> str:
    lines = [
        f"    {{  # stage {stage.index}: {layers_phrase(stage.layers)}, {units.bytes_(stage.peak_bytes)} a device\n"
    ]
    for o in stage.operators:
        if o.phase == "update":
            name = o.name.removeprefix("update_")
            stored, state = placements(_stored(stage)[name], _axes(stage)), placements(o.output, _axes(stage))
            lines.append(f"        {name!r}: ({stored}, {state}),\n")
    return "".join([*lines, "    },\n"])


def _forward(stage: PlanStage) -> str:
    axes, lines = _axes(stage), [f"    [  # stage {stage.index}\n"]
    for o in stage.operators:
        if o.phase == "forward":
            reads = "".join(f"{placements(spec, axes)}, " for spec in o.inputs).rstrip()
            makes = "".join(f"{placements(spec, axes)}, " for spec in o.outputs).rstrip()
            lines.append(f"        ({o.name!r}, {o.op!r}, ({reads}), ({makes})),\n")
    return "".join([*lines, "    ],\n"])


def _written(value: object) -> str:
    return pprint.pformat(value, width=116, compact=True)
