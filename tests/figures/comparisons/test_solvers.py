"""The figure of the solver comparison, by its data."""

import dataclasses

import pytest

from alpa_explore.cluster import LogicalMesh
from alpa_explore.figures.comparisons.solvers import solvers_figure, solvers_table
from alpa_explore.formulations.comparison import Comparison, SolverRow
from alpa_explore.intra_op.problem.solution import Status


def row(solver, seconds, objective, before, impossible=0):
    """`seconds`: of building, solving and repairing together. `before`: those of its plan before the repair."""
    return SolverRow(
        solver=solver,
        variables=100,
        constraints=50,
        **{"build_seconds": seconds / 2, "solve_seconds": seconds / 4, "repair_seconds": seconds / 4},
        **{"objective_seconds": objective, "objective_before_seconds": before, "impossible_nodes": impossible},
        **{"differing_nodes": 1, "batch_share_before": 0.5, "batch_share": 0.25, "status": Status.OPTIMAL},
    )


def compared(*rows):
    """These rows; the optimum is 2 s."""
    return Comparison(
        mesh=LogicalMesh((16, 8), (1.0, 1.0), (0.0, 0.0)),
        **{"first": 3, "last": 3, "nodes": 10, "edges": 12, "strategies": 90, "most_strategies": 12, "pairs": 1000},
        **{"optimum_seconds": 2.0, "proven": True, "rows": rows, "left_out": ()},
    )


@pytest.fixture
def comparison():
    return compared(row("auto", 0.1, 2.0, 2.0), row("factor", 0.4, 2.02, 2.04), row("independent", 0.2, 2.0, None, 7))


def test_bars_show_seconds_and_both_gaps(comparison):
    seconds, before, after, verdicts = solvers_figure(comparison).data
    assert list(seconds.y) == ["factor", "independent", "auto"], "the fastest is at the top"
    assert list(seconds.x) == pytest.approx([0.4, 0.2, 0.1])
    assert (before.x[0], before.x[2]) == pytest.approx((2.0, 0.0))
    assert before.x[1] is None
    assert list(after.x) == pytest.approx([1.0, 0.0, 0.0])
    assert [text.strip() for text in verdicts.text] == ["", "own answer infeasible: 7 impossible placements", "optimal"]
    assert list(before.text) == ["2 %", "", ""], "no '0 %' beside another"
    assert before.marker.pattern.shape == "/", "colour is not the only sign"
    assert "50 %" in after.hovertext[2]


def test_seconds_are_logarithmic_and_gaps_are_not(comparison):
    figure = solvers_figure(comparison)
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis2.type is None
    assert "auto is fastest" in figure.layout.title.text
    assert "factor ends 1 % above" in figure.layout.title.text


def test_where_all_gaps_are_zero_the_title_says_so(comparison):
    equal = dataclasses.replace(comparison, rows=comparison.rows[::2])
    assert "all reach the optimum" in solvers_figure(equal).layout.title.text


def test_the_table_has_a_row_for_each_formulation(comparison):
    table = solvers_table(comparison)
    assert [r["gap"] for r in table] == pytest.approx([0.0, 0.01, 0.0])
    assert table[2]["gap_before_repair"] is None
