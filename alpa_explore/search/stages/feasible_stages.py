"""Which stages can occur in a pipeline, which uses every device of the cluster exactly once (paper, Eq. 3).

In an interleaved pipeline, P submeshes take turns: stage k runs on submesh k mod P. A stage can be one of 2P such
stages only if the layers before and after it are enough for the other 2P − 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations_with_replacement

from alpa_explore.cluster import Submesh


def feasible_stages(layers: int, submeshes: Sequence[Submesh], devices: int) -> Iterator[tuple[int, int, int]]:
    """(first layer, last layer, index into `submeshes`) of every stage such that the layers before and after it can use
    all other devices, or such that the other layers are enough for an interleaved pipeline.

    k layers can use any number of devices that is the sum of at most k submeshes, and at least one; without layers no
    device is used.
    """
    least = _least_stages({submesh.devices for submesh in submeshes}, devices)
    for first, last in combinations_with_replacement(range(layers), 2):
        before, after = first, layers - 1 - last
        for index, submesh in enumerate(submeshes):
            rest = devices - submesh.devices
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
