"""A plan that looks like a real one, made without a planner: a GPT of 12 blocks, costs from a formula, the real DP."""

import math
from dataclasses import replace
from types import SimpleNamespace

from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_meshes, submeshes
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.plans.assemble import choose_stages
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import (
    ModelSummary,
    PlanLayer,
    PlanOperator,
    PlanOptions,
    PlanTensor,
    Predicted,
    Statistics,
)
from alpa_explore.pricing.stage_costs import Provenance, RangeKey, StageCandidate, StageCosts

TOKENS, HIDDEN, BLOCKS = 8 * 1024, 2560, 12
MATMUL = 2 * TOKENS * HIDDEN * HIDDEN
ACTIVATION = 2 * TOKENS * HIDDEN
BLOCK = (
    ("layer_norm", 8 * TOKENS * HIDDEN, 2),
    ("mm", 3 * MATMUL, 4),
    ("view", 0, 4),
    ("transpose", 0, 4),
    ("bmm", MATMUL // 3, 5),
    ("softmax", 5 * TOKENS * 32 * 1024, 5),
    ("bmm", MATMUL // 3, 2),
    ("mm", MATMUL, 2),
    ("add", TOKENS * HIDDEN, 1),
    ("layer_norm", 8 * TOKENS * HIDDEN, 2),
    ("mm", 4 * MATMUL, 5),
    ("gelu", 8 * TOKENS * 4 * HIDDEN, 5),
    ("mm", 4 * MATMUL, 2),
    ("add", TOKENS * HIDDEN, 1),
)
"""(kind, FLOPs, activations that cross a cut just behind it) of one block."""


def example_plan(
    cluster: str = "2x4:v100",
    *,
    num_microbatches: int = 32,
    num_layers: int = 6,
    name: str = "gpt-example",
    mark: str = "",
    blocks: int = BLOCKS,
    paper: bool = True,
) -> Plan:
    """Several stages and hundreds of operators; `mark` is put into every name (to see what a hostile name does). With
    `paper` its T is Eq. 2, and its sends stand beside it."""
    parsed = Cluster.parse(cluster)
    layers = _layers(num_layers, mark, blocks)
    costs = _costs(parsed, layers)
    devices = [m.devices for m in costs.submeshes]
    pipeline = pipeline_dp(costs.latency_table(num_microbatches), devices, parsed.devices, num_microbatches)
    assert pipeline.feasible, "the example must fit its cluster"
    flops = sum(layer.flops for layer in layers)
    empty = Plan(
        model=ModelSummary(
            name=name + mark,
            recipe=None,
            parameters=BLOCKS * 12 * HIDDEN**2,
            model_flops=3 * flops,
            samples=8,
            tokens=TOKENS,
            precision="float16",
            optimizer="adam",
            rematerialization=True,
            content_key="0" * 64,
            warnings=(),
        ),
        cluster=parsed,
        options=PlanOptions(
            num_microbatches=num_microbatches,
            delta=0.6,
            num_layers=num_layers,
            solver="auto",
            pipeline=PipelineOptions(paper=paper),
        ),
        layers=layers,
        stages=(),
        predicted=Predicted(
            iteration_seconds=1.0,
            t_max_seconds=0.0,
            sum_latency_seconds=0.0,
            bubble_fraction=0.0,
            peak_bytes_per_device=0.0,
        ),
        t_max_sweep=(),
        costs=costs,
        warnings=("aten.cumsum is not known and stays whole on every device." + mark,),
        statistics=Statistics(
            solves=126,
            distinct_solves=21,
            cached_solves=4,
            variables=181_204,
            constraints=90_311,
            seconds=(("capture", 2.5), ("layering", 0.04), ("sharding", 31.25), ("pipeline", 0.002)),
        ),
        details=SimpleNamespace(
            remembered=lambda _key, make: make(),
            operators=lambda range_, candidate: _operators(
                layers[range_[0] : range_[1] + 1], candidate.logical_mesh, mark
            ),
            tensors=lambda range_, candidate: (
                PlanTensor(name=f"layer_{range_[0]}_input{mark}", role="source", spec="RRR"),
            ),
        ),
    )
    return choose_stages(empty, pipeline)


def without_describe(plan: Plan) -> Plan:
    """The same plan with its operators made: nothing of the planner is left in it."""
    stages, interleaved = (
        tuple(replace(s, operators=tuple(s.operators), tensors=tuple(s.tensors)) for s in own)
        for own in (plan.stages, plan.interleaved)
    )
    return replace(plan, details=None, stages=stages, interleaved=interleaved)


def _layers(count: int, mark: str, blocks: int) -> tuple[PlanLayer, ...]:
    operators = [("embedding", 0, 1)] + [o for _ in range(blocks) for o in BLOCK]
    operators += [("layer_norm", 8 * TOKENS * HIDDEN, 1), ("mm", 2 * TOKENS * HIDDEN * 51200, 20), ("loss", 10**8, 0)]
    named = [(f"{kind}_{i}{mark}", flops, crossing * ACTIVATION) for i, (kind, flops, crossing) in enumerate(operators)]
    ends = [1 + round(blocks * (i + 1) / count) * len(BLOCK) for i in range(count - 1)] + [len(named)]
    found = []
    for index, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
        names, flops, crossing = zip(*named[first:end], strict=True)
        found.append(
            PlanLayer(
                index=index,
                operators=names,
                operator_flops=flops,
                operator_cut_bytes=crossing,
                flops=sum(flops),
                cut_bytes=crossing[-1],
            )
        )
    return tuple(found)


def _costs(cluster: Cluster, layers: tuple[PlanLayer, ...]) -> StageCosts:
    shapes = submeshes(cluster)
    candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}
    for first in range(len(layers)):
        for last in range(first, len(layers)):
            for index, shape in enumerate(shapes):
                candidates[first, last, index] = tuple(
                    _candidate(cluster, layers[first : last + 1], shape, mesh, f"{first}-{last}-{index}-{mesh}-{lean}")
                    for mesh in logical_meshes(cluster, shape)
                    for lean in (False, True)
                )
    return StageCosts(
        versions=(Recomputation.of_layers(range(len(layers))),),
        num_layers=len(layers),
        submeshes=shapes,
        device_memory_bytes=cluster.device.memory_bytes,
        candidates=candidates,
        layer_flops=tuple(layer.flops for layer in layers),
    )


def _candidate(
    cluster: Cluster, layers: tuple[PlanLayer, ...], shape: Submesh, mesh: LogicalMesh, key: str
) -> StageCandidate:
    lean = key.endswith("True")
    matmuls = sum(name.startswith("mm") for layer in layers for name in layer.operators)
    compute = 3.0 * sum(layer.flops for layer in layers) / cluster.device.peak("float16") / 0.6 / shape.devices
    compute += 2.5e-3 * shape.devices  # the more devices, the less each of them has to do at once
    axes = list(mesh.axes)
    moved = sum((2.5 * ACTIVATION * matmuls / mesh.bandwidth[a]) * (1 - 1 / mesh.shape[a]) for a in axes)
    weights = 70.0 * sum(layer.flops for layer in layers) / (2 * TOKENS) / shape.devices
    return StageCandidate(
        logical_mesh=mesh,
        microbatch_seconds=compute + moved * (1.15 if lean else 1.0),
        iteration_seconds=sum(weights / 8 / mesh.bandwidth[a] for a in axes[:1]),
        weight_bytes=weights * (0.6 if lean else 1.0),
        activation_bytes=float(14 * ACTIVATION * len(layers)) / math.sqrt(shape.devices),
        workspace_bytes=float(30 * ACTIVATION) / shape.devices,
        solution_key=key,
        provenance=Provenance.CONVEX if lean else Provenance.NEAR,
    )


def _operators(layers: tuple[PlanLayer, ...], mesh: LogicalMesh, mark: str) -> tuple[PlanOperator, ...]:
    axes = range(len(mesh.axes))
    both = "".join(map(str, axes))
    row, whole = (f"S{axes[0]}RR" if axes else "RRR"), "RRR"
    found = []
    for phase, order in (("forward", layers), ("backward", layers[::-1])):
        for layer in order:
            for i, (name, flops) in enumerate(zip(layer.operators, layer.operator_flops, strict=True)):
                kind = name.split("_")[0] if not name.startswith("layer") else "layer_norm"
                pending = kind == "mm" and i % 4 == 3 and axes
                output = (
                    whole + f"+P{axes[-1]}"
                    if pending
                    else (f"RR{'S' + str(axes[-1])}" if kind == "mm" and axes else row)
                )
                reads = 2 if kind in ("mm", "bmm", "add") else 1
                moves = kind == "layer_norm" and bool(axes)
                found.append(
                    PlanOperator(
                        name=name if phase == "forward" else f"{name}_backward",
                        op=f"aten.{kind}",
                        phase=phase,
                        module=f"blocks.{layer.index}.{kind}{mark}",
                        layer=layer.index,
                        strategy=f"batch/{kind}" if axes else "-",
                        inputs=(row, f"S{both}R" if axes else "RR")[:reads],
                        output=output,
                        outputs=(output,),
                        compute_seconds=flops / 5e13 + 5e-6,
                        communication_seconds=4e-4 if moves else 0.0,
                        communication=(f"input 0{mark}: {row} → {whole}, all-gather over axis 0 (40 MiB, 400 µs)",)
                        if moves
                        else (),
                        flops=flops,
                        output_shape=(8, 1024, HIDDEN),
                        axis_seconds=(4e-4 if moves else 0.0, *[0.0] * (len(axes) - 1)) if axes else (),
                    )
                )
    found += [
        PlanOperator(
            name=f"adam_{layer.index}{mark}",
            op="adam",
            phase="update",
            module=f"blocks.{layer.index}.weight",
            layer=layers[0].index,
            strategy="-",
            inputs=("RR", "RR"),
            output="RR",
            outputs=("RR",),
            compute_seconds=3e-4,
            communication_seconds=0.0,
            communication=(),
            flops=0,
            output_shape=(HIDDEN, HIDDEN),
        )
        for layer in layers
    ]
    return tuple(found)
