"""A plan as a config of torchtitan: a Python function that sets its parallelism, batch and activation checkpointing.

Names are those of torchtitan 0.3.0, whose configs are dataclasses in Python (tests/plans/export/names/torchtitan.json).
"""

from dataclasses import dataclass

from alpa_explore.plans.export.degrees import Limits, PlanDegrees, PricedAgain, plan_degrees
from alpa_explore.plans.export.exported import Exported, heading, note_shards, torch_schedule
from alpa_explore.plans.value import PlanValue


@dataclass(frozen=True, slots=True)
class _Base:
    """A config of torchtitan for a model."""

    room: str
    function: str
    flavor: str


_BASES = {
    "llama-3-8b": _Base("llama3", "llama3_8b", "8B"),
    "llama-3-70b": _Base("llama3", "llama3_70b", "70B"),
    "llama-3.1-405b": _Base("llama3", "llama3_405b", "405B"),
    "qwen3-0.6b": _Base("qwen3", "qwen3_0_6b", "0.6B"),
    "qwen3-1.7b": _Base("qwen3", "qwen3_1_7b", "1.7B"),
    "qwen3-14b": _Base("qwen3", "qwen3_14b", "14B"),
    "qwen3-32b": _Base("qwen3", "qwen3_32b", "32B"),
    "qwen3-30b-a3b": _Base("qwen3", "qwen3_30b_a3b", "30B-A3B"),
    "deepseek-v3": _Base("deepseek_v3", "deepseek_v3_671b", "671B"),
    "gpt-oss-20b": _Base("gpt_oss", "gpt_oss_20b", "20b"),
    "gpt-oss-120b": _Base("gpt_oss", "gpt_oss_120b", "120b"),
}
"""Model of the catalogue -> its config in torchtitan.models."""
_CONVERTERS = {
    "fp8-current": "Float8Linear",
    "fp8-delayed": "Float8Linear",
    "mxfp8": "MXFP8Linear",
    "nvfp4": "NVFP4Linear",
}
_USAGE = (
    "Put it beside torchtitan's configs. `with_plan(config)` sets what the plan decides in any Trainer.Config; "
    "`plan_config()` does so with the config of the model, where torchtitan has one. Start torchtitan.train with "
    "torchrun on all devices.",
)


def torchtitan(plan: PlanValue, again: PricedAgain | None = None) -> Exported:
    """The Python file. OptionError where the plan has no strategies."""
    degrees = plan_degrees(plan, again)
    base = _BASES.get((plan.model.recipe or "").partition("@")[0])
    limits = Limits(degrees.limits)
    parallelism, training = _parallelism(degrees, limits), _batch(degrees)
    policy = _checkpointing(degrees, limits)
    converter = _CONVERTERS.get(degrees.low_precision, "")
    if base is None:
        limits.note("The model", "torchtitan has no config that is known here: give `with_plan` yours")
    if converter:
        _low_precision(degrees, base, limits)
    if degrees.precision == "float16":
        limits.note("float16", "bfloat16 products, float32 weights")
    training["mixed_precision_param"] = "float32" if degrees.precision == "float32" else "bfloat16"
    imports = [f"from torchtitan.distributed.activation_checkpoint import {policy}"] if policy else []
    imports.append("from torchtitan.trainer import Trainer")
    if base is not None:
        imports.insert(0, f"from torchtitan.models.{base.room}.config_registry import {base.function}")
        if converter:
            imports.insert(0, f"from torchtitan.models.{base.room} import model_registry")
            imports.insert(0, f"from torchtitan.components.quantization import {converter}Converter")
    lines = [
        heading(plan, "torchtitan", _USAGE, limits, again),
        *imports,
        f"\nDEVICES = {degrees.devices}  # {degrees.nodes} nodes of {degrees.devices_per_node}\n",
        "\ndef with_plan(config: Trainer.Config) -> Trainer.Config:",
        '    """The config with the layout, batch and activation checkpointing of the plan."""',
        *(f"    config.parallelism.{name} = {_python(value)}" for name, value in parallelism.items()),
        *(f"    config.training.{name} = {_python(value)}" for name, value in training.items()),
        f"    config.activation_checkpoint = {f'{policy}.Config()' if policy else 'None'}",
        "    return config",
    ]
    if base is not None:
        lines += ["\n\ndef plan_config() -> Trainer.Config:", f"    config = with_plan({base.function}())"]
        if converter:
            lines.append("    config.compile.enable = True")
            made = f"{converter}Converter.Config(model_compile_enabled=True)"
            lines.append(f'    config.model_spec = model_registry("{base.flavor}", converters=[{made}])')
        lines.append("    return config")
    text = "\n".join(lines) + "\n"
    return Exported(target="torchtitan", text=text, ending="py", degrees=degrees, limits=tuple(limits))


def _parallelism(degrees: PlanDegrees, limits: Limits) -> dict[str, object]:
    replicate, shard = _data(degrees, limits)
    settings: dict[str, object] = {
        "data_parallel_replicate_degree": replicate,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if degrees.zero_stage == 3 else "never",
        "tensor_parallel_degree": degrees.tensor,
        "enable_sequence_parallel": degrees.sequence_parallel,
        "context_parallel_degree": degrees.context,
        "pipeline_parallel_degree": degrees.pipeline,
        "expert_parallel_degree": degrees.expert,
    }
    if degrees.context > 1:
        settings["context_parallel_load_balancer"] = "headtail" if degrees.zigzag else None
        if degrees.exchange == "Ulysses":
            limits.note("Context parallelism by Ulysses", "keys and values are exchanged whole")
    if degrees.expert > 1 and degrees.expert_tensor > 1:
        limits.note(
            f"Matrices of experts divided among {degrees.expert_tensor} devices",
            "whole experts: torchtitan has no tensor parallelism inside them",
        )
    if degrees.pipeline > 1:
        settings |= _pipeline(degrees, limits)
    return settings


def _data(degrees: PlanDegrees, limits: Limits) -> tuple[int, int]:
    """(replicas, shards) of the data-parallel devices."""
    replicate, shard = (degrees.replicas, degrees.shards) if degrees.zero_stage else (degrees.data, 1)
    if degrees.expert > 1 and shard * degrees.context * degrees.tensor % degrees.expert:
        limits.note("Replicated weights beside divided experts", "all weights are sharded among data-parallel devices")
        replicate, shard = 1, degrees.data
    note_shards(degrees, limits)
    if degrees.zero_stage == 0 and degrees.context > 1:
        limits.note("Weights whole on context parallel devices", "sharded among them by FSDP2")
    return replicate, shard


def _pipeline(degrees: PlanDegrees, limits: Limits) -> dict[str, object]:
    settings: dict[str, object] = {
        "pipeline_parallel_schedule": torch_schedule(degrees, limits),
        "pipeline_parallel_microbatch_size": degrees.microbatch,
    }
    if degrees.blocks:
        runs = [[f"layers.{block}" for block in run] for run in degrees.blocks]
        runs[0].insert(0, "tok_embeddings")
        runs[-1] += ["norm", "lm_head"]
        settings["module_fqns_per_model_part"] = runs
    else:
        limits.note("The blocks of each stage", "divided by torchtitan")
    return settings


def _batch(degrees: PlanDegrees) -> dict[str, object]:
    """Under a pipeline a local batch has all microbatches; else they are steps of gradient accumulation."""
    local = degrees.microbatch * (degrees.microbatches if degrees.pipeline > 1 else 1)
    settings: dict[str, object] = {"local_batch_size": local, "global_batch_size": degrees.global_batch}
    if degrees.sequence:
        settings["seq_len"] = degrees.sequence
    if degrees.pipeline > 1 or degrees.expert > 1:
        settings["disable_cuda_graphs"] = True
    return settings


def _checkpointing(degrees: PlanDegrees, limits: Limits) -> str:
    """The policy; '' for none."""
    name = degrees.recomputation
    if name == "none":
        return ""
    if name == "full":
        return "FullAC"
    policy = "FullAC" if name in ("half", "layers") or "mlp" in name else "SelectiveAC"
    does = "recomputes every block" if policy == "FullAC" else "saves attention and every second product"
    limits.note(f"Recomputation of {name}", f"{policy}, which {does}")
    return policy


def _low_precision(degrees: PlanDegrees, base: _Base | None, limits: Limits) -> None:
    if degrees.low_precision == "fp8-delayed":
        limits.note("FP8 with delayed scaling", "FP8 with scales of rows")
    if degrees.low_precision == "fp8-current":
        limits.note("FP8 with a scale for each tensor", "FP8 with scales of rows")
    if base is None:
        limits.note("Low precision", "add the converter where your config makes its model")


def _python(value: object) -> str:
    if isinstance(value, list) and sum(map(len, value)) > 8:
        rows = "".join(f"        {_python(row)},\n" for row in value)
        return f"[\n{rows}    ]"
    return (
        str(value).replace("'", '"')
        if isinstance(value, list)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
