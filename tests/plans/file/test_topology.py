"""Plans on clusters of several levels, and on nodes of six, through a file and into a figure."""

from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.levels import Level
from alpa_explore.errors import PlanFileError
from alpa_explore.figures.decisions.cluster import cluster_figure
from alpa_explore.plans.plan import load_plan


def planned(cluster: Cluster) -> ax.Plan:
    return ax.baseline("mlp-tiny", cluster, "gpipe-equal-layers", num_microbatches=2, num_layers=2, delta=1.0, pp=2)


def pods() -> Cluster:
    levels = (Level(name="node", of=2), Level(name="pod", of=2), Level(name="spine", of=2, oversubscription=2))
    return Cluster.parse("4x2:a100@alpa").with_changes(levels=levels)


@pytest.mark.parametrize("cluster", [pods(), Cluster.parse("1x6:a100")], ids=str)
def test_a_plan_is_read_back_with_its_topology(cluster: Cluster, tmp_path: Path) -> None:
    plan = planned(cluster)
    path = tmp_path / "p.plan.json"
    plan.save(str(path))
    again = load_plan(path)
    assert again.cluster == cluster
    assert [s.devices for s in again.stages] == [s.devices for s in plan.stages]
    half = cluster.devices // 2
    assert [s.devices for s in plan.stages] == [tuple(range(half)), tuple(range(half, 2 * half))]


def test_a_send_between_pods_has_the_link_of_a_pod(tmp_path: Path) -> None:
    narrow, flat = planned(pods()), planned(Cluster.parse("4x2:a100@alpa"))
    sent, faster = (plan.timeline() for plan in (narrow, flat))
    times = [max(t.send_forward_seconds for t in timeline.times) for timeline in (sent, faster)]
    latency = flat.cluster.between_nodes.latency_seconds
    # A stage is a pod of two nodes: its link is that of two nodes, halved.
    assert times[0] - latency == pytest.approx(2 * (times[1] - latency))


def test_the_figure_names_the_levels() -> None:
    figure = cluster_figure(planned(pods()))
    assert "pods, joined by" in figure.layout.yaxis.title.text
    hover = next(trace for trace in figure.data if trace.name == "memory of a device").hovertext
    assert any("pod 1, node 3" in text for text in hover)


def test_levels_that_do_not_multiply_are_refused_in_a_file(tmp_path: Path) -> None:
    plan = planned(pods())
    path = tmp_path / "p.plan.json"
    plan.save(str(path))
    path.write_text(path.read_text().replace('"of": 2', '"of": 3', 1))
    with pytest.raises(PlanFileError, match=r"cluster\.levels: 3 × 2 × 2 = 12"):
        load_plan(path)


@pytest.mark.slow
def test_a_plan_on_nodes_of_three_trains_as_one_process_does() -> None:
    plan = ax.plan("mlp-tiny", "2x3:cpu", num_microbatches=2, num_layers=2, delta=1.0, global_batch=48)
    assert {d for stage in plan.stages for d in stage.devices} == set(range(6))
    checked = ax.verify_interpreted(plan, steps=1)
    assert checked.ranks == 6
    assert checked.passed
