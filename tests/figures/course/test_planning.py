"""The figures of meshes, layering, sharding problems and the pipeline, held against the library."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from alpa_explore import units
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.figures import tuning
from alpa_explore.figures.course.interactive import InteractiveFigure
from alpa_explore.figures.course.planning.clustering import clustering_figure, clustering_table, run_bytes
from alpa_explore.figures.course.planning.elimination import elimination_figure, elimination_steps, width
from alpa_explore.figures.course.planning.formulations import formulations_figure
from alpa_explore.figures.course.planning.meshes import axis_groups, meshes_figure
from alpa_explore.figures.course.planning.stage_table_player import (
    candidates,
    cells_to_fill,
    stage_table,
    stage_table_player,
)
from alpa_explore.figures.course.planning.step import family, step_figure
from alpa_explore.figures.course.planning.ways import DEVICES, WAYS, ways_figure
from alpa_explore.figures.course.planning.workbench import greedy, workbench_figure, workbench_menu_figure
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.intra_op.ilp.enumerated_ilp import relax
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.solve import solve
from alpa_explore.layering import cluster_operators, crossings_of
from alpa_explore.planner.microbatch_graph import microbatch_graph
from tests.figures.comparisons.test_solvers import compared, row
from tests.layering.reference import cost as defined_cost

DISAGREE = np.array([[1.0, 0.0], [0.0, 1.0]])
"""Two nodes that pay for choosing alike."""


@pytest.fixture(scope="module")
def mlp() -> TrainingGraph:
    return microbatch_graph("mlp-tiny", 8)


def titles(figure: InteractiveFigure) -> dict[str, str]:
    """The title of every state, by the name that a reader sees."""
    (control,) = figure.controls
    drawn = [state.layout.title.text.replace("<br>", " ") for _, state in figure.states()]
    return dict(zip(control.shown, drawn, strict=True))


def problem(nodes: list[list[float]], edges: dict[tuple[int, int], object]) -> ShardingProblem:
    return ShardingProblem(
        name="by hand",
        node_costs=tuple(map(np.array, nodes)),
        edges=tuple(edges),
        edge_costs=tuple(np.array(matrix, dtype=float) for matrix in edges.values()),
    )


GREEDY_FAILS = problem([[0.0, 1.0], [0.0, 1.0]], {(0, 1): [[5, 5], [5, 0]]})
TRIANGLE = problem([[0.0, 0.0]] * 3, {(0, 1): DISAGREE, (1, 2): DISAGREE, (0, 2): DISAGREE})


# Meshes and ways.


def test_every_device_is_in_one_group_along_each_axis() -> None:
    for shape in ((1, 8), (2, 4), (4, 2), (8, 1)):
        for axis in (0, 1):
            groups = axis_groups(shape, axis)
            assert sorted(d for group in groups for d in group) == list(range(8))
            assert {len(group) for group in groups} == {shape[axis]}


def test_the_titles_of_meshes_have_the_bandwidth_of_the_library() -> None:
    cluster = Cluster.parse("2x4:v100")
    figure = meshes_figure(cluster, Submesh(2, 4))
    mesh = logical_mesh(cluster, Submesh(2, 4), (2, 4))
    assert mesh.bandwidth[0] == cluster.between_nodes.bandwidth / 4
    texts = [annotation.text for annotation in figure.state(figure.start).layout.annotations]
    assert "<b>axis 0, 4 × 2 devices at 781 MB/s</b>" in texts
    assert list(titles(figure)) == ["1×8", "2×4", "4×2", "8×1"]


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: way.name)
def test_together_the_devices_compute_every_sample_with_every_weight_once(way) -> None:
    assert way.dp * way.tp * way.pp == DEVICES
    work = [
        (layer, part, sample)
        for device in range(DEVICES)
        for layer, part, sample in product(way.layers(device), way.slices(device), way.samples(device))
    ]
    assert sorted(work) == sorted(product(range(4), range(4), range(4)))
    assert len(way.layers(0)) * len(way.slices(0)) / 16 == way.weight_share


def test_the_list_of_ways_says_what_a_device_holds() -> None:
    said = titles(ways_figure(16 * 2.0**30))
    assert "16 GiB" in said["data"]
    assert "4 GiB" in said["tensor"]
    assert "8 GiB" in said["data × tensor"]


def test_the_flops_of_a_step_are_those_of_its_operators(mlp: TrainingGraph) -> None:
    figure = step_figure({"8": mlp}, "Batch").state({"state": 0})
    shares = sum(sum(trace.y) for trace in figure.data)
    assert shares == pytest.approx(1.0)
    products = next(trace for trace in figure.data if trace.name == "products")
    total = sum(o.flops for o in mlp.operators)
    forward = sum(o.flops for o in mlp.forward_operators if family(o.kind) == "products")
    assert products.y[0] == pytest.approx(forward / total)


# Layering.


def test_the_table_of_bytes_is_the_definition_of_c(mlp: TrainingGraph) -> None:
    crossings, count = crossings_of(mlp), len(mlp.forward_operators)
    table = run_bytes(crossings, count)
    for start in range(count):
        for stop in range(start + 1, count + 1):
            assert table[start, stop] == defined_cost(crossings, start, stop - 1)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_table_of_eq_6_ends_at_the_optimum_of_the_library(mlp: TrainingGraph, layers: int) -> None:
    flops = [o.flops for o in mlp.forward_operators]
    for delta in (0.5, 1.0):
        table = clustering_table(flops, run_bytes(crossings_of(mlp), len(flops)), layers, delta)
        assert table[layers, len(flops)] == cluster_operators(mlp, layers, delta=delta).objective_bytes
        assert table[0, 0] == 0
        assert np.isinf(table[0, 1:]).all(), "no layers hold no operators"


def test_a_delta_that_is_too_tight_is_a_state_that_says_so(mlp: TrainingGraph) -> None:
    figure = clustering_figure(mlp, 3, (0.0, 1.0))
    assert "no clustering" in titles(figure)["0"]
    assert "G*" in titles(figure)["1"]
    assert len(figure.state({"state": 1}).layout.shapes) == 2 + 3, "two cuts between three layers"


# The workbench.


def test_greedy_fails_where_the_optimum_looks_dearer_at_first() -> None:
    assert GREEDY_FAILS.evaluate(greedy(GREEDY_FAILS)) == 5
    assert solve(GREEDY_FAILS).objective == 2


def test_the_relaxation_is_whole_on_a_tree_and_halves_a_triangle() -> None:
    tree, triangle = relax(GREEDY_FAILS), relax(TRIANGLE)
    assert tree.objective == pytest.approx(2)
    assert tree.whole
    assert triangle.objective == pytest.approx(0)
    assert not triangle.whole
    assert all(shares == pytest.approx([0.5, 0.5]) for shares in triangle.node_shares)
    assert solve(TRIANGLE).objective == 1


def test_the_figure_of_a_choice_says_what_it_costs() -> None:
    title = workbench_figure(GREEDY_FAILS, (0, 1)).layout.title.text
    assert title == "Cost 6 = nodes 1 + edges 5; a cheaper choice exists."
    assert "in part" in workbench_figure(TRIANGLE, relax(TRIANGLE), theme="dark").layout.title.text


def test_the_list_begins_with_the_dearest_choice() -> None:
    figure = workbench_menu_figure(GREEDY_FAILS)
    said = titles(figure)[figure.start["state"]]
    assert "cost 6" in said
    assert "a cheaper choice exists" in said


def test_the_list_has_every_choice_and_three_methods() -> None:
    said = titles(workbench_menu_figure(TRIANGLE))
    assert list(said)[8:] == ["greedy", "LP relaxation", "optimum"]
    costs = [words.split("cost ")[1].split()[0] for words in list(said.values())[:8]]
    assert sorted(map(float, costs)) == sorted(TRIANGLE.evaluate(c) for c in product(range(2), repeat=3))


# Elimination.


def test_the_width_of_a_tree_is_1_of_a_cycle_2_and_of_a_grid_its_side() -> None:
    chain = [(i, i + 1) for i in range(7)]
    grid = [(i, i + 1) for i in range(9) if i % 3 < 2] + [(i, i + 3) for i in range(6)]
    assert width(elimination_steps([4] * 8, chain)) == 1
    assert width(elimination_steps([4] * 8, [*chain, (0, 7)])) == 2
    assert width(elimination_steps([4] * 9, grid)) == 3

    star = [(0, v) for v in range(1, 6)]
    assert width(elimination_steps([4] * 6, star)) == 1
    middle_first = elimination_steps([4] * 6, star, range(6))
    assert [step.node for step in middle_first] == [0, 1, 2, 3, 4, 5]
    assert (width(middle_first), middle_first[0].entries) == (5, 4**5)


def test_a_table_has_an_entry_for_each_combination_of_the_neighbours() -> None:
    steps = elimination_steps([2, 3, 5], [(0, 1), (1, 2), (0, 2)])
    assert [(len(step.neighbours), step.entries) for step in steps][-1] == (0, 1)
    for step in steps:
        assert step.entries == np.prod([(2, 3, 5)[u] for u in step.neighbours], initial=1)
    figure = elimination_figure({"triangle": ([2, 3, 5], [(0, 1), (1, 2), (0, 2)])})
    assert len(titles(figure)) == 3


# Formulations.


def test_each_formulation_has_its_size_and_gaps_on_axes_that_all_stages_share() -> None:
    auto = replace(row("auto", 0.3, 2.0, 2.0), variables=0, constraints=0)
    factor = replace(row("factor", 0.3, 2.0, 2.5), variables=200, constraints=100)
    small = compared(auto, factor)
    large = compared(auto, replace(row("independent", 0.3, 2.2, None, 1), variables=40_000))
    stages = formulations_figure({"small": small, "large": large})
    figure, beside = stages.state({"state": "small"}), stages.state({"state": "large"})
    variables, constraints, before, after = figure.data
    assert (variables.x[1], constraints.x[1]) == (200, 100)
    assert list(before.x) == pytest.approx([0, 25])
    assert list(after.x) == [0, 0]
    assert variables.text[0] == "no ILP"
    assert beside.data[2].text[1] == "illegal"
    low, high = figure.layout.xaxis.range
    assert beside.layout.xaxis.range == (low, high)
    assert 10**low <= variables.x[0] < 200
    assert 10**high > 40_000
    assert "every formulation reaches the optimum" in titles(stages)["small"]
    assert "independent misses the optimum by 10 %" in titles(stages)["large"]


# The table of Eq. 3.

DEVICES_OF = (1, 2, 4)


@pytest.fixture
def latency() -> np.ndarray:
    """Layers of 4, 2, 3, 1 ms; more devices help less and less."""
    times, table = [4.0, 2.0, 3.0, 1.0], np.full((4, 5, 3, 4), np.inf)
    for k in range(4):
        for i in range(k + 1, 5):
            for shape, speed in enumerate((1.0, 1.7, 2.8)):
                table[k, i, shape] = 1e-3 * sum(times[k:i]) / speed
    return table


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_the_least_t_of_the_tables_is_that_of_the_planner(latency: np.ndarray, count: int) -> None:
    best = min(stage_table(latency, DEVICES_OF, 4, t).total(count)[0] for t in candidates(latency))
    assert best == pytest.approx(pipeline_dp(latency, DEVICES_OF, 4, count).total_seconds)


def test_the_way_is_a_partition_of_all_layers_on_all_devices(latency: np.ndarray) -> None:
    result = pipeline_dp(latency, DEVICES_OF, 4, 8)
    table = stage_table(latency, DEVICES_OF, 4, result.t_max_seconds)
    way = table.way(len(result.stages), DEVICES_OF)
    assert [(k, *table.steps[s, k, d]) for s, k, d in way] == list(result.stages)


def test_a_stage_that_does_not_fit_at_its_place_is_not_taken(latency: np.ndarray) -> None:
    latency[0, 2, 1, 1] = np.inf  # Eq. 5: two microbatches of layers 0 and 1 do not fit on two devices
    table = stage_table(latency, DEVICES_OF, 4, 1.0)
    assert table.steps[2, 0, 4] != (2, 1)


SHAPES = ["1×1", "1×2", "1×4"]


def title(player: InteractiveFigure, theme: str = "light", **values: float) -> str:
    figure = player.state(player.start | values, theme=theme)
    assert not isinstance(figure, str)
    return figure.layout.title.text.replace("<br>", " ")


@pytest.mark.parametrize("t_max", [0.5e-3, 2e-3, 3e-3, 4e-3, 5e-3, 10e-3])
def test_each_cell_to_fill_is_the_least_over_its_first_stages_and_no_other_cell_is_read(
    latency: np.ndarray, t_max: float
) -> None:
    table = stage_table(latency, DEVICES_OF, 4, t_max)
    cells = cells_to_fill(4, 4, DEVICES_OF, 4)
    known = {(0, 4, 0): 0.0}
    for (s, k, d), tried in cells.items():
        sums = [
            latency[k, stage.end, stage.shape, s - 1] + known[stage.rest]
            for stage in tried
            if latency[k, stage.end, stage.shape, s - 1] <= t_max
        ]
        known[s, k, d] = min(sums, default=np.inf)
        assert known[s, k, d] == table.values[s, k, d]


def test_every_partition_on_all_devices_goes_through_cells_to_fill_only(latency: np.ndarray) -> None:
    cells = cells_to_fill(4, 4, DEVICES_OF, 4)
    for table in (stage_table(latency, DEVICES_OF, 4, t) for t in candidates(latency)):
        for s in range(1, 5):
            assert set(table.way(s, DEVICES_OF)) <= set(cells)
    assert (1, 0, 1) not in cells, "three devices would have no layer"
    assert (1, 1, 3) not in cells, "no submesh has three devices"


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_the_slider_of_t_max_has_the_optimum_of_the_planner_and_every_other_table(
    latency: np.ndarray, count: int
) -> None:
    player = stage_table_player(latency, DEVICES_OF, 4, count, SHAPES)
    best = pipeline_dp(latency, DEVICES_OF, 4, count)
    assert player.start["t_max"] == best.t_max_seconds
    ends = [title(player, t_max=t) for t in player.controls[0].values]
    assert "no partition" in ends[0]
    assert sum("the least of all" in end for end in ends) == 1
    assert f"= {units.seconds(best.total_seconds)} in {len(best.stages)} stage" in title(player)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_step_fills_one_more_cell_beside_those_it_reads(latency: np.ndarray, theme: str) -> None:
    player = stage_table_player(latency, DEVICES_OF, 4, 8, SHAPES)
    cells = cells_to_fill(4, 4, DEVICES_OF, 4)
    for t_max in player.controls[0].values[:3]:
        table = stage_table(latency, DEVICES_OF, 4, t_max)
        for step in range(len(cells) + 1):
            figure = player.state({"t_max": t_max, "step": step}, theme=theme)
            heat = [trace for trace in figure.data if trace.type == "heatmap"]
            numbers = {
                (panel + 1, k, d + 1): value
                for panel, trace in enumerate(heat)
                for (k, d), value in np.ndenumerate(np.array(trace.z, dtype=float))
                if not np.isnan(value)
            }
            finite = {c: round(1e3 * table.values[c], 4) for c in list(cells)[:step] if np.isfinite(table.values[c])}
            assert numbers == finite
            infinite = [text for trace in figure.data if trace.type == "bar" for text in trace.text or () if text]
            assert len(infinite) == step - len(finite), "the others are hatched"
    assert len(player.controls[1].values) == len(cells) + 2, "the empty table, the cells, T"


def test_the_title_says_where_a_number_comes_from_or_why_there_is_none(latency: np.ndarray) -> None:
    step = {cell: number for number, cell in enumerate(cells_to_fill(4, 4, DEVICES_OF, 4), start=1)}
    player = stage_table_player(latency, DEVICES_OF, 4, 8, SHAPES)
    low, *_, high = player.controls[0].values
    assert "F(0, 4, 0) = 0" in title(player, step=0)
    assert "F(1, 3, 1) = 1 ms: layer 3 on 1×1, 1 ms, + F(0, 4, 0) = 0." in title(player, t_max=high, step=step[1, 3, 1])
    assert "more than t_max" in title(player, t_max=low, step=step[1, 0, 4])
    latency[2, 4, 0, 0] = np.inf
    tight = stage_table_player(latency, DEVICES_OF, 4, 8, SHAPES)
    assert "does not fit in memory" in title(tight, t_max=tight.controls[0].values[-1], step=step[1, 2, 1])


def test_few_t_max_are_left_where_a_page_would_be_too_large(
    latency: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "COURSE_STATES", 64)
    player = stage_table_player(latency, DEVICES_OF, 4, 8, SHAPES)
    assert player.start["t_max"] in player.controls[0].values
    assert "no partition" in title(player, t_max=player.controls[0].values[0])
