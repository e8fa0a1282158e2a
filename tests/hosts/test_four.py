"""Four emulated hosts: stages that span hosts, ports that are taken, a link between two of them that is cut."""

import sys

import pytest
import torch

import alpa_explore as ax
from alpa_explore.errors import ClusterError, ExecutorError, OptionError, RunError
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.verify import verify
from tests.hosts.runs import no_rank_is_left, reached
from tests.runtime.plans import small_plan
from tests.runtime.states import ended

pytestmark = pytest.mark.hosts
FOR_EVER = 10**6


def test_stages_that_span_four_hosts_compute_what_one_process_computes(four, monkeypatch, launcher) -> None:
    monkeypatch.setenv("TMPDIR", str(launcher))
    monkeypatch.setattr("tempfile.tempdir", None)
    plan = ax.baseline(
        "gpt-tiny", "2x2:cpu", "megatron", tp=2, dp=1, pp=2, num_microbatches=2, num_layers=2, precision="float32"
    )
    assert [stage.devices for stage in plan.stages] == [(0, 1), (2, 3)]
    found = verify(plan, target="dask", scheduler=four.scheduler_address, device="cpu")
    assert (found.ranks, found.passed) == (4, True)
    assert no_rank_is_left(four)


def test_ranks_meet_at_a_given_port_and_a_range_in_use_is_refused(four, run_folder) -> None:
    listen = "import socket; s = [socket.create_server(('', p)) for p in (29500, 29501)]; print(flush=1); s[0].accept()"
    taker = four.popen(0, [sys.executable, "-c", listen], stdout=-1)
    taker.stdout.readline()
    plan, there = small_plan(), {"target": "dask", "scheduler": four.scheduler_address, "device": "cpu"}
    with pytest.raises(OptionError, match=r"ports where the ranks may meet are in use: 29500 to 29501 on node0"):
        launch(plan, ports="29500-29501", folder=run_folder / "a", **there)
    run = launch(plan, ports="29500-29502", steps=FOR_EVER, folder=run_folder / "b", **there)
    reached(run, lambda progress: progress.steps)
    assert f"{four.address(0)}:29502" in four.run(0, ["ss", "-Hltn"]).stdout
    run.stop()
    assert ended(run).stopped


def test_hosts_that_the_scheduler_reaches_but_not_each_other_are_named(four, run_folder) -> None:
    four.cut(1, 2)
    with pytest.raises(ExecutorError, match=r"node1 .* → node2 .*: (no answer|no route).*; node2 .* → node1") as e:
        launch(small_plan(4), "dask", scheduler=four.scheduler_address, folder=run_folder, device="cpu")
    assert "node0" not in str(e.value)
    assert not run_folder.exists()
    assert no_rank_is_left(four)


def test_code_of_the_users_own_modules_comes_along_and_is_told_its_place(
    four, tmp_path, monkeypatch, run_folder
) -> None:
    (tmp_path / "my_helpers.py").write_text("import torch\n\ndef ones(n):\n    return torch.ones(n, 64)\n")
    (tmp_path / "my_data.py").write_text(
        "import my_helpers\n\n"
        "def microbatch(number, place=None):\n"
        "    print('place', place and (place.rank, place.ranks, place.samples), flush=True)\n"
        "    x = my_helpers.ones(16) * number\n"
        "    return x, x[:, :1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_data

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    graph = ax.capture(model, my_data.microbatch(0), "mse", name="mine")
    plan = ax.baseline(graph, "2x1:cpu", "megatron", tp=1, dp=2, pp=1, num_microbatches=2, num_layers=1)
    options = {"model": model, "loss": "mse", "data": my_data.microbatch, "steps": 2, "device": "cpu"}
    # The workers do not have the module: their path was taken before.
    run = launch(plan, "dask", scheduler=four.scheduler_address, folder=run_folder / "dask", **options)
    local = launch(plan, folder=run_folder / "local", **options)
    assert [s.loss for s in ended(run).steps] == [s.loss for s in ended(local).steps]
    assert "place (1, 2, (8, 16))" in (run_folder / "dask" / "rank-1.log").read_text()


def test_a_link_that_is_cut_between_two_workers_alone_ends_the_run_with_both_names(four, run_folder) -> None:
    asked = {"scheduler": four.scheduler_address, "steps": FOR_EVER, "device": "cpu"}
    run = launch(small_plan(4), "dask", folder=run_folder, **asked)
    reached(run, lambda progress: progress.steps)
    four.cut(1, 2)
    with pytest.raises(RunError, match=r"cannot reach each other any more: node1 .* → node2 .*; node2 .* → node1"):
        ended(run)
    four.restore(1, 2)
    assert no_rank_is_left(four)


def test_a_host_that_cannot_be_reached_is_named_with_the_hosts_that_can(four) -> None:
    three = ["node0", "node1", "node2"]
    four.cut(1, 2)
    nodes = ax.attach(four.scheduler_address, hosts=three)
    faults = {str(link).partition(":")[0] for link in nodes.links if link.fault}
    assert faults == {"node1 → node2", "node2 → node1"}
    with pytest.raises(ClusterError, match=r"node1 → node2: .*--hosts node0,node"):
        nodes.cluster()
    assert ax.attach(four.scheduler_address, hosts=["node0", "node2"]).cluster().nodes == 2
