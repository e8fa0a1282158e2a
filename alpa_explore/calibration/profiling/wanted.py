"""The distinct kernels of a plan and of its search, those that matter most first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from alpa_explore.cluster import Device, LogicalMesh, logical_meshes, submeshes
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.cost.compute import formula_seconds
from alpa_explore.cost.kernels import Kernel
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import Operator, TrainingGraph
from alpa_explore.graph.operator import FusedKernel
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import details_of
from alpa_explore.programs.lowering.decision import stage_decision
from alpa_explore.sharding.local.local_call import LocalCall, localize
from alpa_explore.sharding.local.steps import LocalCollective
from alpa_explore.sharding.spec import Spec, local_shape
from alpa_explore.sharding.strategy import Strategy
from alpa_explore.tracing.aten import run_operator

_NOTHING = KernelStore(device="", driver="", software="", date="", kernels={})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKernel:
    """What one device runs for an operator, with the local shapes and dtypes that it reads."""

    kernel: Kernel
    """Has a name."""
    call: LocalCall
    inputs: tuple[tuple[tuple[int, ...], str, tuple[int, ...]], ...]
    """(shape, dtype, dims as they lie in memory, outermost first), as the first such operator of the model reads it: a
    transposed input is timed so."""
    update: str
    """How the step of an optimizer runs (`Software.step`); '' for all other kernels."""
    plan_seconds: float
    """That it takes in a microbatch of the plan, by the formulas; 0 for one that only other strategies need."""
    seconds: float
    """Of one call, by the formulas."""

    @property
    def name(self) -> str:
        """In a store."""
        assert self.kernel.name is not None, "a wanted kernel has a name"
        return self.kernel.name.name

    @property
    def is_compiled(self) -> bool:
        """Whether torch.compile makes it of several operators."""
        return self.kernel.name is not None and self.kernel.name.together > 0

    @property
    def calls(self) -> float:
        """In a microbatch of the plan."""
        return self.plan_seconds / self.seconds if self.seconds else 0.0


def plan_kernels(plan: Plan) -> tuple[WantedKernel, ...]:
    """The kernels of the plan by their share of its time. RecipeError for a plan from a file whose model cannot be
    rebuilt."""
    details = details_of(plan)
    device = replace(plan.cluster.device, measured=_NOTHING)
    found: dict[str, WantedKernel] = {}

    def add(wanted: WantedKernel, times: float) -> None:
        before = found[wanted.name].plan_seconds if wanted.name in found else 0.0
        found[wanted.name] = replace(wanted, plan_seconds=before + times * wanted.seconds)

    for stage in plan.stages:
        problem, choices = details.solved(stage.layers, plan.candidate_of(stage))
        decision = stage_decision(problem, choices, stage.devices)
        graph = problem.stage.layered.graph
        model = CostModel(device, decision.model.mesh)
        updates = {graph.parameters[weight].update: strategy for weight, strategy in decision.updates.items()}
        for index, strategy in (*decision.strategies.items(), *updates.items()):
            for wanted in _wanted(model, graph, index, [strategy]):
                add(wanted, 1 / plan.options.num_microbatches if index in updates else 1.0)
        for wanted in _compiled(model, graph, decision.strategies):
            add(wanted, 1.0)
    return tuple(sorted(found.values(), key=lambda wanted: -wanted.plan_seconds))


def wanted_kernels(plan: Plan) -> tuple[WantedKernel, ...]:
    """`plan_kernels`, then those of all strategies on all logical meshes of the cluster by their seconds."""
    details, of_plan = details_of(plan), plan_kernels(plan)
    device = replace(plan.cluster.device, measured=_NOTHING)
    problems = (details.solved(stage.layers, plan.candidate_of(stage))[0] for stage in plan.stages)
    graphs = tuple(dict.fromkeys(problem.stage.layered.graph for problem in problems))
    found = {wanted.name: wanted for wanted in of_plan}
    for mesh in _meshes(plan):
        model = CostModel(device, mesh)
        for graph in graphs:
            first = {signature: index for index, signature in reversed(list(enumerate(graph.signatures)))}
            for index in first.values():
                for wanted in _wanted(model, graph, index, model.operator(graph, index).strategies):
                    found.setdefault(wanted.name, wanted)
    return tuple(sorted(found.values(), key=lambda wanted: (-wanted.plan_seconds, -wanted.seconds)))


def _meshes(plan: Plan) -> Sequence[LogicalMesh]:
    cluster = plan.cluster
    found = (m.squeezed() for submesh in submeshes(cluster) for m in logical_meshes(cluster, submesh))
    return tuple({mesh.shape: mesh for mesh in found}.values())


def _wanted(
    model: CostModel, graph: TrainingGraph, index: int, strategies: Sequence[Strategy]
) -> Iterator[WantedKernel]:
    """The kernels of an operator under these strategies that run by themselves and can be timed by themselves."""
    operator, tensors, shape = graph.operators[index], graph.tensors, model.mesh.shape
    if not operator.inputs:
        return
    for strategy in strategies:
        kernel = model.kernel(operator, tensors, strategy)
        if kernel.name is None or kernel.name.together:
            continue
        call = localize(operator, tensors, strategy, shape, (0,) * len(shape))
        if any(isinstance(step, LocalCollective) for step in call.steps):
            continue
        yield WantedKernel(
            kernel=kernel,
            call=call,
            inputs=tuple(
                (local_shape(spec, tensors[t].shape, shape), tensors[t].dtype, order_in_memory(graph)[t])
                for t, spec in zip(operator.inputs, strategy.inputs, strict=True)
            ),
            update=model.device.software.step if operator.kind.startswith("optimizer.") else "",
            plan_seconds=0.0,
            seconds=_formula(model.device, kernel),
        )


def _compiled(model: CostModel, graph: TrainingGraph, strategies: Mapping[int, Strategy]) -> Iterator[WantedKernel]:
    """The kernels that a compiler makes of several operators of a stage: those inside which no tensor is resharded."""
    fused = (graph.operators[index].fused for index in strategies)
    for kernel in {each.operators: each for each in fused if each is not None}.values():
        if not kernel.inputs or not strategies.keys() >= set(kernel.operators):
            continue
        call, specs = _joined_call(model, graph, kernel, strategies)
        of = [model.kernel(graph.operators[i], graph.tensors, strategies[i]) for i in kernel.operators]
        parts = [part for part in of if part.name is not None and part.name.together and not part.is_view]
        if call is None or not parts:
            continue
        whole = replace(
            max(parts, key=lambda part: part.bytes_accessed),
            flops=sum(part.flops for part in parts),
            bytes_accessed=sum(part.bytes_accessed for part in parts),
            steps=len(parts),
        )
        yield WantedKernel(
            kernel=whole,
            call=call,
            inputs=tuple(
                (
                    local_shape(specs[t], graph.tensors[t].shape, model.mesh.shape),
                    graph.tensors[t].dtype,
                    order_in_memory(graph)[t],
                )
                for t in kernel.inputs
            ),
            update="",
            plan_seconds=0.0,
            seconds=_formula(model.device, whole),
        )


def _joined_call(
    model: CostModel, graph: TrainingGraph, kernel: FusedKernel, strategies: Mapping[int, Strategy]
) -> tuple[LocalCall | None, Mapping[int, Spec]]:
    """(the steps of all operators of a kernel as one call, the spec of each tensor); None for the call where a
    collective is among them."""
    shape, specs, steps = model.mesh.shape, dict[int, Spec](), list[Operator]()
    values, following = {tensor: number for number, tensor in enumerate(kernel.inputs)}, len(kernel.inputs)
    for index in kernel.operators:
        operator, strategy = graph.operators[index], strategies[index]
        local = localize(operator, graph.tensors, strategy, shape, (0,) * len(shape))
        number = {place: values[tensor] for place, tensor in enumerate(operator.inputs)}
        for tensor, spec in zip(operator.inputs, strategy.inputs, strict=True):
            if specs.setdefault(tensor, spec) != spec:
                return None, specs
        for step in local.steps:
            if isinstance(step, LocalCollective):
                return None, specs
            for made in step.outputs:
                number[made], following = following, following + 1
            steps.append(step.renumbered(number))
        values |= {tensor: number[value] for tensor, value in zip(operator.outputs, local.outputs, strict=True)}
        specs |= dict(zip(operator.outputs, strategy.outputs, strict=True))
    return LocalCall(steps=tuple(steps), outputs=tuple(values[tensor] for tensor in kernel.outputs)), specs


# Memo of a pure function.
@lru_cache(maxsize=4)
@torch.no_grad()
def order_in_memory(graph: TrainingGraph) -> Mapping[int, tuple[int, ...]]:
    """Tensor that an operator reads -> its dims as torch lays them out, outermost first; found on the meta device."""
    values: dict[int, torch.Tensor] = {}

    def empty(tensor: int) -> torch.Tensor:
        of = graph.tensors[tensor]
        return torch.empty(of.shape, dtype=getattr(torch, of.dtype), device="meta")

    for operator in graph.operators:
        values.update({t: empty(t) for t in operator.inputs if t not in values})
        try:
            made = run_operator(operator, {t: values[t] for t in operator.inputs}, "meta")
        except (RuntimeError, ValueError, NotImplementedError):  # those of optimizers, or without a meta kernel
            made = tuple(map(empty, operator.outputs))
        values.update(zip(operator.outputs, made, strict=True))
    return {tensor: _order(value) for tensor, value in values.items()}


def _order(value: torch.Tensor) -> tuple[int, ...]:
    """Dims by descending stride; as they are where some are repeated."""
    dims, strides = range(value.dim()), value.stride()
    repeated = any(stride == 0 and size > 1 for stride, size in zip(strides, value.shape, strict=True))
    return tuple(dims if repeated else sorted(dims, key=lambda dim: (-strides[dim], dim)))


def _formula(device: Device, kernel: Kernel) -> float:
    return float(formula_seconds(device, [kernel])[0])
