"""Config -> module and example inputs, on the meta device or with real values."""

from typing import TypeAlias

import torch
from torch import Tensor, nn

from alpa_explore.models.classifiers import MLP, WideResNet
from alpa_explore.models.configs import (
    DecoderConfig,
    DiTConfig,
    GPTConfig,
    HuggingFaceConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
    ViTConfig,
    WideResNetConfig,
)
from alpa_explore.models.decoder import Decoder
from alpa_explore.models.gpt import GPT, FusedGPT
from alpa_explore.models.huggingface import make_huggingface, make_huggingface_inputs
from alpa_explore.models.images import DiT, ViT
from alpa_explore.models.moe import MoETransformer

Inputs: TypeAlias = tuple[Tensor, ...] | dict[str, Tensor]
DIFFUSION_STEPS = 1000
"""Of which one is drawn for each image (github facebookresearch/DiT)."""


def make_module(config: ModelConfig, device: str, seed: int) -> nn.Module:
    """The module of `config` on `device`, its weights drawn from `seed` (none are drawn on the meta device)."""
    with torch.random.fork_rng(devices=()), torch.device(device):
        torch.manual_seed(seed)
        match config:
            case GPTConfig():
                return GPT(config) if config.attention == "spelled-out" else FusedGPT(config)
            case DecoderConfig():
                return Decoder(config)
            case MoEConfig():
                return MoETransformer(config)
            case ViTConfig():
                return ViT(config)
            case DiTConfig():
                return DiT(config)
            case WideResNetConfig():
                return WideResNet(config)
            case MLPConfig():
                return MLP(config)
            case HuggingFaceConfig():
                return make_huggingface(config)


def make_inputs(config: ModelConfig, microbatch: int, device: str, seed: int) -> Inputs:
    """(tokens, targets), (images, labels), (features, labels) or, of DiT, (latents, steps, labels, targets) of one
    microbatch; of a Hugging Face model by the name of the argument. Integers are int64."""
    generator = None if device == "meta" else torch.Generator(device).manual_seed(seed)

    def integers(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, device=device, generator=generator)

    def reals(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    match config:
        case GPTConfig() | DecoderConfig() | MoEConfig():
            shape = (microbatch, config.sequence)
            return integers(config.vocabulary, *shape), integers(config.vocabulary, *shape)
        case DiTConfig():
            latents = reals(microbatch, config.channels, config.image, config.image)
            drawn = integers(DIFFUSION_STEPS, microbatch), integers(config.classes, microbatch)
            return latents, *drawn, reals(microbatch, 2 * config.channels, config.image, config.image)
        case ViTConfig() | WideResNetConfig():
            return reals(microbatch, 3, config.image, config.image), integers(config.classes, microbatch)
        case MLPConfig():
            return reals(microbatch, config.features), integers(config.classes, microbatch)
        case HuggingFaceConfig():
            return make_huggingface_inputs(config, microbatch, (integers, reals))
