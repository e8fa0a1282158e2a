"""CSV files in torch's format, and traces in the trace event format."""

import json
import re
from collections import Counter
from itertools import pairwise

import pytest

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.catalog import INTERLEAVED, SCHEDULES, build_schedule
from alpa_explore.schedules.csv_file import parse_csv, read_csv, write_csv
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.trace import chrome_trace
from tests.schedules.test_simulate import equal_times


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_survives_its_csv_file(name, tmp_path) -> None:
    schedule = build_schedule(name, 4, 8)
    (tmp_path / "a.csv").write_text(write_csv(schedule))
    assert read_csv(tmp_path / "a.csv") == schedule


@pytest.mark.parametrize("name", SCHEDULES)
def test_torch_reads_every_cell_with_the_same_meaning(name) -> None:
    from torch.distributed.pipelining.schedules import _Action

    schedule = build_schedule(name, 2, 4)
    for p, line in enumerate(write_csv(schedule).splitlines()):
        read = [_Action.from_str(cell) for cell in line.split(",")]
        assert [(a.stage_index, a.computation_type.value, a.microbatch_index) for a in read] == [
            (t.stage, str(t).removeprefix(str(t.stage))[0], t.microbatch) for t in schedule.order(p)
        ]


def test_our_interleaved_order_is_the_one_of_torch() -> None:
    from torch.distributed.pipelining.schedules import _get_1f1b_rank_ops

    p, b, v = 4, 8, 2
    ours = build_schedule(INTERLEAVED, p, b, stages_per_submesh=v)
    for rank in range(p):
        warm_up = min((v - 1) * p + 2 * (p - 1 - rank), b * v)

        def forward(step, rank=rank):
            return step // p % v * p + rank

        def backward(step, rank=rank, warm_up=warm_up):
            return (v - 1 - (step - warm_up) // p % v) * p + rank

        ops = _get_1f1b_rank_ops(v, p, warm_up, b * v - warm_up, warm_up, rank, forward, backward)
        assert [str(op) for op in ops if op is not None] == [str(t) for t in ours.order(rank)]


def test_our_dual_pipe_v_is_the_one_of_torch() -> None:
    """There a whole backward pass is one cell, here it is its two halves."""
    from torch.distributed.pipelining.schedules import ScheduleDualPipeV

    for p, b in ((1, 2), (2, 5), (4, 8), (5, 13)):
        theirs = object.__new__(ScheduleDualPipeV)
        theirs.pp_group_size, theirs._num_stages, theirs.num_stages, theirs._n_microbatches = p, 2 * p, 2 * p, b
        ours = build_schedule("dualpipe-v", p, b)
        for rank in range(p):
            ops = [op for op in theirs._calculate_single_rank_operations(rank) if op is not None]
            whole = re.sub(r"(\d+)B(\d+)", r"\1I\2,\1W\2", ",".join(map(str, ops)))
            tasks = re.findall(r"\d+[FIW]\d+", whole)
            assert tasks == [str(t) for t in ours.order(rank)]


def test_idle_cells_communication_and_overlapped_pairs_are_understood() -> None:
    text = "0UNSHARD,0F0,,0SEND_F0,0F1,0B0,0B1,0REDUCE_GRAD\n,1RECV_F0,1F0,(1F1;1B0)OVERLAP_F_B,1B1\n"
    assert write_csv(parse_csv(text)) == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


def test_an_unreadable_file_is_an_error_with_the_reason(tmp_path) -> None:
    with pytest.raises(ScheduleError, match="No such file"):
        read_csv(tmp_path / "missing.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScheduleError, match="cannot be read"):
        read_csv(tmp_path / "binary.csv")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_trace_has_every_task_an_arrow_for_every_send_and_a_memory_counter(name) -> None:
    schedule = build_schedule(name, 4, 8)
    times = equal_times(
        schedule.num_stages,
        send=0.25,
        update_seconds=1.0,
        activation_bytes=3.0,
        weight_bytes=2.0,
        workspace_bytes=1.0,
        collective_fraction=(0.5, 0.5, 0.0),
    )
    timeline = simulate(schedule, times)
    trace = json.loads(json.dumps(chrome_trace(timeline, ["first"]), allow_nan=False))
    events = trace["traceEvents"]
    kinds = Counter(e["ph"] for e in events)
    hops = [pair for pair in pairwise(schedule.submesh_of_stage) if pair[0] != pair[1]]
    sends = 2 * len(hops) * 8 // schedule.copies
    assert kinds["s"] == kinds["t"] == kinds["f"] == sends
    tasks = [e for e in events if e["ph"] == "X" and e["tid"] == 0 and e["name"].startswith("PP:") and e["pid"] < 4]
    assert len(tasks) == len(timeline.schedule.actions)
    slices = [e for e in events if e["ph"] == "X"]
    for arrow in (e for e in events if e["ph"] in "stf"):
        assert any(
            s["pid"] == arrow["pid"] and s["tid"] == arrow["tid"] and s["ts"] <= arrow["ts"] <= s["ts"] + s["dur"]
            for s in slices
        )
    for number in {e["id"] for e in events if e["ph"] in "stf"}:
        moments = [next(e["ts"] for e in events if e["ph"] == ph and e.get("id") == number) for ph in "stf"]
        assert moments == sorted(moments)
    counters = [e for e in events if e["ph"] == "C"]
    assert {e["pid"] for e in counters} == {0, 1, 2, 3}
    assert max(sum(e["args"].values()) for e in counters) > 0
    assert next(e for e in events if e["name"] == "process_name")["args"] == {"name": "first"}
