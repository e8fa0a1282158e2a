"""A stage as a sharding problem, on small captured models."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn

from alpa_explore.baselines.roles import Role, strategies_for_roles
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.collectives import with_mirrors
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import Phase, TensorKind
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.liveness import workspace_intervals
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_graph import received_bytes, slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem, node_figures
from alpa_explore.intra_op.stage.stage_totals import EXPOSED, Figure
from alpa_explore.layering import cluster_operators, manual_layers
from alpa_explore.models.catalog import build
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.describe import describe_stage
from alpa_explore.questions.what_if import pinned
from alpa_explore.sharding.spec import PARTIAL, local_share
from alpa_explore.tracing.capture import capture


class TwoLinears(nn.Module):
    def __init__(self, width=64, inner=256):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x))).square().sum()


def problem_of(graph, mesh_shape, *, boundaries=(), first=0, last=0, device="v100"):
    layered = assign_layers(graph, manual_layers(graph, boundaries).layer_of_forward)
    cluster = Cluster.parse(f"1x{int(np.prod(mesh_shape))}:{device}")
    mesh = logical_mesh(cluster, Submesh(1, cluster.devices), mesh_shape).squeezed()
    return build_stage_problem(slice_stages(layered)(first, last), CostModel(cluster.device, mesh))


@pytest.fixture(scope="module")
def two_linears():
    with torch.device("meta"):
        return capture(TwoLinears(), (torch.empty(32, 64),))


@pytest.fixture(scope="module")
def tiny_gpt():
    module, inputs = build("gpt-tiny", 4)
    return capture(module, inputs, name="gpt-tiny", rematerialization=True)


class Blocks(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.square().sum()


@pytest.mark.parametrize("count", [1, 3])
def test_weights_that_are_stored_in_shards_are_gathered_for_two_blocks_at_once(count):
    with torch.device("meta"):
        graph = capture(Blocks(count, 256), (torch.empty(32, 256),))
    problem = problem_of(graph, (4,), device="h100")
    assert problem.stage.blocks == count

    def workspace(role):
        permitted = strategies_for_roles(problem, [role])
        chosen = solve(pinned(problem.at(inverse_b=0.5, memory_price=0.0, microbatches_held=1), permitted)).choices
        return problem.totals(chosen).workspace_bytes

    gathered = min(2, count) * 256 * 256 * 4 * 3 / 4
    assert workspace(Role.SHARDED_DATA) - workspace(Role.DATA) == pytest.approx(gathered)


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_a_second_copy_of_the_model_doubles_weights_and_updates_and_sums_the_gradients(tiny_gpt, mesh):
    cluster = Cluster.parse(f"1x{int(np.prod(mesh))}:v100")
    layered = assign_layers(tiny_gpt, manual_layers(tiny_gpt, ()).layer_of_forward)
    logical = logical_mesh(cluster, Submesh(1, cluster.devices), mesh).squeezed()
    stage = slice_stages(layered)(0, 0)
    one, two = (build_stage_problem(stage, CostModel(c.device, logical)) for c in (cluster, with_mirrors(cluster)))
    link, rng = cluster.inside_node, random.Random(0)
    cheapest = solve(two.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)).choices
    for choices in (cheapest, *(random_choices(one, rng) for _ in range(5))):
        alone, both, sums = one.totals(choices), two.totals(choices), 0.0
        for node, choice in zip(one.nodes, choices, strict=True):
            if node.kind is NodeKind.UPDATE:
                share = local_share(node.priced.strategies[choice].inputs[1], mesh)
                size = tiny_gpt.tensors[tiny_gpt.parameters[node.subject].gradient].bytes
                sums += link.latency_seconds + share * size / link.bandwidth
        assert both.weight_bytes == pytest.approx(2 * alone.weight_bytes)
        assert both.iteration_seconds == pytest.approx(2 * (alone.iteration_seconds + sums))
        for part in ("microbatch_seconds", "activation_bytes", "workspace_bytes"):
            assert getattr(both, part) == getattr(alone, part)
    updates = [o for o in describe_stage(two, cheapest) if o.phase == "update"]
    assert sum("both copies" in line for o in updates for line in o.communication) == len(tiny_gpt.parameters)
    for o in describe_stage(two, cheapest):
        assert len(o.communication) == len(o.collective_tensors) == len(o.collective_kinds)
        assert all(line.startswith(f"{name}") for line, name in zip(o.communication, o.collective_tensors, strict=True))
        assert sum(o.collective_seconds) == o.communication_seconds


def random_choices(problem, rng):
    return tuple(rng.randrange(len(n.microbatch_seconds)) for n in problem.nodes)


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
def test_the_objective_of_a_choice_is_the_sum_of_its_parts(tiny_gpt, mesh):
    stage = problem_of(tiny_gpt, (1, *mesh) if len(mesh) == 1 else mesh)
    rng = random.Random(0)
    finite = 0
    for inverse_b, price, held in [(1.0, 0.0, 1), (0.125, 1e-9, 3)]:
        problem = stage.at(inverse_b=inverse_b, memory_price=price, microbatches_held=held)
        choices = [solve(problem).choices] + [random_choices(stage, rng) for _ in range(50)]
        for chosen in choices:
            totals, objective = stage.totals(chosen), problem.evaluate(chosen)
            if objective >= FORBIDDEN:
                continue
            finite += 1
            parts = totals.microbatch_seconds + inverse_b * totals.iteration_seconds
            parts += price * (totals.weight_bytes + held * totals.activation_bytes)
            assert objective == pytest.approx(parts, rel=1e-9)
    assert finite >= 2


def test_the_solver_finds_what_brute_force_finds():
    class OneLinear(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(8, 8))

        def forward(self, x):
            return torch.mm(x, self.weight).sum()

    with torch.device("meta"):
        graph = capture(OneLinear(), (torch.empty(8, 8),), optimizer="sgd")
    stage = problem_of(graph, (1, 2))
    problem = stage.at(inverse_b=0.5, memory_price=0.0, microbatches_held=1)
    sizes = [len(c) for c in problem.node_costs]
    all_choices = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, len(sizes))
    assert len(all_choices) > 1000, "too small to be a test"
    costs = sum(c[all_choices[:, v]] for v, c in enumerate(problem.node_costs))
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        costs = costs + matrix[all_choices[:, a], all_choices[:, b]]
    assert solve(problem).objective == pytest.approx(costs.min(), rel=1e-12)
    assert costs.min() < np.median(costs)


def test_equal_blocks_have_one_key_and_equal_problems(tiny_gpt):
    boundaries = ["h.1", "h.2", "h.3"]
    layered = assign_layers(tiny_gpt, manual_layers(tiny_gpt, boundaries).layer_of_forward)
    stage = slice_stages(layered)
    mesh = logical_mesh(Cluster.parse("1x4:v100"), Submesh(1, 4), (2, 2)).squeezed()
    model = CostModel(Cluster.parse("1x4:v100").device, mesh)
    keys: dict[str, set[str]] = {}
    for first, last in itertools.combinations_with_replacement(range(layered.num_layers), 2):
        built = build_stage_problem(stage(first, last), model)
        content = built.at(inverse_b=0.25, memory_price=1e-9, microbatches_held=2).content_key
        keys.setdefault(stage(first, last).structure_key, set()).add(content)
    assert all(len(contents) == 1 for contents in keys.values()), "one key, two problems"
    assert len(set.union(*keys.values())) == len(keys), "one problem, two keys"
    assert stage(1, 1).structure_key == stage(2, 2).structure_key
    assert stage(0, 0).structure_key != stage(1, 1).structure_key


def test_graphs_that_differ_in_sizes_alone_are_cut_once_into_the_stages_that_each_has_by_itself(tiny_gpt):
    twice = capture(*build("gpt-tiny", 8), name="gpt-tiny", rematerialization=True)
    held = capture(*build("gpt-tiny", 8), name="gpt-tiny")
    layers = manual_layers(tiny_gpt, ["h.1", "h.2", "h.3"]).layer_of_forward
    layered = [assign_layers(graph, layers) for graph in (tiny_gpt, twice, held)]
    together = [slice_stages(one) for one in layered]
    for first, last in itertools.combinations_with_replacement(range(4), 2):
        small, large, kept = (stage_of(first, last) for stage_of in together)
        assert large.memo is small.memo is not kept.memo
        assert large.layered is layered[1]
        assert workspace_intervals(large) is workspace_intervals(small) is not workspace_intervals(kept)
        assert len({small.structure_key, large.structure_key, kept.structure_key}) == 3
    alone = slice_stages(layered[1], layers_apart=False)  # cut for this graph
    for first, last in itertools.combinations_with_replacement(range(4), 2):
        for name in ("operators", "sources", "parameters", "sinks", "held", "launches"):
            assert getattr(together[1](first, last), name) == getattr(alone(first, last), name), name
        found, expected = (workspace_intervals(stage_of(first, last)) for stage_of in (together[1], alone))
        assert found is not expected
        assert found.tensors == expected.tensors
        assert all(np.array_equal(getattr(found, n), getattr(expected, n)) for n in ("starts", "ends", "held"))


@pytest.mark.parametrize(("samples", "shared"), [(7, True), (8, False)])
def test_compiled_graphs_share_stages_where_the_same_tensors_are_equally_large(samples, shared):
    """A kernel writes in place of what has the size of its result: with eight samples activations are as large as some
    weights, with five or seven they are not."""
    software = Cluster.parse("1x1:h100@compiled").software
    few, other = (capture(*build("gpt-tiny", n), name="gpt-tiny") for n in (5, samples))
    layers = manual_layers(few, ["h.1", "h.2", "h.3"]).layer_of_forward
    of_few, of_other = (assign_layers(graph, layers, software=software) for graph in (few, other))
    slice_stages(of_few)(0, 3)
    together, alone = slice_stages(of_other), slice_stages(of_other, layers_apart=False)
    assert (together(0, 3).memo is slice_stages(of_few)(0, 3).memo) is shared
    found, expected = workspace_intervals(together(0, 3)), workspace_intervals(alone(0, 3))
    assert found.tensors == expected.tensors
    assert all(np.array_equal(getattr(found, n), getattr(expected, n)) for n in ("starts", "ends", "held"))


def test_rematerialisation_holds_what_enters_a_layer_and_runs_its_forward_again(tiny_gpt):
    layered = assign_layers(tiny_gpt, manual_layers(tiny_gpt, ["h.1", "h.2", "h.3"]).layer_of_forward)
    tensors = tiny_gpt.tensors
    for layer, held in enumerate(layered.held):
        values = [t for t in held if tensors[t].kind is TensorKind.VALUE]
        assert all(layered.layer_of[tensors[t].producer] < layer for t in values)
        assert len(values) == (1 if layer else 0), "a block reads the residual stream alone"
    # What a layer computes last for its successor alone need not be computed again.
    assert 0 < len(layered.recomputed) < len(tiny_gpt.forward_operators)
    assert all(tiny_gpt.operators[o].phase is Phase.FORWARD for o in layered.recomputed)


@pytest.mark.slow
def test_without_rematerialisation_more_is_held_and_less_is_computed():
    module, inputs = build("gpt-tiny", 4)
    totals = {}
    for rematerialization in (False, True):
        graph = capture(module, inputs, rematerialization=rematerialization)
        stage = problem_of(graph, (1, 1), boundaries=["h.1", "h.2", "h.3"], last=3)
        totals[rematerialization] = stage.totals(
            solve(stage.at(inverse_b=1, memory_price=0, microbatches_held=1)).choices
        )
    assert totals[True].activation_bytes < totals[False].activation_bytes / 3
    assert totals[True].microbatch_seconds > totals[False].microbatch_seconds * 1.1
    assert totals[True].weight_bytes == totals[False].weight_bytes


def test_weights_gradients_and_optimizer_state_of_one_device_are_counted(two_linears):
    stage = problem_of(two_linears, (1, 1))
    totals = stage.totals(solve(stage.at(inverse_b=1, memory_price=0, microbatches_held=1)).choices)
    elements = two_linears.parameter_count
    assert totals.weight_bytes == elements * (4 + 4 + 8), "fp32 weight, fp32 gradient, two moments"


def test_no_pending_sum_leaves_a_stage_unpaid(tiny_gpt):
    """An operator whose output is read by another stage pays for its pending sum in its own costs."""
    boundaries = ["h.1", "h.2", "h.3"]
    stage = problem_of(tiny_gpt, (1, 4), boundaries=boundaries, first=1, last=1)
    checked = 0
    for node in stage.nodes:
        if node.kind is not NodeKind.OPERATOR:
            continue
        for place, tensor in enumerate(tiny_gpt.operators[node.subject].outputs):
            if tensor in stage.stage.sinks:
                for number, strategy in enumerate(node.priced.strategies):
                    if PARTIAL in strategy.outputs[place]:
                        plain = node.priced.seconds[number]
                        assert node.microbatch_seconds[number] >= plain + stage.leaving_seconds(
                            tensor, strategy.outputs[place]
                        )
                        checked += 1
    assert checked


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny"])
def test_a_residual_stream_sends_one_tensor_each_way(name):
    """Autograd adds the gradients of a tensor where it was made; the stage that computes both sends their sum."""
    graph = microbatch_graph(name, 4)
    layered = assign_layers(graph, cluster_operators(graph, 4, delta=2.0).layer_of_forward)
    activation = received_bytes(layered)[3, 3]
    for first, last in ((0, 0), (1, 1), (1, 2), (3, 3)):
        directions = (first > 0) + (last < 3)
        assert received_bytes(layered)[first, last] == directions * activation
    moved = [
        o
        for o in graph.operators
        if o.phase is Phase.BACKWARD and layered.layer_of[o.index] != layered.layer_of[o.forward]
    ]
    assert len(moved) == 3, "one for each end of a layer"
    assert {o.kind for o in moved} == {"aten.add.Tensor"}


def figures_added_up(problem: StageProblem, choices: tuple[int, ...]) -> dict[Figure, float]:
    """Of one choice, node by node and edge by edge."""
    figures = dict.fromkeys(Figure, 0.0)
    for node, k in zip(problem.nodes, choices, strict=True):
        again = 2 if problem.is_forward(node) and node.subject in problem.stage.layered.recomputed else 1
        figures[Figure.MICROBATCH] += node.microbatch_seconds[k]
        figures[Figure.ITERATION] += node.iteration_seconds[k]
        figures[Figure.WEIGHT_BYTES] += node.weight_bytes[k]
        figures[Figure.ACTIVATION_BYTES] += node.activation_bytes[k]
        figures[Figure.FORWARD] += node.microbatch_seconds[k] / again * problem.is_forward(node)
        if node.kind is NodeKind.OPERATOR and node.priced.launching is not None:
            forward = Figure.LAUNCHING_FORWARD if problem.is_forward(node) else Figure.LAUNCHING_BACKWARD
            figures[forward] += node.priced.launching[k]
            figures[Figure.LAUNCHING_BACKWARD] += node.priced.launching[k] * (again - 1)
    for edge in problem.edges:
        seconds, read_forward = edge.seconds[choices[edge.a], choices[edge.b]], problem.is_forward_edge(edge)
        figures[Figure.ITERATION if edge.each_iteration else Figure.MICROBATCH] += seconds * edge.times
        figures[Figure.FORWARD] += seconds * read_forward
        if edge.launches is not None:
            each = edge.launches.whole[choices[edge.a], choices[edge.b]] / edge.times
            figures[Figure.LAUNCHING_FORWARD if read_forward else Figure.LAUNCHING_BACKWARD] += each
            figures[Figure.LAUNCHING_BACKWARD] += each * (edge.times - 1)
        if edge.stored:
            figures[problem.figure_of(edge)] += edge.unhidden.whole[choices[edge.a], choices[edge.b]]
            figures[EXPOSED[problem.figure_of(edge)]] += seconds
    return figures


@pytest.mark.parametrize("software", ["eager", "fsdp", "compiled"])
def test_the_figures_of_a_choice_are_those_of_its_nodes_and_edges(software: str) -> None:
    """Hosts launch kernels, stored weights are gathered and gradients summed, blocks are computed again."""
    graph, cluster = microbatch_graph("gpt-tiny", 8), Cluster.parse(f"1x4:a100@{software}")
    layering, full = manual_layers(graph, ()).layer_of_forward, Recomputation.parse("full")
    layered = assign_layers(graph, layering, full, software=cluster.device.software)
    model = CostModel(cluster.device, logical_mesh(cluster, Submesh(1, 4), (2, 2)).squeezed())
    problem = build_stage_problem(slice_stages(layered)(0, 0), model)
    assert not problem.adds_up
    rng = np.random.default_rng(0)
    drawn = [tuple(int(rng.integers(len(n.microbatch_seconds))) for n in problem.nodes) for _ in range(3)]
    for choices in (solve(problem.at(inverse_b=0.5, memory_price=0.0, microbatches_held=1)).choices, *drawn):
        nodes = np.array([node_figures(node)[:, k] for node, k in zip(problem.nodes, choices, strict=True)])
        seconds = [edge.seconds[choices[edge.a], choices[edge.b]] * edge.times for edge in problem.edges]
        found = problem.figures(np.array([choices]), nodes.T[:, None], np.array([seconds]))[0]
        for figure, expected in figures_added_up(problem, choices).items():
            if figure not in (Figure.GATHERED_BYTES, Figure.BESIDE_BYTES):
                assert found[figure] == pytest.approx(expected, rel=1e-12, abs=1e-15), figure.name
        assert choices not in drawn or found[Figure.LAUNCHING_FORWARD] > 0
        totals = problem.totals(choices)
        assert totals.microbatch_seconds == pytest.approx(found[Figure.MICROBATCH], rel=1e-12)
        assert totals.weight_bytes == pytest.approx(found[Figure.WEIGHT_BYTES], rel=1e-12)
