"""Random inputs of several styles, chosen to make an operator show where its result depends on its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from alpa_explore.graph import Argument, Operator

STYLES = ("normal", "positive", "ties", "large", "positive", "special")
"""normal: standard normal numbers; positive: 0.1 … 0.9, and integers above 0; ties: few different values, among them
the operator's own float arguments; large: normal numbers times 1000; special, used only while every output is constant:
infinities, NaN and larger integers."""
_TRUE = {"normal": 0.5, "positive": 0.97, "ties": 0.03, "large": 0.5, "special": 0.5}
"""Style -> share of true among booleans."""


def random_tensor(
    style: str, shape: Sequence[int], dtype: str, high: int, numbers: Sequence[float], generator: torch.Generator
) -> torch.Tensor:
    """A random tensor of one of `STYLES`; integers are 0 … high − 1 (1 … high when positive, 0 … high when large,
    −100 … 99 when special)."""
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.rand(tuple(shape), generator=generator) < _TRUE[style]
    if not (kind.is_floating_point or kind.is_complex):
        if style == "special":
            return torch.randint(-100 if kind.is_signed else 0, 100, tuple(shape), generator=generator).to(kind)
        # Where one value is special to the operator (a class that is ignored), two others are left when large.
        low, high = int(style == "positive"), high + int(style in ("positive", "large"))
        return torch.randint(low, high, tuple(shape), generator=generator).to(kind)
    if style == "ties":
        levels = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, *numbers], dtype=torch.float64)
        return levels[torch.randint(len(levels), tuple(shape), generator=generator)].to(kind)
    if style == "positive":
        return (torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * 0.8 + 0.1).to(kind)
    widest = torch.complex128 if kind.is_complex else torch.float64
    values = torch.randn(tuple(shape), generator=generator, dtype=widest)
    if style == "special":
        specials = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=widest)
        chosen = specials[torch.randint(3, tuple(shape), generator=generator)]
        values = torch.where(torch.rand(tuple(shape), generator=generator) < 0.3, chosen, values)
    return (values * 1e3 if style == "large" else values).to(kind)


def float_arguments(argument: Operator | Argument) -> list[float]:
    """The float arguments of an operator: they may be thresholds, at which its behaviour changes."""
    if isinstance(argument, Operator):
        return [n for a in (*argument.arguments, *(v for _, v in argument.keywords)) for n in float_arguments(a)]
    if isinstance(argument, tuple):
        return [n for a in argument for n in float_arguments(a)]
    return [argument] if isinstance(argument, float) else []
