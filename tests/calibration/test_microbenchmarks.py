"""Measuring this machine: what comes out is complete and plausible, whatever the clock says."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from alpa_explore import cli
from alpa_explore.calibration.measurements import Measurements
from alpa_explore.calibration.microbenchmarks import measure
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def found() -> Measurements:
    """What two ranks measure of this machine."""
    return measure(kind="cpu", ranks=2, run_seconds=1e-4)


@pytest.mark.distributed
def test_two_ranks_measure_products_memory_and_every_collective(found: Measurements) -> None:
    assert found.ranks == 2
    assert found.main_dtype in found.matmul
    assert set(found.collectives) == {"all-reduce", "all-gather", "reduce-scatter", "all-to-all"}
    curves = [*found.matmul.values(), found.memory, *found.collectives.values()]
    for points in curves:
        assert len(points) > 3
        assert all(a.size < b.size for a, b in pairwise(points))
        assert all(p.seconds > 0 for p in points)
        assert points[-1].seconds > points[0].seconds, "thousands of times the work takes longer"
    assert 2**28 < found.memory_bytes < 2**45
    assert len({(p.m, p.n, p.k) for p in found.products}) > 30
    assert any(p.n % 8 for p in found.products), "dims that no tile divides are measured"
    assert all(min(a.forward_seconds, a.backward_seconds) > 0 for a in found.attention)
    # Single shapes take microseconds here: another process may slow one of them down, not half of them.
    assert median(a.backward_seconds / a.forward_seconds for a in found.attention) > 1
    assert {g.kind for g in found.groups} == {"send"}, "two ranks have no smaller groups"
    assert {"operator", "recorded_operator", "backward_operator", "module", "collective"} <= set(found.host_seconds)
    assert all(1e-8 < seconds < 0.1 for seconds in found.host_seconds.values())


@pytest.mark.distributed
def test_the_command_writes_a_file_that_a_cluster_is_made_of(
    found: Measurements, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alpa_explore.calibration.microbenchmarks.measure", lambda **_asked: found)
    path = str(tmp_path / "mine.json")
    ask = ["calibrate", "--device", "cpu", "--ranks", "2", "--run-seconds", "1e-4", "-o", path, "--quick"]
    assert cli.main(ask) == 0
    captured = capsys.readouterr()
    assert "all-reduce" in captured.out
    assert f"--cluster 1x2:{path}" in captured.err
    cluster = Cluster.parse(f"1x2:{path}")
    assert cluster.device.matmul_curve
    assert cluster.inside_node.bandwidth > 0


@pytest.mark.distributed
def test_one_rank_takes_its_links_from_a_preset(capsys: Capture) -> None:
    ask = ["calibrate", "--device", "cpu", "--ranks", "1", "--run-seconds", "1e-4", "--like", "cpu", "--json"]
    assert cli.main([*ask, "--quick"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["measured"]["products"] == []
    assert body["measured"]["collectives"] == {}
    assert body["inside_node"]["source"] == Cluster.parse("1x1:cpu").inside_node.source


def test_a_device_that_is_not_there_is_told() -> None:
    with pytest.raises(OptionError, match="Use 'cpu' or 'cuda'"):
        measure(kind="tpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)
        with pytest.raises(OptionError, match="No CUDA device is attached"):
            measure(kind="cuda")
