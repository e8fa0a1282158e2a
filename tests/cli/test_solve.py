"""`alpa-explore solve`: right answers with a proof, and one line for whatever is wrong."""

import json
from pathlib import Path

import pytest

from alpa_explore.cli import main
from alpa_explore.intra_op.solve import SOLVERS
from alpa_explore.iopddl.evaluator import evaluate_file

PROBLEMS = Path(__file__).parent.parent / "problems"


def write(path, usage_limit=None, **nodes):
    problem = {
        "name": "small",
        "edges": {"nodes": [[0, 1]], "costs": [[0, 10**18, 10**18, 0]]},
        "nodes": {"costs": [[1, 5], [7, 2]], "intervals": [[0, 2], [1, 3]], "usages": [[9, 1], [8, 1]], **nodes},
    }
    if usage_limit is not None:
        problem["usage_limit"] = usage_limit
    path.write_text(json.dumps({"problem": problem}))
    return str(path)


def solve_json(capsys, *arguments):
    code = main(["solve", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_prints_the_optimum_of_a_file(solver, capsys):
    path = str(PROBLEMS / "t2.json.gz")
    code, answer = solve_json(capsys, path, "--solver", solver)
    assert (code, answer["status"], answer["solver"]) == (0, "optimal", solver)
    assert answer["objective"] == pytest.approx(201.76, abs=1e-9)
    assert answer["bound"] == answer["objective"]
    assert evaluate_file(path, answer["choices"]).cost == answer["objective"]


def test_a_memory_limit_changes_the_choice_and_is_kept(tmp_path, capsys):
    free = solve_json(capsys, write(tmp_path / "free.json"))[1]
    assert (free["objective"], free["choices"], free["usage_limit"]) == (7, [1, 1], None)
    nodes = {"usages": [[1, 9], [1, 8]]}
    for solver in ("auto", "highs", "cbc"):
        path = write(tmp_path / "limited.json", 10, **nodes)
        code, answer = solve_json(capsys, path, "--solver", solver)
        assert (code, answer["objective"], answer["choices"]) == (0, 8, [0, 0])
        assert (answer["peak_usage"], answer["usage_limit"]) == (2, 10)


def test_what_cannot_be_says_why_and_exits_with_1(tmp_path, capsys):
    code, answer = solve_json(capsys, write(tmp_path / "tight.json", 1))
    assert (code, answer["status"], answer["choices"]) == (1, "infeasible", None)
    assert "the smallest feasible limit is 2" in answer["advice"]
    assert answer["least_limit"] == pytest.approx(2)
    contradiction = write(tmp_path / "never.json", costs=[[10**18, 1], [1, 10**18]])
    assert main(["solve", contradiction]) == 1
    assert "No choice satisfies nodes 0, 1 together" in capsys.readouterr().out


def test_whole_numbers_are_added_up_exactly(tmp_path, capsys):
    large = 2**53 + 1
    answer = solve_json(capsys, write(tmp_path / "large.json", costs=[[large, 10**17], [7, 10**17]]))[1]
    assert answer["objective"] == large + 7


def test_a_time_limit_in_which_the_file_cannot_be_read_is_refused_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("alpa_explore.iopddl.tuning.READ_BYTES_A_SECOND", 1.0)
    write(tmp_path / "good.json", 10)
    assert main(["solve", str(tmp_path / "good.json"), "--time-limit", "20"]) == 2
    assert "too short to read the file" in capsys.readouterr().err
