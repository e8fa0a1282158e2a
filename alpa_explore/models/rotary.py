"""Rotary positions (RoFormer, arXiv 2104.09864): pairs of channels of queries and keys turn by the token's position.

Shape suffixes: B microbatch, S sequence, H heads, D head dim. Channels i and i + D/2 are a pair, as Hugging Face and
NeMo lay them out.
"""

from __future__ import annotations

import torch


def rotary_tables(sequence: int, head: int, theta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(cosines, sines), (S, D) each, of position · theta^(−2i / D); `head` must be even."""
    assert head % 2 == 0, f"rotary positions turn pairs of channels, a head has {head}"
    frequencies = theta ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
    angles = torch.arange(sequence, dtype=torch.float32)[:, None] * frequencies
    both = torch.cat((angles, angles), dim=1)
    return both.cos(), both.sin()


def rotated(x_BHSD: torch.Tensor, cosines_SD: torch.Tensor, sines_SD: torch.Tensor) -> torch.Tensor:
    """Queries or keys, turned; the tables are of their length."""
    first, second = x_BHSD.chunk(2, dim=3)
    turned: torch.Tensor = x_BHSD * cosines_SD + torch.cat((-second, first), dim=3) * sines_SD
    return turned


def table_for(table_SD: torch.Tensor, length: int) -> torch.Tensor:
    """The table for a sequence of `length`; at full length the table itself, which adds no operator."""
    return table_SD if table_SD.shape[0] == length else table_SD[:length]
