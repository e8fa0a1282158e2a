"""The vision transformer. Shape suffixes: B microbatch, S class token and patches, M model (hidden)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import ViTConfig
from alpa_explore.models.images.blocks import ImageAttention, init_image_weights
from alpa_explore.models.transformer import INITIAL_STD, FeedForward

MLP_RATIO = 4


class ViTBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = ImageAttention(config.hidden, config.heads)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.mlp = FeedForward(config.hidden, MLP_RATIO)

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM))
        y_BSM: torch.Tensor = x_BSM + self.mlp(self.mlp_norm(x_BSM))
        return y_BSM


class ViT(nn.Module):
    """The model with its loss: `forward(images, labels)` is the mean cross-entropy."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.hidden, config.patch, stride=config.patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, config.hidden).normal_(std=INITIAL_STD))
        self.positions = nn.Parameter(torch.empty(config.tokens, config.hidden).normal_(std=INITIAL_STD))
        self.h = nn.ModuleList(ViTBlock(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.classes)
        self.apply(init_image_weights)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(B, 3, height, width) and (B,) -> scalar loss in float32."""
        x_BSM = self.patches(images).flatten(2).transpose(1, 2)
        x_BSM = torch.cat((self.class_token.expand(x_BSM.shape[0], -1, -1), x_BSM), dim=1) + self.positions
        for block in self.h:
            x_BSM = block(x_BSM)
        return F.cross_entropy(self.head(self.final_norm(x_BSM[:, 0])).float(), labels)
