"""The plan as PyTorch code: it runs on DTensor, and every device holds what the plan says."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.models.catalog import build
from alpa_explore.plans.export.torch_code import placements, torch_code
from alpa_explore.plans.plan import Plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return ax.plan("gpt-tiny", "2x2:v100", num_microbatches=8, num_layers=2, scheduler="serial")


def module_of(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(torch_code(plan), "plan.py", "exec"), found)
    return found


@pytest.mark.parametrize(
    ("spec", "axes", "expected"),
    [
        ("S0R", 1, (Shard(0),)),
        ("RS1", 2, (Replicate(), Shard(1))),
        ("S01R", 2, (Shard(0), Shard(0))),
        ("S1S0", 2, (Shard(1), Shard(0))),
        ("RR+P0", 2, (Partial(), Replicate())),
        ("S0R+P1", 2, (Shard(0), Partial())),
        ("·", 1, (Replicate(),)),
        ("RR", 0, (Replicate(),)),
    ],
)
def test_a_spec_becomes_a_placement_for_each_mesh_axis(spec: str, axes: int, expected: tuple[object, ...]) -> None:
    names = {"Replicate": Replicate, "Partial": Partial, "Shard": Shard}
    assert eval(placements(spec, axes), names) == expected


def test_placements_stand_beside_the_spec_and_what_it_means(plan: Plan) -> None:
    text = torch_code(plan)
    assert "is a mesh axis, the 0 of Shard(0) a tensor dim" in text
    placed = re.findall(r"^ +(\(.*\)),  # (?:stored|optimizer state|input \d+|output) (\S+): (.*)$", text, re.MULTILINE)
    assert len(placed) > 20
    for written, spec, words in placed:
        assert written == placements(spec, written.count("()") + written.count("Shard("))
        for dim, axis in re.findall(r"dim (\d) over axis (\d)", words):
            assert written.strip("()").split(", ")[int(axis)].startswith(f"Shard({dim}"), (written, spec, words)
    assert ("(Replicate(),)", "R", "whole on every device") in placed or any(w[1] == "RR" for w in placed)


def test_mesh_axes_have_the_names_of_the_figures(plan: Plan) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=plan.cluster.devices)
    try:
        meshes = module_of(plan)["stage_meshes"]("cpu")
    finally:
        dist.destroy_process_group()
    for mesh, stage in zip(meshes, plan.stages, strict=True):
        sizes = [size for size in stage.logical_mesh if size > 1] or [1]
        assert mesh.mesh_dim_names == tuple(f"axis{axis}" for axis in range(len(sizes)))
        assert list(mesh.mesh.shape) == sizes


@pytest.mark.parametrize("rank", [0, 3])
def test_every_device_holds_the_weights_that_the_plan_says(plan: Plan, rank: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    code, (model, _) = module_of(plan), build("gpt-tiny", 1)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=plan.cluster.devices)
    try:
        ((number, held),) = code["distribute"](model, code["stage_meshes"]("cpu")).items()
        stage = plan.stages[number]
        assert rank in stage.devices
        updates = [o for o in stage.operators if o.phase == "update"]
        assert set(held) == {o.name.removeprefix("update_") for o in updates}
        elements = sum(weight.to_local().numel() for weight in held.values())
    finally:
        dist.destroy_process_group()
    kept = sum(o.gradient_bytes + o.optimizer_bytes for o in updates)
    (mask,) = model.buffers()  # which no mesh divides
    assert 2 * elements == pytest.approx(stage.weight_bytes - kept - 2 * mask.numel()), "weights are float16"


def test_of_an_interleaved_plan_a_device_has_several_stages() -> None:
    options = ax.PipelineOptions(schedule="interleaved-1f1b", num_stages=2)
    plan = ax.plan("gpt-tiny", "1x2:v100", num_microbatches=8, num_layers=4, scheduler="serial", pipeline=options)
    code = module_of(plan)
    assert [code["stages_of"](rank) for rank in (0, 1)] == [[0, 2], [1, 3]]
    listed = [name for stage in code["FORWARD"] for name, *_ in stage]
    assert listed == [name for layer in plan.layers for name in layer.operators]


def test_the_code_lists_every_forward_operator_with_its_placements(plan: Plan) -> None:
    found = module_of(plan)
    for stage, listed in zip(plan.stages, found["FORWARD"], strict=True):
        forward = [o for o in stage.operators if o.phase == "forward"]
        assert [name for name, *_ in listed] == [o.name for o in forward]
        assert all(len(reads) == len(o.inputs) for (_, _, reads, _), o in zip(listed, forward, strict=True))
    for (ranks, shape), stage in zip(found["MESHES"], plan.stages, strict=True):
        assert (tuple(ranks), math.prod(shape)) == (stage.devices, len(stage.devices))


def test_a_plan_without_strategies_is_refused_with_the_remedy(plan: Plan) -> None:
    bare = replace(plan, stages=tuple(replace(s, operators=(), tensors=()) for s in plan.stages))
    with pytest.raises(OptionError, match="Plan again"):
        torch_code(bare)


def test_names_of_strangers_stay_text(plan: Plan) -> None:
    hostile = replace(plan, model=replace(plan.model, name='x""" + exit() #\\'))
    assert module_of(hostile)["MESHES"]
