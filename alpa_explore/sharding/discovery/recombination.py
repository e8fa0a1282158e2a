"""Tensors cut into the local tensors of several devices, joined again, and compared with a tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from alpa_explore.sharding.spec import PARTIAL, REPLICATE

_TOLERANCE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
"""Relative tolerance by dtype, 2e-2 for those that are not listed; set by hand."""


def local_tensors(
    value: torch.Tensor, placement: int, count: int, generator: torch.Generator
) -> Sequence[torch.Tensor]:
    """The local tensors of `count` devices; the addends of a pending sum have different magnitudes."""
    if placement == REPLICATE:
        return [value] * count
    if placement == PARTIAL:
        scale = value.abs().mean() + 1.0
        addends = [
            torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype) * scale * 10.0**i
            for i in range(count - 1)
        ]
        return [*addends, value - sum(addends[1:], addends[0])]
    return [part.contiguous() for part in value.chunk(count, placement)]


def joined(placement: int, pieces: Sequence[torch.Tensor], expected: torch.Tensor) -> torch.Tensor:
    """The whole tensor of local ones; of replicas the first that differs from `expected`, if any."""
    if placement >= 0:
        return torch.cat(list(pieces), placement)
    if placement == PARTIAL:
        return sum(pieces[1:], pieces[0])
    # All replicas must equal the whole, so the one that does not is returned for the comparison to fail.
    return next((p for p in pieces if not close(p, expected)), pieces[0])


def close(value: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal in shape, dtype and, within the tolerance of the dtype, in value; integers and booleans exactly."""
    if (value.shape, value.dtype) != (expected.shape, expected.dtype):
        return False
    if not (expected.is_floating_point() or expected.is_complex()):
        return bool(torch.equal(value, expected))
    tolerance = _TOLERANCE.get(expected.dtype, 2e-2)
    finite = expected[torch.isfinite(expected)]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(value, expected, rtol=tolerance, atol=tolerance * (0.1 + size), equal_nan=True))


def same(value: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal in every element, NaN equal to NaN."""
    return bool(torch.allclose(value, expected, rtol=0, atol=0, equal_nan=True))


def is_finite(value: torch.Tensor) -> bool:
    """True when no element is infinite or NaN."""
    return bool(torch.isfinite(value).all())


def is_constant(value: torch.Tensor) -> bool:
    """All elements are equal, so comparing shards of the tensor proves nothing. A tensor of one element does not count:
    it may be a sum, and differs from run to run."""
    flat = value.flatten()
    if flat.numel() < 2:
        return flat.numel() == 0
    return bool((flat == flat[0]).all()) or bool(torch.isnan(flat).all())
