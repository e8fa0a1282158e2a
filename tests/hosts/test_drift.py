"""A link that becomes slow while a run goes on: it is named, and training goes on under the better plan."""

from __future__ import annotations

import time

import pytest

import alpa_explore as ax
from alpa_explore.runtime.drift import LinkDrift
from alpa_explore.runtime.launch import launch

pytestmark = pytest.mark.hosts
STEPS = 10**5


def until(ready, run, seconds=180.0):
    end = time.monotonic() + seconds
    while not (found := ready()):
        assert not run.wait(0.1), run.result()
        assert time.monotonic() < end, "too late"
    return found


def link_ratio(run):
    drift = run.drift()
    return None if drift is None else next((link.ratio for link in drift.links if len(link.nodes) == 2), None)


def test_a_slow_link_is_named_and_the_run_goes_on_under_the_better_plan(make_hosts, tmp_path) -> None:
    hosts = make_hosts(2, rate="1000mbit")
    scheduler = hosts.dask(hide=[tmp_path])
    there = {"target": "dask", "scheduler": scheduler, "device": "cpu"}
    shape = {"num_microbatches": 4, "num_layers": 4, "precision": "float32"}
    plan = ax.baseline("gpt-tiny", "2x1:cpu", "data-parallel", **shape)
    run = launch(plan, steps=STEPS, folder=tmp_path / "a", **there)
    before = until(lambda: link_ratio(run), run)

    for host in (0, 1):
        hosts.limit(host, "8mbit")
    until(lambda: link_ratio(run) > 3 * before, run)
    # The samples before the limit leave.
    seen = len(run.progress.steps)
    until(lambda: len(run.progress.steps) > seen + 15, run)
    drift = run.drift()
    # Where other tests share the cores, the compute of the stage is named as well, perhaps before the link.
    assert any(isinstance(part, LinkDrift) for part in drift.found)
    assert any(line.startswith("link node0 – node1 takes ") for line in drift.lines)
    planned, measured = plan.cluster.between_nodes, drift.cluster.between_nodes
    assert measured.bandwidth < planned.bandwidth / 10
    better = ax.better_plan(plan, drift.cluster)
    assert len(better.best.stages) == 2
    print(f"before {before:.1f}; {drift.lines}; with them {better}")

    step = run.checkpoint()
    until(lambda: [kept for kept in run.progress.checkpoints if kept.step >= step], run)
    step = run.progress.checkpoints[-1].step  # later than asked for where the request reached the ranks too late
    run.stop()
    first = {s.step: s.loss for s in run.result(30).steps}
    slow = [s.seconds for s in run.progress.steps][-10:]
    second = launch(better.best, steps=step + 12, resume=run.folder, folder=tmp_path / "b", **there).result(180)
    assert second.steps[0].step == step
    print(f"a step {sorted(slow)[5]:.3f} s, then {sorted(s.seconds for s in second.steps)[6]:.3f} s")

    # The losses without slow links and without a change of plan: at the beginning, and from the checkpoint on.
    beginning = launch(plan, steps=15, folder=tmp_path / "d", device="cpu").result(180)
    assert all(first[s.step] == pytest.approx(s.loss, abs=1e-4) for s in beginning.steps)
    unchanged = launch(plan, steps=step + 12, resume=run.folder, folder=tmp_path / "c", device="cpu").result(180)
    losses = {s.step: s.loss for s in unchanged.steps}
    assert all(loss == pytest.approx(losses[s], abs=1e-4) for s, loss in first.items() if s in losses)
    assert all(s.loss == pytest.approx(losses[s.step], abs=1e-3) for s in second.steps)
