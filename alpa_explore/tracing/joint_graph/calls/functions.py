"""Calls of functions of `torch.nn.functional`, each replaced by one operator or by a few.

- `embedding_bag` (`nn.EmbeddingBag`) is a lookup and a sum of each bag. torch's own operator returns tensors whose
  sizes depend on the device and on what it chooses to run, and it can be divided along the hidden dim only. As a lookup
  and a sum, rows of the table, positions and the hidden dim can all be divided, by the rules of the operators that
  stay. The looked-up rows are a tensor of the graph, which a fused kernel does not store: time and memory of bags with
  many entries are estimated too high.
- `rms_norm` (`nn.RMSNorm`) is the operator of `tracing.fused.rms_norm`. torch decomposes it on fake tensors into a
  power, a mean, a reciprocal root and two products, whatever device the model is made for; a GPU runs one kernel that
  stores none of the tensors between them.
- `dropout` without dropout is its input, as it is where nothing is traced.
- `interpolate` (`nn.Upsample`) is the operator of its mode. A trace replaces these by indices and weighted sums in
  Python (`py_impl` in `torch._decomp`), which write several images of the larger size and add gradients by index.
- `ctc_loss` is the operator of `tracing.fused.ctc`. Targets in one row have no shape before they are selected by a
  mask, as Hugging Face's models do; `attention.SelectedRows` keeps them as rows.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from alpa_explore.tracing.custom import wide
from alpa_explore.tracing.fused import ctc
from alpa_explore.tracing.fused import rms_norm as norm

_BAG, CTC, _NORM, _BUILTIN_NORM = functional.embedding_bag, functional.ctc_loss, functional.rms_norm, torch.rms_norm
_DROPOUT = functional.dropout
"""torch's own functions; the third calls the fourth."""


def embedding_bag(*args: Any, **kwargs: Any) -> Tensor:
    """What torch's function returns. The maximum of bags, and tables that the lookup itself changes, are torch's."""
    call = inspect.signature(_BAG).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    input, weight, offsets, mode = (given[name] for name in ("input", "weight", "offsets", "mode"))
    plain = mode in ("sum", "mean") and given["max_norm"] is None and given["padding_idx"] is None
    weighed = given["per_sample_weights"] is None or mode == "sum"
    one_form = (input.dim() == 2) != (offsets is not None)
    if not (plain and weighed and one_form) or given["scale_grad_by_freq"]:
        whole: Tensor = _BAG(*args, **kwargs)
        return whole
    rows = functional.embedding(input, weight)
    if given["per_sample_weights"] is not None:
        rows = rows * given["per_sample_weights"].unsqueeze(-1)
    if offsets is None:
        return rows.sum(1) if mode == "sum" else rows.mean(1)
    begins = offsets[:-1] if given["include_last_offset"] else offsets
    positions = torch.arange(input.shape[0], device=input.device)
    bag = torch.searchsorted(begins, positions.to(begins.dtype), right=True) - 1
    sums = torch.zeros((begins.shape[0], weight.shape[1]), dtype=rows.dtype, device=rows.device)
    sums = sums.index_add(0, bag, rows)
    if mode == "sum":
        return sums
    counts = torch.zeros(begins.shape, dtype=rows.dtype, device=rows.device)
    counts = counts.index_add(0, bag, torch.ones(positions.shape, dtype=rows.dtype, device=rows.device))
    return sums / counts.clamp(min=1).unsqueeze(-1)  # an empty bag is zero


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """What torch's function returns, for samples of [t, n, c] and targets of [n, s]; others are torch's."""
    frames, lengths = (
        given if isinstance(given, Tensor) else torch.tensor(given) for given in (input_lengths, target_lengths)
    )
    if log_probs.dim() != 3 or targets.dim() != 2:
        kept: Tensor = CTC(log_probs, targets, frames, lengths, blank, reduction, zero_infinity)
        return kept
    losses: Tensor = ctc.ctc_loss(log_probs, targets, frames, lengths, blank, zero_infinity)[0]
    if reduction == "mean":
        return (losses / lengths.to(losses.dtype).clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """What torch's function returns, by one operator where that computes it."""
    normalised = tuple(normalized_shape)
    if not norm.fits(input, normalised, weight):
        return _BUILTIN_NORM(input, normalised, weight, eps)
    added = float(torch.finfo(wide(input.dtype)).eps if eps is None else eps)
    normal: Tensor = norm.rms_norm(input, weight, added, len(normalised))[0]
    return normal


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """What torch's function returns: of no dropout the input, which traces of torch copy."""
    return _DROPOUT(input, p, training, inplace) if p and training else input


CALLS: Mapping[Any, Callable[..., Any]] = {_BAG: embedding_bag, CTC: ctc_loss, _NORM: rms_norm, _BUILTIN_NORM: rms_norm}
"""torch's function -> what takes its place."""


_aten = torch.ops.aten
_RESAMPLING = tuple(
    overload
    for packet in (
        *(_aten.upsample_nearest1d, _aten.upsample_nearest2d, _aten.upsample_nearest3d),
        *(_aten._upsample_nearest_exact1d, _aten._upsample_nearest_exact2d, _aten._upsample_nearest_exact3d),
        *(_aten.upsample_linear1d, _aten.upsample_bilinear2d, _aten.upsample_trilinear3d, _aten.upsample_bicubic2d),
        *(_aten._upsample_bilinear2d_aa, _aten._upsample_bicubic2d_aa),
    )
    for overload in (packet.vec, packet.default)
)


@contextmanager
def _whole_resampling() -> Iterator[None]:
    """While this is entered, resampling has no decomposition in Python."""
    with ExitStack() as stack:
        for overload in _RESAMPLING:
            stack.callback(overload._dispatch_cache.clear)
            stack.enter_context(patch.dict(overload.py_kernels, clear=True))
            overload._dispatch_cache.clear()
        yield


@contextmanager
def in_torchs_modules() -> Iterator[None]:
    """Within torch's own modules too (`nn.EmbeddingBag`, `nn.RMSNorm`), which call the functions by their names in
    `torch.nn.functional`."""
    with (
        _whole_resampling(),
        patch.object(functional, "embedding_bag", embedding_bag),
        patch.object(functional, "rms_norm", rms_norm),
        patch.object(functional, "dropout", dropout),
    ):
        yield
