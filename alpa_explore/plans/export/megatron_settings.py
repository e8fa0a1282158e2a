"""degrees -> settings of Megatron-Core, by the names of its configs: what Megatron-LM and Megatron-Bridge share."""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.plans.export.degrees import Limit, Limits, PlanDegrees
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
