"""What the transformers of images share.

Shape suffixes: B microbatch, S patches, M model (hidden), H heads, D head dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.transformer import init_weights


class ImageAttention(nn.Module):
    """Attention of all patches to all, as one operator; with biases."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.head = hidden // heads
        self.q = nn.Linear(hidden, hidden)
        self.k = nn.Linear(hidden, hidden)
        self.v = nn.Linear(hidden, hidden)
        self.projection = nn.Linear(hidden, hidden)

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        q_BHSD, k_BHSD, v_BHSD = (
            product(x_BSM).unflatten(2, (-1, self.head)).transpose(1, 2) for product in (self.q, self.k, self.v)
        )
        mixed_BHSD = F.scaled_dot_product_attention(q_BHSD, k_BHSD, v_BHSD)
        y_BSM: torch.Tensor = self.projection(mixed_BHSD.transpose(1, 2).flatten(2))
        return y_BSM


def init_image_weights(module: nn.Module) -> None:
    """As `init_weights`; convolutions like linear layers. For `Module.apply`."""
    init_weights(module)
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
