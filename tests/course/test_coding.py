"""Coding tasks: the right solution of each passes, three wrong ones do not, and what runs is bounded."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from alpa_explore.course import task
from alpa_explore.course.ask import TRIES
from alpa_explore.course.coding.checks import CHECKS
from alpa_explore.course.coding.lockstep import Wrong, run_devices
from alpa_explore.course.coding.sandbox import check_solution, solution_fault
from alpa_explore.course.coding.task import tasks

RING = tasks()["ring-all-reduce"]


def test_there_are_fifteen_tasks_and_each_has_a_check() -> None:
    assert set(tasks()) == set(CHECKS)
    assert len(tasks()) >= 15
    assert all(len(one.wrong) == 3 for one in tasks().values())


@pytest.mark.parametrize("name", list(tasks()))
def test_a_right_solution_passes_and_three_wrong_ones_and_the_starter_do_not(name: str) -> None:
    one = tasks()[name]
    assert solution_fault(one.right, one) == ""
    found = [solution_fault(code, one) for code in (*one.wrong, one.starter)]
    assert all(found), found
    assert not any("SyntaxError" in fault or "NameError" in fault for fault in found), found


def test_a_solution_of_a_student_runs_in_a_process_of_its_own() -> None:
    def chunk_to_send(rank, p, step):
        import os

        print("in", os.getpid())
        return (rank - step) % p if step < p - 1 else (rank + 1 - (step - (p - 1))) % p

    card = task("Ring all reduce", chunk_to_send)
    assert (card.look, "right" in card.title) == ("right", True)
    printed = {line for line in card.text.splitlines() if line.startswith("in ")}
    assert len(printed) == 1
    assert f"in {os.getpid()}" not in printed
    assert "✓" in task().text


def test_wrong_solutions_say_what_differs_and_after_some_one_is_shown() -> None:
    cards = [task("ring-all-reduce", RING.wrong[0]) for _ in range(TRIES)]
    assert all("has no sum of chunk" in card.text for card in cards)
    assert [bool(card.folds) for card in cards] == [False] * (TRIES - 1) + [True]


def test_what_is_no_solution_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert "no such coding task" in task("rings").title
    assert "chunk_to_send" in task("ring-all-reduce").text
    assert task("ring-all-reduce", 3).look == "hint"
    assert task("ring-all-reduce", len).look == "hint"
    assert "no function chunk_to_send" in solution_fault("x = 1", RING)
    assert "SyntaxError" in solution_fault("def f(:", RING)
    assert "ZeroDivisionError, line 2" in solution_fault("def chunk_to_send(rank, p, step):\n    1 / 0", RING)
    assert "chunks are numbers" in solution_fault("def chunk_to_send(rank, p, step):\n    return p", RING)


def test_a_solution_that_computes_or_waits_for_ever_is_stopped() -> None:
    loop = check_solution(RING, "while True:\n    pass", seconds=1)
    assert "stopped after 1 s of computing" in loop.wrong
    sleep = check_solution(RING, "print('here', flush=True)\nimport time\ntime.sleep(3600)", wait=20)
    assert "stopped after 20 s" in sleep.wrong
    ended = check_solution(RING, "import os\nos._exit(3)")
    assert "ended with 3" in ended.wrong


def test_devices_in_lockstep_get_what_their_collectives_give() -> None:
    def device(rank: int, ranks: int) -> Generator[Any, Any, Any]:
        own = np.arange(4.0) + rank
        total = yield "all-reduce", own
        most = yield "all-max", own
        part = yield "reduce-scatter", own
        whole = yield "all-gather", part
        return total, most, part, whole

    for rank, (total, most, part, whole) in enumerate(run_devices(device, [()] * 2)):
        assert total.tolist() == whole.tolist() == [1, 3, 5, 7]
        assert most.tolist() == [1, 2, 3, 4]
        assert part.tolist() == [[1, 3], [5, 7]][rank]

    def unequal(rank: int, ranks: int) -> Generator[Any, Any, Any]:
        yield ("all-reduce" if rank else "all-max"), np.ones(2)

    with pytest.raises(Wrong, match="different collectives"):
        run_devices(unequal, [()] * 2)
    with pytest.raises(Wrong, match="no yield"):
        run_devices(lambda rank, ranks: None, [()] * 2)


def test_a_design_is_graded_by_its_regret_on_runs_that_were_measured(capsys: pytest.CaptureFixture[str]) -> None:
    one = tasks()["rule-of-thumb"]
    assert solution_fault(one.right, one) == ""
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 20
    assert lines[-1].startswith("mean regret ")
    assert any("; the best: TP" in line for line in lines), "the card says what would have been better"
    seen = "def choose(model, layouts):\n    raise ValueError(sorted({*model, *(k for l in layouts for k in l)}))"
    told = solution_fault(seen, one)
    assert "'devices'" in told
    assert "seconds" not in told, "no time is given away"
    for found in ("None", "-1", "len(layouts)", "'0'"):
        assert "choose by a number" in solution_fault(f"def choose(model, layouts):\n    return {found}", one)


def test_a_design_measures_three_layouts_and_no_more() -> None:
    one = tasks()["three-measurements"]
    all_of_them = "def choose(predicted, measure):\n    return min(range(len(predicted)), key=measure)"
    assert "more than 3 layouts" in solution_fault(all_of_them, one)
    again = "def choose(predicted, measure):\n    [measure(0) for _ in range(9)]\n    return 0"
    assert "mean regret" in solution_fault(again, one), "a layout that was measured may be asked for again"
