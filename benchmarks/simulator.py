"""Seconds to build, check, simulate and analyse every schedule with 64 stages and 1,024 microbatches.

    python benchmarks/simulator.py [--stages 64] [--microbatches 1024] [--json FILE]

The analysis computes the memory of every submesh, the bubble and the critical path. Compiled code is loaded before the
times are taken.
"""

from __future__ import annotations

import argparse
import json
import time

from alpa_explore.schedules.catalog import SCHEDULES, build_schedule
from alpa_explore.schedules.closed_form import closed_form
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes


def times(count: int) -> list[StageTimes]:
    """Equal stages, with sends that take a tenth of a forward pass."""
    stage = StageTimes(
        forward_seconds=1.0,
        backward_input_seconds=1.0,
        backward_weight_seconds=1.0,
        update_seconds=1.0,
        send_forward_seconds=0.1,
        send_backward_seconds=0.1,
        activation_bytes=1.0,
        weight_bytes=4.0,
    )
    return [stage] * count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=1024)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    simulate(build_schedule("1f1b", 2, 2), times(2))
    rows = []
    print(
        f"{'schedule':17} {'tasks':>8} {'simulate':>9} {'analyse':>8} {'makespan':>9} {'closed form':>11} {'bubble':>7}"
    )
    for name in SCHEDULES:
        begin = time.perf_counter()
        schedule = build_schedule(name, options.stages, options.microbatches)
        timeline = simulate(schedule, times(schedule.num_stages))
        simulated = time.perf_counter()
        peak = max(memory_curve(timeline, p).peak_bytes for p in range(schedule.num_submeshes))
        path = timeline.critical_path()
        analysed = time.perf_counter()
        form = closed_form(schedule, timeline.times)
        row = {
            "schedule": name,
            "stages": schedule.num_stages,
            "submeshes": schedule.num_submeshes,
            "microbatches": schedule.num_microbatches,
            "tasks": len(timeline.schedule.actions),
            "simulate_seconds": simulated - begin,
            "analyse_seconds": analysed - simulated,
            "makespan_seconds": timeline.makespan_seconds,
            "bubble_fraction": timeline.bubble_fraction,
            "closed_form_seconds": form.seconds if form else None,
            "peak_bytes": peak,
            "critical_pieces": len(path),
        }
        rows.append(row)
        print(
            f"{name:17} {row['tasks']:8,} {row['simulate_seconds']:8.3f}s {row['analyse_seconds']:7.3f}s "
            f"{row['makespan_seconds']:9,.1f} {row['closed_form_seconds']:11,.1f} {row['bubble_fraction']:7.1%}"
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
