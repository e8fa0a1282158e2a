"""Models that cannot be composed: their problems have bounds, and only those are solved that a pipeline wants."""

from collections import Counter

import pytest
import torch

import alpa_explore as ax
from alpa_explore.execution.progress import Progress
from alpa_explore.graph import TrainingGraph
from alpa_explore.search import profile_stages, stage_pricing, tuning
from tests.intra_op.test_range_bounds import Translator

B, LAYERS = 8, 6


@pytest.fixture(scope="module")
def graph() -> TrainingGraph:
    with torch.device("meta"):
        return ax.capture(Translator(width=256), (torch.zeros(64, 64, dtype=torch.int64),))


def planned(graph: TrainingGraph, solver: str = "auto") -> tuple[ax.Plan, Counter[str]]:
    """The plan, and how many problems each search was for."""
    problems = Counter[str]()

    def count(progress: Progress) -> None:
        if progress.done == 0:
            problems[progress.pass_name] += progress.total

    pipeline = ax.PipelineOptions(num_stages=1)  # a stage with the encoder and the decoder
    options = {"num_layers": LAYERS, "delta": 1.0, "pipeline": pipeline, "cache": False, "scheduler": "serial"}
    return ax.plan(graph, "1x4:v100", num_microbatches=B, solver=solver, progress=count, **options), problems


@pytest.fixture(scope="module")
def every(graph: TrainingGraph) -> tuple[ax.Plan, Counter[str]]:
    """With every problem solved by itself."""
    return planned(graph, "elimination")


def test_the_plan_is_that_of_solving_every_problem_though_few_are_solved(
    graph: TrainingGraph, every: tuple[ax.Plan, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    best, all_problems = every
    few, at_once = planned(graph)
    assert few.predicted.iteration_seconds == pytest.approx(best.predicted.iteration_seconds, rel=1e-9)
    assert at_once["sharding"], "little work is done at once"
    monkeypatch.setattr(tuning, "OPERATORS_SOLVED_AT_ONCE", 0)
    found, problems = planned(graph)
    assert problems["bounds of runs"], "everything was composed: the test shows nothing"
    assert not problems["sharding"]
    assert 0 < problems["proof"] < all_problems["sharding"] / 4
    assert found.predicted.iteration_seconds == pytest.approx(best.predicted.iteration_seconds, rel=2.5e-3)
    assert not any("may be up to" in warning for warning in found.warnings)


def test_without_time_there_is_a_plan_that_says_how_much_faster_the_best_one_may_be(
    graph: TrainingGraph, every: tuple[ax.Plan, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "OPERATORS_SOLVED_AT_ONCE", 0)
    monkeypatch.setattr(tuning, "SECONDS_ALONE", 0.0)
    monkeypatch.setattr(stage_pricing, "TOLERANCE", 0.0)
    monkeypatch.setattr(profile_stages, "TOLERANCE", 0.0)
    found, problems = planned(graph)
    (said,) = [warning for warning in found.warnings if "may be up to" in warning]
    share = float(said.split("up to ")[1].split("%")[0]) / 100
    seconds, least = (plan.predicted.iteration_seconds for plan in (found, every[0]))
    assert (seconds - least) / seconds <= share + 5e-4 < 1
    assert problems["proof"] < LAYERS, "the first pipeline is enough"
