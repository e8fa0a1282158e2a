"""Small models that together use everything that capture must handle."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Case:
    """A model and one microbatch for it."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    loss: Any = None


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Attention spelled out."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return torch.softmax(scores, -1) @ v


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float, spelled_out: bool) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend if spelled_out else F.scaled_dot_product_attention
        self.norm, self.qkv, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = self.attend(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, hidden)
        return x + self.dropout(self.out(mixed))


class TinyGPT(nn.Module):
    """Two blocks, tied embedding, learned positions."""

    def __init__(
        self, hidden: int = 16, heads: int = 2, vocabulary: int = 23, dropout: float = 0.0, spelled_out: bool = False
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(8, hidden)
        self.attention = nn.ModuleList(Attention(hidden, heads, dropout, spelled_out) for _ in range(2))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
            for _ in range(2)
        )
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for attention, mlp in zip(self.attention, self.mlp, strict=True):
            x = attention(x)
            x = x + mlp(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class TinyConvNet(nn.Module):
    """Convolutions, batch norm (running statistics), pooling, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv, self.norm2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.stem(x))), 2)
        x = F.relu(self.norm2(self.conv(x)) + F.avg_pool2d(x, 2))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class TinyExperts(nn.Module):
    """Top-1 routing to experts by einsum, as in GShard."""

    def __init__(self, hidden: int = 8, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.inner = nn.Parameter(torch.randn(experts, hidden, 16) * 0.3)
        self.outer = nn.Parameter(torch.randn(experts, 16, hidden) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = torch.softmax(self.gate(x), -1)
        chosen = (gates == gates.amax(-1, keepdim=True)).to(x.dtype)
        sent = torch.einsum("bse,bsh->ebsh", chosen, x)
        made = torch.einsum("ebsf,efh->ebsh", F.silu(torch.einsum("ebsh,ehf->ebsf", sent, self.inner)), self.outer)
        return torch.einsum("ebsh,bse->bsh", made, gates * chosen)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))


def _classes(count: int, *shape: int) -> torch.Tensor:
    return torch.randint(count, shape)


CASES = (
    Case("mlp with mse", mlp, lambda: (torch.randn(4, 6), torch.randn(4, 3)), "mse"),
    Case("mlp with smooth l1", mlp, lambda: (torch.randn(4, 6), torch.randn(4, 3)), F.smooth_l1_loss),
    Case("mlp with huber", mlp, lambda: (torch.randn(4, 6), torch.randn(4, 3)), nn.HuberLoss()),
    Case(
        "mlp with bce",
        lambda: nn.Sequential(mlp(), nn.Sigmoid()),
        lambda: (torch.randn(4, 6), torch.rand(4, 3)),
        F.binary_cross_entropy,
    ),
    Case("conv net", TinyConvNet, lambda: (torch.randn(4, 3, 8, 8), _classes(5, 4)), "cross_entropy"),
    Case("gpt", TinyGPT, lambda: (_classes(23, 2, 8), _classes(23, 2, 8))),
    Case("spelled out gpt", lambda: TinyGPT(spelled_out=True), lambda: (_classes(23, 2, 8), _classes(23, 2, 8))),
    Case("experts", TinyExperts, lambda: (torch.randn(2, 5, 8), torch.randn(2, 5, 8)), "mse"),
    Case("matrix inverse", mlp, lambda: (torch.randn(3, 6),), lambda output: torch.linalg.inv(output).sum()),
    Case("lstm", lambda: nn.LSTM(4, 6, 2), lambda: (torch.randn(5, 2, 4),), lambda output: output[0].square().mean()),
    Case(
        "torch transformer",
        lambda: nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True),
        lambda: (torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)),
        "mse",
    ),
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    torch.manual_seed(0)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def gpt() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return TinyGPT(), (_classes(23, 2, 8), _classes(23, 2, 8))


@pytest.fixture
def spelled_out_gpt() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return TinyGPT(spelled_out=True), (_classes(23, 2, 8), _classes(23, 2, 8))


@pytest.fixture
def gpt_with_dropout() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return TinyGPT(dropout=0.3), (_classes(23, 2, 8), _classes(23, 2, 8))


@pytest.fixture
def conv_net() -> nn.Module:
    torch.manual_seed(0)
    return TinyConvNet()
