"""A feed-forward of experts without capacity: a gate chooses for each token, and no token is dropped.

Shape suffixes: T tokens, M model (hidden), E experts, K chosen experts of a token, N = T · K, F width of an expert.
`routed_experts` is the only place that knows how tokens meet experts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.models.configs import DecoderConfig, ExpertsConfig
from alpa_explore.models.transformer import INITIAL_STD

CLAMP, SIGMOID_GAIN = 7.0, 1.702
"""Of GPT-OSS's SwiGLU (swiglu_limit and swiglu_alpha of its configuration in transformers)."""


def gated(both: torch.Tensor, *, clamped: bool) -> torch.Tensor:
    """(…, 2F) -> (…, F): silu(gate) · up, where gate is the first half; clamped as in GPT-OSS:
    gate · σ(1.702 · gate) · (up + 1), with gate at most 7 and up from −7 to 7."""
    gate, up = both.chunk(2, dim=-1)
    if not clamped:
        return F.silu(gate) * up
    gate, up = gate.clamp(max=CLAMP), up.clamp(-CLAMP, CLAMP)
    return gate * torch.sigmoid(SIGMOID_GAIN * gate) * (up + 1)


def routed_experts(
    x_TM: torch.Tensor,
    chosen_TK: torch.Tensor,
    weights_TK: torch.Tensor,
    gate_up_EFM: torch.Tensor,
    down_EMF: torch.Tensor,
    gate_up_bias_EF: torch.Tensor | None = None,
    down_bias_EM: torch.Tensor | None = None,
    clamped: bool = False,
) -> torch.Tensor:
    """Σ_k weights · expert_chosen(x), (T, M): each token through its chosen experts, weighted.

    An expert is down(gated(gate_up(x))); `gate_up_EFM` is (E, 2F, M), gate before up, as in Hugging Face's Mixtral.
    Tokens are sorted by expert; bfloat16 then takes one grouped product for all experts, other dtypes a loop.
    """
    experts, chosen = gate_up_EFM.shape[0], chosen_TK.shape[1]
    expert_N, order_N = chosen_TK.flatten().sort()
    x_NM = x_TM[order_N // chosen]
    counts_E = torch.histc(expert_N.float(), bins=experts, min=0, max=experts - 1)
    product = _grouped if x_TM.dtype == torch.bfloat16 or x_TM.is_meta else _looped
    both_NF = product(x_NM, gate_up_EFM, counts_E)
    if gate_up_bias_EF is not None:
        both_NF = both_NF + gate_up_bias_EF[expert_N]
    y_NM = product(gated(both_NF, clamped=clamped), down_EMF, counts_E)
    if down_bias_EM is not None:
        y_NM = y_NM + down_bias_EM[expert_N]
    y_NM = y_NM * weights_TK.flatten()[order_N].unsqueeze(1)
    place_N = torch.empty_like(order_N).scatter(0, order_N, torch.arange(order_N.shape[0], device=order_N.device))
    return y_NM[place_N].unflatten(0, chosen_TK.shape).sum(1)


def _grouped(x_NM: torch.Tensor, weight_EFM: torch.Tensor, counts_E: torch.Tensor) -> torch.Tensor:
    ends_E = counts_E.cumsum(0, dtype=torch.int32)
    made = F.grouped_mm(x_NM.bfloat16(), weight_EFM.bfloat16().transpose(1, 2), offs=ends_E)
    return made.to(x_NM.dtype)


def _looped(x_NM: torch.Tensor, weight_EFM: torch.Tensor, counts_E: torch.Tensor) -> torch.Tensor:
    parts = x_NM.split([int(count) for count in counts_E.tolist()])
    return torch.cat([F.linear(part, weight) for part, weight in zip(parts, weight_EFM, strict=True)])


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
            grouped = ranked_TE.unflatten(1, (self.config.groups, -1))
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
        self.gate_up = nn.Parameter(torch.empty(count, 2 * width, hidden).normal_(std=INITIAL_STD))
        self.down = nn.Parameter(torch.empty(count, hidden, width).normal_(std=INITIAL_STD))
        self.gate_up_bias = nn.Parameter(torch.zeros(count, 2 * width)) if config.bias else None
        self.down_bias = nn.Parameter(torch.zeros(count, hidden)) if config.bias else None
        self.shared, self.clamped = shared, config.clamped

    def forward(self, x_BSM: torch.Tensor) -> torch.Tensor:
        """(B, S, M) -> (B, S, M)."""
        x_TM = x_BSM.flatten(0, 1)
        chosen_TK, weights_TK = self.gate(x_TM)
        y_TM = routed_experts(
            *(x_TM, chosen_TK, weights_TK, self.gate_up, self.down),
            gate_up_bias_EF=self.gate_up_bias,
            down_bias_EM=self.down_bias,
            clamped=self.clamped,
        )
        y_BSM = y_TM.view(x_BSM.shape)
        return y_BSM if self.shared is None else y_BSM + self.shared(x_BSM)
