"""Connectionist temporal classification (Graves et al. 2006) as one operator, forward and backward.

torch's own operator keeps a tensor whose size depends on the longest target of a batch, so it has no shape before it
runs. This one takes the targets as rows that are padded to one length, and its size follows from that. Samples are
independent. `torch.ops.alpa_explore.ctc_loss` and `ctc_loss_backward` exist once this module is imported; both call
torch's kernels.
"""

from typing import Any

import torch
from torch import Tensor

from alpa_explore.tracing.custom import gradients, operator


@operator(
    lambda scores, targets, *_: (
        scores.new_empty(scores.shape[1]),
        scores.new_empty((*scores.shape[1::-1], 2 * targets.shape[1] + 1)),
    )
)
def ctc_loss(
    scores: Tensor, targets: Tensor, frames: Tensor, lengths: Tensor, blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor]:
    """(loss of every sample [n], logarithms of its forward variables [n, t, 2 s + 1]).

    `scores` [t, n, c] are logarithms of probabilities, `targets` [n, s] classes of which the first `lengths` [n] count,
    as do the first `frames` [n] of the scores.
    """
    loss, alpha = torch.ops.aten._ctc_loss.Tensor(scores, targets, frames, lengths, blank, zero_infinity)
    kept = alpha.new_full((*alpha.shape[:2], 2 * targets.shape[1] + 1), -torch.inf)
    # What torch's kernels do not reach (after the last frame, behind the target) is not written by them.
    reached = torch.arange(alpha.shape[1], device=alpha.device).unsqueeze(1) < frames.view(-1, 1, 1)
    reached = reached & (torch.arange(alpha.shape[2], device=alpha.device) <= 2 * lengths.view(-1, 1, 1))
    kept[..., : alpha.shape[2]] = alpha.where(reached, -torch.inf)
    return loss, kept


@operator(lambda gradient, scores, *_: scores.new_empty(scores.shape))
def ctc_loss_backward(
    gradient: Tensor,
    scores: Tensor,
    targets: Tensor,
    frames: Tensor,
    lengths: Tensor,
    loss: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The gradient of `scores`; `gradient` [n] is that of the losses, the others as in `ctc_loss`."""
    alpha = alpha[..., : 2 * int(lengths.max()) + 1].contiguous()
    found: Tensor = torch.ops.aten._ctc_loss_backward.Tensor(
        gradient, scores, targets, frames, lengths, loss, alpha, blank, zero_infinity
    )
    return found.contiguous()


@gradients(ctc_loss)
def _gradients(inputs: tuple[Any, ...], output: tuple[Tensor, Tensor], gradient: Tensor) -> tuple[Tensor]:
    return (ctc_loss_backward(gradient, *inputs[:4], *output, *inputs[4:]),)
