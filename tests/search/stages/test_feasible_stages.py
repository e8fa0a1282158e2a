from itertools import combinations, product

import pytest

from alpa_explore.cluster import Cluster, submeshes
from alpa_explore.search.stages.stage_problems import feasible_stages


@pytest.mark.parametrize(
    ("cluster", "layers"), [("1x2:v100", 6), ("1x4:v100", 3), ("2x4:v100", 4), ("3x2:v100", 4), ("3x1:v100", 6)]
)
def test_exactly_the_stages_of_all_pipelines_that_use_every_device_are_feasible(cluster: str, layers: int) -> None:
    parsed = Cluster.parse(cluster)
    pieces = submeshes(parsed)
    found = set()
    for count in range(2, layers // 2 + 1):  # in turns, k on submesh k mod count
        for chosen in product(range(len(pieces)), repeat=count):
            for cuts in combinations(range(1, layers), 2 * count - 1):
                if sum(pieces[i].devices for i in chosen) == parsed.devices:
                    ends = [0, *cuts, layers]
                    found |= {(ends[k], ends[k + 1] - 1, chosen[k % count]) for k in range(2 * count)}
    for stages in range(1, layers + 1):
        for cuts in combinations(range(1, layers), stages - 1):
            ends = [0, *cuts, layers]
            for chosen in product(range(len(pieces)), repeat=stages):
                if sum(pieces[i].devices for i in chosen) == parsed.devices:
                    found |= {(ends[s], ends[s + 1] - 1, i) for s, i in enumerate(chosen)}
    assert set(feasible_stages(layers, pieces, parsed.devices)) == found


def test_all_layers_take_all_devices() -> None:
    pieces = submeshes(Cluster.parse("8x8:v100"))
    whole = [pieces[i].devices for first, last, i in feasible_stages(16, pieces, 64) if (first, last) == (0, 15)]
    assert whole == [64]
