"""A plan as PyTorch code: a device mesh for each stage, and the DTensor placements of weights and operators.

A spec such as S0R lists for every tensor dim the mesh axes that divide it; DTensor has a placement for every mesh axis.
So the placement of axis a is `Shard(dim)` where dim is divided over a, `Partial()` where a sum over a is pending, else
`Replicate()`. Several axes that divide one dim are ordered row-major in both. The code says both: the placements, and
the spec with its meaning beside them.
"""

import pprint
import textwrap

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.plans.phrases import logical_mesh_phrase, stage_phrase
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.specs import axis_sizes, spec_phrase
from alpa_explore.plans.report.text import sentence
from alpa_explore.plans.schedule_stages import schedule_stages, schedule_table
from alpa_explore.plans.value import PlanValue
from alpa_explore.sharding.spec import read_spec
from alpa_explore.units import printable

_HEAD = '''"""{title}

{summary}

Start it with torchrun on {devices} devices. Every rank calls `stage_meshes`, then `distribute(model, meshes)`, which
gives it the weights of its own stages as DTensors. Stages run one after the other as a pipeline (see
torch.distributed.pipelining); {batches} microbatches of {samples} samples make an iteration.
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

# S0R, in the notation of the Alpa paper: tensor dim 0 is divided over mesh axis 0, dim 1 is whole. DTensor names the
# tensor dim that each mesh axis divides, so S0R is (Shard(0), Replicate()) on the axes ("axis0", "axis1"): the 0 of S0
# is a mesh axis, the 0 of Shard(0) a tensor dim. +P1, a pending sum over axis 1, is Partial() in the place of "axis1".

'''
_TAIL = '''

def stage_meshes(device_type="cuda"):
    """The device mesh of each stage, with axes "axis0", "axis1", …. Every rank makes all of them, in this order."""
    return [
        DeviceMesh(
            device_type,
            torch.tensor(ranks).reshape(shape),
            mesh_dim_names=tuple(f"axis{axis}" for axis in range(len(shape))),
        )
        for ranks, shape in MESHES
    ]


def stages_of(rank):
    """The stages that a rank runs: one, or several where the schedule interleaves; of DualPipe, one of each of two
    copies of the model, of which the second half of the stages is the second.
    """
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
    stages = plan.interleaved or (schedule_stages(plan, schedule_table(plan)) if plan.costs.copies > 1 else plan.stages)
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
        "# For each stage: the ranks of its devices, and the shape of its logical mesh without axes of one device.\n",
        f"MESHES = {_written([(list(s.devices), axis_sizes(s.logical_mesh) or (1,)) for s in stages])}\n\n",
        "# For each stage: weight -> (placements in which it is stored, placements of its optimizer state).\n",
        "WEIGHTS = [\n",
        *(_weights(stage) for stage in stages),
        "]\n\n",
        "# For each stage, in order: forward operator, its kind, placements of its inputs, and of its outputs.\n",
        "FORWARD = [\n",
        *(_forward(stage) for stage in stages),
        "]\n",
        _TAIL,
    ]
    return "".join(parts)


def placements(spec: str, axes: int) -> str:
    """'S01R+P2' on three axes -> '(Shard(0), Shard(0), Partial())': the placement of each mesh axis."""
    read = read_spec(spec)
    placement = ["Replicate()"] * max(axes, 1)
    for dim, dividing in enumerate(read.dims):
        for axis in dividing:
            placement[axis] = f"Shard({dim})"
    for axis in read.pending:
        placement[axis] = "Partial()"
    return f"({', '.join(placement)}{',' if len(placement) == 1 else ''})"


def _axes(stage: PlanStage) -> int:
    return len(axis_sizes(stage.logical_mesh))


def _placed(spec: str, axes: int, what: str) -> str:
    """The placements of one tensor, and in a comment what it is, its spec, and what the spec means."""
    return f"{placements(spec, axes)},  # {what} {spec}: {spec_phrase(spec)}\n"


def _stored(stage: PlanStage) -> dict[str, str]:
    """Parameter -> the spec in which it is stored between iterations."""
    return {t.name: t.spec for t in stage.tensors if t.role == "weight"}


def _weights(stage: PlanStage) -> str:
    memory = f"{units.bytes_(stage.peak_bytes)} per device"
    lines = [f"    {{  # {stage_phrase(stage)} ({logical_mesh_phrase(stage.logical_mesh)}), {memory}\n"]
    for o in stage.operators:
        if o.phase == "update":
            name = o.name.removeprefix("update_")
            lines += [
                f"        {name!r}: (\n",
                f"            {_placed(_stored(stage)[name], _axes(stage), 'stored')}",
                f"            {_placed(o.output, _axes(stage), 'optimizer state')}",
                "        ),\n",
            ]
    return "".join([*lines, "    },\n"])


def _forward(stage: PlanStage) -> str:
    axes, lines = _axes(stage), [f"    [  # {stage_phrase(stage)}\n"]
    for o in stage.operators:
        if o.phase == "forward":
            lines += [f"        ({o.name!r}, {o.op!r},\n", "            (\n"]
            lines += [f"                {_placed(spec, axes, f'input {i}')}" for i, spec in enumerate(o.inputs)]
            lines += ["            ),\n", "            (\n"]
            lines += [f"                {_placed(spec, axes, 'output')}" for spec in o.outputs]
            lines += ["            ),\n", "        ),\n"]
    return "".join([*lines, "    ],\n"])


def _written(value: object) -> str:
    return pprint.pformat(value, width=116, compact=True)
