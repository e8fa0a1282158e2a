"""The FLOP balance of a layering: the most and the least that a layer may do, the smallest delta that is feasible."""

import math
from fractions import Fraction

from alpa_explore.errors import BalanceError, LayerCountError, OptionError
from alpa_explore.numerics.arrays import Ints

_DIGITS = 6
"""Decimals of a delta in an error message; rounded up, so that the printed delta is feasible."""


def check_num_layers(num_layers: int, operators: int) -> None:
    """OptionError below one layer; LayerCountError when there are more layers than operators."""
    if num_layers < 1:
        raise OptionError(
            "The number of layers is out of range", found=f"{num_layers}", remedy="Choose at least one layer."
        )
    if num_layers > operators:
        raise LayerCountError(
            "There are more layers than operators",
            found=f"{num_layers} layers of {operators} forward operators",
            remedy=f"Choose at most {operators} layers.",
        )


def flops_limit(total: int, num_layers: int, delta: float) -> int:
    """Most FLOPs of a layer, floor((1 + delta) · total / L); exact, because FLOPs are integers.

    delta is taken as the decimal fraction that it is written as (0.1 is exactly a tenth).
    OptionError when it is negative or not finite.
    """
    if not math.isfinite(delta) or delta < 0:
        raise OptionError(
            "The FLOP tolerance delta is out of range",
            found=f"delta = {delta}",
            remedy="Give 0 or more, for example 0.5.",
        )
    return math.floor((1 + Fraction(str(delta))) * total / num_layers)


def flops_floor(total: int, num_layers: int, least: float) -> int:
    """Least FLOPs of a layer, ceil(least · total / L); exact, as `flops_limit`. OptionError unless 0 ≤ least ≤ 1."""
    if not 0 <= least <= 1:
        raise OptionError(
            "The least share of a layer is out of range",
            found=f"least = {least}",
            remedy="Give 0 to 1, for example 0.25: every layer then has a quarter of the mean FLOPs or more.",
        )
    return math.ceil(Fraction(str(least)) * total / num_layers)


def too_tight(flops: Ints, num_layers: int, delta: float, least: float) -> BalanceError:
    """The error for an infeasible balance; it names the smallest feasible delta where only that is at fault."""
    if least and smallest_delta(flops.tolist(), num_layers) <= Fraction(str(delta)):
        return BalanceError(
            f"No clustering into {num_layers} layers satisfies the FLOP balance",
            found=f"delta = {delta}, at least {least} of the mean FLOPs in every layer",
            remedy="Choose fewer layers, a larger delta or a smaller least share.",
        )
    units = int(smallest_delta(flops.tolist(), num_layers) * 10**_DIGITS)
    smallest = f"{units // 10**_DIGITS}.{units % 10**_DIGITS:0{_DIGITS}d}".rstrip("0").rstrip(".")
    return BalanceError(
        f"No clustering into {num_layers} layers satisfies the FLOP balance",
        found=f"delta = {delta}",
        remedy=f"The smallest delta that works is {smallest}; or choose another number of layers.",
    )


def smallest_delta(flops: list[int], num_layers: int) -> Fraction:
    """The least feasible delta for exactly `num_layers` layers, rounded up to `_DIGITS` decimals.

    It is M · L / total − 1, where M is the smallest possible FLOPs of the largest layer, found by bisection. M for at
    most L layers is also M for exactly L: splitting a layer makes none larger, and there are at least L operators.
    """
    total = sum(flops)
    if total == 0:
        return Fraction(0)
    least, most = max(flops), total
    while least < most:
        middle = (least + most) // 2
        if _layers_needed(flops, middle) <= num_layers:
            most = middle
        else:
            least = middle + 1
    scale = 10**_DIGITS
    return Fraction(math.ceil((Fraction(least * num_layers, total) - 1) * scale), scale)


def _layers_needed(flops: list[int], limit: int) -> int:
    """Fewest layers of at most `limit` FLOPs each, by greedy filling. No operator may exceed `limit`."""
    layers, used = 1, 0
    for value in flops:
        if used + value > limit:
            layers, used = layers + 1, 0
        used += value
    return layers
