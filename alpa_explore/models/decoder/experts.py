"""A feed-forward of experts without capacity: a gate chooses for each token, and no token is dropped.

Shape suffixes: T tokens, M model (hidden), E experts, K chosen experts of a token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import DecoderConfig, ExpertsConfig
from alpa_explore.models.routed_experts import Gate, routed_experts
from alpa_explore.models.transformer import INITIAL_STD

CLAMPED = Gate(limit=7.0, alpha=1.702, shift=1.0)
"""GPT-OSS's SwiGLU: swiglu_limit and swiglu_alpha of its configuration in transformers."""


class SoftmaxGate(nn.Module):
    """The experts with the largest logits, weighted by the softmax over their logits, in float32."""

    def __init__(self, config: ExpertsConfig, hidden: int, *, bias: bool) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, config.count, bias=bias)
        self.chosen = config.chosen

    def forward(self, x_TM: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(T, M) -> (chosen experts (T, K), their weights (T, K))."""
        logits_TK, chosen_TK = self.router(x_TM).float().topk(self.chosen, dim=1)
        return chosen_TK, logits_TK.softmax(1).to(x_TM.dtype)


class SigmoidGate(nn.Module):
    """DeepSeek-V3's: the groups with the best two experts, in them the best experts, weighted by their sigmoids.

    `correction` joins in the choice alone; training moves it by a rule of its own, not by a gradient.
    """

    correction: torch.Tensor

    def __init__(self, config: ExpertsConfig, hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, config.count, bias=False)
        self.register_buffer("correction", torch.zeros(config.count))
        self.config = config

    def forward(self, x_TM: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(T, M) -> (chosen experts (T, K), their weights (T, K))."""
        scores_TE = F.linear(x_TM.float(), self.router.weight.float()).sigmoid()
        ranked_TE = (scores_TE + self.correction.float()).detach()
        if self.config.groups > 1:
            grouped = ranked_TE.view(ranked_TE.shape[0], self.config.groups, -1)
            best_TG = grouped.topk(2, dim=2).values.sum(2)
            last_T1 = best_TG.topk(self.config.chosen_groups, dim=1).values[:, -1:]
            ranked_TE = grouped.masked_fill((best_TG < last_T1).unsqueeze(2), -torch.inf).flatten(1)
        chosen_TK = ranked_TE.topk(self.config.chosen, dim=1).indices
        weights_TK = scores_TE.gather(1, chosen_TK)
        weights_TK = weights_TK / weights_TK.sum(1, keepdim=True) * self.config.scale
        return chosen_TK, weights_TK.to(x_TM.dtype)


class Experts(nn.Module):
    """Routed experts behind a gate, and the shared ones."""

    def __init__(self, config: DecoderConfig, experts: ExpertsConfig, shared: nn.Module | None) -> None:
        super().__init__()
        hidden, count, width = config.hidden, experts.count, experts.ffn
        sigmoid = experts.gate == "sigmoid"
        self.gate = SigmoidGate(experts, hidden) if sigmoid else SoftmaxGate(experts, hidden, bias=config.bias)
        # Gate and up are apart: a shard of the columns then holds both of the same channels.
        shapes = ((hidden, width), (hidden, width), (width, hidden))
        self.matrices = nn.ParameterList(torch.empty(count, *shape).normal_(std=INITIAL_STD) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(count, shape[1]) for shape in shapes if config.bias)
        self.shared, self.swiglu = shared, CLAMPED if config.clamped else Gate()

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_TM = x_BSM.flatten(0, 1)
        chosen_TK, weights_TK = self.gate(x_TM)
        y_TM = routed_experts(x_TM, chosen_TK, weights_TK, [*self.matrices], [*self.biases], gate=self.swiglu)
        y_BSM = y_TM.view(x_BSM.shape)
        return y_BSM if self.shared is None else y_BSM + self.shared(x_BSM)
