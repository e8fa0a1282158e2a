"""What is read from a graph once for all layouts is read again where the software or the device changes it."""

from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [("alpa", "eager"), ("torchtitan", "compiled")])
def test_layouts_do_not_depend_on_the_software_that_was_asked_for_before(
    first: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(software: str, *, cache: bool) -> list[float]:
        machines = Cluster.parse("1x2:h100", software=software)
        found = ax.layouts("llama-tiny", machines, global_batch=8, scheduler="serial", cache=cache)
        return [row.seconds for row in found.ranked]

    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    seconds(first, cache=True)
    assert seconds(then, cache=True) == seconds(then, cache=False)
