"""A draft as a `Plan`. Captured graphs, layerings and costs are kept: most drafts share them."""

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from alpa_explore.baselines.dims import DimLabels, dim_labels
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh
from alpa_explore.cluster.topology import Kind
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.result import PipelineResult, Stage
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.recomputation import FULL, HALF, PARTS, Recomputation
from alpa_explore.intra_op.stage.stage_graph import StageSlicer, received_bytes, slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.layering.layers import Layering, make_layers
from alpa_explore.models.recipe import RecipeModel, build_from_recipe
from alpa_explore.plans.assemble import assemble
from alpa_explore.plans.describe import node_name
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOptions
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts
from alpa_explore.pricing.tasks import cost_model
from alpa_explore.programs.execution.execute import Values
from alpa_explore.random_plans import families
from alpa_explore.random_plans.choose import after, choose_nodes, subject_of, tensors_of
from alpa_explore.random_plans.draft import Draft, DraftStage, DraftSubmesh, MeshShape, Picks, Subject
from alpa_explore.runtime.training import Microbatches
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.stages.tied_weights import tied_weights
from alpa_explore.sharding.spec import render
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.evaluate import initial_weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """A captured model, its initial weights and its data."""

    graph: TrainingGraph
    state: Values
    batches: Microbatches

    @functools.cached_property
    def labels(self) -> DimLabels:
        """What the dims of its tensors are, for roles."""
        return dim_labels(self.graph)

    @functools.cached_property
    def recomputations(self) -> tuple[str, ...]:
        """The kinds of recomputation for which it has operators."""
        found, layers = [], (0,) * len(self.graph.forward_operators)
        for name in (*PARTS, "norms+attention", HALF, FULL):
            with suppress(OptionError):
                if assign_layers(self.graph, layers, Recomputation.parse(name)).recomputed:
                    found.append(name)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class _Cut:
    """A graph cut into layers."""

    layering: Layering
    layered: LayeredGraph
    slicer: StageSlicer


class PlanMaker:
    """Makes plans of drafts. One of each process: what it keeps grows with the number of families."""

    def __init__(self, *, in_float64: bool = False) -> None:
        self._in_float64 = in_float64
        self._families: dict[str, Family] = {}
        self._cut: tuple[object, _Cut] | None = None

    def family(self, name: str) -> Family:
        """The family `name`, captured when it is first asked for. RecipeError for an unknown one."""
        if name not in self._families:
            recipe = f"{families.__name__}:{name}"
            made = build_from_recipe(recipe, 0, allow_import=True)
            if self._in_float64:
                made = _in_float64(made)
            with torch.random.fork_rng(devices=()):
                graph = capture(
                    made.model,
                    made.example_inputs,
                    made.loss,
                    optimizer=families.OPTIMIZER_OF.get(name, "adam"),
                    precision=None if self._in_float64 else "float32",
                    rematerialization=False,
                    name=f"random-{name.replace('_', '-')}",
                    recipe=recipe,
                )
            assert made.microbatch is not None, "families have data"
            self._families[name] = Family(
                graph=graph,
                state=initial_weights(graph, made.model),
                batches=Microbatches(graph=graph, data=made.microbatch, loss=made.loss),
            )
        return self._families[name]

    def problem(self, draft: Draft, stage: DraftStage) -> StageProblem:
        """The sharding problem of one stage of a draft."""
        return self._problem(draft, stage.first, stage.last, logical(stage.mesh, draft.kind(stage.submesh)))

    def plan(self, draft: Draft) -> Plan:
        """The plan of a draft. NoChoiceError where its picks leave a node of a stage no legal choice."""
        submeshes = [Submesh(s.devices, 1, draft.kind(place)) for place, s in enumerate(draft.submeshes)]
        cut, shapes = self._cut_of(draft), sorted(set(submeshes))
        choices: dict[str, tuple[int, ...]] = {}
        candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}

        def shape_of(stage: DraftStage) -> int:
            return shapes.index(submeshes[stage.submesh])

        def add(stage: DraftStage, picks: Picks, name: str) -> None:
            problem = self.problem(draft, stage)
            choices[name] = choose_nodes(problem, after(problem, picks))
            totals = asdict(problem.totals(choices[name]))
            mesh = logical(stage.mesh, draft.kind(stage.submesh))
            candidate = StageCandidate(logical_mesh=mesh, solution_key=name, **totals)
            candidates[stage.first, stage.last, shape_of(stage)] = (candidate,)

        for number, (stage, picks) in enumerate(zip(draft.stages, draft.picks, strict=True)):
            add(stage, picks, f"stage {number}")
        if draft.turns > 1:  # a plan also has what one submesh runs as one stage
            for stage in whole_stages(draft.submeshes):
                add(stage, {}, f"submesh {stage.submesh}")
        stages = tuple((s.first, s.last + 1, shape_of(s)) for s in whole_stages(draft.submeshes))
        cluster = cluster_of(draft)
        costs = StageCosts(
            num_layers=len(draft.cuts) + 1,
            submeshes=tuple(shapes),
            device_memory_bytes=cluster.device.memory_bytes,
            memory_of_kinds=tuple(kind.device.memory_bytes for kind in cluster.kinds) if cluster.others else (),
            candidates=candidates,
            layer_flops=tuple(layer.flops for layer in cut.layering.layers),
            received_bytes=received_bytes(cut.layered),
            versions=(draft.recomputation,),
            tied_weights=tied_weights(cut.layered),
        )
        options = PlanOptions(
            num_microbatches=draft.num_microbatches,
            delta=0.0,
            num_layers=len(draft.cuts) + 1,
            solver="none: at random",
            boundaries=tuple(map(str, draft.cuts)),
            pipeline=PipelineOptions(schedule=draft.schedule, stages_per_submesh=max(draft.turns, 2)),
            rematerialization="auto" if draft.recomputation.recomputes else "",
        )
        profile = StageProfile(
            costs=costs,
            choices=choices,
            problem_of=lambda first, last, mesh, version=0: self._problem(draft, first, last, mesh),
            solves=0,
            distinct_solves=0,
            cached_solves=0,
            variables=0,
            constraints=0,
            warnings=(),
        )
        pipeline = _pipeline(draft, stages, candidates)
        return assemble(self.family(draft.family).graph, cluster, options, cut.layering, profile, pipeline, ())

    def sharded(self, draft: Draft) -> tuple[str, ...]:
        """The picks of a draft in words, with the specs that they read and write."""
        lines = list[str]()
        for number, (stage, picks) in enumerate(zip(draft.stages, draft.picks, strict=True)):
            problem = self.problem(draft, stage)
            tensors = problem.stage.layered.graph.tensors
            for node in problem.nodes:
                if (pick := picks.get(subject_of(node))) is not None:
                    read, written = tensors_of(problem, node)
                    specs = [
                        render(spec, len(tensors[t].shape))
                        for spec, t in zip(pick.specs, (*read, *written), strict=True)
                    ]
                    shown = f"{' '.join(specs[: len(read)])} → " if read else ""
                    factors = f", {'·'.join(pick.factors)}" if pick.factors else ""
                    name = f"stage {number}, {node_name(problem, node)} ({node.kind.value}{factors})"
                    lines.append(f"{name}: {shown}{' '.join(specs[len(read) :])}")
        return tuple(lines)

    def _problem(self, draft: Draft, first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        device = cluster_of(draft).kinds[mesh.kind].device
        return build_stage_problem(self._cut_of(draft).slicer(first, last), cost_model(device, mesh.squeezed()))

    def _cut_of(self, draft: Draft) -> _Cut:
        """The layers of a draft; those of the last draft are kept."""
        key = (draft.family, draft.cuts, draft.recomputation)
        if self._cut is None or self._cut[0] != key:
            graph = self.family(draft.family).graph
            layering = make_layers(graph, draft.cuts)
            layered = assign_layers(
                graph, layering.layer_of_forward, draft.recomputation, software=cluster_of(draft).software
            )
            self._cut = key, _Cut(layering, layered, slice_stages(layered))
        return self._cut[1]


def cluster_of(draft: Draft) -> Cluster:
    """CPUs, each a node of its own: only so may submeshes have any number of devices. Those of every second submesh are
    of another kind where the draft says so."""
    cluster = Cluster.parse(f"{draft.devices}x1:cpu")
    if draft.family in families.SEQUENCES:
        cluster = cluster.with_changes(software=replace(cluster.software, context_positions=1))
    if not draft.unlike:
        return cluster
    device = replace(cluster.device, name="other-cpu", memory_bandwidth=cluster.device.memory_bandwidth / 2)
    nodes = sum(submesh.devices for place, submesh in enumerate(draft.submeshes) if draft.kind(place))
    return replace(cluster, others=(Kind(nodes=nodes, device=device, inside_node=cluster.inside_node),))


def logical(mesh: MeshShape, kind: int = 0) -> LogicalMesh:
    """The logical mesh of a stage; its bandwidths do not depend on the size of the cluster."""
    shape = mesh or (1,)
    devices = int(np.prod(shape))
    return replace(logical_mesh(Cluster.parse(f"{devices}x1:cpu"), Submesh(devices, 1), shape), kind=kind)


def whole_stages(submeshes: tuple[DraftSubmesh, ...]) -> list[DraftStage]:
    """What each submesh runs as one stage, as the pipeline DP sees it."""
    stages, first = list[DraftStage](), 0
    for place, submesh in enumerate(submeshes):
        last = first + submesh.layers - 1
        stages.append(DraftStage(first=first, last=last, submesh=place, mesh=submesh.meshes[0]))
        first = last + 1
    return stages


def _pipeline(
    draft: Draft, stages: tuple[Stage, ...], candidates: Mapping[RangeKey, tuple[StageCandidate, ...]]
) -> PipelineResult:
    """The figures of Eq. 2, without a DP."""
    b = draft.num_microbatches
    latencies = [candidates[first, end - 1, shape][0].latency_seconds(b) for first, end, shape in stages]
    return PipelineResult(
        total_seconds=draft.terms.iteration_seconds(latencies),
        t_max_seconds=max(latencies),
        sum_latency_seconds=sum(latencies),
        once_seconds=0.0,
        stages=stages,
        evaluations=0,
        candidates=np.array(sorted(set(latencies))),
        runs=(),
    )


def _in_float64(made: RecipeModel) -> RecipeModel:
    """The same model, weights and data."""

    def cast(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(t.double() if t.is_floating_point() else t for t in inputs)

    microbatch = made.microbatch
    assert microbatch is not None, "families have data"
    return replace(
        made,
        model=made.model.double(),
        example_inputs=cast(made.example_inputs),
        microbatch=lambda number: cast(microbatch(number)),
    )


def moved(draft: Draft, graph: TrainingGraph, other: TrainingGraph) -> Draft:
    """A draft of `graph` for `other`, which has all of its operators by name, and may have casts beside them."""
    names = [o.name for o in graph.operators]
    place = {o.name: number for number, o in enumerate(other.operators)}
    forward = {o.name: number for number, o in enumerate(other.forward_operators)}

    def subject(of: Subject) -> Subject:
        kind, number = of
        return (kind, place[names[number]]) if kind is NodeKind.OPERATOR else of

    return replace(
        draft,
        cuts=tuple(forward[graph.forward_operators[cut].name] for cut in draft.cuts),
        picks=tuple({subject(of): pick for of, pick in picks.items()} for picks in draft.picks),
    )


# Memo: a fork of this process has the graphs that were captured before.
@functools.cache
def shared_maker() -> PlanMaker:
    """The maker of this process."""
    return PlanMaker()
