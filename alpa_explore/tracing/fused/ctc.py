"""Connectionist temporal classification (Graves et al. 2006) as one operator, forward and backward.

torch's own operator keeps a tensor whose size depends on the longest target of a batch, so it has no shape before it
runs. This one takes the targets as rows that are padded to one length, and its size follows from that. Samples are
independent. `torch.ops.alpa_explore.ctc_loss` and `ctc_loss_backward` exist once this module is imported; both call
torch's kernels.
"""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op(
    "alpa_explore::ctc_loss",
    mutates_args=(),
    schema="(Tensor scores, Tensor targets, Tensor frames, Tensor lengths, int blank, bool zero_infinity)"
    " -> (Tensor, Tensor)",
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


@torch.library.custom_op(
    "alpa_explore::ctc_loss_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor scores, Tensor targets, Tensor frames, Tensor lengths, Tensor loss, Tensor alpha,"
    " int blank, bool zero_infinity) -> Tensor",
)
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


@ctc_loss.register_fake
def _shapes(
    scores: Tensor, targets: Tensor, frames: Tensor, lengths: Tensor, blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor]:
    samples = scores.shape[1]
    return scores.new_empty(samples), scores.new_empty((samples, scores.shape[0], 2 * targets.shape[1] + 1))


@ctc_loss_backward.register_fake
def _backward_shapes(gradient: Tensor, scores: Tensor, *others: Any) -> Tensor:
    return scores.new_empty(scores.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.blank, ctx.zero_infinity = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 6
    found = torch.ops.alpa_explore.ctc_loss_backward(gradient, *ctx.saved_tensors, ctx.blank, ctx.zero_infinity)
    return found, None, None, None, None, None


ctc_loss.register_autograd(_differentiate, setup_context=_keep)
