"""Attention of a block: its products, rotary positions, the fused kernel, and the ring of context parallelism."""

from __future__ import annotations

from alpa_explore.cost.blocks.shapes import AttentionShape
from alpa_explore.cost.blocks.sheet import Sheet
from alpa_explore.cost.kernels import ring_keys


def add_attention(
    sheet: Sheet, shape: AttentionShape, *, hidden: int, samples: int, length: int, context: int, fuses_sinks: bool
) -> None:
    """Attention of `samples` of which this device has `length` positions, 1 / context of all.

    Devices of the context group have equal shares of the work (zig-zag order).
    """
    parts, tokens = sheet.tensor, samples * length
    heads, groups = shape.heads // parts, max(shape.kv_heads // parts, 1)
    if shape.key_rank:
        groups = heads
        _latent_projections(sheet, shape, hidden, tokens, heads)
    else:
        queries, keys = heads * shape.head, groups * shape.head
        sheet.linear(tokens, queries + keys + groups * shape.value_head, hidden, gathers=True)
        # Queries and keys turn; backward their gradients are joined with those of the values.
        sheet.moved(2 * tokens * (queries + keys), 2 * tokens * (queries + 2 * keys))
    queries, keys = tokens * heads * shape.head, tokens * groups * (shape.head + shape.value_head)
    read, head = queries + keys * context, (shape.head, shape.value_head)
    if shape.sinks and not fuses_sinks:
        sheet.spelled_out_attention(samples * heads, length, head, read=read)
    else:
        scores = shape.scores(length, length * context)
        sheet.attention(samples * heads, length, ring_keys(length, context), head, scores=scores, read=read)
    if context > 1:
        sheet.ring(keys * context)
    sheet.linear(tokens, hidden, heads * shape.value_head, scatters=True)


def _latent_projections(sheet: Sheet, shape: AttentionShape, hidden: int, tokens: int, heads: int) -> None:
    """Queries, keys and values from latents; the latents are small, and every tensor-parallel device makes them of its
    own positions."""
    own, queries = tokens // sheet.tensor, heads * shape.head
    if shape.query_rank:
        sheet.linear(own, shape.query_rank, hidden)
        sheet.moved(2 * own * shape.query_rank, 3 * own * shape.query_rank)
        sheet.linear(tokens, queries, shape.query_rank, gathers=True)
    else:
        sheet.linear(tokens, queries, hidden, gathers=True)
    sheet.linear(own, shape.key_rank + shape.rotary_head, hidden)
    sheet.moved(2 * own * shape.key_rank, 3 * own * shape.key_rank)
    keys = heads * (shape.head - shape.rotary_head + shape.value_head)
    sheet.linear(tokens, keys, shape.key_rank, gathers=True)
    # Queries turn in place; keys are put together from their two parts, and values copied out of the product.
    joined = tokens * heads * (shape.head + shape.value_head)
    sheet.moved(2 * tokens * heads * shape.rotary_head, 2 * tokens * heads * shape.rotary_head)
    sheet.moved(2 * joined, 2 * joined)
