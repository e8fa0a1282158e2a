"""Fitting to runs: which of them go together. A real run is fitted to in `test_equal`."""

from dataclasses import replace

import pytest

from alpa_explore.calibration import from_run as module
from alpa_explore.calibration.from_run import recalibrate
from alpa_explore.calibration.refit import Observation
from alpa_explore.cluster import Cluster
from alpa_explore.cost.kernels import Kernel
from alpa_explore.errors import OptionError, PlanFileError

PLANNED = Cluster.parse("1x2:cpu")


def observation(name: str, flops: float) -> Observation:
    kernel = Kernel(flops=flops, bytes_accessed=0.0, dtype="float32", matrix=True)
    seconds = flops / 1e9
    return Observation(
        name=name, share=0.5, kernels=(kernel,), collectives=(), compute_seconds=seconds, collective_seconds=0.0
    )


def test_runs_of_one_device_are_fitted_together_and_of_two_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = replace(PLANNED, device=replace(PLANNED.device, memory_efficiency=0.1))
    runs = {"a": (PLANNED, [observation("0F", 1e9)]), "b": (PLANNED, [observation("0B", 2e9)]), "c": (slower, [])}
    monkeypatch.setattr(module, "observations_of", lambda home, allow_import: runs[home.name])
    found = recalibrate(["a", "b"])
    assert [t.name for t in found.tasks] == ["0F", "0B"]
    device = found.after.device
    assert device.peak("float32") * device.matmul_efficiency == pytest.approx(1e9, rel=0.05)
    assert (found.before, found.after.inside_node) == (PLANNED, PLANNED.inside_node)
    with pytest.raises(OptionError, match="other figures"):
        recalibrate(["a", "c"])
    with pytest.raises(OptionError, match="no run to fit to"):
        recalibrate([])


def test_a_folder_without_a_run_is_refused(tmp_path) -> None:
    with pytest.raises(PlanFileError, match="There is no measured run"):
        recalibrate([tmp_path])
