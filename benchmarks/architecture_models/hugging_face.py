"""Model types of `transformers` with two layers and a small vocabulary, on the meta device; no weights are read.

Configs are those that `transformers` makes by itself, at their own widths.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

SAMPLES, POSITIONS, WORDS = 8, 64, 1024
CAUSAL = (
    "llama qwen2 qwen3 mistral gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neox gptj gpt_neo gpt_bigcode opt bloom "
    "falcon stablelm olmo olmo2 granite cohere cohere2 starcoder2 glm glm4 nemotron helium smollm3 codegen xglm biogpt "
    "persimmon mixtral qwen2_moe qwen3_moe phimoe olmoe deepseek_v2 deepseek_v3 gpt_oss mamba mamba2 falcon_mamba rwkv "
    "jamba recurrent_gemma bamba mpt openai-gpt"
)
MASKED = (
    "bert roberta distilbert electra albert camembert deberta deberta-v2 mobilebert mpnet modernbert fnet "
    "nystromformer big_bird longformer xlm-roberta convbert esm squeezebert roformer megatron-bert"
)
TRANSLATING = "t5 mt5 umt5 bart mbart pegasus marian m2m_100 blenderbot-small led longt5 switch_transformers plbart"
IMAGES = (
    "vit deit beit swin swinv2 convnext convnextv2 resnet regnet efficientnet mobilenet_v2 poolformer pvt dinov2 "
    "segformer levit bit cvt focalnet mobilevit"
)
HEARING = "wav2vec2 hubert wavlm sew unispeech data2vec-audio"
OTHER = "whisper clip siglip llava vit_mae audio-spectrogram-transformer"
NAMES = " ".join((CAUSAL, MASKED, TRANSLATING, IMAGES, HEARING, OTHER)).split()
LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"),
    *("num_decoder_layers", "num_encoder_layers", "depth_decoder_layers", "decoder_num_hidden_layers"),
)
"""Attributes that hold a number of layers, in one config or another."""
GIVEN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "nemotron": {"num_key_value_heads": 48},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "longformer": {"attention_window": [16, 16]},
    "led": {"attention_window": [16, 16]},
    "big_bird": {"attention_type": "original_full"},
    "deepseek_v3": {"first_k_dense_replace": 1},
    "deepseek_v2": {"first_k_dense_replace": 1, "num_experts_per_tok": 6},
    "clip": {"projection_dim": 256},
}
"""What else a config needs at two layers."""


def build(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model of type `name` and one microbatch for it; called under `torch.device("meta")`."""
    config = small(transformers.AutoConfig.for_model(name, **GIVEN.get(name, {})))
    tokens = torch.zeros(SAMPLES, POSITIONS, dtype=torch.int64)
    classes = torch.zeros(SAMPLES, dtype=torch.int64)
    if name in CAUSAL.split():
        return transformers.AutoModelForCausalLM.from_config(config), {"input_ids": tokens, "labels": tokens}
    if name in MASKED.split():
        return transformers.AutoModelForMaskedLM.from_config(config), {"input_ids": tokens, "labels": tokens}
    if name in TRANSLATING.split():
        return transformers.AutoModelForSeq2SeqLM.from_config(config), {"input_ids": tokens, "labels": tokens}
    if name in HEARING.split():
        sound, letters = torch.zeros(SAMPLES, 16000), torch.zeros(SAMPLES, 12, dtype=torch.int64)
        return transformers.AutoModelForCTC.from_config(config), {"input_values": sound, "labels": letters}
    if name == "whisper":
        frames = torch.zeros(SAMPLES, config.num_mel_bins, 2 * config.max_source_positions)
        model = transformers.AutoModelForSpeechSeq2Seq.from_config(config)
        return model, {"input_features": frames, "labels": tokens}
    if name == "llava":
        image = torch.zeros(SAMPLES, 3, config.vision_config.image_size, config.vision_config.image_size)
        patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
        words = torch.zeros(SAMPLES, patches + POSITIONS, dtype=torch.int64)
        model = transformers.AutoModelForImageTextToText.from_config(config)
        return model, {"input_ids": words, "pixel_values": image, "labels": words}
    if name == "audio-spectrogram-transformer":
        frames = torch.zeros(SAMPLES, config.max_length, config.num_mel_bins)
        model = transformers.AutoModelForAudioClassification.from_config(config)
        return model, {"input_values": frames, "labels": classes}
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", None) or 224
    side = side if isinstance(side, int) else side[0]
    images = torch.zeros(SAMPLES, 3, side, side)
    if name in ("clip", "siglip"):
        model = transformers.AutoModel.from_config(config)
        return model, {"input_ids": tokens, "pixel_values": images, "return_loss": True}  # type: ignore[dict-item]  # a flag of the model
    if name == "vit_mae":
        return transformers.AutoModelForPreTraining.from_config(config), {"pixel_values": images}
    config.num_labels = 1000
    if name in ("deit", "levit"):  # types for which `transformers` knows several models
        kind = {"deit": transformers.DeiTForImageClassification, "levit": transformers.LevitForImageClassification}[
            name
        ]
        return kind(config), {"pixel_values": images, "labels": classes}
    return transformers.AutoModelForImageClassification.from_config(config), {"pixel_values": images, "labels": classes}


def small(config: Any) -> Any:
    """`config` with two layers, `WORDS` words and no cache, also in the configs within it."""
    for key in () if hasattr(config, "num_stages") else LAYERS:
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, 2)
    if isinstance(getattr(config, "depths", None), list | tuple):
        config.depths = [min(2, d) for d in config.depths]  # the stages stay
    for key in ("layer_types", "layers_block_type", "mlp_layer_types"):
        kinds = getattr(config, key, None)
        if isinstance(kinds, list) and len(kinds) > 2:
            try:
                setattr(config, key, kinds[:1] + kinds[-1:])
            except AttributeError:  # a property that follows from other attributes
                continue
    for key in ("vocab_size", "decoder_vocab_size"):
        if hasattr(config, key):
            setattr(config, key, WORDS)
    for key in ("pad_token_id", "eos_token_id", "bos_token_id", "image_token_id"):
        if hasattr(config, key):
            setattr(config, key, 0)
    config.decoder_start_token_id, config.use_cache = 0, False
    for key in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    for inner in ("text_config", "vision_config"):
        if getattr(config, inner, None) is not None:
            small(getattr(config, inner))
    return config
