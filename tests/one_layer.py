"""A module of one linear layer, whose subclasses say what its forward pass does with it."""

import torch
from torch import nn


class OneLayer(nn.Module):
    """`layer` has `inner` inputs and `outer` outputs, of a dtype of one's own."""

    def __init__(self, inner: int = 8, outer: int = 8, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer = nn.Linear(inner, outer, dtype=dtype)
