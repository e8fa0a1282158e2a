"""Calls of torch's `embedding_bag` (`nn.EmbeddingBag` makes them), written as a lookup and a sum of each bag.

torch's own operator returns tensors whose sizes depend on the device and on what it chooses to run, and it can be
divided along the hidden dim only. As a lookup and a sum, rows of the table, positions and the hidden dim can all be
divided, by the rules of the operators that stay. The looked-up rows are a tensor of the graph, which a fused kernel
does not store: time and memory of bags with many entries are estimated too high.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.nn import functional

CALL = functional.embedding_bag
"""torch's own function."""


def embedding_bag(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> torch.Tensor:
    """What torch's function returns. The maximum of bags, and tables that the lookup itself changes, are torch's."""
    plain = mode in ("sum", "mean") and max_norm is None and padding_idx is None and not scale_grad_by_freq
    weighed = per_sample_weights is None or mode == "sum"
    if not plain or not weighed or (input.dim() == 2) == (offsets is not None):
        whole: torch.Tensor = CALL(
            input,
            weight,
            offsets,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
        return whole
    rows = functional.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return rows.sum(1) if mode == "sum" else rows.mean(1)
    begins = offsets[:-1] if include_last_offset else offsets
    positions = torch.arange(input.shape[0], device=input.device)
    bag = torch.searchsorted(begins, positions.to(begins.dtype), right=True) - 1
    sums = torch.zeros((begins.shape[0], weight.shape[1]), dtype=rows.dtype, device=rows.device)
    sums = sums.index_add(0, bag, rows)
    if mode == "sum":
        return sums
    counts = torch.zeros(begins.shape, dtype=rows.dtype, device=rows.device)
    counts = counts.index_add(0, bag, torch.ones(positions.shape, dtype=rows.dtype, device=rows.device))
    return sums / counts.clamp(min=1).unsqueeze(-1)  # an empty bag is zero


@contextmanager
def summed_bags() -> Iterator[None]:
    """Within torch's own modules too (`nn.EmbeddingBag`), which call the function by its name in
    `torch.nn.functional`."""
    with patch.object(functional, "embedding_bag", embedding_bag):
        yield
