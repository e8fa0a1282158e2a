"""Zig-zag order of a sequence: of 2 n equal chunks the i-th of n parts has i and 2 n − 1 − i.

With a causal mask each part then has as much to do as any other (Llama 3, arXiv 2407.21783, §3.3.2). Where the inputs
of a model are brought into this order, and all else but attention treats positions alike, devices that divide the
sequence need not change it again.
"""

import torch


def zigzag_places(length: int, chunks: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """[length]: for each place in zig-zag order of so many chunks (an even number) its place in natural order."""
    number = torch.arange(chunks, device=device)
    order = torch.where(number % 2 == 0, number // 2, chunks - 1 - number // 2)
    return torch.arange(length, device=device).view(chunks, -1)[order].flatten()


@torch.library.custom_op(
    "alpa_explore::zigzag", mutates_args=(), schema="(Tensor natural, int dim, int chunks) -> Tensor"
)
def zigzag(natural: torch.Tensor, dim: int, chunks: int) -> torch.Tensor:
    """A tensor with the entries of `dim` in zig-zag order."""
    return natural.index_select(dim, zigzag_places(natural.shape[dim], chunks, natural.device))


@zigzag.register_fake
def _shape(natural: torch.Tensor, dim: int, chunks: int) -> torch.Tensor:
    return natural.new_empty(natural.shape)
