"""Attention as one operator: plain, grouped, causal, masked."""

import torch

from tests.sharding.call import Call, mask, real

ALL = "batch heads queries ring ulysses"
CAUSAL = "batch heads queries ring ring-zigzag queries-zigzag ulysses"
ORDERED = "batch heads queries ring-zigzag ulysses"
GROUPED = CAUSAL.replace("heads", "heads query-heads")


def forward(
    *masks, q=(4, 4, 8, 4), k=(4, 4, 8, 4), v=None, causal=False, more=(), sink=False, dtype=torch.float64, factors=ALL
):
    """`more`: dropout, seed, first, window, softcap, chunks."""
    tensors = (real(*shape, dtype=dtype) for shape in (q, k, k if v is None else v))
    options = (*(masks or (None,)), causal, 0.3, *more)
    if sink:
        options = (*options, *(0.0, None, (0, 0, 0), 0, 0.0, 0)[len(more) :], real(q[1], dtype=dtype))
    return Call("alpa_explore.attention.default", *tensors, *options, factors=factors)


def backward(
    *masks, q=(4, 4, 8, 4), k=(4, 4, 8, 4), v=None, causal=False, more=(), sink=False, dtype=torch.float64, factors=ALL
):
    q, k, v = (real(*shape, dtype=dtype) for shape in (q, k, k if v is None else v))
    given = masks[0] if masks else None
    named = {"sink": real(q.shape[1], dtype=dtype)} if sink else {}
    output, logsumexp = torch.ops.alpa_explore.attention(q, k, v, given, causal, 0.3, *more, **named)
    tensors = (real(*output.shape, dtype=dtype), q, k, v, given, output, logsumexp)
    return Call("alpa_explore.attention_backward.default", *tensors, causal, 0.3, *more, factors=factors)


def of_sink(dtype=torch.float64):
    tensors = (real(4, 4, 4, 2), real(4, 4, 4, 2), real(4, 4, 4), real(4))
    given = (t.to(dtype) for t in tensors)
    return Call("alpa_explore.sink_gradient.default", *given, factors="b h s d")


def windowed(window, softcap=0.0):
    """Causal attention with a window and no dropout."""
    return {"causal": True, "more": (0.0, None, (0, 0, 0), window, softcap)}


_DROPOUT = (0.4, torch.tensor(0.7, dtype=torch.float64))
_SETTINGS = (
    {},
    {"causal": True, "factors": CAUSAL},
    {"q": (4, 8, 8, 4), "causal": True, "factors": GROUPED},  # two query heads share keys and values
    {"q": (2, 8, 4, 4), "k": (2, 1, 6, 4), "factors": "batch query-heads queries ring"},
    {"q": (2, 8, 4, 4), "k": (2, 2, 4, 4), "causal": True, "factors": GROUPED},
    # A device has parts of groups.
    {"q": (1, 24, 2, 4), "k": (1, 6, 4, 4), "factors": "heads query-heads queries ring ulysses"},
    {"q": (4, 4, 8, 4), "k": (4, 4, 4, 4), "v": (4, 4, 4, 6), "causal": True, "factors": "batch heads queries ulysses"},
    {"q": (1, 4, 4, 4), "k": (1, 4, 8, 4), "causal": True, "factors": "heads queries ulysses"},
    # The same entries are dropped, whoever computes them.
    {"more": _DROPOUT, "factors": "batch heads queries ulysses"},
    {"q": (4, 8, 8, 4), "causal": True, "more": _DROPOUT, "factors": "batch heads query-heads queries ulysses"},
    {"dtype": torch.bfloat16, "causal": True, "factors": CAUSAL},
    # Windows within a shard of the keys, over two of them, and as long as all; sinks; scores that are cut.
    *({**windowed(w), "factors": ALL} for w in (1, 2, 3, 5, 8, 20)),
    {**windowed(3, 0.7), "q": (4, 8, 8, 4), "sink": True, "factors": ALL.replace("heads", "heads query-heads")},
    {"q": (2, 8, 4, 4), "k": (2, 2, 4, 4), "causal": True, "sink": True, "factors": GROUPED},
    # In zig-zag order of 8 and of 4 chunks.
    {"causal": True, "more": (0.0, None, (0, 0, 0), 0, 0.0, 8), "factors": ORDERED},
    {"causal": True, "more": (0.0, None, (0, 0, 0), 0, 0.5, 4), "sink": True, "factors": ORDERED},
    {"causal": True, "more": (0.0, None, (0, 0, 0), 3, 0.0, 8), "factors": ORDERED},
    {"more": (*_DROPOUT, (0, 0, 0), 0, 1.5), "sink": True, "factors": "batch heads queries ulysses"},
)
_MASKS = (mask(8, 8), mask(4, 1, 8, 8), mask(4, 1, 1, 8), real(1, 4, 8, 8), real(4, 4, 8, 1), mask(4, 4, 8, 8))

CALLS = (
    *(call(**setting) for setting in _SETTINGS for call in (forward, backward)),
    *(call(given) for given in _MASKS for call in (forward, backward)),
    *(call(_MASKS[0], sink=True) for call in (forward, backward)),
    of_sink(),
    Call("alpa_explore.zigzag.default", real(4, 8, 4), 1, 4, factors="dim0 dim2"),
    *(call(_MASKS[3], more=_DROPOUT, factors="batch heads queries ulysses") for call in (forward, backward)),
)

CONTEXT = tuple(call(q=(4, 8, 8, 4), causal=True, dtype=torch.float32, factors=GROUPED) for call in (forward, backward))
"""Calls that can be divided in all ways of context parallelism."""
