"""The arguments of Megatron-LM that describe a model of the catalogue; of other models they are left to the user."""

from collections.abc import Mapping

from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.catalog import entry, is_reference
from alpa_explore.models.configs import DecoderConfig, GPTConfig, LlamaConfig
from alpa_explore.plans.export.degrees import Limit
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
    missing = Limit(what="The model", instead="MODEL_ARGS is empty: describe it there, as its layers are in the plan")
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
        what="Attention windows, sinks, clamped SwiGLU and biases of GPT-OSS",
        instead="MODEL_ARGS leaves them out: see --window-size, --softmax-type and --activation-func-clamp-value",
    )
    return arguments, (unsaid,)
