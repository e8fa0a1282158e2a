"""Tiny models of every architecture of the catalogue, and own ones for what the catalogue lacks.

A family is a function without arguments: the recipe `alpa_explore.random_plans.families:NAME` of its plans. It returns
(model, inputs of a microbatch, no loss, number of a microbatch -> its inputs). Sizes are multiples of 2, of 3 or of 4,
so that meshes of 2, 3, 4, 6 and 8 devices divide some dims and not others. Nothing draws random numbers while training.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import (
    DecoderConfig,
    ExpertsConfig,
    GPTConfig,
    LatentConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
    WideResNetConfig,
)
from alpa_explore.models.factory import make_inputs, make_module

Inputs: TypeAlias = tuple[torch.Tensor, ...]
Made: TypeAlias = tuple[nn.Module, Inputs, None, Callable[[int], Inputs]]


def _decoder(**fields: Any) -> DecoderConfig:
    """A block of a decoder of today, small."""
    small: dict[str, Any] = {"family": "tiny", "hidden": 16, "layers": 1, "heads": 4, "kv_heads": 2, "head": 4}
    small |= {"vocabulary": 24, "sequence": 8}
    return DecoderConfig(**(small | fields))


def _of(config: ModelConfig, samples: int) -> Callable[[], Made]:
    """A family of the catalogue's architectures; its weights are drawn under the global seed."""

    def microbatch(number: int) -> Inputs:
        inputs = make_inputs(config, samples, "cpu", number)
        assert isinstance(inputs, tuple), "the architectures here take tensors in order"
        return inputs

    def made() -> Made:
        model: Any = make_module(config, "cpu", int(torch.randint(2**31, ())))
        return model, microbatch(0), None, microbatch

    return made


gpt = _of(GPTConfig(hidden=24, layers=2, heads=6, vocabulary=32, sequence=8, mlp_ratio=2), 4)
"""GPT with spelled-out attention and a tied table, two blocks."""
_FUSED: dict[str, Any] = {"layers": 2, "attention": "fused"}
fused_gpt = _of(GPTConfig(**_FUSED, hidden=16, heads=4, vocabulary=24, sequence=8, ffn=32), 4)
"""GPT with attention as one operator and learned positions, tied."""
_GROUPED: dict[str, Any] = {"kv_heads": 2, "positions": "rotary", "activation": "squared-relu", "bias": False}
grouped_gpt = _of(GPTConfig(**_FUSED, **_GROUPED, hidden=32, heads=8, vocabulary=16, sequence=6, ffn=24, tied=False), 6)
"""Fused GPT with grouped heads, rotary positions and squared ReLU, no biases, an untied head."""
llama = _of(DecoderConfig(hidden=16, layers=2, heads=4, kv_heads=2, ffn=24, vocabulary=24, sequence=8, tied=False), 4)
"""Llama with grouped heads."""
_FUSED_LLAMA: dict[str, Any] = {"layers": 2, "tied": True, "fused_projections": True}
fused_llama = _of(DecoderConfig(**_FUSED_LLAMA, hidden=24, heads=6, kv_heads=3, ffn=36, vocabulary=32, sequence=4), 6)
"""Llama with fused projections and a tied table."""
moe = _of(
    MoEConfig(hidden=16, layers=2, heads=4, experts=4, vocabulary=16, sequence=8, expert_group=16, mlp_ratio=2), 4
)
"""Mixture of experts: a block with experts and one without."""
mixtral = _of(_decoder(experts=ExpertsConfig(count=4, chosen=2, ffn=8)), 4)
"""Routed experts, grouped heads."""
_GROUPS = ExpertsConfig(
    count=8, chosen=2, ffn=8, shared=1, dense_blocks=1, gate="sigmoid", groups=2, chosen_groups=1, scale=2.5
)
_LATENT = LatentConfig(query_rank=8, key_rank=8, rotary=4, plain=4, value=6)
deepseek = _of(_decoder(layers=2, kv_heads=4, head=8, ffn=24, latent=_LATENT, experts=_GROUPS), 4)
"""Latent attention, a dense block, and one of routed experts of two groups, with a shared one."""
_SINKS: dict[str, Any] = {"layers": 2, "window": 4, "sinks": True, "bias": True, "clamped": True}
gpt_oss = _of(_decoder(**_SINKS, experts=ExpertsConfig(count=4, chosen=2, ffn=12)), 4)
"""Attention spelled out, with sinks and a window; clamped experts with biases."""
wide_resnet = _of(WideResNetConfig(layers=8, blocks=(1, 1), base_channels=4, width_factor=2, image=16, classes=12), 8)
"""Convolutions and batch norms."""
mlp = _of(MLPConfig(features=12, hidden=24, layers=4, classes=8), 12)
"""The catalogue's MLP."""


class _TiedMLP(nn.Module):
    """One weight in three layers, a gate, and a loss that is no mean over targets."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.gate, self.out = nn.Linear(16, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 6)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """(N, 16) and (N, 6) -> scalar."""
        for _ in range(3):
            x = torch.tanh(self.shared(x)) * torch.sigmoid(self.gate(x))
        loss: torch.Tensor = (self.out(x) - y).square().mean()
        return loss


def tied_mlp() -> Made:
    """One weight in three layers, so in up to three stages."""

    def microbatch(number: int) -> Inputs:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(8, 16, generator=generator), torch.randn(8, 6, generator=generator)

    return _TiedMLP(), microbatch(0), None, microbatch


class _Scores(nn.Module):
    """A language model's loss in small: shifted targets, ignored ones, weights of classes, and a term beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(12), nn.Linear(12, 24), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """(N, S, 12), (N, S) and (8,) -> scalar."""
        scores = self.second(F.gelu(self.first(self.norm(x))))
        targets = F.pad(labels[:, 1:], (0, 1), value=-100).flatten()
        loss = F.cross_entropy(scores.flatten(0, 1), targets, weight=weight)
        beside: torch.Tensor = scores.square().mean() + scores.logsumexp(-1).mean()
        return loss + 0.1 * beside


def scores() -> Made:
    """A weighted mean loss over targets of which each microbatch ignores another number."""

    def microbatch(number: int) -> Inputs:
        generator = torch.Generator().manual_seed(number)
        labels = torch.randint(8, (4, 6), generator=generator)
        labels = labels.masked_fill(torch.rand(4, 6, generator=generator) < 0.3, -100)
        return torch.randn(4, 6, 12, generator=generator), labels, torch.rand(8, generator=generator) + 0.5

    return _Scores(), microbatch(0), None, microbatch


class _Net(nn.Module):
    """Convolutions with groups and stride, pooling, group norm, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.norm, self.out = nn.GroupNorm(2, 8), nn.Linear(16, 6)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(N, 4, 8, 8) and (N,) -> scalar."""
        x = F.silu(self.first(x))
        x = F.silu(self.norm(self.second(x)))
        pooled = torch.cat([x.mean((2, 3)), F.max_pool2d(x, 4).flatten(1)], 1)
        return F.cross_entropy(self.out(pooled), labels)


def small_net() -> Made:
    """A convolutional net of one's own."""

    def microbatch(number: int) -> Inputs:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(6, 4, 8, 8, generator=generator), torch.randint(6, (6,), generator=generator)

    return _Net(), microbatch(0), None, microbatch


OPTIMIZER_OF: Mapping[str, str] = dict(
    one.split("=")
    for one in """
    gpt=adam fused_gpt=adamw grouped_gpt=sgd llama=adamw fused_llama=adam moe=adam wide_resnet=sgd_momentum mlp=adam
    tied_mlp=sgd_momentum scores=adamw small_net=sgd mixtral=adamw deepseek=adam gpt_oss=adam
    """.split()
)
"""Every family, and the optimizer of its plans."""
SEQUENCES = frozenset(("fused_gpt", "grouped_gpt", "llama", "fused_llama", "mixtral", "deepseek"))
"""Families with attention as one operator, whose plans may divide the sequence in all ways (context parallelism)."""
