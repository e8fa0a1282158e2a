"""The data of each figure as rows: for text output, for --json, and as an accessible table beside the figure.

A row is a dict; its values are in SI units and the unit is in the key (`latency_seconds`). `text.render_table` formats
rows for people.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from alpa_explore.errors import OptionError
from alpa_explore.inter_op.result import SweepPoint
from alpa_explore.plans.iteration_time import (
    OVERHEAD,
    PASSES,
    SENDS,
    TIED,
    UPDATE,
    WAITS,
    iteration_time,
    objective_seconds,
)
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import bands_summary
from alpa_explore.plans.value import PlanValue

Row = dict[str, Any]


@cache  # Memo of a pure function.
def _fields(names: str) -> tuple[tuple[str, Callable[[object], Any]], ...]:
    pairs = (name.partition("=") for name in names.split())
    return tuple((key, attrgetter(field or key)) for key, _, field in pairs)


def row_of(record: object, names: str) -> Row:
    """The fields of a record as a row, in the order of `names`; "stage=index" is its field `index` as `stage`."""
    return {key: field(record) for key, field in _fields(names)}


def stages_table(plan: PlanValue) -> list[Row]:
    """One row per stage: where it runs, how long a microbatch takes, and what fills the memory of a device. Of unlike
    nodes it names the devices."""
    figures = "latency_seconds weight_bytes activation_bytes microbatches_held workspace_bytes peak_bytes"
    return [
        row_of(s, "stage=index layers submesh device" if s.device else "stage=index layers submesh")
        | row_of(s, f"logical_mesh devices {figures}")
        | {"memory_fraction": s.peak_bytes / plan.device_of(s).memory_bytes}
        for s in plan.stages
    ]


def layers_table(plan: PlanValue) -> list[Row]:
    """One row per layer: its forward operators, their FLOPs, and the bytes that leave it (C of Eq. 6)."""
    stage_of = stage_of_layer(plan)
    return [
        {
            "layer": layer.index,
            "stage": stage_of[layer.index],
            "operators": len(layer.operators),
            "first": layer.operators[0] if layer.operators else "",
            "last": layer.operators[-1] if layer.operators else "",
            "flops": layer.flops,
            "cut_bytes": layer.cut_bytes,
        }
        for layer in plan.layers
    ]


def t_max_table(plan: PlanValue) -> list[Row]:
    """One row per evaluated candidate, and one per run of adjacent candidates that were ruled out for one reason.

    The objective is Eq. 2, the sum of the columns behind it; T is what an iteration takes where that was evaluated.
    """
    rounds, once, best = plan.terms.rounds, plan.once_seconds, chosen_t_max(plan)
    rows: list[Row] = []
    numbered = list(enumerate(plan.t_max_sweep))
    for _, group in groupby(numbered, key=lambda p: (p[0] if p[1].iteration_seconds is not None else -1, p[1].reason)):
        run = list(group)
        (first, low), (_, high) = run[0], run[-1]
        total = low.iteration_seconds
        objective = total if low.objective_seconds is None else low.objective_seconds
        waiting = rounds * low.t_max_seconds
        rows.append(
            {
                "from_seconds": low.t_max_seconds,
                "to_seconds": high.t_max_seconds,
                "candidates": len(run),
                "outcome": "chosen" if first == best else outcome(low),
                "iteration_seconds": total,
                "objective_seconds": objective,
                "sum_latency_seconds": None if objective is None else objective - waiting - once,
                "waiting_seconds": None if total is None else waiting,
                "once_seconds": None if total is None else once,
                "reason": low.reason,
            }
        )
    return rows


def schedules_table(plan: PlanValue) -> list[Row]:
    """One row per schedule that was compared, 1F1B first; none where the schedule was given."""
    own = plan.options.pipeline
    return [
        row_of(tried, "schedule stages_per_submesh iteration_seconds stages")
        | {"chosen": (tried.schedule, tried.stages_per_submesh) == (own.schedule, own.terms(1).turns)}
        for tried in plan.schedules
    ]


def sharding_table(plan: PlanValue, stage: int = 0) -> list[Row]:
    """One row per operator of a stage in execution order: its strategy, the spec of each tensor, its seconds.

    OptionError for a stage that the plan does not have.
    """
    columns = (
        "operator=name op phase layer module strategy inputs outputs output_shape compute_seconds "
        "communication_seconds communication flops"
    )
    return [row_of(o, columns) for o in stage_named(plan, stage).operators]


def stage_costs_table(plan: PlanValue) -> list[Row]:
    """One row per (layer range × submesh): the fastest candidate that fits at the latest place the range can have.

    `microbatches_fit` is the number of microbatches that a device could hold; where it is 0 nothing fits, and the row
    shows the candidate that needs least memory. `stage` is the stage of the plan that the pair became, or None.
    """
    costs, b = plan.costs, plan.options.num_microbatches
    chosen = {(*s.layers, plan.submesh_of(s)): s.index for s in plan.stages}
    devices = [kind.device.name if plan.cluster.others else "" for kind in plan.cluster.kinds]
    last_layer = costs.num_layers - 1
    # A range that ends with the last layer can be the last stage; any other has at least one stage after it.
    held_last, held_other = plan.terms.held(1, 1), plan.terms.held(2, 2)
    rows = []
    for (first, last, submesh), candidates in costs.candidates.items():
        on = costs.submeshes[submesh]
        memory = costs.memory_of(on)
        held = held_last if last == last_layer else held_other
        # `StageCosts.choose`, written out: a thousand rows are made again at each move of a slider.
        fitting = [c for c in candidates if c.weight_bytes + held * c.activation_bytes + c.workspace_bytes <= memory]
        best = min(fitting, key=lambda c: c.latency_seconds(b), default=None)
        shown = best or min(candidates, key=lambda c: c.peak_bytes(1))
        room = memory - shown.peak_bytes(0)
        most = b if shown.activation_bytes <= 0 else min(b, int(room // shown.activation_bytes)) if room > 0 else 0
        rows.append(
            {
                "layers": (first, last),
                "submesh": (on.nodes, on.devices_per_node),
                **({"device": devices[on.kind]} if devices[on.kind] else {}),
                "logical_mesh": shown.logical_mesh.shape,
                "latency_seconds": shown.latency_seconds(b),
                "weight_bytes": shown.weight_bytes,
                "activation_bytes": shown.activation_bytes,
                "workspace_bytes": shown.workspace_bytes,
                "microbatches_fit": most if best is not None else 0,
                "provenance": str(shown.provenance),
                "stage": chosen.get((first, last, on)),
            }
        )
    return rows


def comparison_table(plans: Sequence[PlanValue]) -> list[Row]:
    """One row per plan: its iteration time and its parts, its memory, and its time relative to the first plan."""
    parts_of = [_t_parts(plan) for plan in plans]
    present = [name for name in _T_PARTS if any(parts.get(name) for parts in parts_of)]
    return [
        {
            "plan": plan.options.baseline or "automatic",
            "iteration_seconds": plan.predicted.iteration_seconds,
            "times_first": plan.predicted.iteration_seconds / plans[0].predicted.iteration_seconds,
            **{name: parts.get(name, 0.0) for name in present},
            "stages": len(plan.stages),
            "peak_bytes": plan.predicted.peak_bytes_per_device,
            "bubble_fraction": plan.predicted.bubble_fraction,
        }
        for plan, parts in zip(plans, parts_of, strict=True)
    ]


_T_PARTS = {
    "sum_latency_seconds": "",
    "waiting_seconds": "",
    "passes_seconds": PASSES,
    "sends_seconds": SENDS,
    "update_seconds": UPDATE,
    "bubble_seconds": WAITS,
    "tied_seconds": TIED,
    "overhead_seconds": OVERHEAD,
}
"""Columns of the parts of T -> their names in `IterationTime.parts`; the first two are those of Eq. 2."""


def _t_parts(plan: PlanValue) -> dict[str, float]:
    """Column -> seconds; they add up to T."""
    time = iteration_time(plan)
    if time is not None and time.parts:
        seconds = dict(time.parts)
        return {column: seconds[name] for column, name in _T_PARTS.items() if name in seconds}
    return {
        "sum_latency_seconds": plan.predicted.sum_latency_seconds / plan.terms.bubble_divisor,
        "waiting_seconds": plan.terms.rounds * plan.predicted.t_max_seconds,
        "tied_seconds": plan.tied_seconds,
        "overhead_seconds": plan.overhead_seconds,
    }


def stage_of_layer(plan: PlanValue) -> Sequence[int]:
    """Index of the stage of each layer."""
    return [s.index for s in plan.stages for _ in range(s.layers[0], s.layers[1] + 1)]


def stage_named(plan: PlanValue, index: int) -> PlanStage:
    """Stage `index`; OptionError when there is none."""
    if not 0 <= index < len(plan.stages):
        last = len(plan.stages) - 1
        raise OptionError(
            "The plan has no such stage",
            found=f"stage {index}",
            remedy=f"Its stages are 0 to {last}." if last else "It has one stage: 0.",
        )
    return plan.stages[index]


def outcome(point: SweepPoint) -> str:
    """The outcome of a t_max candidate, in one or two words."""
    if point.iteration_seconds is not None:
        return "evaluated"
    return "ruled out" if point.pruned else "no partition"


def chosen_t_max(plan: PlanValue) -> int | None:
    """Index in the sweep of the t_max that gave the plan: the least T, and of equal T the least t_max. Where T is what
    an iteration takes, among the candidates of which that was evaluated."""
    totals = [(p.iteration_seconds, i) for i, p in enumerate(plan.t_max_sweep) if p.iteration_seconds is not None]
    taken = [(total, i) for total, i in totals if plan.t_max_sweep[i].objective_seconds is not None]
    return min(taken or totals)[1] if totals else None


def plan_summary(plan: PlanValue) -> Mapping[str, Any]:
    """The plan without its operators, candidates and sweep: what `alpa-explore plan --json` prints."""
    p, model, options, time = plan.predicted, plan.model, plan.options, iteration_time(plan)
    return {
        **row_of(model, "model=name parameters precision"),
        "low_precision": plan.cluster.software.low_precision,
        **row_of(model, "optimizer rematerialization zigzag"),
        "cluster": str(plan.cluster),
        "options": {
            **row_of(options, "num_microbatches delta num_layers solver boundaries rematerialization"),
            "pipeline": asdict(options.pipeline),
            "spec_constraints": [asdict(constraint) for constraint in options.spec_constraints],
            "baseline": options.baseline,
        },
        **({"schedules": schedules_table(plan)} if plan.schedules else {}),
        "predicted": {
            "iteration_seconds": p.iteration_seconds,
            "mode": options.pipeline.mode,
            "objective_seconds": objective_seconds(plan),
            "parts_seconds": {} if time is None else dict(time.parts),
            **row_of(p, "t_max_seconds sum_latency_seconds bubble_fraction peak_bytes_per_device"),
            **row_of(plan, "tied_seconds overhead_seconds samples_per_second tokens_per_second"),
            **row_of(plan, "flops_per_second_per_device flops_utilization"),
            "sends_seconds": None if time is None else time.sends_seconds,
            "simulated_seconds": None if time is None else time.simulated_seconds,
            "errors": bands_summary(plan),
        },
        "stages": [
            row | row_of(s, "rematerialized recomputation")
            for row, s in zip(stages_table(plan), plan.stages, strict=True)
        ],
        "layers": layers_table(plan),
        "statistics": row_of(plan.statistics, "solves distinct_solves cached_solves variables constraints")
        | {"seconds": dict(plan.statistics.seconds)},
        "warnings": plan.warnings,
    }
