"""A question that was answered before is answered from the cache, with the same texts; any other one is planned."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alpa_explore import cli
from alpa_explore.planner import interface
from alpa_explore.plans.plan import Plan, load_plan
from tests.plans.example import example_plan

ASK = ("plan", "gpt-tiny", "--cluster", "2x4:v100")
Capture = pytest.CaptureFixture[str]


class Planner:
    """Answers with one plan, and counts how often it is asked."""

    def __init__(self, plan: Plan) -> None:
        self.answer, self.calls = plan, 0

    def __call__(self, *_: Any, **__: Any) -> Plan:
        self.calls += 1
        return self.answer


@pytest.fixture(scope="module")
def example() -> Plan:
    return example_plan()


@pytest.fixture
def planner(example: Plan, monkeypatch: pytest.MonkeyPatch) -> Planner:
    planner = Planner(example)
    monkeypatch.setattr(interface, "planned", planner)
    return planner


def printed(words: tuple[str, ...], capsys: Capture) -> tuple[str, str]:
    assert cli.main(words) == 0
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_the_second_answer_is_the_first_and_nothing_is_planned(
    planner: Planner, capsys: Capture, more: tuple[str, ...]
) -> None:
    first, _ = printed((*ASK, *more), capsys)
    second, said = printed((*ASK, *more), capsys)
    assert planner.calls == 1
    assert second == first
    assert said.splitlines() == [
        "gpt-tiny on 2x4:v100, B = 8 microbatches of 8 samples: planned before, read from the cache"
    ]


@pytest.mark.slow
def test_files_are_written_again_once_they_are_known(
    planner: Planner, example: Plan, capsys: Capture, tmp_path: Path
) -> None:
    a, b, page = (str(tmp_path / name) for name in ("a.json", "b.json", "page.html"))
    printed(ASK, capsys)
    printed((*ASK, "-o", a), capsys)
    assert planner.calls == 2, "the plan file was not known"
    printed((*ASK, "-o", b), capsys)
    assert planner.calls == 2
    assert Path(b).read_bytes() == Path(a).read_bytes()
    assert load_plan(b).stages == example.stages
    printed((*ASK, "-o", a, "--html", page), capsys)
    assert planner.calls == 3
    text = Path(page).read_bytes()
    printed((*ASK, "--html", page), capsys)
    assert planner.calls == 3
    assert Path(page).read_bytes() == text


@pytest.mark.parametrize(
    "more",
    [
        ("-B", "16"),
        ("--delta", "0.25"),
        ("--no-remat",),
        ("--collective-overlap", "0.5"),
        ("--pin", "mm=S0R"),
        ("--json",),
    ],
)
def test_another_question_is_planned(planner: Planner, capsys: Capture, more: tuple[str, ...]) -> None:
    printed(ASK, capsys)
    printed((*ASK, *more), capsys)
    assert planner.calls == 2


def test_another_cluster_of_the_same_name_is_another_question(
    planner: Planner, capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    ask = ("plan", "gpt-tiny", "--cluster", str(file))
    link = '{"bandwidth": %d, "latency_seconds": 1e-5}'
    text = f'{{"nodes": 1, "devices_per_node": 4, "device": "v100", "inside_node": {link}}}'
    for bandwidth in (10**11, 10**10):
        file.write_text(text % bandwidth)
        printed(ask, capsys)
    assert planner.calls == 2


def test_without_the_cache_everything_is_planned(planner: Planner, capsys: Capture, answers: Path) -> None:
    for _ in range(2):
        printed((*ASK, "--no-cache"), capsys)
    assert planner.calls == 2
    assert not answers.exists()


def test_a_damaged_answer_is_planned_again_with_a_line(planner: Planner, capsys: Capture, answers: Path) -> None:
    first, _ = printed(ASK, capsys)
    (entry,) = answers.rglob("*.json")
    entry.write_bytes(entry.read_bytes()[:-20])
    second, said = printed(ASK, capsys)
    assert planner.calls == 2
    assert second == first
    assert "holds damaged entries" in said
    printed(ASK, capsys)
    assert planner.calls == 2, "the entry was written again"


def test_an_answer_with_a_warning_about_its_run_is_not_kept(planner: Planner, example: Plan, capsys: Capture) -> None:
    planner.answer = replace(example, warnings=("The cache in /x is not written any more: disk full.",))
    for _ in range(2):
        printed(ASK, capsys)
    assert planner.calls == 2


@pytest.mark.slow
def test_a_known_plan_loads_no_solver_and_starts_no_worker(tmp_path: Path) -> None:
    script = """
import sys
from alpa_explore import cli
assert cli.main(["plan", "gpt-tiny", "--cluster", "1x1:v100", "-B", "8", "--layers", "1"]) == 0
heavy = {"torch", "dask", "distributed", "numba", "highspy", "pulp", "subprocess"} & set(sys.modules)
print(sorted(heavy), file=sys.stderr)
"""
    said = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "ALPA_EXPLORE_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(run.stderr.splitlines())
    assert "torch" in said[0][-1]
    assert "planned before, read from the cache" in said[1][0]
    assert said[1][-1] == "[]"
