"""Attention as one operator: plain, grouped, causal, masked."""

import torch

from tests.sharding.call import Call, mask, real

ALL = "batch heads queries ring ulysses"
CAUSAL = "batch heads queries ring ring-zigzag queries-zigzag ulysses"
GROUPED = CAUSAL.replace("heads", "heads query-heads")


def forward(*masks, q=(4, 4, 8, 4), k=(4, 4, 8, 4), v=None, causal=False, dropout=(), dtype=torch.float64, factors=ALL):
    tensors = (real(*shape, dtype=dtype) for shape in (q, k, k if v is None else v))
    options = (*(masks or (None,)), causal, 0.3, *dropout)
    return Call("alpa_explore.attention.default", *tensors, *options, factors=factors)


def backward(
    *masks, q=(4, 4, 8, 4), k=(4, 4, 8, 4), v=None, causal=False, dropout=(), dtype=torch.float64, factors=ALL
):
    q, k, v = (real(*shape, dtype=dtype) for shape in (q, k, k if v is None else v))
    given = masks[0] if masks else None
    output, logsumexp = torch.ops.alpa_explore.attention(q, k, v, given, causal, 0.3, *dropout)
    tensors = (real(*output.shape, dtype=dtype), q, k, v, given, output, logsumexp)
    return Call("alpa_explore.attention_backward.default", *tensors, causal, 0.3, *dropout, factors=factors)


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
    {"dropout": _DROPOUT, "factors": "batch heads queries ulysses"},
    {"q": (4, 8, 8, 4), "causal": True, "dropout": _DROPOUT, "factors": "batch heads query-heads queries ulysses"},
    {"dtype": torch.bfloat16, "causal": True, "factors": CAUSAL},
)
_MASKS = (mask(8, 8), mask(4, 1, 8, 8), mask(4, 1, 1, 8), real(1, 4, 8, 8), real(4, 4, 8, 1), mask(4, 4, 8, 8))

CALLS = (
    *(call(**setting) for setting in _SETTINGS for call in (forward, backward)),
    *(call(given) for given in _MASKS for call in (forward, backward)),
    *(call(_MASKS[3], dropout=_DROPOUT, factors="batch heads queries ulysses") for call in (forward, backward)),
)

CONTEXT = tuple(call(q=(4, 8, 8, 4), causal=True, dtype=torch.float32, factors=GROUPED) for call in (forward, backward))
"""Calls that can be divided in all ways of context parallelism."""
