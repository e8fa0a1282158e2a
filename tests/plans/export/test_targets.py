"""Exports to Megatron-LM, Megatron-Bridge and torchtitan: every name is known to its target, and the numbers agree."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import pytest
from torch.distributed.pipelining.schedules import get_schedule_class

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.plans.export.export import TARGETS, export
from alpa_explore.plans.export.megatron import pipeline_layout
from alpa_explore.plans.plan import Plan
from tests.plans.export.targets import assignments, documented, fits, imported, megatron_arguments

_INTERLEAVED = ax.PipelineOptions(schedule="interleaved-1f1b", num_stages=2)
_V = ax.PipelineOptions(schedule="zb-v", num_stages=2)
_ZERO_BUBBLE = ax.PipelineOptions(schedule="zb-h1", num_stages=2)
_TINY: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "data": ("gpt-tiny", "1x2:v100", "data-parallel", {}),
    "zero-1": ("gpt-tiny", "1x2:v100", "zero-1", {"rematerialization": "attention"}),
    "zero-2": ("gpt-tiny", "1x2:v100", "zero-2", {"rematerialization": "norms+mlp"}),
    "fsdp": ("llama-tiny", "1x4:h100", "fsdp", {"rematerialization": "full"}),
    "hsdp": ("llama-tiny", "2x2:h100", "hsdp", {"replicas": 2, "rematerialization": "half"}),
    "megatron": ("llama-tiny", "2x4:h100", "megatron", {"tp": 2, "pp": 2}),
    "fsdp+tp+pp": ("llama-tiny", "2x4:h100", "fsdp+tp+pp", {"tp": 2, "pp": 2, "replicas": 1}),
    "context": ("llama-tiny", "1x4:h100", "megatron", {"tp": 1, "cp": 2, "pp": 1, "exchange": "all-gather"}),
    "experts": ("mixtral-tiny", "1x4:h100", "megatron", {"tp": 2, "ep": 2, "pp": 1}),
    "latent": ("deepseek-tiny", "1x2:h100", "megatron", {"tp": 1, "ep": 2, "pp": 1}),
    "interleaved": ("llama-tiny", "1x2:h100", "", {"pipeline": _INTERLEAVED}),
    "v": ("gpt-tiny", "1x2:v100", "", {"pipeline": _V}),
    "zero bubble": ("gpt-tiny", "1x2:v100", "", {"pipeline": _ZERO_BUBBLE}),
}
_LARGE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "8b": ("llama-3-8b", "1x8:h100", "megatron", {"tp": 4, "pp": 2, "dp": 1, "rematerialization": "full"}),
    "8b fp8": ("llama-3-8b", "1x8:h100", "fsdp", {"precision": "fp8"}),
    "70b": ("llama-3-70b", "8x8:h100", "megatron", {"tp": 8, "pp": 8}),
    "mixtral": ("mixtral-8x7b", "4x8:h100", "megatron", {"tp": 4, "ep": 8, "pp": 1}),
}


@cache
def plan_of(name: str) -> Plan:
    model, cluster, kind, options = {**_TINY, **_LARGE}[name]
    count = {"context": 32, "8b": 128, "70b": 128}.get(name, 4 if name in _TINY else 16)
    layers = 4 if name in _TINY else None
    if not kind:
        return ax.plan(model, cluster, num_microbatches=count, num_layers=layers, scheduler="serial", **options)
    return ax.baseline(model, cluster, kind, num_microbatches=count, num_layers=layers, **options)


every_plan = pytest.mark.parametrize("name", [*_TINY, *(pytest.param(n, marks=pytest.mark.slow) for n in _LARGE)])


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.slow
@every_plan
def test_megatron_knows_every_argument_and_the_numbers_agree(name: str) -> None:
    plan, exported = plan_of(name), export(plan_of(name), "megatron")
    arguments = megatron_arguments(exported.text)

    def number(option: str, default: int = 1) -> int:
        return int(arguments[option][0]) if option in arguments else default

    tensor, pipeline = number("--tensor-model-parallel-size"), number("--pipeline-model-parallel-size")
    context = number("--context-parallel-size")
    data, rest = divmod(plan.cluster.devices, tensor * pipeline * context)
    assert (rest, data) == (0, exported.degrees.data)
    batch, micro = number("--global-batch-size"), number("--micro-batch-size")
    assert batch == plan.global_batch
    assert batch == micro * data * plan.options.num_microbatches
    experts = number("--expert-model-parallel-size") * number("--expert-tensor-parallel-size")
    assert (tensor * context * data) % experts == 0
    if layout := arguments.get("--pipeline-model-parallel-layout"):
        assert layout[0].count("|") + 1 == pipeline * exported.degrees.chunks
    else:
        assert number("--num-layers", pipeline) % (pipeline * exported.degrees.chunks) == 0


@pytest.mark.parametrize("target", ["megatron", "nemo", "torchtitan"])
def test_a_target_trains_the_global_batch_of_the_plan(target: str) -> None:
    plan = plan_of("data")
    (batch,) = re.findall(r"global[-_]batch[-_]size\W+(\d+)", export(plan, target).text)
    assert int(batch) == plan.global_batch > plan.options.num_microbatches


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.slow
@every_plan
def test_megatron_bridge_knows_every_field(name: str) -> None:
    exported = export(plan_of(name), "nemo")
    names = documented("megatron_bridge")
    found = assignments(exported.text)
    for target, value in found.items():
        _, room, field = [*target.split("."), ""][:3]
        if field and (room, field) not in (("model", "seq_length"), ("dataset", "seq_length")):
            assert field in names[room], target
            assert fits(value, names[room][field]), (target, value, names[room][field])
    degrees = [found[f"config.model.{kind}_parallel_size"] for kind in ("tensor_model", "pipeline_model", "context")]
    data = found["config.train.global_batch_size"] // found["config.train.micro_batch_size"]
    data //= plan_of(name).options.num_microbatches
    assert prod(degrees) * data == plan_of(name).cluster.devices
    for function, module in imported(exported.text).items():
        if "recipes" in module:
            assert function in names["recipes"][module]


@pytest.mark.sweep(kept=3, in_turn=True)
@every_plan
def test_torchtitan_knows_every_field_and_its_own_checks_hold(name: str) -> None:
    plan, exported = plan_of(name), export(plan_of(name), "torchtitan")
    names, found = documented("torchtitan"), assignments(exported.text)
    for target, value in found.items():
        _, room, *field = target.split(".")
        if field:
            assert field[0] in names[room], target
            assert fits(value, names[room][field[0]]), (target, value)
    policy = found["config.activation_checkpoint"]
    assert policy is None or policy.removesuffix(".Config()") in names["activation_checkpoint"]
    for function, module in imported(exported.text).items():
        if module.endswith("config_registry"):
            assert function in names["configs"][module.split(".")[2]]

    def degree(kind: str) -> int:
        value = found[f"config.parallelism.{kind}_degree"]
        assert isinstance(value, int)
        return value

    replicas, shards = degree("data_parallel_replicate"), degree("data_parallel_shard")
    tensor, context = degree("tensor_parallel"), degree("context_parallel")
    pipeline = degree("pipeline_parallel")
    assert replicas * shards * tensor * context * pipeline == plan.cluster.devices
    assert (shards * tensor * context) % degree("expert_parallel") == 0
    local, batch = found["config.training.local_batch_size"], found["config.training.global_batch_size"]
    assert batch == plan.global_batch
    assert batch % (local * replicas * shards) == 0
    if pipeline > 1:
        assert local == plan.options.num_microbatches * found["config.parallelism.pipeline_parallel_microbatch_size"]
        get_schedule_class(found["config.parallelism.pipeline_parallel_schedule"])
        runs = found["config.parallelism.module_fqns_per_model_part"]
        assert len(runs) == pipeline * exported.degrees.chunks
        blocks = [name for run in runs for name in run]
        assert blocks[0] == "tok_embeddings"
        assert blocks[-2:] == ["norm", "lm_head"]
        assert blocks[1:-2] == [f"layers.{number}" for number in range(len(blocks) - 3)]


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_expressed_stands_at_the_top_and_is_returned(target: str) -> None:
    exported = export(plan_of("zero bubble"), target)
    top = " ".join(line.removeprefix("#") for line in exported.text.splitlines() if line.startswith("#"))
    assert exported.limits
    for limit in exported.limits:
        assert str(limit) in " ".join(top.split())


def test_a_schedule_that_a_target_lacks_is_a_limit() -> None:
    said = {target: [str(limit) for limit in export(plan_of("zero bubble"), target).limits] for target in TARGETS}
    assert all(any("The schedule zb-h1: 1F1B" in limit for limit in limits) for limits in said.values()), said
    assert not any("schedule" in str(limit) for limit in export(plan_of("interleaved"), "megatron").limits)
    assert '"ZBVZeroBubble"' in export(plan_of("v"), "torchtitan").text


def test_blocks_of_unequal_stages_are_a_layout_of_megatron() -> None:
    assert pipeline_layout([(0, 1), (2, 3, 4, 5), ()]) == "Ett|t*4|L"
    plan = plan_of("megatron")
    assert "--pipeline-model-parallel-layout" not in export(plan, "megatron").text


def test_another_target_and_a_plan_without_strategies_are_refused() -> None:
    with pytest.raises(OptionError, match="megatron"):
        export(plan_of("data"), "megatorn")
    bare = replace(plan_of("data"), stages=tuple(replace(s, operators=()) for s in plan_of("data").stages))
    for target in TARGETS:
        with pytest.raises(OptionError, match="Plan again"):
            export(bare, target)


def test_names_of_a_stranger_stay_in_the_comment() -> None:
    plan = plan_of("data")
    hostile = replace(plan, model=replace(plan.model, name="x\nimport os # $(touch y)", recipe=None))
    for target in TARGETS:
        lines = export(hostile, target).text.splitlines()
        assert not [line for line in lines if "touch" in line and not line.startswith("#")]


@pytest.mark.distributed
def test_bash_passes_the_arguments_on() -> None:
    exported = export(plan_of("experts"), "megatron")
    script = 'torchrun() { printf "%s\\n" "$@"; }\n' + exported.text
    done = subprocess.run(["bash", "-c", script, "x", "--seed", "7"], capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[words.index("pretrain_gpt.py") + 1].startswith("--")
    assert words[-2:] == ["--seed", "7"]
    for option, values in megatron_arguments(exported.text).items():
        place = words.index(option)
        assert words[place + 1 : place + 1 + len(values)] == values
