"""A plan as a change of a recipe of NeMo's Megatron-Bridge: a Python function that sets the parallelism of a config.

Names are those of megatron-bridge 0.6.2 and megatron-core 0.19.2 (tests/plans/export/names/megatron_bridge.json).
"""

from alpa_explore.plans.export.degrees import Limit, PlanDegrees, PricedAgain, plan_degrees
from alpa_explore.plans.export.exported import Exported, heading
from alpa_explore.plans.export.megatron import MegatronSettings, megatron_settings
from alpa_explore.plans.value import PlanValue

_RECIPES = {
    "llama-2-7b": ("llama", "llama2_7b_pretrain_config"),
    "llama-3-8b": ("llama", "llama3_8b_pretrain_config"),
    "llama-3-70b": ("llama", "llama3_70b_pretrain_config"),
    "llama-3.1-405b": ("llama", "llama31_405b_pretrain_config"),
    "llama-3.2-1b": ("llama", "llama32_1b_pretrain_config"),
    "llama-3.2-3b": ("llama", "llama32_3b_pretrain_config"),
    "qwen3-0.6b": ("qwen", "qwen3_600m_pretrain_config"),
    "qwen3-1.7b": ("qwen", "qwen3_1p7b_pretrain_config"),
    "qwen3-4b": ("qwen", "qwen3_4b_pretrain_config"),
    "qwen3-8b": ("qwen", "qwen3_8b_pretrain_config"),
    "qwen3-14b": ("qwen", "qwen3_14b_pretrain_config"),
    "qwen3-32b": ("qwen", "qwen3_32b_pretrain_config"),
    "qwen3-30b-a3b": ("qwen", "qwen3_30b_a3b_pretrain_config"),
    "qwen3-235b-a22b": ("qwen", "qwen3_235b_a22b_pretrain_config"),
    "deepseek-v3": ("deepseek", "deepseek_v3_pretrain_config"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b_pretrain_config"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b_pretrain_config"),
}
"""Model of the catalogue -> (room of megatron.bridge.recipes, its recipe)."""
_DTYPES = {"bfloat16": "bf16_mixed", "float16": "fp16_mixed"}
_USAGE = (
    "`with_plan(config)` sets what the plan decides in any ConfigContainer; `plan_config()` does so with the recipe of "
    "the model, where Megatron-Bridge has one. Pass the result to megatron.bridge.training.pretrain.pretrain under "
    "torchrun.",
)


def nemo(plan: PlanValue, again: PricedAgain | None = None) -> Exported:
    """The Python file. OptionError where the plan has no strategies."""
    degrees = plan_degrees(plan, again)
    experts = degrees.expert > 1 or any("experts" in o.op for s in plan.stages for o in s.operators)
    settings = megatron_settings(degrees, experts=experts)
    name = (plan.model.recipe or "").partition("@")[0]
    recipe = _RECIPES.get(name)
    missing = Limit("The model", "Megatron-Bridge has no recipe that is known here: give `with_plan` yours")
    limits = (*degrees.limits, *settings.limits, *(() if recipe else (missing,)))
    imports = ["from megatron.bridge.training.config import ConfigContainer"]
    if recipe:
        imports.insert(0, f"from megatron.bridge.recipes.{recipe[0]} import {recipe[1]}")
    whole = _DTYPES.get(degrees.precision)
    if whole:
        imports.append(f"from megatron.bridge.training.mixed_precision import {whole}")
    lines = [
        heading(plan, "NeMo (Megatron-Bridge)", _USAGE, limits, again),
        *imports,
        f"\nDEVICES = {degrees.devices}  # {degrees.nodes} nodes of {degrees.devices_per_node}\n",
        "\ndef with_plan(config: ConfigContainer) -> ConfigContainer:",
        '    """The config with the layout, batch, recomputation and precision of the plan."""',
        *(f"    {line}" for line in _assignments(degrees, settings, whole)),
        "    return config",
    ]
    if recipe:
        lines += ["\n\ndef plan_config() -> ConfigContainer:", f"    return with_plan({recipe[1]}())"]
    return Exported(target="nemo", text="\n".join(lines) + "\n", ending="py", degrees=degrees, limits=limits)


def _assignments(degrees: PlanDegrees, settings: MegatronSettings, precision: str | None) -> list[str]:
    model: dict[str, object] = {"virtual_pipeline_model_parallel_size": None, "pipeline_model_parallel_layout": None}
    model |= {"sequence_parallel": False, "recompute_granularity": None, "recompute_method": None}
    model |= {"recompute_num_layers": None, "recompute_modules": None, **settings.model}
    lines = [f"config.model.{name} = {_python(value)}" for name, value in model.items()]
    if degrees.sequence:
        lines.append(f"config.model.seq_length = config.dataset.seq_length = {degrees.sequence}")
    lines.append(f"config.train.micro_batch_size = {degrees.microbatch}")
    lines.append(f"config.train.global_batch_size = {degrees.global_batch}")
    ddp: dict[str, object] = {"use_distributed_optimizer": False, "overlap_param_gather": False, **settings.ddp}
    lines += [f"config.ddp.{name} = {_python(value)}" for name, value in ddp.items()]
    lines.append(f"config.optimizer.use_distributed_optimizer = {ddp['use_distributed_optimizer']}")
    if settings.ddp.get("use_megatron_fsdp"):
        lines.append("config.dist.use_megatron_fsdp = True")
        lines.append('config.checkpoint.ckpt_format = "fsdp_dtensor"')
    if precision:
        lines.append(f"config.mixed_precision = {precision}()")
        if settings.fp8_recipe:
            form = "e4m3" if settings.fp8_recipe == "mxfp8" else "hybrid"
            lines.append(f'config.mixed_precision.fp8 = "{form}"')
            lines.append(f'config.mixed_precision.fp8_recipe = "{settings.fp8_recipe}"')
        if settings.nvfp4:
            lines.append('config.mixed_precision.fp4 = "e2m1"')
            lines.append('config.mixed_precision.fp4_recipe = "nvfp4"')
    return lines


def _python(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)).replace("'", '"') if isinstance(value, tuple) else str(value)
