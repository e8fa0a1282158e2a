"""Routed experts as operators, forward and backward; importing this package registers them with torch.

    rows     what a device computes of rows that are sorted by expert: products, gate, gradients
    whole    `alpa_explore::experts` and its backward pass: sort by expert, compute, combine; the same in
             steps, between which rows travel to the devices that hold their experts and back

They import `models.routed_experts`, whose words they use, and torch.
"""

from alpa_explore.tracing.experts.whole import experts

__all__ = ["experts"]
