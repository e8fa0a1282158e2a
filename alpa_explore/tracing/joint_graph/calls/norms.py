"""Calls of torch's `rms_norm` (`nn.RMSNorm` makes them), replaced by the one operator of `tracing.fused.rms_norm`.

torch decomposes it on fake tensors into a power, a mean, a reciprocal root and two products, whatever device the model
is made for; a GPU runs one kernel that stores none of the tensors between them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.nn import functional

from alpa_explore.tracing.fused import rms_norm as operator

CALL, BUILTIN = functional.rms_norm, torch.rms_norm
"""torch's own functions; the first calls the second."""


def rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """What torch's function returns, by one operator where that computes it."""
    normalised = tuple(normalized_shape)
    if not operator.fits(input, normalised, weight):
        return BUILTIN(input, normalised, weight, eps)
    added = operator.default_epsilon(input.dtype) if eps is None else float(eps)
    normal: torch.Tensor = operator.rms_norm(input, weight, added, len(normalised))[0]
    return normal


@contextmanager
def whole_norms() -> Iterator[None]:
    """Within torch's own modules too (`nn.RMSNorm`), which call the function by its name in `torch.nn.functional`."""
    with patch.object(functional, "rms_norm", rms_norm):
        yield
