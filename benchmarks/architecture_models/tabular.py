"""Models of clicks, graphs, fields and plain vectors; all take their targets and return their loss."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES = 64


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inside, outside in pairwise(widths):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Clicks(nn.Module):
    """Dense features and bags of ids, their products, the chance of a click (DLRM, Naumov 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = _mlp(16, 64, 64)
        self.tables = nn.ModuleList(nn.EmbeddingBag(4096, 64, mode="sum") for _ in range(4))
        self.top = _mlp(25, 64, 1)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        every = [self.bottom(dense), *(t(i) for t, i in zip(self.tables, ids.unbind(1), strict=True))]
        stacked = torch.stack(every, 1)
        scores = self.top((stacked @ stacked.transpose(1, 2)).flatten(1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, clicked)


class WideAndDeep(nn.Module):
    """Crossed features beside a deep network (Cheng 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.table, self.deep = nn.EmbeddingBag(8192, 1), nn.Embedding(4096, 32), _mlp(256, 256, 64, 1)

    def forward(self, crossed: torch.Tensor, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        scores = self.wide(crossed) + self.deep(self.table(ids).flatten(1))
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), clicked)


class TwoTowers(nn.Module):
    """Users and items with a softmax within the batch (Yi 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(8192, 64), nn.Embedding(4096, 64)
        self.left, self.right = _mlp(64, 128, 64), _mlp(64, 128, 64)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        u, i = F.normalize(self.left(self.users(users)), dim=-1), F.normalize(self.right(self.items(items)), dim=-1)
        return F.cross_entropy(20 * u @ i.T, torch.arange(users.shape[0]))


class Crossed(nn.Module):
    """Explicit crosses of features (DCN v2, Wang 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4096, 16)
        self.crosses, self.head = nn.ModuleList(nn.Linear(128, 128) for _ in range(3)), nn.Linear(128, 1)

    def forward(self, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        first = x = self.table(ids).flatten(1)
        for cross in self.crosses:
            x = first * cross(x) + x
        return F.binary_cross_entropy(torch.sigmoid(self.head(x)).squeeze(1), clicked)


class Factorised(nn.Module):
    """Pairs of features by a sum of squares (DeepFM, Guo 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table, self.deep = nn.Embedding(4096, 1), nn.Embedding(4096, 16), _mlp(128, 128, 1)

    def forward(self, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        rows = self.table(ids)
        pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(-1)
        scores = self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, clicked)


class GraphConvolution(nn.Module):
    """Products with a dense adjacency matrix (GCN, Kipf 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(128, 256), nn.Linear(256, 16)

    def forward(self, nodes: torch.Tensor, adjacency: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        degree = adjacency.sum(-1).clamp(min=1).rsqrt()
        normal = degree.unsqueeze(-1) * adjacency * degree.unsqueeze(-2)
        scores = normal @ self.second(F.relu(normal @ self.first(nodes)))
        return F.cross_entropy(scores.flatten(0, 1), classes.flatten())


class GraphAttention(nn.Module):
    """Attention over the neighbours of a dense adjacency matrix (GAT, Veličković 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.left, self.right = nn.Linear(128, 128), nn.Linear(128, 4), nn.Linear(128, 4)
        self.head = nn.Linear(128, 16)

    def forward(self, nodes: torch.Tensor, adjacency: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        x = self.project(nodes)
        scores = F.leaky_relu(self.left(x).unsqueeze(2) + self.right(x).unsqueeze(1), 0.2)
        weights = scores.masked_fill((adjacency == 0).unsqueeze(-1), -1e9).softmax(2)
        mixed = torch.einsum("bijh,bjhd->bihd", weights, x.unflatten(-1, (4, 32))).flatten(2)
        return F.cross_entropy(self.head(F.elu(mixed)).flatten(0, 1), classes.flatten())


class Messages(nn.Module):
    """Messages along a list of edges, summed at their ends (Gilmer 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update, self.head = _mlp(256, 128, 128), nn.GRUCell(128, 128), nn.Linear(128, 16)

    def forward(self, nodes: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor, classes: torch.Tensor):  # type: ignore[no-untyped-def]  # the loss
        sent = self.message(torch.cat([nodes[begins], nodes[ends]], -1))
        received = torch.zeros_like(nodes).index_add(0, ends, sent)
        return F.cross_entropy(self.head(self.update(received, nodes)), classes)


class Field(nn.Module):
    """Density and colour of points along rays, composed along each (NeRF, Mildenhall 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.density, self.colour = _mlp(60, 256, 256, 256), nn.Linear(256, 1), nn.Linear(256, 3)

    def forward(self, points: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
        waves = (points.unsqueeze(-1) * 2.0 ** torch.arange(10)).flatten(-2)
        x = F.relu(self.body(torch.cat([waves.sin(), waves.cos()], -1)))
        alpha = 1 - torch.exp(-F.softplus(self.density(x)).squeeze(-1))
        through = torch.cumprod(1 - alpha + 1e-10, -1)
        seen = ((alpha * through).unsqueeze(-1) * torch.sigmoid(self.colour(x))).sum(-2)
        return F.mse_loss(seen, colours)


class Autoencoder(nn.Module):
    """Fully connected, with the loss on what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _mlp(784, 512, 64, 512, 784)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.smooth_l1_loss(self.body(x), x)


class Policy(nn.Module):
    """Actions and their value from a state, the loss of PPO (Schulman 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.actions, self.value = _mlp(64, 256, 256), nn.Linear(256, 18), nn.Linear(256, 1)

    def forward(self, states: torch.Tensor, actions: torch.Tensor, before: torch.Tensor, gain: torch.Tensor):  # type: ignore[no-untyped-def]  # the loss
        x = torch.tanh(self.body(states))
        chances = self.actions(x).log_softmax(-1)
        ratio = (chances.gather(1, actions.unsqueeze(1)).squeeze(1) - before).exp()
        policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return policy + F.huber_loss(self.value(x).squeeze(1), gain) + 0.01 * (chances.exp() * chances).sum(-1).mean()


def _ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


MODELS = {
    "dlrm": lambda: (Clicks(), (torch.zeros(SAMPLES, 16), _ids(SAMPLES, 4, 8), torch.zeros(SAMPLES))),
    "wide-and-deep": lambda: (WideAndDeep(), (_ids(SAMPLES, 8), _ids(SAMPLES, 8), torch.zeros(SAMPLES))),
    "two-towers": lambda: (TwoTowers(), (_ids(SAMPLES), _ids(SAMPLES))),
    "dcn-v2": lambda: (Crossed(), (_ids(SAMPLES, 8), torch.zeros(SAMPLES))),
    "deepfm": lambda: (Factorised(), (_ids(SAMPLES, 8), torch.zeros(SAMPLES))),
    "gcn": lambda: (GraphConvolution(), (torch.zeros(8, 64, 128), torch.zeros(8, 64, 64), _ids(8, 64))),
    "gat": lambda: (GraphAttention(), (torch.zeros(8, 64, 128), torch.zeros(8, 64, 64), _ids(8, 64))),
    "message-passing": lambda: (Messages(), (torch.zeros(512, 128), _ids(2048), _ids(2048), _ids(512))),
    "nerf": lambda: (Field(), (torch.zeros(256, 64, 3), torch.zeros(256, 3))),
    "autoencoder": lambda: (Autoencoder(), (torch.zeros(SAMPLES, 784),)),
    "ppo": lambda: (Policy(), (torch.zeros(SAMPLES, 64), _ids(SAMPLES), torch.zeros(SAMPLES), torch.zeros(SAMPLES))),
}
"""Name -> its model and inputs; called under `torch.device("meta")`."""
