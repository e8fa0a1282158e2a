"""A plan as a shell script that starts Megatron-LM: `torchrun pretrain_gpt.py` with its arguments.

Names are those of `megatron/training/arguments.py` of megatron-core 0.19.2 (tests/plans/export/names/megatron.json).
"""

import shlex
from collections.abc import Mapping

from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.catalog import entry, is_reference
from alpa_explore.models.configs import DecoderConfig, GPTConfig, LlamaConfig
from alpa_explore.plans.export.degrees import Limit, PlanDegrees, PricedAgain, plan_degrees
from alpa_explore.plans.export.exported import Exported, heading
from alpa_explore.plans.export.megatron_settings import MegatronSettings, megatron_settings
from alpa_explore.plans.value import PlanValue

Arguments = Mapping[str, str]
"""Name -> its value, '' for a flag."""


def model_arguments(plan: PlanValue) -> tuple[Arguments, tuple[Limit, ...]]:
    """The arguments, and what they do not say. Empty, with a limit, for a model that they cannot describe."""
    config = _config(plan.model.recipe)
    if isinstance(config, LlamaConfig):
        return _llama(config), ()
    if isinstance(config, DecoderConfig):
        return _decoder(config)
    if isinstance(config, GPTConfig) and config.positions == "learned":
        return _gpt(config), ()
    missing = Limit("The model", "MODEL_ARGS is empty: describe it there, as its layers are in the plan")
    return {}, (missing,)


def _config(recipe: str | None) -> object:
    if not is_reference(recipe):
        return None
    assert recipe is not None
    try:
        return entry(recipe).config
    except AlpaExploreError:  # a recipe of another version: the plan itself is whole
        return None


def _common(config: GPTConfig | LlamaConfig | DecoderConfig) -> dict[str, str]:
    return {
        "num-layers": str(config.layers),
        "hidden-size": str(config.hidden),
        "num-attention-heads": str(config.heads),
        "seq-length": str(config.sequence),
        "max-position-embeddings": str(config.sequence),
        "tokenizer-type": "NullTokenizer",
        "vocab-size": str(config.vocabulary),
        "attention-dropout": "0.0",
        "hidden-dropout": "0.0",
    }


def _gpt(config: GPTConfig) -> Arguments:
    arguments = {**_common(config), "ffn-hidden-size": str(config.mlp_width)}
    arguments |= {"position-embedding-type": "learned_absolute", "normalization": "LayerNorm"}
    if config.key_heads != config.heads:
        arguments |= {"group-query-attention": "", "num-query-groups": str(config.key_heads)}
    if not config.bias:
        arguments["disable-bias-linear"] = ""
    if not config.tied:
        arguments["untie-embeddings-and-output-weights"] = ""
    return arguments


def _after_llama(config: LlamaConfig | DecoderConfig, key_heads: int) -> dict[str, str]:
    arguments = _common(config)
    arguments |= {"normalization": "RMSNorm", "position-embedding-type": "rope", "swiglu": ""}
    arguments |= {"rotary-base": str(int(config.rope_theta))}
    if key_heads != config.heads:
        arguments |= {"group-query-attention": "", "num-query-groups": str(key_heads)}
    if not config.tied:
        arguments["untie-embeddings-and-output-weights"] = ""
    return arguments


def _llama(config: LlamaConfig) -> Arguments:
    return {**_after_llama(config, config.key_heads), "ffn-hidden-size": str(config.ffn), "disable-bias-linear": ""}


def _decoder(config: DecoderConfig) -> tuple[Arguments, tuple[Limit, ...]]:
    arguments = _after_llama(config, config.kv_heads if config.latent is None else config.heads)
    experts, latent = config.experts, config.latent
    arguments["ffn-hidden-size"] = str(config.ffn or (experts.ffn if experts else 0))
    if config.bias:
        arguments["add-qkv-bias"] = ""
    else:
        arguments["disable-bias-linear"] = ""
    if config.norm_heads:
        arguments["qk-layernorm"] = ""
    if latent is None:
        arguments["kv-channels"] = str(config.head)
    else:
        arguments |= {
            "multi-latent-attention": "",
            "qk-layernorm": "",
            "q-lora-rank": str(latent.query_rank),
            "kv-lora-rank": str(latent.key_rank),
            "qk-head-dim": str(latent.plain),
            "qk-pos-emb-head-dim": str(latent.rotary),
            "v-head-dim": str(latent.value),
        }
    if experts is not None:
        arguments |= {
            "num-experts": str(experts.count),
            "moe-router-topk": str(experts.chosen),
            "moe-ffn-hidden-size": str(experts.ffn),
            "moe-router-load-balancing-type": "none",
            "moe-grouped-gemm": "",
            "moe-token-dispatcher-type": "alltoall",
        }
        if experts.shared:
            arguments["moe-shared-expert-intermediate-size"] = str(experts.shared * experts.ffn)
        if experts.dense_blocks or experts.every > 1:
            turns = "+[1]" if experts.every == 1 else f"+([0]*{experts.every - 1}+[1])"
            periods = (config.layers - experts.dense_blocks) // experts.every
            arguments["moe-layer-freq"] = f"[0]*{experts.dense_blocks}{turns}*{periods}"
        if experts.gate == "sigmoid":
            arguments |= {"moe-router-score-function": "sigmoid", "moe-router-enable-expert-bias": ""}
            arguments |= {"moe-router-topk-scaling-factor": str(experts.scale)}
        if experts.groups > 1:
            arguments |= {"moe-router-num-groups": str(experts.groups)}
            arguments |= {"moe-router-group-topk": str(experts.chosen_groups)}
    if config.window is None and not config.sinks and not config.clamped:
        return arguments, ()
    unsaid = Limit(
        "Attention windows, sinks, clamped SwiGLU and biases of GPT-OSS",
        "MODEL_ARGS leaves them out: see --window-size, --softmax-type and --activation-func-clamp-value",
    )
    return arguments, (unsaid,)


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
