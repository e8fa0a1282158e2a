"""A classifier of linear layers: the smallest model with weights that can usefully be sharded."""

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import MLPConfig


class MLP(nn.Module):
    """The model with its loss: `forward(features, labels)` is the mean cross-entropy."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        sizes = (config.features, *(config.hidden,) * (config.layers - 1))
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.classifier = nn.Linear(config.hidden, config.classes)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """(N, features) and (N,) class numbers -> scalar loss in float32."""
        for linear in self.hidden:
            features = F.relu(linear(features))
        return F.cross_entropy(self.classifier(features).float(), labels)
