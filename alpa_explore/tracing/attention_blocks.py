"""Attention to one block of the keys at a time, for queries and keys that are divided over devices.

The result for a block is merged into that of the blocks before it: with outputs o, o' and logsumexps l, l' of the same
queries over disjoint keys, l'' = log(eˡ + eˡ') and o'' = o·e^(l − l'') + o'·e^(l' − l''), exactly (Liu, Zaharia and
Abbeel, "Ring Attention with Blockwise Transformers", arXiv 2310.01889). Backwards every block takes the output and the
logsumexp of the whole, and its gradients add up. Sums over blocks are in fp32 or wider.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from alpa_explore.tracing.attention import attention, attention_backward, rows_of_heads
from alpa_explore.tracing.custom import operator, wide


@operator(
    lambda query, key, value, *_: (
        rows_of_heads(query.new_empty(*query.shape[:-1], value.shape[-1], dtype=wide(query.dtype))),
        query.new_empty(query.shape[:-1], dtype=wide(query.dtype)),
    )
)
def attention_block(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor | None,
    logsumexp: Tensor | None,
    causal: bool,
    scale: float,
    rows: Sequence[int],
    columns: Sequence[int],
    before: int = 0,
    window: int = 0,
    softcap: float = 0.0,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(output [b, hq, sq, dv] in fp32 or wider, logsumexp [b, hq, sq]) with the keys `columns` (start, stop) seen too.

    Only the queries `rows` (start, stop) see them; `causal`: the last of these is at the place of the last key, or
    `before` places behind it, and sees what a causal mask with that `window` lets it see. Without `output` and
    `logsumexp` no key was seen before, only the `sink`. `mask` is as `rows` × `columns`.
    """
    dtype = wide(query.dtype)
    if output is None or logsumexp is None:
        output = rows_of_heads(query.new_zeros(*query.shape[:-1], value.shape[-1], dtype=dtype))
        logsumexp = query.new_full(query.shape[:-1], -torch.inf, dtype=dtype)
        if sink is not None:
            logsumexp.copy_(sink.to(dtype)[:, None])
    else:
        output, logsumexp = output.clone(), logsumexp.clone()
    seeing, seen = slice(*rows), slice(*columns)
    if rows[0] == rows[1] or columns[0] == columns[1]:
        return output, logsumexp
    given = tuple(t[:, :, part] for t, part in ((query, seeing), (key, seen), (value, seen)))
    first = _first(causal, rows, columns, before)
    made, sums = attention(*given, mask, causal, scale, first=first, window=window, softcap=softcap)
    known = logsumexp[:, :, seeing]
    total = torch.logaddexp(known, sums)
    finite = total.masked_fill(total == -torch.inf, 0)
    shares = (torch.exp(part - finite).unsqueeze(-1) for part in (known, sums))
    output[:, :, seeing] = output[:, :, seeing] * next(shares) + made.to(dtype) * next(shares)
    logsumexp[:, :, seeing] = total
    return output, logsumexp


@operator(
    lambda gradient, query, key, value, *_: (
        rows_of_heads(torch.empty_like(query, dtype=wide(query.dtype))),
        rows_of_heads(torch.empty_like(key)),
        rows_of_heads(torch.empty_like(value)),
    )
)
def attention_block_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor,
    logsumexp: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    causal: bool,
    scale: float,
    rows: Sequence[int],
    columns: Sequence[int],
    before: int = 0,
    window: int = 0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq in fp32 or wider, dk, dv): those given, with the part of this block added; `output` and `logsumexp` are those
    of all blocks."""
    dq = rows_of_heads(torch.zeros_like(query, dtype=wide(query.dtype))) if dq is None else dq.clone()
    dk, dv = (rows_of_heads(torch.zeros_like(of)) if t is None else t.clone() for t, of in ((dk, key), (dv, value)))
    if rows[0] == rows[1] or columns[0] == columns[1]:
        return dq, dk, dv
    seeing, seen = slice(*rows), slice(*columns)
    dy, q, y, sums = (t[:, :, seeing] for t in (gradient, query, output, logsumexp))
    k, v = (t[:, :, seen] for t in (key, value))
    first = _first(causal, rows, columns, before)
    options = {"first": first, "window": window, "softcap": softcap}
    parts = attention_backward(dy, q, k, v, mask, y, sums, causal, scale, **options)
    for total, place, part in zip((dq, dk, dv), (seeing, seen, seen), parts, strict=True):
        total[:, :, place] += part
    return dq, dk, dv


def _first(causal: bool, rows: Sequence[int], columns: Sequence[int], before: int) -> tuple[int, int, int]:
    """The position of the first query among the keys."""
    return 0, 0, (columns[1] - columns[0]) - (rows[1] - rows[0]) + before if causal else 0
