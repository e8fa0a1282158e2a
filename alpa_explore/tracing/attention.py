"""Attention as one operator, forward and backward: what a fused kernel computes, without a tensor of all scores.

    scores = scale · q kᵀ + mask      logsumexp = log Σ exp(scores)      p = exp(scores − logsumexp)      output = p v
    dv = pᵀ dy      ds = p ∘ (dy vᵀ − Σ dy ∘ output)      dq = scale · ds k      dk = scale · dsᵀ q

With `softcap` c, c · tanh(scale · q kᵀ / c) is in place of the product (Gemma 2, arXiv 2408.00118).

`torch.ops.alpa_explore.attention` and `attention_backward` exist once this module is imported. The forward pass keeps
only output and logsumexp, from which the backward pass forms p again: Dao et al., "FlashAttention: Fast and
Memory-Efficient Exact Attention with IO-Awareness", 2022 (arXiv 2205.14135). Queries are [b, hq, sq, d], keys
[b, hkv, sk, d], values [b, hkv, sk, dv]; hq is a multiple of hkv, and hq / hkv neighbouring query heads share a head of
keys and values. On CUDA, 16-bit calls that torch's flash kernel takes run there; all others run as written above, in
fp32 or wider.

With `chunks`, queries and keys are in zig-zag order of so many chunks (`zigzag`), and a causal mask goes by their
natural order.

`first` are the positions of the first sample, query head and query of a shard among all: a causal mask needs the last
of them. Dropout needs all three: whether an entry of p is dropped is a function of its position and of `seed` (a number
in 0 … 1), so that forward and backward pass agree however each is divided.

A `sink` is a logit of each query head, [hq], that joins in the softmax of its queries and has no value (GPT-OSS); of
the formulas above only that of the logsumexp changes:

    logsumexp' = log(exp(logsumexp) + exp(sink))      output' = output · exp(logsumexp − logsumexp')
    dsink = − Σ exp(sink − logsumexp') · Σ dy ∘ output'      over samples and queries

The share of the sink in the softmax of a query is exp(sink − logsumexp'), its product with dy is 0.

In zig-zag order of a sequence, of 2 n equal chunks the i-th of n parts has i and 2 n − 1 − i. With a causal mask each
part then has as much to do as any other (Llama 3, arXiv 2407.21783, §3.3.2). Where the inputs of a model are brought
into this order, and all else but attention treats positions alike, devices that divide the sequence need not change it
again.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from alpa_explore.graph.counts import AttentionOptions
from alpa_explore.tracing.custom import gradients, operator, wide


def zigzag_places(length: int, chunks: int, device: torch.device | str = "cpu") -> Tensor:
    """[length]: for each place in zig-zag order of so many chunks (an even number) its place in natural order."""
    number = torch.arange(chunks, device=device)
    order = torch.where(number % 2 == 0, number // 2, chunks - 1 - number // 2)
    return torch.arange(length, device=device).view(chunks, -1)[order].flatten()


@operator(lambda natural, dim, chunks: natural.new_empty(natural.shape))
def zigzag(natural: Tensor, dim: int, chunks: int) -> Tensor:
    """A tensor with the entries of `dim` in zig-zag order."""
    return natural.index_select(dim, zigzag_places(natural.shape[dim], chunks, natural.device))


def with_sink(output: Tensor, logsumexp: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Output [b, hq, sq, dv] and logsumexp [b, hq, sq] without a sink, as they are with `sink` [hq]."""
    total = torch.logaddexp(logsumexp, sink.to(logsumexp.dtype)[:, None])
    return output * torch.exp(logsumexp - total).unsqueeze(-1), total


@operator(lambda gradient, output, logsumexp, sink: torch.empty_like(sink))
def sink_gradient(gradient: Tensor, output: Tensor, logsumexp: Tensor, sink: Tensor) -> Tensor:
    """[hq]; `output`, of which `gradient` is the gradient, and `logsumexp` are those with the sink."""
    dtype = logsumexp.dtype
    shares = torch.exp(sink.to(dtype)[:, None] - logsumexp)
    return -(shares * (gradient.to(dtype) * output.to(dtype)).sum(-1)).sum((0, 2)).to(sink.dtype)


_HEAD_MULTIPLE, _MOST_HEAD_SIZE = 8, 256
"""Head sizes of torch's flash kernel: multiples of the first, up to the second."""
_FLASH_CAPABILITY = (8, 0)
"""The oldest GPU that it runs on (Ampere)."""
_GAMMA, _FIRST_FACTOR, _SECOND_FACTOR = (
    word - 2**64 for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""The constants of SplitMix64, as signed numbers."""
_OPTIONS = (
    "bool causal, float scale, float dropout=0., Tensor? seed=None, int[3] first=[0, 0, 0], int window=0,"
    " float softcap=0., int chunks=0"
)


def _shapes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *_: Any, **named: Any
) -> tuple[Tensor, Tensor]:
    _check(query, key, value, mask)
    output = query.new_empty(*query.shape[:-1], value.shape[-1])
    return _laid_out(output, query, mask), query.new_empty(query.shape[:-1], dtype=wide(query.dtype))


def _backward_shapes(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *_: Any, **named: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _check(query, key, value, mask)
    dq, dk, dv = (rows_of_heads(t.new_empty(t.shape)) for t in (query, key, value))
    return dq, dk, dv


@operator(
    _shapes,
    f"attention(Tensor query, Tensor key, Tensor value, Tensor? mask, {_OPTIONS}, Tensor? sink=None) -> (Tensor,"
    " Tensor)",
)
def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *given: Any) -> tuple[Tensor, Tensor]:
    """(output [b, hq, sq, dv], logsumexp [b, hq, sq] in fp32 or wider).

    `mask` broadcasts to [b, hq, sq, sk]: boolean (true: takes part) or added to the scores. `causal`: query i sees the
    keys 0 … first[2] + i, with `window` only so many of them, the last ones. A query that sees no key has output 0.
    `dropout` is the share of p that is dropped, below 1; where it is not 0, `seed` is a scalar.
    """
    options = AttentionOptions(*given)
    causal, scale, softcap, sink = options.causal, options.scale, options.softcap, options.sink
    if _ordered_whole(query, key, mask, options):
        natural = _natural(query.shape[-2], options.chunks, query.device)
        ordered = (t.index_select(2, natural) for t in (query, key, value))
        made = attention(*ordered, None, causal, scale, window=options.window, softcap=softcap, sink=sink)
        output, logsumexp = (zigzag(t, 2, options.chunks) for t in made)
        return _laid_out(output, query, mask), logsumexp
    if _fits_flash(query, key, value, mask, options):
        found = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, scale=scale)
        output, logsumexp = found[0], found[1]
        if sink is not None:
            output, logsumexp = with_sink(output, logsumexp, sink)
        return _laid_out(output.to(query.dtype), query, mask), logsumexp
    scores = _masked(_products(query, key, scale, softcap), mask, options)
    logsumexp = scores.logsumexp(-1)
    shares = torch.exp(scores - _finite(logsumexp))
    if options.seed is not None:
        shares = shares * _kept(scores, options.dropout, options.seed, options.first)
    output = shares @ _for_each_query_head(value, query).to(scores.dtype)
    if sink is not None:
        output, logsumexp = with_sink(output, logsumexp, sink)
    return _laid_out(output.to(query.dtype), query, mask), logsumexp


@operator(
    _backward_shapes,
    "attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor output, Tensor"
    f" logsumexp, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor,
    logsumexp: Tensor,
    *given: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv), of the shapes of query, key and value; `gradient` is that of the output. The mask has none.

    A sink is in `output` and `logsumexp`.
    """
    options = AttentionOptions(*given)
    causal, scale, softcap, chunks = options.causal, options.scale, options.softcap, options.chunks
    if _ordered_whole(query, key, mask, options):
        natural = _natural(query.shape[-2], chunks, query.device)
        dy, q, k, v, y, sums = (t.index_select(2, natural) for t in (gradient, query, key, value, output, logsumexp))
        made = attention_backward(dy, q, k, v, None, y, sums, causal, scale, window=options.window, softcap=softcap)
        dq, dk, dv = (rows_of_heads(zigzag(t, 2, chunks)) for t in made)
        return dq, dk, dv
    if _fits_flash(query, key, value, mask, options):
        nothing = torch.zeros(2, dtype=torch.uint64, device=query.device)  # the state of dropout, which is not drawn
        dy = gradient if gradient.stride(-1) == 1 else gradient.contiguous()  # that of a sum is one number, expanded
        sizes, seeds = (query.shape[-2], key.shape[-2], 0.0), (nothing, nothing.new_zeros(()))
        saved = (dy, query, key, value, output, logsumexp, None, None, *sizes, causal, *seeds)
        made = torch.ops.aten._scaled_dot_product_flash_attention_backward(*saved, scale=scale)
        dq, dk, dv = map(rows_of_heads, made)
        return dq, dk, dv
    products = _products(query, key, scale, softcap)
    scores = _masked(products, mask, options)
    shares = torch.exp(scores - _finite(logsumexp.to(scores.dtype)))
    dy, y, q = (t.to(scores.dtype) for t in (gradient, output, query))
    k, v = (_for_each_query_head(t, query).to(scores.dtype) for t in (key, value))
    kept = 1.0 if options.seed is None else _kept(scores, options.dropout, options.seed, options.first)
    change = shares * (kept * (dy @ v.transpose(-2, -1)) - (dy * y).sum(-1, keepdim=True)) * scale
    if softcap:
        change = change * (1 - (products / softcap).square())
    dq, dk, dv = change @ k, change.transpose(-2, -1) @ q, (kept * shares).transpose(-2, -1) @ dy
    dk, dv = (t.reshape(*key.shape[:2], -1, *t.shape[2:]).sum(2) for t in (dk, dv))  # over the heads that share them
    return rows_of_heads(dq.to(query.dtype)), rows_of_heads(dk.to(key.dtype)), rows_of_heads(dv.to(value.dtype))


@gradients(attention)
def _gradients(inputs: tuple[Any, ...], output: tuple[Tensor, Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, causal, scale, dropout, seed, first, window, softcap, chunks, sink = inputs
    options = causal, scale, dropout, seed, first, window, softcap, chunks
    made = attention_backward(gradient, *tensors, *output, *options)
    of_sink = None if sink is None else sink_gradient(gradient, *output, sink)
    return *made, *(None for _ in (tensors[3], *options)), of_sink


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """ValueError for shapes that do not belong together."""
    samples, heads, rows, size = query.shape
    groups, columns = key.shape[1:3]
    if key.shape != (samples, groups, columns, size) or value.shape[:3] != key.shape[:3] or heads % groups:
        shapes = [list(t.shape) for t in (query, key, value)]
        raise ValueError(f"queries, keys and values of attention do not belong together: {shapes}")
    scores = (samples, heads, rows, columns)
    if mask is not None and any(m not in (1, n) for m, n in zip(reversed(mask.shape), reversed(scores), strict=False)):
        raise ValueError(f"a mask of attention of shape {list(mask.shape)} for scores of {list(scores)}")


def _ordered_whole(query: Tensor, key: Tensor, mask: Tensor | None, options: AttentionOptions) -> bool:
    """Whether all of a sequence in zig-zag order is there: in natural order a fused kernel may compute it."""
    return options.chunks > 0 and query.shape[-2] == key.shape[-2] and mask is None and options.seed is None


def _natural(length: int, chunks: int, device: torch.device) -> Tensor:
    """[length]: the place in zig-zag order of each place in natural order."""
    return zigzag_places(length, chunks, device).argsort()


def _products(query: Tensor, key: Tensor, scale: float, softcap: float) -> Tensor:
    """[b, hq, sq, sk], before any mask."""
    dtype = wide(query.dtype)
    products = query.to(dtype) @ _for_each_query_head(key, query).to(dtype).transpose(-2, -1) * scale
    return torch.tanh(products / softcap) * softcap if softcap else products


def _masked(scores: Tensor, mask: Tensor | None, options: AttentionOptions) -> Tensor:
    """[b, hq, sq, sk], −∞ where a query does not see a key."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if options.causal:
        (rows, columns), first, window, chunks = scores.shape[-2:], options.first[2], options.window, options.chunks
        seen = torch.arange(columns, device=scores.device)
        seeing = torch.arange(first, first + rows, device=scores.device)
        if chunks:
            seen = zigzag_places(columns, chunks, scores.device)
            seeing = seen[first : first + rows]
        distance = seeing[:, None] - seen
        hidden = (distance < 0) | (distance >= window) if window else distance < 0
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores


def _kept(scores: Tensor, dropout: float, seed: Tensor, first: Sequence[int]) -> Tensor:
    """What dropout multiplies p with: 0 or 1 / (1 − dropout).

    The number of an entry, made of seed and position, is mixed as in SplitMix64 (Steele, Lea and Flood, "Fast
    Splittable Pseudorandom Number Generators", OOPSLA 2014); its upper 53 bits are a number in 0 … 1.
    """
    number = (seed.to(scores.device, torch.float64) * 2.0**53).to(torch.int64)
    for extent, start in zip(scores.shape, (*first, 0), strict=True):
        place = torch.arange(start, start + extent, device=scores.device)
        number = _mixed(number.unsqueeze(-1) + (place + 1) * _GAMMA)
    uniform = _shifted(number, 11).to(torch.float64) * 2.0**-53
    return (uniform >= dropout).to(scores.dtype) / (1 - dropout)


def _mixed(number: Tensor) -> Tensor:
    """The last steps of SplitMix64; products wrap around."""
    number = (number ^ _shifted(number, 30)) * _FIRST_FACTOR
    number = (number ^ _shifted(number, 27)) * _SECOND_FACTOR
    return number ^ _shifted(number, 31)


def _shifted(number: Tensor, bits: int) -> Tensor:
    """Shifted right as an unsigned number."""
    return (number >> bits) & ((1 << 64 - bits) - 1)


def _finite(logsumexp: Tensor) -> Tensor:
    """As a column; that of a query that sees no key becomes 0, so that its shares become 0 too."""
    return logsumexp.masked_fill(logsumexp == -torch.inf, 0).unsqueeze(-1)


def _for_each_query_head(shared: Tensor, query: Tensor) -> Tensor:
    """Keys or values with a head for each head of the queries."""
    return shared.repeat_interleave(query.shape[1] // shared.shape[1], 1)


def rows_of_heads(tensor: Tensor) -> Tensor:
    """[b, h, s, d] with the heads of a position side by side in memory, as fused kernels write it: a model's
    transpose and reshape to [b, s, h·d] then moves nothing."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _laid_out(output: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """`output` as torch's kernels write it: flash attention in the order of dims that the queries have in memory,
    memory-efficient attention, which takes masks, with the heads of a position side by side."""
    if mask is not None or output.shape != query.shape:
        return rows_of_heads(output)
    strides = torch.empty_like(query, device="meta").stride()
    order = sorted(range(4), key=lambda dim: -strides[dim])
    return output.permute(order).contiguous().permute([order.index(dim) for dim in range(4)])


def _fits_flash(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: AttentionOptions) -> bool:
    """Whether torch's flash kernel computes exactly this call. With causal its queries must be as many as its keys."""
    size = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and torch.cuda.get_device_capability(query.device) >= _FLASH_CAPABILITY
        and mask is None
        and not (options.dropout or options.window or options.softcap or options.chunks)
        and not (options.causal and (options.first[2] or query.shape[-2] != key.shape[-2]))
        and all(t.stride(-1) == 1 for t in (query, key, value))
        and size == value.shape[-1]
        and size % _HEAD_MULTIPLE == 0
        and size <= _MOST_HEAD_SIZE
    )
