"""Calls of torch's `ctc_loss`, replaced by the one operator of `tracing.fused.ctc`.

Targets in one row have no shape before they are selected by a mask, as Hugging Face's models do; `masked_calls` keeps
them as rows.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from alpa_explore.tracing.fused import ctc

CALL = functional.ctc_loss
"""torch's own function."""


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor | Sequence[int],
    target_lengths: torch.Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """What torch's function returns, for samples of [t, n, c] and targets of [n, s]; others are torch's."""
    frames, lengths = (
        given if isinstance(given, torch.Tensor) else torch.tensor(given) for given in (input_lengths, target_lengths)
    )
    if log_probs.dim() != 3 or targets.dim() != 2:
        kept: torch.Tensor = CALL(log_probs, targets, frames, lengths, blank, reduction, zero_infinity)
        return kept
    losses: torch.Tensor = ctc.ctc_loss(log_probs, targets, frames, lengths, blank, zero_infinity)[0]
    if reduction == "mean":
        return (losses / lengths.to(losses.dtype).clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses
