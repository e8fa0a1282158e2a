"""The formulations side by side on one stage."""

import dataclasses

import pytest

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.errors import OptionError
from alpa_explore.formulations import tuning
from alpa_explore.formulations.compare import FORMULATIONS, compare_solvers
from alpa_explore.formulations.comparison import StageInstance, solvers_table
from alpa_explore.intra_op.problem.solution import Status
from tests.intra_op.stages import chain, whole


@pytest.fixture(scope="module")
def instance():
    mesh = LogicalMesh((4, 2), (1e10, 1e11), (1e-5, 2e-6))
    return StageInstance(stage=whole(chain(0)), device=Cluster.parse("1x8:v100").device, mesh=mesh, inverse_b=1 / 8)


@pytest.fixture(scope="module")
def small(instance):
    """On four devices: the same formulations, sooner solved."""
    return dataclasses.replace(instance, mesh=LogicalMesh((2, 2), (1e10, 1e11), (1e-5, 2e-6)))


@pytest.fixture(scope="module")
def comparison(instance):
    return compare_solvers(instance)


@pytest.mark.slow
def test_every_formulation_has_a_row_priced_by_the_exact_costs(comparison):
    assert [row.solver for row in comparison.rows] == list(FORMULATIONS)
    assert comparison.proven
    for row in comparison.rows:
        assert row.status is Status.OPTIMAL
        assert row.objective_seconds >= comparison.optimum_seconds * (1 - 1e-9)
        assert comparison.gap(row) <= 0.05
        assert min(row.build_seconds, row.solve_seconds, row.repair_seconds) >= 0
        assert row.total_seconds == row.build_seconds + row.solve_seconds + row.repair_seconds > 0
    exact = {row.solver: row for row in comparison.rows[:2]}
    assert comparison.gap(exact["enumerated"]) == comparison.gap(exact["auto"]) == 0.0
    assert exact["auto"].differing_nodes == 0


def test_the_factor_form_is_smaller_and_the_counts_are_those_of_the_problem(comparison, instance):
    rows = {row.solver: row for row in comparison.rows}
    _, problem = instance.build()
    assert comparison.pairs == problem.variables >= rows["enumerated"].variables
    assert comparison.strategies == sum(map(len, problem.node_costs))
    assert rows["factor"].variables < rows["enumerated"].variables / 3
    assert rows["independent"].variables < rows["enumerated"].variables / 3


def test_an_answer_that_cannot_exist_has_no_price(comparison):
    row = dataclasses.replace(comparison.rows[-1], objective_before_seconds=None)
    assert comparison.gap_before(row) is None
    assert solvers_table(dataclasses.replace(comparison, rows=(row,)))[0]["gap_before_repair"] is None


@pytest.mark.slow
def test_too_large_an_ilp_is_counted_and_only_solved_by_name(small, monkeypatch):
    monkeypatch.setattr(tuning, "MAX_ENUMERATED_VARIABLES", 10)
    comparison = compare_solvers(small)
    assert comparison.left_out == ("enumerated",)
    assert [row.solver for row in comparison.rows] == ["auto", "factor", "independent"]
    named = compare_solvers(small, ["enumerated"])
    assert [row.solver for row in named.rows] == ["enumerated"]


def test_bad_requests_are_refused(instance):
    with pytest.raises(OptionError, match="'factor'"):
        compare_solvers(instance, ["facter"])
    with pytest.raises(OptionError, match="a mesh of several devices"):
        compare_solvers(dataclasses.replace(instance, mesh=LogicalMesh((), (), ())))
