"""`alpa-explore solve --best-so-far` stopped by a signal, and limits that nothing keeps: what was found is said."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from alpa_explore.iopddl.evaluator import evaluate_file
from tests.waiting import limit_seconds, until

WATCHED = """
import sys
from alpa_explore.cli import main
from alpa_explore.iopddl.anneal import Found

add = Found.add

def told(found, *given):
    try:
        add(found, *given)
    finally:
        if found.choices is not None:
            open(sys.argv[1], "w").close()

Found.add = told
sys.exit(main(["solve", *sys.argv[2:]]))
"""
"""The command, which makes a file once a choice is known that fits."""


def write_large(path, share, nodes=1500):
    """A problem that no method proves in seconds; its limit is `share` of the least peak, and room for 3,000 more."""
    rng = np.random.default_rng(1)
    ends = [(v - int(rng.integers(1, 30)), v) for v in range(30, nodes) for _ in range(3)]
    intervals = [[v, min(nodes, v + int(rng.integers(1, 300)))] for v in range(nodes)]
    usages = rng.integers(0, 1000, (nodes, 10))
    held = np.zeros(nodes)
    for (start, end), usage in zip(intervals, usages.min(axis=1), strict=True):
        held[start:end] += usage
    least = int(held.max())
    problem = {
        "name": "large",
        "edges": {"nodes": ends, "costs": rng.integers(0, 100, (len(ends), 100)).tolist()},
        "nodes": {
            "costs": rng.integers(0, 100, (nodes, 10)).tolist(),
            "intervals": intervals,
            "usages": usages.tolist(),
        },
        "usage_limit": int(share * least) + (3000 if share > 1 else 0),
    }
    path.write_text(json.dumps({"problem": problem}))
    return str(path), least


def started(marker, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(marker), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        preexec_fn=_heed_interrupts,
    )


def _heed_interrupts():
    """A shell's background job, and all that it starts, ignore SIGINT: the tests may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGTERM)])
def test_the_best_choice_so_far_is_printed_whole_when_stopped(numbers, tmp_path):
    path, _ = write_large(tmp_path / "large.json", 1.1)
    process = started(tmp_path / "found", path, "--time-limit", "1000", "--best-so-far", "--json")
    until((tmp_path / "found").exists, "a choice that fits")
    for number in numbers:  # the second one cuts nothing off
        process.send_signal(number)
    out, error = process.communicate(timeout=limit_seconds())
    assert (process.returncode, error) == (0, "")
    answer = json.loads(out)
    evaluation = evaluate_file(path, answer["choices"])
    assert evaluation.legal
    assert evaluation.fits
    assert (evaluation.cost, evaluation.peak) == (answer["objective"], answer["peak_usage"])
    assert answer["status"] == "time_limit"
    assert "best choice so far" in answer["advice"]
    assert 0 <= answer["bound"] < answer["objective"]
    assert answer["gap"] == pytest.approx(1 - answer["bound"] / answer["objective"])


@pytest.mark.slow
def test_without_the_option_a_stopped_search_prints_nothing(tmp_path):
    path, _ = write_large(tmp_path / "large.json", 1.1)
    process = started(tmp_path / "found", path, "--time-limit", "1000", "--json")
    until((tmp_path / "found").exists, "a choice that fits")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=limit_seconds())
    assert (process.returncode, out) == (130, "")
    assert "stopped" in error


@pytest.mark.slow
def test_a_limit_below_the_least_usage_names_what_was_found(tmp_path):
    # More than REASON_VARIABLES: too large for an ILP.
    path, least = write_large(tmp_path / "low.json", 0.9)
    process = started(tmp_path / "found", path, "--time-limit", "1000", "--json")
    out, error = process.communicate(timeout=limit_seconds())
    assert error == ""
    answer = json.loads(out)
    assert answer["status"] == "infeasible"
    # All nodes may hold least: no cost is forbidden.
    assert answer["least_limit"] == answer["least_found"] == least
    assert f"the least usage found is {least:,}, and no choice uses less than {least:,}" in answer["advice"]
