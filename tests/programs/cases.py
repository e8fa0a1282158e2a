"""Stages with chosen or random strategies, and the sequential run that a program must equal."""

import functools
import math
import random
from dataclasses import replace

import torch
from torch.utils._pytree import tree_map

from alpa_explore.baselines.roles import strategies_for_roles
from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.cost.resharding import UNREACHABLE
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.layering import cluster_operators
from alpa_explore.programs.execution.interpret import interpret
from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.programs.lowering.decision import stage_decision
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.questions.what_if import pinned
from alpa_explore.schedules.catalog import build_schedule, submeshes_in_turn
from alpa_explore.sharding.zigzag import in_zigzag_order
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import evaluate, initial_values, with_counts
from tests.programs.models import build_any


@functools.cache
def captured(name, samples, seed, options):
    """(graph, values of what no operator makes) of a model in float64; shared, because captures take the most time."""
    torch.manual_seed(seed)
    model, inputs = build_any(name, samples)
    model.double()
    inputs = tree_map(lambda t: t.double() if t.is_floating_point() else t, inputs)
    graph = capture(model, inputs, **dict(options))
    return graph, initial_values(graph, model, inputs)


class Case:
    """A model in float64 with B microbatches of its own."""

    def __init__(self, name, samples=4, num_microbatches=1, num_layers=4, seed=0, context="", parts=1, **options):
        """`context` names the ways in which attention may be divided over the sequence; the program runs the graph in
        zig-zag order for so many `parts`, one process the graph as it was captured."""
        self.context = context
        self.captured, self.state = captured(name, samples, seed, tuple(options.items()))
        self.graph = in_zigzag_order(self.captured, parts)
        layering = cluster_operators(self.graph, num_layers, delta=1.0)
        self.layer_of_forward = layering.layer_of_forward
        self.layered = assign_layers(self.graph, self.layer_of_forward)
        self.stage = slice_stages(self.layered)
        self.microbatches = [
            {t: self._other(self.state[t], m) for t in self.graph.inputs} for m in range(num_microbatches)
        ]

    def _other(self, value, number):
        """Another microbatch: the same samples in another order, and shifted tokens."""
        generator = torch.Generator().manual_seed(number)
        moved = value[torch.randperm(len(value), generator=generator)]
        if moved.is_floating_point():
            return moved + 0.1 * torch.randn(moved.shape, generator=generator, dtype=moved.dtype)
        return torch.roll(moved, number, dims=-1)

    def problem(self, first, last, mesh_shape, recomputed=None):
        """`recomputed` are layers, or a kind of recomputation; as the graph says unless given."""
        device = Cluster.parse("1x4:v100").device
        if self.context:
            offered = replace(device.software, context_positions=1, context_factors=self.context)
            device = replace(device, software=offered)
        mesh = LogicalMesh(tuple(mesh_shape), (1e10,) * len(mesh_shape), (1e-6,) * len(mesh_shape))
        stage = self.stage
        if recomputed is not None:
            named = isinstance(recomputed, str)
            recomputation = Recomputation.parse(recomputed) if named else Recomputation.of_layers(recomputed)
            stage = slice_stages(assign_layers(self.graph, self.layer_of_forward, recomputation))
        return build_stage_problem(stage(first, last), CostModel(device, mesh))

    def program(self, stages, choose, schedule="1f1b", turns=1):
        """`stages`: ((first layer, last layer), mesh shape), …; `choose(problem)` gives the choice of every node. What
        follows in an entry are the layers that its stage rematerialises.

        With `turns` > 1 a submesh runs several stages; a later one runs on the ranks of its first."""
        decisions, rank, submeshes = [], 0, len(stages) // turns
        order = submeshes_in_turn(schedule, submeshes, turns)
        for (first, last), mesh, *layers in stages:
            problem = self.problem(first, last, mesh, *layers)
            count = torch.Size(mesh).numel()
            own = range(rank, rank + count)
            if len(decisions) >= submeshes:
                own = decisions[order[len(decisions)]].ranks
            decisions.append(stage_decision(problem, choose(problem), own))
            rank += count
        more = {"stages_per_submesh": turns} if turns > 1 else {}
        return lower(decisions, build_schedule(schedule, submeshes, len(self.microbatches), **more))

    def sequential(self, learning_rate=1e-3):
        """(losses, mean gradients, updated parameters) of one process."""
        graph = self.captured
        runs = [evaluate(graph, {**self.state, **one}) for one in with_counts(graph, self.microbatches)]
        gradients, parameters = {}, {}
        for place, parameter in enumerate(graph.parameters):
            gradients[place] = sum(run[parameter.gradient] for run in runs) / len(runs)
            weight = self.state[parameter.tensor]
            kind = graph.operators[parameter.update].kind
            parameters[place] = PieceOptimizer(kind, weight, learning_rate).step(gradients[place])
        return [float(run[graph.loss]) for run in runs], gradients, parameters

    def assert_equal(self, program):
        made = interpret(program, self.state, self.microbatches)
        losses, gradients, parameters = self.sequential()
        torch.testing.assert_close(torch.tensor(made.losses), torch.tensor(losses))
        assert set(made.gradients) == set(made.parameters) == set(gradients)
        # Some gradients are zero but for rounding: of the bias of keys, that a softmax takes away again.
        largest = max(float(one.abs().max()) for one in gradients.values())
        for place, parameter in enumerate(self.graph.parameters):
            wanted = gradients[place]
            # The catalogue's losses are float32 also in a float64 model: seven digits, of the largest entry.
            error = float((made.gradients[place] - wanted).abs().max())
            assert error <= 1e-6 * max(float(wanted.abs().max()), 1e-6 * largest), parameter.name
            # Adam's first step goes as far for a small gradient as for a large one: rounding may turn it around there.
            steady = wanted.abs() > max(1e-4 * float(wanted.abs().max()), 1e-6 * largest)
            assert made.parameters[place].shape == parameters[place].shape
            torch.testing.assert_close(
                made.parameters[place][steady], parameters[place][steady], rtol=0, atol=1e-6, msg=parameter.name
            )
        return made


def optimal(problem):
    return solve(problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)).choices


def following(*roles):
    """The fastest choice that roles of the mesh axes permit."""

    def choose(problem):
        priced = problem.at(inverse_b=1 / 8, memory_price=0.0, microbatches_held=1)
        return solve(pinned(priced, strategies_for_roles(problem, roles))).choices

    return choose


EXPERTS = ("alpa_explore.experts.default", "alpa_explore.experts_backward.default")


def dividing(*factors):
    """The fastest choice in which the mesh axes divide these factors of all routed experts."""

    def choose(problem):
        graph, only = problem.stage.layered.graph, {}
        for v, node in enumerate(problem.nodes):
            if node.kind is NodeKind.OPERATOR and graph.operators[node.subject].kind in EXPERTS:
                only[v] = [i for i, s in enumerate(node.priced.strategies) if s.factors == factors]
        assert all(only.values())
        priced = problem.at(inverse_b=1 / 8, memory_price=0.0, microbatches_held=1)
        return solve(pinned(priced, only)).choices

    return choose


def at_random(seed):
    """A choice of random strategies: an edge that leads nowhere makes its reader, then its maker, choose again."""
    draw = random.Random(seed)

    def choose(problem):
        sizes = [len(n.microbatch_seconds) for n in problem.nodes]
        choices = [draw.randrange(size) for size in sizes]
        for attempt in range(100_000):
            bad = [e for e in problem.edges if e.seconds[choices[e.a], choices[e.b]] >= UNREACHABLE]
            if not bad:
                return tuple(choices)
            edge = draw.choice(bad)
            node = edge.b if attempt % 2 else edge.a
            choices[node] = draw.randrange(sizes[node])
        raise AssertionError("no legal choice was found")

    return choose


MESHES = [(), (2,), (2,), (4,), (2, 2)]


def random_plan(seed):
    """Random cuts, submeshes of 8 devices at most, and the rest: (options of the case, stages, schedule)."""
    draw = random.Random(seed)
    layers = draw.choice([3, 4, 5])
    count = draw.randint(1, min(4, layers))
    cuts = [0, *sorted(draw.sample(range(1, layers), count - 1)), layers]
    meshes = [(2, 2, 2)]
    while sum(math.prod(mesh) for mesh in meshes) > 8 or len(meshes) != count:
        meshes = [draw.choice(MESHES) for _ in range(count)]
    stages = [((cuts[i], cuts[i + 1] - 1), mesh) for i, mesh in enumerate(meshes)]
    options = {"num_layers": layers, "num_microbatches": draw.randint(1, 8), "rematerialization": draw.random() < 0.3}
    return options, stages, draw.choice(["1f1b", "1f1b", "gpipe", "eager-1f1b", "zb-h1"])
