"""A plan as a shell script that starts Megatron-LM: `torchrun pretrain_gpt.py` with its arguments.

Names are those of `megatron/training/arguments.py` of megatron-core 0.19.2 (tests/plans/export/names/megatron.json).

What it shares with Megatron-Bridge are the settings of Megatron-Core, by the names of its configs
(`megatron_settings`).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.catalog import entry, is_reference
from alpa_explore.models.configs import DecoderConfig, GPTConfig
from alpa_explore.plans.export.degrees import Limit, Limits, PlanDegrees, PricedAgain, plan_degrees
from alpa_explore.plans.export.exported import Exported, heading
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED, V_SHAPES

_EXCHANGES = {"ring": "p2p", "all-gather": "all_gather", "Ulysses": "a2a"}
_MODULES = {"attention": ("core_attn",), "norms": ("layernorm",)}
_FP8 = {"fp8-delayed": "delayed", "fp8-current": "tensorwise", "mxfp8": "mxfp8"}
_SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage -> the sharding strategy of Megatron-FSDP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronSettings:
    """Fields of `TransformerConfig` and `DistributedDataParallelConfig` that differ from their defaults, and limits."""

    model: dict[str, object]
    ddp: dict[str, object]
    fp8_recipe: str
    """'' for none."""
    nvfp4: bool
    limits: tuple[Limit, ...]


def megatron_settings(degrees: PlanDegrees, *, experts: bool) -> MegatronSettings:
    """The settings; `experts`: the model has routed experts."""
    limits = Limits()
    model: dict[str, object] = {
        "tensor_model_parallel_size": degrees.tensor,
        "pipeline_model_parallel_size": degrees.pipeline,
        "context_parallel_size": degrees.context,
    }
    if degrees.sequence_parallel or (experts and degrees.tensor > 1):
        model["sequence_parallel"] = True
        if not degrees.sequence_parallel:
            limits.note("Tensor parallelism without the sequence", "with it: Megatron-Core asks it of experts")
    if degrees.context > 1:
        model["cp_comm_type"] = _EXCHANGES[degrees.exchange]
        if not degrees.zigzag:
            limits.note("Sequences in their own order", "zig-zag order, as Megatron-Core cuts them")
    if experts:
        model["expert_model_parallel_size"] = degrees.expert
        model["expert_tensor_parallel_size"] = degrees.expert_tensor
    model |= _pipeline(degrees, limits)
    model |= _recomputation(degrees, experts, limits)
    return MegatronSettings(
        model=model,
        ddp=_data_parallel(degrees, limits),
        fp8_recipe=_FP8.get(degrees.low_precision, ""),
        nvfp4=degrees.low_precision == "nvfp4",
        limits=tuple(limits),
    )


def pipeline_layout(blocks: Sequence[Sequence[int]]) -> str:
    """((0, 1), (2,)) -> 'Ett|tL': the blocks of each run, with the embedding in the first and the loss in the last."""
    runs = ["t" * len(run) if len(run) < 4 else f"t*{len(run)}" for run in blocks]
    return "|".join(f"{'E' * (place == 0)}{run}{'L' * (place == len(runs) - 1)}" for place, run in enumerate(runs))


def _pipeline(degrees: PlanDegrees, limits: Limits) -> dict[str, object]:
    if degrees.pipeline == 1:
        return {}
    if degrees.schedule in (*V_SHAPES, DUAL_PIPE, "zb-h1", "gpipe", "eager-1f1b"):
        named = "interleaved 1F1B" if degrees.chunks > 1 else "1F1B"
        limits.note(f"The schedule {degrees.schedule}", f"{named}, with another bubble and memory")
    if degrees.schedule == INTERLEAVED and degrees.microbatches % degrees.pipeline:
        limits.note(
            f"{degrees.microbatches} microbatches for {degrees.pipeline} interleaved stages",
            "Megatron-Core asks for a multiple of the stages: change the global batch",
        )
    if not degrees.blocks:
        limits.note("The blocks of each stage", "divided equally: their number must be a multiple of stages")
    elif not degrees.equal_blocks:
        return {"pipeline_model_parallel_layout": pipeline_layout(degrees.blocks)}
    return {"virtual_pipeline_model_parallel_size": degrees.chunks} if degrees.chunks > 1 else {}


def _data_parallel(degrees: PlanDegrees, limits: Limits) -> dict[str, object]:
    if degrees.zero_stage == 0 or degrees.data * degrees.context == 1:
        return {}
    ddp: dict[str, object] = {
        "use_distributed_optimizer": True,
        "overlap_grad_reduce": True,
        "overlap_param_gather": True,
    }
    if degrees.zero_stage in _SHARDED:
        ddp |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": _SHARDED[degrees.zero_stage]}
    if degrees.replicas > 1:
        ddp["num_distributed_optimizer_instances"] = degrees.replicas
    if degrees.zero_stage == 3 and degrees.pipeline > 1:
        limits.note(
            "Weights that are gathered for each microbatch of a stage",
            "Megatron-FSDP with a pipeline, which gathers as its own buckets do",
        )
    return ddp


def _recomputation(degrees: PlanDegrees, experts: bool, limits: Limits) -> dict[str, object]:
    name = degrees.recomputation
    if name == "none":
        return {}
    runs = [len(run) for run in degrees.blocks]
    of_a_stage = max((sum(runs[p :: degrees.pipeline]) for p in range(degrees.pipeline)), default=0)
    if name == "full" or (name == "layers" and degrees.recomputed_blocks >= of_a_stage):
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if name in ("half", "layers"):
        count = max(degrees.recomputed_blocks // degrees.chunks, 1)
        what = "Every second block is recomputed" if name == "half" else "Some layers of the plan are recomputed"
        limits.note(what, f"the first {count} blocks of each run are")
        return {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": count}
    modules: list[str] = []
    for part in name.split("+"):
        modules += _MODULES.get(part, ("moe" if experts else "mlp",))
    if "norms" in name:
        limits.note("Norms and activations are recomputed", "norms only; see also --recompute-modules moe_act")
    return {"recompute_granularity": "selective", "recompute_modules": tuple(modules)}


Arguments = Mapping[str, str]
"""Name -> its value, '' for a flag."""


def model_arguments(plan: PlanValue) -> tuple[Arguments, tuple[Limit, ...]]:
    """The arguments, and what they do not say. Empty, with a limit, for a model that they cannot describe."""
    config = _config(plan.model.recipe)
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


def _common(config: GPTConfig | DecoderConfig) -> dict[str, str]:
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
    if config.kv_heads != config.heads:
        arguments |= {"group-query-attention": "", "num-query-groups": str(config.kv_heads)}
    if not config.bias:
        arguments["disable-bias-linear"] = ""
    if not config.tied:
        arguments["untie-embeddings-and-output-weights"] = ""
    return arguments


def _decoder(config: DecoderConfig) -> tuple[Arguments, tuple[Limit, ...]]:
    arguments = _common(config)
    arguments |= {"normalization": "RMSNorm", "position-embedding-type": "rope", "swiglu": ""}
    arguments |= {"rotary-base": str(int(config.rope_theta))}
    if config.latent is None and config.kv_heads != config.heads:
        arguments |= {"group-query-attention": "", "num-query-groups": str(config.kv_heads)}
    if not config.tied:
        arguments["untie-embeddings-and-output-weights"] = ""
    experts, latent = config.experts, config.latent
    arguments["ffn-hidden-size"] = str(config.ffn or (experts.ffn if experts else 0))
    if config.bias:
        arguments["add-qkv-bias"] = ""
    else:
        arguments["disable-bias-linear"] = ""
    if config.norm_heads:
        arguments["qk-layernorm"] = ""
    if latent is None and config.head != config.hidden // config.heads:
        arguments["kv-channels"] = str(config.head)
    elif latent is not None:
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
