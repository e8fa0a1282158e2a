import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from alpa_explore.errors import AlpaExploreError
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.files import read_problem, reading_seconds


def document(**changes: Any) -> dict[str, Any]:
    problem = {
        "name": "small",
        "nodes": {"costs": [[1, 2.5], [3, 4, 5], [6]], "intervals": [], "usages": []},
        "edges": {"nodes": [[0, 1], [2, 0]], "costs": [[1, 2, 3, 4, 5, 6], [7, 8]]},
    }
    return {"problem": {**problem, **changes}, "optimum": 12.5}


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_costs_are_read_row_by_row_with_the_optimum(tmp_path: Path) -> None:
    problem, _, optimum = read_problem(write(tmp_path / "p.json", document()))
    assert (problem.name, problem.edges, optimum) == ("small", ((0, 1), (2, 0)), 12.5)
    assert problem.edge_costs[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert problem.edge_costs[1].tolist() == [[7, 8]]
    assert problem.node_costs[0].tolist() == [1, 2.5]


def test_a_packed_file_is_recognised_by_its_content_and_the_outer_object_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "packed.json"
    path.write_bytes(gzip.compress(json.dumps(document()["problem"]).encode()))
    problem, _, optimum = read_problem(path)
    assert len(problem.node_costs) == 3
    assert optimum is None


def test_an_edge_from_a_node_to_itself_adds_its_diagonal(tmp_path: Path) -> None:
    edges = {"nodes": [[0, 0]], "costs": [[10, 1e18, 1e18, 20]]}
    problem, _, _ = read_problem(write(tmp_path / "p.json", document(edges=edges)))
    assert problem.edges == ()
    assert problem.node_costs[0].tolist() == [11, 22.5]


def test_equal_tables_become_one_array_and_others_do_not(tmp_path: Path) -> None:
    nodes = {"costs": [[1, 2], [1, 2], [3, 4, 5, 6]], "intervals": [], "usages": []}
    edges = {"nodes": [[0, 1], [1, 0], [0, 1]], "costs": [[1, 2, 3, 4], [1.0, 2, 3, 4], [1, 2, 3, 5]]}
    problem, _, _ = read_problem(write(tmp_path / "p.json", document(nodes=nodes, edges=edges)))
    first, second, other = problem.edge_costs
    assert first is second
    assert first.tolist() == [[1, 2], [3, 4]]
    assert other.tolist() == [[1, 2], [3, 5]]


def nodes(*costs: object) -> dict[str, Any]:
    return document(nodes={"costs": list(costs)}, edges={"nodes": [], "costs": []})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the file"),
        ("{}", "nodes"),
        ('{"nodes": {"costs": [[NaN]]}}', "NaN is not a number"),
        ('{"nodes": {"costs": [[Infinity]]}}', "Infinity is not a number"),
        ('{"nodes": {"costs": [[1e999]]}}', "too large for a number"),
        (nodes([1, -2.0]), "-2.0 is negative"),
        (nodes([1, 10**400]), "too large"),
        (nodes([1, "2"]), "'2' is not a number"),
        (nodes([True]), "True is not a number"),
        (nodes([[1]]), "costs of node 0"),
        (nodes(7), "a list is needed"),
        (document(edges={"nodes": [[0, 1]], "costs": []}), "1 edges but 0"),
        (document(edges={"nodes": [[0, 3]], "costs": [[1]]}), "not two of the 3 nodes"),
        (document(edges={"nodes": [[0, -1]], "costs": [[1]]}), "not two of the 3 nodes"),
        (document(edges={"nodes": [[0, 1, 2]], "costs": [[1]]}), "not two of the 3 nodes"),
        (document(edges={"nodes": [[0, 1]], "costs": [[1, 2, 3]]}), "2 × 3 are needed"),
        ({**document(), "optimum": "low"}, "optimum"),
    ],
)
def test_a_malformed_file_gets_one_clear_line(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(AlpaExploreError) as caught:
        read_problem(write(tmp_path / "bad.json", content))
    assert message in str(caught.value)
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_cut_off_one_and_one_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AlpaExploreError, match="cannot be read"):
        read_problem(tmp_path / "none.json")
    packed = gzip.compress(json.dumps(document()).encode())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(AlpaExploreError, match="cannot be read"):
        read_problem(tmp_path / "cut.json.gz")
    (tmp_path / "flipped.json.gz").write_bytes(packed[:12] + b"\xff\xff\xff" + packed[15:])
    with pytest.raises(AlpaExploreError, match="cannot be read"):
        read_problem(tmp_path / "flipped.json.gz")
    monkeypatch.setattr(tuning, "MAX_JSON_BYTES", 50)
    with pytest.raises(AlpaExploreError, match="more than"):
        read_problem(write(tmp_path / "large.json", document()))


def test_a_file_that_needs_more_memory_than_is_free_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "problem.json", document())
    monkeypatch.setattr(tuning, "MEMORY_FACTOR", 10**12)
    with pytest.raises(AlpaExploreError, match="too large for the memory") as raised:
        read_problem(path)
    assert "free" in str(raised.value)


def test_the_time_to_read_follows_from_the_length_of_the_text_packed_or_not(tmp_path: Path) -> None:
    text = json.dumps(document()).encode() * 100
    (tmp_path / "plain.json").write_bytes(text)
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(text))
    expected = len(text) / tuning.READ_BYTES_A_SECOND
    assert reading_seconds(tmp_path / "plain.json") == reading_seconds(tmp_path / "packed.json.gz") == expected
    assert reading_seconds(tmp_path / "none.json") == 0.0


def limited(**changes: Any) -> dict[str, Any]:
    nodes = {
        "costs": [[1, 2.5], [3, 4, 5], [6]],
        "intervals": [[0, 3], [1, 2], [0, 0]],
        "usages": [[10, 0], [1, 2, 3], [99]],
        **changes,
    }
    return document(nodes=nodes, usage_limit=12)


def test_a_memory_limit_is_read_with_intervals_and_usages(tmp_path: Path) -> None:
    memory = read_problem(write(tmp_path / "limited.json", limited())).memory
    assert memory.limit == 12
    assert memory.profile([float(item.usage[0]) for item in memory.items]).tolist() == [10, 11, 10]
    assert memory.allows((0, 1, 0))
    assert not memory.allows((0, 2, 0))
    assert read_problem(write(tmp_path / "free.json", document())).memory is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intervals": [[0, 3], [1, 2]]}, "2 intervals"),
        ({"intervals": [[0, 3], [2, 1], [0, 0]]}, "interval of node 1"),
        ({"intervals": [[0, 3], [0, 10**12], [0, 0]]}, "interval of node 1"),
        ({"intervals": [[0, 3], "now", [0, 0]]}, "interval of node 1"),
        ({"usages": [[10], [1, 2, 3], [99]]}, "1 usages for 2"),
        ({"usages": [[10, -1], [1, 2, 3], [99]]}, "negative"),
    ],
)
def test_a_damaged_memory_limit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AlpaExploreError, match=message):
        read_problem(write(tmp_path / "bad.json", limited(**changes)))


@pytest.mark.parametrize("limit", [True, "12", -1, 10**400])
def test_a_memory_limit_that_is_no_number_of_bytes_is_refused(tmp_path: Path, limit: object) -> None:
    content = limited()
    content["problem"]["usage_limit"] = limit
    with pytest.raises(AlpaExploreError, match=r"not a number of bytes|too large"):
        read_problem(write(tmp_path / "bad.json", content))
