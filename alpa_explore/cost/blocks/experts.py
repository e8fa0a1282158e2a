"""A layer of routed experts: router, dispatch, grouped products, combination; and the shared expert.

A device has T tokens and sends each to its top-k experts: T · k rows go through an all-to-all among the ep devices that
hold the experts, forward and backward, before and after the products. The load is balanced: each of the experts of a
device has T · k · ep / experts rows. (Lepikhin et al., GShard, arXiv 2006.16668, §3.)
"""

from __future__ import annotations

from alpa_explore.cost.blocks.shapes import ExpertsShape
from alpa_explore.cost.blocks.sheet import Sheet

ROUTING_PASSES = 4
"""How often the float32 scores of all experts are read or written: softmax, top-k, mask, load-balancing loss. Set by
hand; not measured."""


def add_experts(
    sheet: Sheet, shape: ExpertsShape, *, hidden: int, tokens: int, expert: int, expert_tensor: int = 1
) -> None:
    """Experts over `expert` devices, each matrix over `expert_tensor`; `tokens` are those of a device's sequence, of
    which each of a tensor-parallel group routes its share."""
    own = tokens // sheet.tensor
    sheet.linear(own, shape.experts, hidden, keeps_dtype=True)
    scores = ROUTING_PASSES * 2 * own * shape.experts  # of twice the bytes
    sheet.moved(scores, scores)
    rows = own * shape.topk * expert_tensor
    local, width = shape.experts // expert, shape.ffn // expert_tensor
    each = rows / local
    # Rows are copied to the order of experts, and come back summed over the experts of a token.
    sheet.moved((1 + shape.topk) * own * hidden, (1 + shape.topk) * own * hidden)
    sheet.expert_layer()
    if expert > 1:
        sheet.all_to_all(own * shape.topk * hidden, shape.topk, times=2)
    sheet.grouped(local, each, 2 * width, hidden)
    sheet.moved(3 * rows * width, 5 * rows * width)
    sheet.grouped(local, each, hidden, width)
    sheet.moved((1 + shape.topk) * own * hidden, (1 + shape.topk) * own * hidden, held=rows * 2 * width)
    if shape.shared_ffn:
        add_gated(sheet, shape.shared_ffn, hidden=hidden, tokens=tokens)


def add_gated(sheet: Sheet, ffn: int, *, hidden: int, tokens: int) -> None:
    """A gated MLP: gate and up in one product, silu(gate) · up, down."""
    width = ffn // sheet.tensor
    sheet.linear(tokens, 2 * width, hidden, gathers=True)
    sheet.moved(3 * tokens * width, 5 * tokens * width, held=2 * tokens * width)
    sheet.linear(tokens, hidden, width, scatters=True)
