"""The layouts in plain PyTorch train as one process does, on four gloo processes; each is about twenty lines."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

SCRIPT = ROOT / "notebooks" / "pytorch" / "by_hand.py"
LAYOUTS = ("data", "sharded", "tensor", "pipeline", "context")
MOST_LINES = 32
STARVED = """
import os, runpy, sys
import torch, torch.distributed as dist

destroy = dist.destroy_process_group

def late():
    for thread in os.listdir("/proc/self/task"):
        if "gloo" in open(f"/proc/self/task/{thread}/comm").read():
            os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
    for _ in range(200):
        dist.all_reduce(torch.ones(4))
    destroy()

dist.destroy_process_group = late
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script with the threads of gloo behind all others at its end, as a loaded machine may have them: where they
outlive the interpreter, a process aborts (four runs of four, before the script ended without it)."""


def test_a_layout_is_about_twenty_lines() -> None:
    functions = {node.name: node for node in ast.parse(SCRIPT.read_text()).body if isinstance(node, ast.FunctionDef)}
    lengths = {name: functions[name].end_lineno - functions[name].lineno + 1 for name in LAYOUTS}
    assert max(lengths.values()) <= MOST_LINES, lengths
    assert sum(lengths.values()) / len(lengths) <= 20, lengths


@pytest.mark.slow
@pytest.mark.distributed
def test_each_layout_trains_as_one_process_does_beside_its_prediction(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    (tmp_path / "starved.py").write_text(STARVED)
    command = [*torchrun, tmp_path / "starved.py", SCRIPT, "all", "1x4:cpu"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert tuple(row["layout"] for row in rows) == LAYOUTS
    for row in rows:
        print(f"{row['layout']:9} predicted {row['predicted_seconds']:.4f} s, measured {row['measured_seconds']:.4f} s")
        assert row["error"] < 1e-5, row
        assert row["losses"] == sorted(row["losses"], reverse=True), "it falls with each step"
        assert row["losses"][-1] < row["losses"][0] / 10
        assert row["measured_seconds"] > 0
        assert row["predicted_seconds"] > 0
