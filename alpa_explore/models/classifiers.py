"""Classifiers: an MLP, the smallest model with weights that can usefully be sharded, and Wide-ResNet (arXiv 1605.07146)
as the paper trains it: a bottleneck ResNet whose inner convolutions are wider.

Images are NCHW. Batch norms use batch statistics and keep no running averages, which serve evaluation only: no
decision of a plan depends on them.
"""

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import MLPConfig, WideResNetConfig


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, track_running_stats=False)


def _conv(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias (a batch norm follows) that keeps the image's size up to the stride."""
    return nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1×1 to f channels, 3×3 to f · width_factor, 1×1 to 4 · f, plus the input (projected where the shape changes)."""

    def __init__(self, channels: int, f: int, width_factor: int, stride: int) -> None:
        super().__init__()
        inner = f * width_factor
        self.conv1, self.norm1 = _conv(channels, f, 1), _norm(f)
        self.conv2, self.norm2 = _conv(f, inner, 3, stride), _norm(inner)
        self.conv3, self.norm3 = _conv(inner, 4 * f, 1), _norm(4 * f)
        changes = stride != 1 or channels != 4 * f
        self.projection = nn.Sequential(_conv(channels, 4 * f, 1, stride), _norm(4 * f)) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 4f, H/stride, W/stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return F.relu(y + (x if self.projection is None else self.projection(x)))


class WideResNet(nn.Module):
    """The model with its loss: `forward(images, labels)` is the mean cross-entropy."""

    def __init__(self, config: WideResNetConfig) -> None:
        super().__init__()
        self.conv, self.norm = _conv(3, config.base_channels, 7, stride=2), _norm(config.base_channels)
        channels, stages = config.base_channels, []
        for stage, count in enumerate(config.blocks):
            f, blocks = config.base_channels * 2**stage, []
            for place in range(count):
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(Bottleneck(channels, f, config.width_factor, stride))
                channels = 4 * f
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, config.classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """(N, 3, H, W) and (N,) class numbers -> scalar loss in float32."""
        x = F.relu(self.norm(self.conv(images)))
        x = self.stages(F.max_pool2d(x, kernel_size=3, stride=2, padding=1))
        logits = self.classifier(x.mean(dim=(2, 3)))
        return F.cross_entropy(logits.float(), labels)


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
