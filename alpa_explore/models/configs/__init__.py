"""Hyper-parameters of each model family and its parameter count in closed form; without torch.

    paper     GPT, mixture of experts, Wide-ResNet as in the paper; later GPTs; the MLP of the tests
    decoder   Llama 2 and 3; Qwen3, Mixtral, DeepSeek-V3, GPT-OSS: one config with options
    images    the vision transformer and the diffusion transformer
    huggingface   a config.json of Hugging Face, as text; its parameters are counted by building it

A config with `periods` and `with_periods` consists of equal parts in sequence; one with `sequence` can have another.
"""

from typing import TypeAlias

from alpa_explore.models.configs.decoder import DecoderConfig, ExpertsConfig, LatentConfig
from alpa_explore.models.configs.huggingface import HuggingFaceConfig
from alpa_explore.models.configs.images import DiTConfig, ViTConfig
from alpa_explore.models.configs.paper import GPTConfig, MLPConfig, MoEConfig, WideResNetConfig

ModelConfig: TypeAlias = (
    GPTConfig | DecoderConfig | MoEConfig | ViTConfig | DiTConfig | WideResNetConfig | MLPConfig | HuggingFaceConfig
)

__all__ = [
    "DecoderConfig",
    "DiTConfig",
    "ExpertsConfig",
    "GPTConfig",
    "HuggingFaceConfig",
    "LatentConfig",
    "MLPConfig",
    "MoEConfig",
    "ModelConfig",
    "ViTConfig",
    "WideResNetConfig",
]
