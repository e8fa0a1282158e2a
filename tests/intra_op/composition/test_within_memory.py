"""Choices of composed ranges that fit in memory, and their bounds, against exact solves."""

from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.compose import Composer, whole_choice
from alpa_explore.intra_op.composition.within_memory import fastest_within_memory
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from tests.intra_op.composition.test_compose import CHAINS, on

INVERSE_B = 0.25
COUNTS = (1, 2, 4)


CASES = (
    ("mlp, specs forbidden", 0.3, 99),
    ("mlp", 0.3, 99),
    ("wide-resnet-tiny", 0.02, 2),
    ("wide-resnet-tiny", 0.7, 3),
    ("gpt-tiny", 0.3, 1),
    ("gpt-tiny, cut anywhere 1", 0.3, 1),
)


def test_the_choice_within_memory_has_the_least_device_seconds_also_where_the_host_sets_the_pace() -> None:
    """Today's software launches kernels from the host: latencies are then longer than what is minimised."""
    chain, mesh = CHAINS["mlp"](), logical_mesh(Cluster.parse("1x2:h100"), Submesh(1, 2), (1, 2))
    stage_of, model = slice_stages(chain.layered), CostModel(Cluster.parse("1x2:h100").device, mesh)
    composer, layers = Composer(chain, stage_of, model), (0, chain.layered.num_layers - 1)
    problem = build_stage_problem(stage_of(*layers), model)
    fast, lean = (composer.solve([layers], [Price(INVERSE_B, price, 1)])[0][layers] for price in (0.0, 1e3))
    assert lean is not None
    assert fast.totals.latency_at(INVERSE_B) > 1.2 * fast.totals.device_latency_at(INVERSE_B), "the host is slower"
    limit = (fast.totals.peak_bytes(1) + lean.totals.peak_bytes(1)) / 2
    result = fastest_within_memory(composer, layers, counts=(1,), limit=limit, inverse_b=INVERSE_B, gap=1e-4)[1]
    priced = problem.at(inverse_b=INVERSE_B, memory_price=0.0, microbatches_held=1)
    exact = solve_limited(priced, problem.memory_limit(1, limit))
    assert result.best is not None
    assert result.bound <= exact.objective * (1 + 1e-9)
    assert result.best.cost >= exact.objective * (1 - 1e-9)
    assert result.best.cost == pytest.approx(result.best.totals.device_latency_at(INVERSE_B), rel=1e-12)
    assert result.best.cost / result.bound == pytest.approx(exact.objective / result.bound, rel=0.2)
    latency = result.best.totals.latency_at(INVERSE_B)
    assert result.paced_bound(INVERSE_B) == pytest.approx(latency - result.best.cost + result.bound)


def test_a_mixture_is_the_best_choice_where_blocks_in_front_of_a_separator_have_the_higher_price() -> None:
    chain, model = CHAINS["mlp"](), on((1, 2))
    stage_of, layers = slice_stages(chain.layered), (0, chain.layered.num_layers - 1)
    composer, problem = Composer(chain, stage_of, model), build_stage_problem(stage_of(*layers), model)
    low, high = Price(INVERSE_B, 1e-11, 2), Price(INVERSE_B, 1e-9, 2)
    cheap, dear = (problem.at(**price._asdict()) for price in (low, high))
    owners, blocks = chain.owners(problem), [part.block for part in chain.parts(*layers)]
    mixtures = composer.mixtures(layers, low, high)
    assert len(mixtures) == len(blocks) + 1
    for number, mixture in enumerate(mixtures):
        costs = zip(owners, cheap.node_costs, dear.node_costs, strict=True)
        mixed = replace(cheap, node_costs=tuple(h if owner in blocks[:number] else c for owner, c, h in costs))
        choices = whole_choice(chain, problem, mixture.block_choices)
        assert mixed.evaluate(choices) == pytest.approx(solve(mixed, "ilp").objective, rel=1e-9)
        assert mixture.cost == pytest.approx(mixed.evaluate(choices), rel=1e-9)
        assert mixture.totals.held_bytes(2) == pytest.approx(problem.totals(choices).held_bytes(2))
    held = [mixture.totals.held_bytes(2) for mixture in mixtures]
    assert held[-1] == min(held) < max(held[1:-1]) < held[0], "some lie between those of a single price"


def test_mixtures_leave_the_bounds_and_give_faster_choices_that_fit(monkeypatch) -> None:
    chain = CHAINS["mlp"]()
    composer, layers = Composer(chain, slice_stages(chain.layered), on((2, 2))), (0, chain.layered.num_layers - 1)
    fast, lean = (composer.solve([layers], [Price(INVERSE_B, price, 1)])[0][layers] for price in (0.0, 1e3))
    assert fast is not None
    assert lean is not None
    faster = 0
    for share in (0.1, 0.5, 0.9):
        limit = lean.totals.peak_bytes(1) + share * (fast.totals.peak_bytes(1) - lean.totals.peak_bytes(1))
        asked = {"counts": (1,), "limit": limit, "inverse_b": INVERSE_B, "gap": 0.0}
        mixed = fastest_within_memory(composer, layers, **asked)[1]
        with monkeypatch.context() as without:
            without.setattr(Composer, "mixtures", lambda *_: [])
            single = fastest_within_memory(composer, layers, **asked)[1]
        assert mixed.bound == single.bound
        assert mixed.best is not None
        assert single.best is not None
        assert mixed.best.totals.peak_bytes(1) <= limit
        assert single.best.cost >= mixed.best.cost >= mixed.bound * (1 - 1e-9)
        faster += mixed.best.cost < single.best.cost
    assert faster, "some lie between those of a single price"


@pytest.mark.sweep(kept=3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "share", "most_ranges"), CASES, ids=str)
def test_the_optimum_within_memory_lies_between_the_bound_and_the_choice(
    name: str, share: float, most_ranges: int
) -> None:
    """The limit is the peak of the leanest choice plus a `share` of the difference to the peak of the fastest."""
    chain, model = CHAINS[name](), on((1, 2))
    stage_of = slice_stages(chain.layered)
    composer = Composer(chain, stage_of, model)
    ranges = list(combinations_with_replacement(range(chain.layered.num_layers), 2))[::2][:most_ranges]
    fitting = 0
    for r in ranges:
        problem = build_stage_problem(stage_of(*r), model)
        ends = [
            solutions.get(r) for solutions in composer.solve([r], [Price(INVERSE_B, price, 2) for price in (0.0, 1e3)])
        ]
        if ends[0] is None or ends[1] is None:
            continue
        least, most = sorted(e.totals.peak_bytes(2) for e in ends if e is not None)
        limit = least + share * (most - least)
        for held, result in fastest_within_memory(
            composer, r, counts=COUNTS, limit=limit, inverse_b=INVERSE_B, gap=1e-4
        ).items():
            priced = problem.at(inverse_b=INVERSE_B, memory_price=0.0, microbatches_held=held)
            memory = problem.memory_limit(held, limit)
            if memory.least_peak() > limit:
                assert result.best is None
                continue
            exact = solve_limited(priced, memory)
            if not exact.choices:
                assert result.best is None
                continue
            assert result.bound <= exact.objective * (1 + 1e-9)
            if result.best is not None:
                fitting += 1
                choices = whole_choice(chain, problem, result.best.block_choices)
                assert memory.allows(choices)
                assert priced.evaluate(choices) == pytest.approx(result.best.cost, rel=1e-9)
                assert result.best.cost >= exact.objective * (1 - 1e-9)
    assert fitting
