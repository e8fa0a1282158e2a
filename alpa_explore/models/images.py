"""Transformers of images: ViT (arXiv 2010.11929), patches -> class, and DiT (arXiv 2212.09748), noised latents, step
and class -> noise and variance.

The loss of DiT is the mean squared error against given noise and variance; the variational bound, by which the paper
trains the variance, is not computed. Unlike there, modulations do not begin at zero: otherwise no gradient reached the
blocks in the first step. Shape suffixes: B microbatch, S patches (and class token), M model (hidden), H heads, D head
dim.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import DiTConfig, ViTConfig
from alpa_explore.models.configs.images import FREQUENCIES
from alpa_explore.models.transformer import INITIAL_STD, Block, FeedForward, init_weights


class ImageAttention(nn.Module):
    """Attention of all patches to all, as one operator; with biases."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.head = hidden // heads
        self.q = nn.Linear(hidden, hidden)
        self.k = nn.Linear(hidden, hidden)
        self.v = nn.Linear(hidden, hidden)
        self.projection = nn.Linear(hidden, hidden)

    def forward(self, x_BSM: Tensor) -> Tensor:
        """(B, S, M) -> (B, S, M)."""
        q_BHSD, k_BHSD, v_BHSD = (
            product(x_BSM).unflatten(2, (-1, self.head)).transpose(1, 2) for product in (self.q, self.k, self.v)
        )
        mixed_BHSD = F.scaled_dot_product_attention(q_BHSD, k_BHSD, v_BHSD)
        y_BSM: Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return y_BSM


def init_image_weights(module: nn.Module) -> None:
    """As `init_weights`; convolutions like linear layers. For `Module.apply`."""
    init_weights(module)
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
        assert module.bias is not None
        nn.init.zeros_(module.bias)


MLP_RATIO = 4


def _block(config: ViTConfig) -> Block:
    attention = ImageAttention(config.hidden, config.heads)
    return Block(partial(nn.LayerNorm, config.hidden), attention, FeedForward(config.hidden, MLP_RATIO))


class ViT(nn.Module):
    """The model with its loss: `forward(images, labels)` is the mean cross-entropy."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.hidden, config.patch, stride=config.patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, config.hidden).normal_(std=INITIAL_STD))
        self.positions = nn.Parameter(torch.empty(config.tokens, config.hidden).normal_(std=INITIAL_STD))
        self.h = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.classes)
        self.apply(init_image_weights)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """(B, 3, height, width) and (B,) -> scalar loss in float32."""
        x_BSM = self.patches(images).flatten(2).transpose(1, 2)
        x_BSM = torch.cat((self.class_token.expand(x_BSM.shape[0], -1, -1), x_BSM), dim=1) + self.positions
        for block in self.h:
            x_BSM = block(x_BSM)
        return F.cross_entropy(self.head(self.final_norm(x_BSM[:, 0])).float(), labels)


LONGEST_PERIOD = 10_000.0
"""Of the sines that encode steps and positions."""


def _modulated(x_BSM: Tensor, shift_BM: Tensor, scale_BM: Tensor) -> Tensor:
    return x_BSM * (1 + scale_BM.unsqueeze(1)) + shift_BM.unsqueeze(1)


def _waves(places: Tensor, count: int) -> Tensor:
    """(n,) -> (n, count): cosines, then sines, of place · 10,000^(−2i / count)."""
    half = count // 2
    frequencies = torch.exp(-math.log(LONGEST_PERIOD) / half * torch.arange(half, device=places.device))
    angles = places.float().unsqueeze(1) * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=1)


class DiTBlock(nn.Module):
    """x + gate · attention(modulated norm(x)), then the same with the MLP; step and class make the six modulations."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden, elementwise_affine=False)
        self.attention = ImageAttention(config.hidden, config.heads)
        self.mlp_norm = nn.LayerNorm(config.hidden, elementwise_affine=False)
        self.mlp = FeedForward(config.hidden, MLP_RATIO)
        self.modulation = nn.Linear(config.hidden, 6 * config.hidden)

    def forward(self, x_BSM: Tensor, condition_BM: Tensor) -> Tensor:
        """(B, S, M), (B, M) -> (B, S, M)."""
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.modulation(condition_BM).chunk(6, dim=1)
        mixed_BSM = self.attention(_modulated(self.attention_norm(x_BSM), shift, scale))
        x_BSM = x_BSM + gate.unsqueeze(1) * mixed_BSM
        y_BSM: Tensor = x_BSM + mlp_gate.unsqueeze(1) * self.mlp(_modulated(self.mlp_norm(x_BSM), mlp_shift, mlp_scale))
        return y_BSM


class DiT(nn.Module):
    """The model with its loss: `forward(latents, steps, labels, targets)` is the mean squared error."""

    positions: Tensor

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.patches = nn.Conv2d(config.channels, hidden, config.patch, stride=config.patch)
        self.step = nn.Sequential(nn.Linear(FREQUENCIES, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.labels = nn.Embedding(config.classes + 1, hidden)
        side = torch.arange(config.image // config.patch)
        rows, columns = torch.meshgrid(side, side, indexing="ij")
        halves = [_waves(places.flatten(), hidden // 2) for places in (rows, columns)]
        self.register_buffer("positions", torch.cat(halves, dim=1), persistent=False)
        self.h = nn.ModuleList(DiTBlock(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.final_modulation = nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, config.patch**2 * 2 * config.channels)
        self.patch, self.side = config.patch, config.image // config.patch
        self.apply(init_image_weights)

    def forward(self, latents: Tensor, steps: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
        """(B, C, height, width), (B,), (B,), (B, 2 C, height, width) -> scalar loss in float32."""
        x_BSM = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        condition_BM = F.silu(self.step(_waves(steps, FREQUENCIES).to(x_BSM.dtype)) + self.labels(labels))
        for block in self.h:
            x_BSM = block(x_BSM, condition_BM)
        shift, scale = self.final_modulation(condition_BM).chunk(2, dim=1)
        out = self.out(_modulated(self.final_norm(x_BSM), shift, scale))
        images = out.unflatten(2, (self.patch, self.patch, -1)).unflatten(1, (self.side, self.side))
        made = images.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)
        return F.mse_loss(made.float(), targets.float())
