"""Sinks of attention: a logit of each query head that joins in the softmax of its queries and has no value (GPT-OSS).

    logsumexp' = log(exp(logsumexp) + exp(sink))      output' = output · exp(logsumexp − logsumexp')
    dsink = − Σ exp(sink − logsumexp') · Σ dy ∘ output'      over samples and queries

The share of the sink in the softmax of a query is exp(sink − logsumexp'), its product with dy is 0.
"""

from __future__ import annotations

import torch


def with_sink(output: torch.Tensor, logsumexp: torch.Tensor, sink: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [b, hq, sq, dv] and logsumexp [b, hq, sq] without a sink, as they are with `sink` [hq]."""
    total = torch.logaddexp(logsumexp, sink.to(logsumexp.dtype)[:, None])
    return output * torch.exp(logsumexp - total).unsqueeze(-1), total


@torch.library.custom_op(
    "alpa_explore::sink_gradient",
    mutates_args=(),
    schema="(Tensor gradient, Tensor output, Tensor logsumexp, Tensor sink) -> Tensor",
)
def sink_gradient(
    gradient: torch.Tensor, output: torch.Tensor, logsumexp: torch.Tensor, sink: torch.Tensor
) -> torch.Tensor:
    """[hq]; `output`, of which `gradient` is the gradient, and `logsumexp` are those with the sink."""
    dtype = logsumexp.dtype
    shares = torch.exp(sink.to(dtype)[:, None] - logsumexp)
    return -(shares * (gradient.to(dtype) * output.to(dtype)).sum(-1)).sum((0, 2)).to(sink.dtype)


@sink_gradient.register_fake
def _shape(gradient: torch.Tensor, output: torch.Tensor, logsumexp: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(sink)
