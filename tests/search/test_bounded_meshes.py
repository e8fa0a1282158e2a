"""On large clusters meshes are bounded before they are composed: the plan is that of composing all of them."""

import math
import random
from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Submesh
from alpa_explore.planner.interface import plan as plan_model
from alpa_explore.pricing.stage_costs import Screened, StageCosts, undominated
from alpa_explore.search import profile_stages

B = 8
CASES = (
    ("gpt-tiny", {}, None),
    ("gpt-tiny", {}, 1_900_000),
    ("gpt-tiny", {"rematerialization": "auto"}, 1_500_000),
    ("moe-tiny", {"pipeline": ax.PipelineOptions(schedule="gpipe")}, 1_900_000),
)


def planned(
    monkeypatch: pytest.MonkeyPatch, model: str, memory: int | None, *, bounded: bool, b: int = B, **options: object
) -> ax.Plan:
    monkeypatch.setattr(profile_stages, "DEVICES_WORTH_BOUNDS", 1 if bounded else 10**9)
    cluster = ax.Cluster.parse("2x4:v100", **({} if memory is None else {"memory_bytes": memory}))
    options = {"cache": False, "scheduler": "serial", "num_layers": 4, **options}
    return plan_model(model, cluster, num_microbatches=b, **options)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(("model", "options", "memory"), CASES, ids=["roomy", "tight", "recomputed", "experts"])
def test_the_plan_is_that_of_composing_every_mesh_and_no_bound_is_above_a_choice(
    model: str, options: dict[str, object], memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = planned(monkeypatch, model, memory, bounded=True, **options)
    every = planned(monkeypatch, model, memory, bounded=False, **options)
    assert few.predicted.iteration_seconds == pytest.approx(every.predicted.iteration_seconds, rel=2 * 2.5e-3)
    assert few.costs.screened
    assert not every.costs.screened
    for cell, bounds in few.costs.screened.items():
        for b in (1, 3, B, 64, 10**5):
            exact, known = (costs.choose(cell, 1, b) for costs in (every.costs, few.costs))
            bound = min(bound.at(1 / b) for bound in bounds)
            least = bound if known is None else min(bound, known.latency_seconds(b))
            assert exact is None or least <= exact.latency_seconds(b) * (1 + 1e-9)


@pytest.mark.slow
def test_another_b_warns_where_what_was_not_priced_may_be_better(monkeypatch: pytest.MonkeyPatch) -> None:
    few = planned(monkeypatch, "gpt-tiny", 1_900_000, bounded=True)
    every = planned(monkeypatch, "gpt-tiny", 1_900_000, bounded=False)
    assert not ax.replan(few, num_microbatches=B).warnings
    for b in (1, 4, 32, 1024):
        exact, found = (ax.replan(plan, num_microbatches=b) for plan in (every, few))
        slower = found.predicted.iteration_seconds > exact.predicted.iteration_seconds * (1 + 1e-9)
        assert any("Plan anew" in warning for warning in found.warnings) or not slower


@pytest.mark.slow
def test_the_same_plan_again_composes_and_bounds_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    first, again = (planned(monkeypatch, "gpt-tiny", 1_900_000, bounded=True, cache=True) for _ in range(2))
    assert again.predicted == first.predicted
    assert again.costs.screened == first.costs.screened
    assert first.statistics.cached_solves == 0
    assert again.statistics.cached_solves == again.statistics.distinct_solves


@pytest.mark.sweep(kept=0)
@pytest.mark.slow
def test_b_auto_composes_every_mesh_also_where_the_cache_has_bounds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    every = planned(monkeypatch, "gpt-tiny", 1_900_000, bounded=False, b="auto")
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    for line in every.microbatches[-2:]:
        planned(monkeypatch, "gpt-tiny", 1_900_000, bounded=True, b=line.num_microbatches, cache=True)
    few = planned(monkeypatch, "gpt-tiny", 1_900_000, bounded=True, b="auto", cache=True)
    assert len(few.microbatches) > 3
    for one, other in zip(few.microbatches, every.microbatches, strict=True):
        assert (one.iteration_seconds is None) is (other.iteration_seconds is None)
        assert (one.iteration_seconds or 0) == pytest.approx(other.iteration_seconds or 0, rel=2 * 2.5e-3)


def test_a_bound_at_two_b_is_below_every_least_cost_between_and_beyond() -> None:
    rng = random.Random(0)
    for _ in range(100):
        lines = [(rng.uniform(0, 5), rng.uniform(0, 5)) for _ in range(3)]
        at = rng.uniform(0.01, 1)
        least = {x: min(a + b * x for a, b in lines) for x in (0.0, at, *(rng.uniform(0, 1) for _ in range(9)))}
        bound = Screened(least[0.0], 1, at, least[at])
        assert bound.at(at) == pytest.approx(least[at])
        assert all(bound.at(x) <= seconds * (1 + 1e-12) for x, seconds in least.items())
    assert Screened(2.0, 1).at(0.3) == 2.0


def test_of_several_bounds_those_are_kept_that_say_more_than_the_others_at_some_b_with_some_microbatches_held() -> None:
    rng, some, dropped = random.Random(1), 0, 0
    for _ in range(200):
        bounds = [
            Screened(rng.choice((1.0, 2.0)), rng.randrange(1, 4), rng.choice((0.1, 0.5)), rng.choice((0.0, 2.0, 3.0)))
            for _ in range(4)
        ]
        kept = undominated(bounds)
        for x in (0.0, 0.1, 0.3, 0.5, 1.0):
            for held in range(1, 4):
                least, of_kept = (
                    min((bound.at(x) for bound in of if held <= bound.most_held), default=math.inf)
                    for of in (bounds, kept)
                )
                assert of_kept == least
        for bound in kept:
            others = [other for other in kept if other is not bound]
            assert not any(other.below(bound) for other in others)
        some, dropped = some + len(kept), dropped + len(bounds) - len(kept)
    assert min(some, dropped) > 100


def test_a_bound_without_a_b_is_the_same_at_every_b() -> None:
    costs = StageCosts(
        num_layers=1,
        submeshes=(Submesh(1, 1),),
        device_memory_bytes=1,
        candidates={},
        screened={(0, 0, 0): (Screened(2.0, 3), Screened(5.0, 6))},
    )
    for b in (1, 8, 1000):
        assert [costs.bound_table(b, held=[n])[0, 1, 0, 0] for n in (3, 4, 7)] == [2.0, 5.0, math.inf]
