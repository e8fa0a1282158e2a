"""GShard mixture of experts (arXiv 2006.16668) in a GPT: top-2 gating with capacity, dispatch and combine
as batched matrix products.

Shape suffixes: G groups, S tokens of a group, E experts, C slots of an expert in a group, M model (hidden),
F inner width of an expert. A token both of whose experts are full is carried by the residual connection alone.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alpa_explore.models.configs import MoEConfig
from alpa_explore.models.transformer import INITIAL_STD, CausalSelfAttention, Decoder, FeedForward, mask_for


def _one_hot(index: Tensor, size: int) -> Tensor:
    """(…,) -> (…, size) of 0.0 and 1.0 in float32; an index that is `size` or more gives zeros."""
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).float()


def top2_gating(gates_GSE: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """Softmaxed gates in float32 -> (weights GSEC with which a token combines its experts' slots, auxiliary loss).

    A token is sent to its two best experts. Slots are assigned in token order, first choices before second ones; tokens
    that come after the last slot are dropped (GShard, algorithm 1). The two weights that remain are scaled
    to a sum of 1. The auxiliary loss is E · Σ_e (share of first choices) · (mean gate): 1 when the load is even.
    """
    experts = gates_GSE.shape[2]
    first_GSE = _one_hot(gates_GSE.argmax(dim=2), experts)
    others_GSE = gates_GSE * (1.0 - first_GSE)
    second_GSE = _one_hot(others_GSE.argmax(dim=2), experts)
    auxiliary = experts * (first_GSE.mean(dim=1) * gates_GSE.mean(dim=1)).sum(dim=1).mean()

    # The slot of a token is the number of earlier tokens with the same expert; such counts are exact in float32.
    slot_1_GSE = first_GSE.cumsum(dim=1) - first_GSE
    slot_2_GSE = second_GSE.cumsum(dim=1) - second_GSE + first_GSE.sum(dim=1, keepdim=True)
    kept_1_GSE = first_GSE * (slot_1_GSE < capacity)
    kept_2_GSE = second_GSE * (slot_2_GSE < capacity)

    weight_1_GS1 = (gates_GSE * kept_1_GSE).sum(dim=2, keepdim=True)
    weight_2_GS1 = (gates_GSE * kept_2_GSE).sum(dim=2, keepdim=True)
    total_GS1 = (weight_1_GS1 + weight_2_GS1).clamp(min=torch.finfo(gates_GSE.dtype).tiny)

    def spread(weight_GS1: Tensor, kept_GSE: Tensor, slot_GSE: Tensor) -> Tensor:
        slots_GSC = _one_hot((slot_GSE * kept_GSE).sum(dim=2), capacity)
        return (weight_GS1 / total_GS1 * kept_GSE).unsqueeze(3) * slots_GSC.unsqueeze(2)

    combine_GSEC = spread(weight_1_GS1, kept_1_GSE, slot_1_GSE) + spread(weight_2_GS1, kept_2_GSE, slot_2_GSE)
    return combine_GSEC, auxiliary


class ExpertLayer(nn.Module):
    """Experts as stacked weights: `wi` (E, M, F) and `wo` (E, F, M), and the gate `wg` (M, E)."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        self.experts, self.group = config.experts, config.expert_group
        inner = config.mlp_ratio * config.hidden
        self.wg = nn.Parameter(torch.empty(config.hidden, config.experts))
        self.wi = nn.Parameter(torch.empty(config.experts, config.hidden, inner))
        self.wo = nn.Parameter(torch.empty(config.experts, inner, config.hidden))
        for weight in (self.wg, self.wi, self.wo):
            nn.init.normal_(weight, std=INITIAL_STD)

    def forward(self, x_BSM: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, M) -> ((B, S, M), auxiliary loss). A group is `expert_group` tokens or a divisor of it."""
        batch, length, hidden = x_BSM.shape
        group = math.gcd(batch * length, self.group)
        capacity = max(1, 2 * group // self.experts)
        x_GSM = x_BSM.reshape(-1, group, hidden)
        groups, slots = x_GSM.shape[0], self.experts * capacity
        # GShard gates in float32: the order of near-equal gates decides where a token goes.
        gates_GSE = F.softmax(torch.matmul(x_GSM, self.wg).float(), dim=2)
        combine_GSEC, auxiliary = top2_gating(gates_GSE, capacity)
        # GShard's einsums, written as the batched products that they are: torch.einsum adds a dozen permutes and views
        # of its own to the graph. Where dims are merged, the one that a mesh may divide (E or G) stands first.
        combine_GSX = combine_GSEC.to(x_GSM.dtype).view(groups, group, slots)  # X = E·C
        dispatch_GXS = (combine_GSX > 0).to(x_GSM.dtype).transpose(1, 2)
        # GSEC,GSM->EGCM
        slots_GECM = torch.bmm(dispatch_GXS, x_GSM).view(groups, self.experts, capacity, hidden)
        slots_EYM = slots_GECM.transpose(0, 1).reshape(self.experts, groups * capacity, hidden)  # Y = G·C
        # EGCM,EMF->EGCF and EGCF,EFM->GECM
        outputs_EYM = torch.bmm(F.relu(torch.bmm(slots_EYM, self.wi)), self.wo)
        outputs_GECM = outputs_EYM.view(self.experts, groups, capacity, hidden).transpose(0, 1)
        # GSEC,GECM->GSM
        mixed_GSM = torch.bmm(combine_GSX, outputs_GECM.reshape(groups, slots, hidden))
        return mixed_GSM.reshape(batch, length, hidden), auxiliary


class MoEBlock(nn.Module):
    """A pre-layer-norm block; `experts` replaces `mlp` in every second block."""

    def __init__(self, config: MoEConfig, *, with_experts: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = CausalSelfAttention(config.hidden, config.heads)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.experts = ExpertLayer(config) if with_experts else None
        self.mlp = None if with_experts else FeedForward(config.hidden, config.mlp_ratio)

    def forward(self, x_BSM: Tensor, mask_SS: Tensor) -> tuple[Tensor, Tensor | None]:
        """(B, S, M) -> ((B, S, M), auxiliary loss of its experts; None without experts)."""
        x_BSM = x_BSM + self.attention(self.attention_norm(x_BSM), mask_SS)
        normed_BSM = self.mlp_norm(x_BSM)
        if self.experts is not None:
            mixed_BSM, auxiliary = self.experts(normed_BSM)
            return x_BSM + mixed_BSM, auxiliary
        assert self.mlp is not None
        return x_BSM + self.mlp(normed_BSM), None


class MoETransformer(Decoder):
    """The model with its loss: `forward(tokens, targets)` is cross-entropy plus the weighted auxiliary losses."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__(config, (MoEBlock(config, with_experts=i % 2 == 0) for i in range(config.layers)))
        self.auxiliary_weight = config.auxiliary_weight

    def forward(self, tokens_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """(B, S) token numbers and the tokens that follow them -> scalar loss in float32."""
        x_BSM = self.embedding(tokens_BS)
        mask_SS = mask_for(self.mask, tokens_BS.shape[1])
        balance: Tensor | None = None
        for block in self.h:
            x_BSM, auxiliary = block(x_BSM, mask_SS)
            if auxiliary is not None:
                balance = auxiliary if balance is None else balance + auxiliary
        loss = self.embedding.loss(self.final_norm(x_BSM), targets_BS)
        return loss if balance is None or not self.auxiliary_weight else loss + self.auxiliary_weight * balance
