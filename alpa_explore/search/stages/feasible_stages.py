"""Which stages can be in a pipeline at all: all devices of the cluster are used (paper, Eq. 3), none is used twice.

Of P submeshes that take turns, stage k runs on submesh k mod P: beside one of 2P such stages there must be layers for
the other 2P − 1, and it does not matter on which side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations_with_replacement

from alpa_explore.cluster import Submesh


def feasible_stages(layers: int, pieces: Sequence[Submesh], devices: int) -> Iterator[tuple[int, int, int]]:
    """(first layer, last layer, index into `pieces`) of every stage beside which the layers before and after it can
    share out the other devices, or all the other layers in turns.

    k layers can take any number of devices that k submeshes or fewer add up to; no layers take none.
    """
    least = _least_stages({piece.devices for piece in pieces}, devices)
    for first, last in combinations_with_replacement(range(layers), 2):
        before, after = first, layers - 1 - last
        for index, piece in enumerate(pieces):
            rest = devices - piece.devices
            in_turns = rest > 0 and before + after >= 2 * least[rest] + 1
            if in_turns or any(
                _fits(least[d], d, before) and _fits(least[rest - d], rest - d, after) for d in range(rest + 1)
            ):
                yield first, last, index


def _least_stages(sizes: Collection[int], devices: int) -> list[int]:
    """The fewest submeshes that add up to 0, 1, … `devices` devices; more than `devices` where none do."""
    least = [0] + [devices + 1] * devices
    for total in range(1, devices + 1):
        least[total] = min((least[total - size] + 1 for size in sizes if size <= total), default=devices + 1)
    return least


def _fits(stages: int, devices: int, layers: int) -> bool:
    return stages <= layers and (devices > 0) == (layers > 0)
