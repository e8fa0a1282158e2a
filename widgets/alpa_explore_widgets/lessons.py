"""Teaching: for each tab what is to be seen, the formula with the numbers of this plan, why, what to try, a question.

The order of LESSONS is that of the algorithm, and of the tabs while the explorer teaches. Equations are numbered as in
the Alpa paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from alpa_explore import units
from alpa_explore.plans.report.text import fullest, iteration_sum, layers_phrase
from alpa_explore.questions.explain import collective_seconds, time_parts

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.records import PlanStage

second, byte = units.seconds, units.bytes_


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """About one tab, for one plan."""

    see: str
    formula: str
    numbers: str
    """The formula for this plan."""
    why: str
    attempt: str
    """Something to try, and what comes of it."""
    question: str
    """Answered by the tab."""


def lesson_html(title: str, plan: Plan, stage: int) -> str:
    """The lesson of a tab; `stage` is the one that is selected."""
    found, place = LESSONS[title](plan, plan.stages[stage]), list(LESSONS).index(title) + 1
    parts = (("Why", found.why), ("Try", found.attempt), ("Question", found.question))
    return (
        f'<section class="alpa-lesson" aria-label="Lesson"><p><b>Step {place} of {len(LESSONS)}: {escape(title)}.</b> '
        f'{escape(found.see)}</p><p class="alpa-formula">{escape(found.formula)}</p>'
        f'<p class="alpa-formula">This plan: {escape(found.numbers)}</p>'
        + "".join(f"<p><b>{name}.</b> {escape(text)}</p>" for name, text in parts)
        + "</section>"
    )


def _layers(plan: Plan, _stage: PlanStage) -> Lesson:
    total, count, delta = sum(layer.flops for layer in plan.layers), len(plan.layers), plan.options.delta
    most, cut = max(layer.flops for layer in plan.layers), max(layer.cut_bytes for layer in plan.layers)
    limit = f"(1 + {delta:g}) · {units.flops(total)} / {count} = {units.flops((1 + delta) * total / count)} is allowed"
    if plan.options.boundaries:
        limit = "the boundaries were set by hand"
    return Lesson(
        see="The forward operators in order, joined into layers, and how many bytes cross the cut behind each layer.",
        formula="Eq. 6: G(k, r) = min over i of max(G(i, r−1), C(i+1, k)), with FLOP(i+1 … k) ≤ (1 + δ) · FLOP / L",
        numbers=f"{limit}; the heaviest layer has {units.flops(most)}. G = max C = {byte(cut)}.",
        why="Stages are made of whole layers. Layers of equal work can be dealt out evenly; where few bytes cross, "
        "a stage can end cheaply. δ is how much of the first is given up for the second.",
        attempt="Make δ smaller: layers become more alike, and C stays or grows, until no clustering keeps to it.",
        question="Which layer holds the most FLOPs, and what does it have that the others have not?",
    )


def _cluster(plan: Plan, _stage: PlanStage) -> Lesson:
    c = plan.cluster
    sizes = " + ".join(f"{s.submesh[0]}·{s.submesh[1]}" for s in plan.stages)
    return Lesson(
        see="Every device in the colour of its stage, filled as far as its memory is.",
        formula="Σ n_i · m_i = N · M: the submeshes of the stages use every device once. A submesh is 2^k devices of "
        "one node, or whole nodes (with Submeshes at powers of two, 2^k of them).",
        numbers=f"{sizes} = {sum(len(s.devices) for s in plan.stages)} = {c.nodes} · {c.devices_per_node}; there are "
        f"{len(plan.costs.submeshes)} shapes to choose from.",
        why="Inside a node links are fast, between nodes they are slow. These shapes always fill the cluster, and keep "
        "the collectives of a small stage inside a node.",
        attempt="Give Network (figures of a device) a tenth of its bandwidth and press Plan: stages avoid it.",
        question="Which stage crosses a border between nodes, and on which axis of its logical mesh?",
    )


def _sharding(plan: Plan, stage: PlanStage) -> Lesson:
    axes = collective_seconds(plan, stage)
    if axes is None:
        numbers = f"stage {stage.index}: {second(stage.microbatch_seconds)} a microbatch; its strategies are not here."
    else:
        moved = sum(seconds for _, seconds in axes)
        numbers = (
            f"stage {stage.index}: {second(stage.microbatch_seconds - moved)} of computing + {second(moved)} of "
            f"collectives = {second(stage.microbatch_seconds)} a microbatch; {second(stage.iteration_seconds)} once an "
            "iteration for gradients and update."
        )
    return Lesson(
        see="A row an operator: the specs of its inputs and output. S0 is cut along mesh axis 0, R is a whole copy.",
        formula="Eq. 1: min Σ_v s_v · (c_v + d_v) + Σ_(v,u) s_v · R_vu · s_u, one strategy s_v for each operator v",
        numbers=numbers,
        why="An operator that is cheap alone may leave its result where the next one cannot use it: R is the time to "
        "bring it there. So all operators of a stage are decided together, by an integer program.",
        attempt="Click an operator and press Other strategies: what the whole stage loses by each of them.",
        question="Which weight is cut, which is copied, and which collective pays for it?",
    )


def _costs(plan: Plan, stage: PlanStage) -> Lesson:
    b = plan.options.num_microbatches
    received = f" + {second(stage.receive_seconds)} waiting for its inputs" if stage.receive_seconds else ""
    shape = "×".join(map(str, stage.submesh))
    return Lesson(
        see="Each run of layers on each submesh: its latency, or that it does not fit. The plan is the framed path."
        + ("" if plan.costs.complete else " Only what the plan wanted is priced: press Plan to see all."),
        formula="t(i … j, submesh) = least microbatch + iteration / B over all logical meshes, where memory allows it",
        numbers=f"{layers_phrase(stage.layers)} on {shape}: {second(stage.microbatch_seconds)} + "
        f"{second(stage.iteration_seconds)} / {b:,}{received} = {second(stage.latency_seconds)}. "
        f"{len(plan.costs.candidates):,} pairs, {plan.statistics.distinct_solves:,} distinct sharding problems.",
        why="The pipeline is chosen from this table alone: step 3 is solved once for every cell, and never again "
        "when B moves.",
        attempt="Move B: iteration / B changes in every cell at once, and the path may move.",
        question="Does a run of layers become twice as fast on twice the devices? Where does it not?",
    )


def _t_max(plan: Plan, _stage: PlanStage) -> Lesson:
    share = plan.terms.share  # of a schedule with a smaller bubble
    return Lesson(
        see="T for each t_max that was tried, as the sum of its two parts; the star is the plan.",
        formula=f"Eq. 2: T = Σ t_i{share} + (B − 1{share}) · max t_i.   Eq. 3: F(s, k, d) = min over i, n, m of "
        "t(k … i, n × m) + F(s−1, i+1, d − n·m), with t ≤ t_max",
        numbers=f"{iteration_sum(plan)} = {second(plan.predicted.iteration_seconds)}; "
        f"{len(plan.t_max_sweep):,} candidates.",
        why="The slowest stage is paid for with every microbatch, the others once. With t_max fixed, what is left is "
        "to make Σt small, which a dynamic program does.",
        attempt="Move B from 1 up: at B = 1 only Σt counts, at a large B only t_max.",
        question="From which B on does the plan stay the same?",
    )


def _memory(plan: Plan, stage: PlanStage) -> Lesson:
    room = plan.cluster.device.memory_bytes
    return Lesson(
        see="What a stage could be: faster and larger, or leaner and slower. The line is the memory of a device.",
        formula="Eq. 5: weights and state + s · activations + workspace ≤ memory, s microbatches being held",
        numbers=f"stage {stage.index}: {byte(stage.weight_bytes)} + {stage.microbatches_held:,} · "
        f"{byte(stage.activation_bytes)} + {byte(stage.workspace_bytes)} = {byte(stage.peak_bytes)}, of {byte(room)}.",
        why="Under 1F1B early stages hold more microbatches than late ones, so the same layers may fit at the end of "
        "the pipeline and not at its start.",
        attempt="Give devices half the memory and press Plan: stages grow leaner, or there are more of them.",
        question=f"Stage {fullest(plan).index} is the fullest: is it weights or activations that fill it?",
    )


def _microbatches(plan: Plan, _stage: PlanStage) -> Lesson:
    b, p, count = plan.options.num_microbatches, plan.predicted, len(plan.stages)
    busy = b * p.sum_latency_seconds
    return Lesson(
        see="T, throughput and memory over B.",
        formula="bubble = 1 − B · Σ t_i / (S · T), the share of the iteration in which the average stage waits",
        numbers=f"1 − {b:,} · {second(p.sum_latency_seconds)} / ({count} · {second(p.iteration_seconds)}) = 1 − "
        f"{second(busy)} / {second(count * p.iteration_seconds)} = {units.percent(p.bubble_fraction)}.",
        why="A pipeline fills and drains once an iteration. More microbatches share that time; with a global batch "
        "that is given they are smaller, and small kernels are slow.",
        attempt="Halve B: the bubble about doubles while stages are equal.",
        question="What is left of the bubble at a very large B, and why is it not 0?",
    )


def _timeline(plan: Plan, stage: PlanStage) -> Lesson:
    place = len(plan.stages) - stage.index
    held = plan.terms.held(place, len(plan.stages))
    return Lesson(
        see="One iteration, simulated: every microbatch forward and backward on each submesh; what is empty is bubble.",
        formula="1F1B: the stage at place s from the end holds min(s, B) microbatches; GPipe holds B, ZB-H1 of S "
        "stages min(S, B) everywhere",
        numbers=f"stage {stage.index} is at place {place} of {len(plan.stages)} and holds {held:,} of "
        f"{plan.options.num_microbatches:,} under {plan.options.pipeline.schedule}.",
        why="A schedule is an order of tasks. With 1F1B a stage goes backward as soon as it can, and lets go of what "
        "it held: GPipe takes about as long, but holds everything.",
        attempt="Choose gpipe beside it: the ends are nearly the same, the memory below is not.",
        question="Which stage waits longest, and for whom?",
    )


def _why(plan: Plan, stage: PlanStage) -> Lesson:
    parts = time_parts(plan)[stage.index].parts
    return Lesson(
        see="Where the time of an iteration goes, what T would be without each limit, what single changes would do.",
        formula="T = B · compute + B · collectives + B · sends + gradient sync and update + waits, for each stage",
        numbers=f"stage {stage.index}: {' + '.join(f'{second(s)} ({name})' for name, s in parts)} = "
        f"{second(plan.predicted.iteration_seconds)}.",
        why="Only what the slowest stage does, and what all do, can make T smaller: a limit that does not bind costs "
        "nothing.",
        attempt="Press Try neighbours: each change is planned, none is guessed.",
        question="What binds here: computing, a link, memory, or stages that are not equal?",
    )


def _search(plan: Plan, _stage: PlanStage) -> Lesson:
    model, p, b, devices = plan.model, plan.predicted, plan.options.num_microbatches, plan.cluster.devices
    peak = units.flops_per_second(plan.cluster.device.peak(model.precision))
    return Lesson(
        see="The plans that were tried: throughput against memory. Nothing is better in both than those on the front.",
        formula="MFU = B · FLOPs of a microbatch / (T · devices · peak)",
        numbers=f"{b:,} · {units.flops(model.model_flops)} / ({second(p.iteration_seconds)} · {devices} · {peak}) = "
        f"{units.percent(plan.flops_utilization)}.",
        why="One figure hides the other: a plan that is 1 % faster may need all the memory there is.",
        attempt="Press Try baselines: what people do by hand, on the same model and cluster.",
        question="Which of them comes nearest to the plan, and with how much memory?",
    )


def _compare(plan: Plan, _stage: PlanStage) -> Lesson:
    b, samples = plan.options.num_microbatches, plan.model.samples
    return Lesson(
        see="Two plans beside each other: their stages along the model, and where the time of each goes.",
        formula="samples/s = B · samples of a microbatch / T: where batches differ, this is to be compared, not T",
        numbers=f"{b:,} · {samples:,} / {second(plan.predicted.iteration_seconds)} = {plan.samples_per_second:.4g} a "
        "second.",
        why="A setting seldom changes one thing. What moved along says why the change paid.",
        attempt="Press Pin, then change δ or B: every figure above shows its change.",
        question="Which operators are divided otherwise, and did their collectives become cheaper?",
    )


def _solvers(plan: Plan, stage: PlanStage) -> Lesson:
    found = plan.statistics
    return Lesson(
        see="The sharding of one layer, found in several ways: how fast, and how far from the optimum.",
        formula="variables of Eq. 1 = Σ_v |S_v| + Σ_(v,u) |S_v| · |S_u|: one for each pair of strategies on an edge",
        numbers=f"{found.variables:,} variables and {found.constraints:,} constraints in {found.distinct_solves:,} "
        f"distinct problems, of {found.solves:,} in all.",
        why="Equal layers are equal problems and are solved once. What is left is small after simplification, so that "
        "every answer is exact.",
        attempt=f"Press Compare: layer {stage.layers[0]}, the first of stage {stage.index}, is solved by each of them.",
        question="Which formulation is fastest, and what does it leave out?",
    )


def _run(plan: Plan, _stage: PlanStage) -> Lesson:
    return Lesson(
        see="The plan trains: losses and step times as they come, then measured beside predicted for each stage.",
        formula="error = measured / predicted − 1",
        numbers=f"a step is predicted to take {second(plan.predicted.iteration_seconds)} on "
        f"{plan.cluster.devices} × {plan.cluster.device.name}.",
        why="A plan is as good as its prices. On other devices than those it was priced for only the loss can be "
        "compared, and it must be that of one process.",
        attempt="Plan a small model for the device cpu, then press Start.",
        question="Which task is predicted worst: computing, a collective, or a send?",
    )


LESSONS: Mapping[str, Callable[[Plan, PlanStage], Lesson]] = {
    "Layers": _layers,
    "Cluster": _cluster,
    "Sharding": _sharding,
    "Costs": _costs,
    "t_max": _t_max,
    "Memory": _memory,
    "Microbatches": _microbatches,
    "Timeline": _timeline,
    "Why": _why,
    "Search": _search,
    "Compare": _compare,
    "Solvers": _solvers,
    "Run": _run,
}
"""Tab -> its lesson, in the order of the algorithm."""
