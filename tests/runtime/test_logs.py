"""`alpa-explore logs`: what all ranks print, in one view."""

import json
import sys
import threading

import pytest

from alpa_explore.cli import main
from alpa_explore.runtime.reports import Reporter, StepReader
from tests.waiting import until


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"ranks": [0, 1]}))
    (tmp_path / "hosts.json").write_text(json.dumps({"0": "node0 (10.0.0.1)", "1": "node1 (10.0.0.2)"}))
    (tmp_path / "agent-0.log").write_text("")
    (tmp_path / "rank-0.log").write_text("step 0\nstep 1\n")
    (tmp_path / "rank-1.log").write_text("step 0, loss 2\nhalf a \x1b[31mline")
    return tmp_path


def test_every_line_has_its_rank_and_host(folder, capsys) -> None:
    assert main(["logs", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "rank 0 node0 (10.0.0.1) | step 0",
        "rank 0 node0 (10.0.0.1) | step 1",
        "rank 1 node1 (10.0.0.2) | step 0, loss 2",
        "rank 1 node1 (10.0.0.2) | half a �[31mline",
    ]
    assert main(["logs", str(folder), "--rank", "1"]) == 0
    assert "rank 0" not in capsys.readouterr().out


def test_what_is_no_run_and_a_rank_that_it_has_not_are_refused(folder, tmp_path, capsys) -> None:
    assert main(["logs", str(tmp_path / "none")]) == 2
    assert "not the folder of a run" in capsys.readouterr().err
    assert main(["logs", str(folder), "--rank", "7"]) == 2
    assert "Choose from 0 to 1" in capsys.readouterr().err


def test_followed_lines_come_until_the_run_is_over(folder, capsys) -> None:
    def go_on():
        until(lambda: "step 1" in sys.stdout.getvalue(), "what there is is printed")
        with (folder / "rank-0.log").open("a") as stream:
            stream.write("the last line\n")
        (folder / "agent-0.json").write_text("{}")

    thread = threading.Thread(target=go_on)
    thread.start()
    assert main(["logs", str(folder), "--follow"]) == 0
    thread.join()
    lines = capsys.readouterr().out.splitlines()
    assert "rank 0 node0 (10.0.0.1) | the last line" in lines
    assert sum("step 1" in line for line in lines) == 1


def test_the_loss_of_a_step_is_the_mean_of_the_ranks_that_have_one(tmp_path) -> None:
    """Under DualPipe the first and the last submesh have the losses of half of the microbatches each."""
    for rank, loss in enumerate((2.0, None, None, 3.0)):
        Reporter(tmp_path, rank).report("step", step=0, loss=loss, seconds=1.0)
    (report,) = StepReader(tmp_path, (0, 1, 2, 3))()
    assert report.loss == 2.5
