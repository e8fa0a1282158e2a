"""A plan as a shell script that starts Megatron-LM: `torchrun pretrain_gpt.py` with its arguments.

Names are those of `megatron/training/arguments.py` of megatron-core 0.19.2 (tests/plans/export/names/megatron.json).
"""

import shlex
from collections.abc import Mapping

from alpa_explore.plans.export.degrees import PlanDegrees, PricedAgain, plan_degrees
from alpa_explore.plans.export.exported import Exported, heading
from alpa_explore.plans.export.megatron_model import model_arguments
from alpa_explore.plans.export.megatron_settings import MegatronSettings, megatron_settings
from alpa_explore.plans.value import PlanValue

_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}
_RENAMED = {"virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank"}
"""Fields of the config whose argument has another name."""
_USAGE = (
    "Run it on every node from the folder of Megatron-LM (pretrain_gpt.py), with NODE_RANK and MASTER_ADDR set. It "
    "reads made-up data (--mock-data) until DATA_ARGS names some; further arguments are passed on.",
)
_SCRIPT = """
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS="${{CUDA_DEVICE_MAX_CONNECTIONS:-{connections}}}"

LAUNCH=(
    --nnodes {nodes}
    --nproc-per-node {each}
    --node-rank "${{NODE_RANK:-0}}"
    --master-addr "${{MASTER_ADDR:-127.0.0.1}}"
    --master-port "${{MASTER_PORT:-6000}}"
)
{groups}
torchrun "${{LAUNCH[@]}}" pretrain_gpt.py \\
    "${{MODEL_ARGS[@]}}" "${{PARALLEL_ARGS[@]}}" "${{BATCH_ARGS[@]}}" "${{PRECISION_ARGS[@]}}" "${{DATA_ARGS[@]}}" "$@"
"""


def megatron(plan: PlanValue, again: PricedAgain | None = None) -> Exported:
    """The script. OptionError where the plan has no strategies."""
    degrees = plan_degrees(plan, again)
    described, unsaid = model_arguments(plan)
    experts = degrees.expert > 1 or "num-experts" in described
    settings = megatron_settings(degrees, experts=experts)
    limits = (*degrees.limits, *unsaid, *settings.limits)
    groups = {
        "MODEL_ARGS": described,
        "PARALLEL_ARGS": _parallel(settings),
        "BATCH_ARGS": {"micro-batch-size": str(degrees.microbatch), "global-batch-size": str(degrees.global_batch)},
        "PRECISION_ARGS": _precision(degrees, settings),
        "DATA_ARGS": {"mock-data": "", "train-iters": "10", "lr": "1e-4", "eval-iters": "0"},
    }
    # Megatron-FSDP refuses 1; before Blackwell tensor parallelism overlaps only with 1.
    connections = 8 if settings.ddp.get("use_megatron_fsdp") else 1
    script = _SCRIPT.format(
        connections=connections,
        nodes=degrees.nodes,
        each=degrees.devices_per_node,
        groups="\n".join(_array(name, arguments) for name, arguments in groups.items()),
    )
    text = f"#!/usr/bin/env bash\n{heading(plan, 'Megatron-LM', _USAGE, limits, again)}{script}"
    return Exported(target="megatron", text=text, ending="sh", degrees=degrees, limits=limits)


def _parallel(settings: MegatronSettings) -> dict[str, str]:
    arguments = {_RENAMED.get(name, name.replace("_", "-")): _text(value) for name, value in settings.model.items()}
    arguments |= {name.replace("_", "-"): _text(value) for name, value in settings.ddp.items()}
    if settings.ddp.get("use_megatron_fsdp"):
        arguments["ckpt-format"] = "fsdp_dtensor"
        arguments["no-gradient-accumulation-fusion"] = ""
    return arguments


def _precision(degrees: PlanDegrees, settings: MegatronSettings) -> dict[str, str]:
    dtype = _DTYPES.get(degrees.precision)
    arguments = {dtype: ""} if dtype else {}
    if settings.fp8_recipe:
        arguments |= {"fp8-format": "hybrid" if settings.fp8_recipe != "mxfp8" else "e4m3"}
        arguments |= {"fp8-recipe": settings.fp8_recipe}
    if settings.nvfp4:
        arguments |= {"fp4-format": "e2m1", "fp4-recipe": "nvfp4"}
    return arguments


def _text(value: object) -> str:
    """The words after an argument: none for a flag."""
    if value is True:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _array(name: str, arguments: Mapping[str, str]) -> str:
    """A bash array with an argument a line; words of several values stay apart."""
    lines = [f"    --{key}{_words(key, value)}" for key, value in arguments.items()]
    return "\n".join([f"{name}=(", *lines, ")"])


def _words(key: str, value: str) -> str:
    if not value:
        return ""
    return f" {value}" if key == "recompute-modules" else f" {shlex.quote(value)}"
