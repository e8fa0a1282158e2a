"""Models of images, volumes and point clouds; all take their targets and return their loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES, SIDE, CLASSES = 16, 64, 1000


class Classifier(nn.Module):
    """Any body that gives one vector a sample, and a linear head."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.body(images)), labels)


class MixerBlock(nn.Module):
    """Mixing over patches, then over channels (MLP-Mixer, Tolstikhin 2021)."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.over_patches = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.over_channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


class Mixer(nn.Module):
    """Patches, mixer blocks, the mean of the patches."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(*(MixerBlock((SIDE // 8) ** 2, width) for _ in range(2)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.patches(images).flatten(2).transpose(1, 2)).mean(1)


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, norm over channels, two products (Liu 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    """Convolutions down and up with the skips between them (Ronneberger 2015); a class for each pixel."""

    def __init__(self, dims: int = 2, width: int = 32) -> None:
        super().__init__()
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dims == 2 else (nn.Conv3d, nn.BatchNorm3d)
        self.pool, up = (nn.MaxPool2d, nn.ConvTranspose2d) if dims == 2 else (nn.MaxPool3d, nn.ConvTranspose3d)

        def block(inside: int, outside: int) -> nn.Module:
            return nn.Sequential(conv(inside, outside, 3, padding=1), norm(outside), nn.ReLU())

        widths = [width * 2**k for k in range(3)]
        self.down = nn.ModuleList(block(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(up(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(block(2 * w, w) for w in reversed(widths[:-1]))
        self.head = conv(width, 8, 1)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        x = images
        for k, down in enumerate(self.down):
            x = down(x if k == 0 else self.pool(2)(x))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return F.cross_entropy(self.head(x), classes)


class Residual(nn.Module):
    """Two convolutions with norms beside a skip (He 2015)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(outside) for _ in range(2))
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.skip(x))


class Dense(nn.Module):
    """Every layer reads all layers before it (DenseNet, Huang 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, 2, 1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(64 + 32 * k), nn.ReLU(), nn.Conv2d(64 + 32 * k, 32, 3, padding=1))
            for k in range(4)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


class Variational(nn.Module):
    """An autoencoder of images with drawn codes (Kingma 2013)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.SiLU())
        self.code, self.open = nn.Linear(64 * 256, 2 * 128), nn.Linear(128, 64 * 256)
        self.up = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.code(self.down(images).flatten(1)).chunk(2, -1)
        drawn = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
        made = torch.sigmoid(self.up(self.open(drawn).unflatten(1, (64, 16, 16))))
        apart = F.binary_cross_entropy(made, images.sigmoid())
        return apart - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).mean()


class DiffusionTransformer(nn.Module):
    """Patches with norms that the time and the class modulate (DiT, Peebles 2022); the loss on the noise."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.patches, self.classes = nn.Conv2d(4, width, 2, 2), nn.Embedding(CLASSES, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.modulate = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)) for _ in range(2)
        )
        self.head = nn.Linear(width, 16)
        self.width = width

    def forward(self, noisy: torch.Tensor, time: torch.Tensor, labels: torch.Tensor, noise: torch.Tensor):  # type: ignore[no-untyped-def]  # the loss
        x = self.patches(noisy).flatten(2).transpose(1, 2)
        waves = time.unsqueeze(1) * torch.exp(-torch.arange(self.width // 2) / self.width)
        given = F.silu(self.time(torch.cat([waves.sin(), waves.cos()], -1)) + self.classes(labels)).unsqueeze(1)
        for modulate, qkv, out, mlp in zip(self.modulate, self.qkv, self.out, self.mlp, strict=True):
            shift, scale, gate, shift2, scale2, gate2 = modulate(given).chunk(6, -1)
            y = F.layer_norm(x, (self.width,)) * (1 + scale) + shift
            q, k, v = qkv(y).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + gate * out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            x = x + gate2 * mlp(F.layer_norm(x, (self.width,)) * (1 + scale2) + shift2)
        made = self.head(x).transpose(1, 2).unflatten(2, (16, 16)).unflatten(1, (4, 4))
        return F.mse_loss(F.pixel_shuffle(made.flatten(1, 2), 2), noise)


class Points(nn.Module):
    """A shared network over points, the maximum over them (PointNet, Qi 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 256, 1), nn.BatchNorm1d(256), nn.ReLU()
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.each(points).amax(-1)


class Contrastive(nn.Module):
    """Two views of each image and the cross entropy of their similarities (SimCLR, Chen 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = _residual_body(), nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128))

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        a, b = (F.normalize(self.head(self.body(v)), dim=-1) for v in (first, second))
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(first.shape[0]))


def _residual_body() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Residual(64, 128, 2),
        Residual(128, 256, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def _vgg_body() -> nn.Module:
    layers: list[nn.Module] = []
    for inside, outside in ((3, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 64, 512), nn.ReLU(), nn.Dropout())


def _convnext_body() -> nn.Module:
    blocks = (ConvNeXtBlock(96), nn.GroupNorm(1, 96), nn.Conv2d(96, 192, 2, 2), ConvNeXtBlock(192))
    return nn.Sequential(nn.Conv2d(3, 96, 4, 4), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _classified(body: nn.Module, width: int, shape: tuple[int, ...] = (3, SIDE, SIDE)):  # type: ignore[no-untyped-def]  # model, inputs
    return Classifier(body, width), (torch.zeros(SAMPLES, *shape), torch.zeros(SAMPLES, dtype=torch.int64))


def _unet(dims: int):  # type: ignore[no-untyped-def]  # model, inputs
    side = (SIDE,) * 2 if dims == 2 else (16,) * 3
    return UNet(dims), (torch.zeros(SAMPLES, 3, *side), torch.zeros(SAMPLES, *side, dtype=torch.int64))


def _diffusion():  # type: ignore[no-untyped-def]  # model, inputs
    noise, labels = torch.zeros(SAMPLES, 4, 32, 32), torch.zeros(SAMPLES, dtype=torch.int64)
    return DiffusionTransformer(), (noise, torch.zeros(SAMPLES), labels, noise)


MODELS = {
    "mlp-mixer": lambda: _classified(Mixer(), 256),
    "unet": lambda: _unet(2),
    "unet-3d": lambda: _unet(3),
    "convnext-own": lambda: _classified(_convnext_body(), 192),
    "resnet-own": lambda: _classified(_residual_body(), 256),
    "vgg": lambda: _classified(_vgg_body(), 512),
    "densenet": lambda: _classified(Dense(), 192),
    "vae": lambda: (Variational(), (torch.zeros(SAMPLES, 3, SIDE, SIDE),)),
    "dit": _diffusion,
    "pointnet": lambda: _classified(Points(), 256, (3, 512)),
    "simclr": lambda: (Contrastive(), (torch.zeros(SAMPLES, 3, SIDE, SIDE),) * 2),
}
"""Name -> its model and inputs; called under `torch.device("meta")`."""
