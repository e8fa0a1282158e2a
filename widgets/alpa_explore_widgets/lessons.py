"""The lessons of teaching mode: for each tab what it shows, the formula with the numbers of the plan, the reason, an
experiment, and a question.

LESSONS begins with the questions that people ask first; then it is in the order of the algorithm. This is the order of
the tabs in teaching mode. Equations are numbered as in the Alpa paper (arXiv 2201.12023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.iteration_time import iteration_time, objective_seconds
from alpa_explore.plans.phrases import stage_phrase, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import band_of
from alpa_explore.plans.report.iteration import eq_2_sum, iteration_phrase
from alpa_explore.plans.report.specs import spec_legend
from alpa_explore.plans.report.text import fullest, pace_setter
from alpa_explore.questions.explain import collective_seconds, time_parts
from alpa_explore_widgets.elements.fields import plain_button
from alpa_explore_widgets.elements.page_widget import box, set_shown
from alpa_explore_widgets.session.state import State

if TYPE_CHECKING:
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling


duration, size = units.seconds, units.bytes_


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """The lesson of one tab for one plan."""

    shows: str
    """What the tab shows."""
    formula: str
    numbers: str
    """The formula with the numbers of the plan."""
    why: str
    experiment: str
    """Something to try, and its effect."""
    question: str
    """A question that the tab answers."""


def lesson_html(
    title: str, plan: Plan, stage: int, *, layouts: Layouts | None = None, scaling: Scaling | None = None
) -> str:
    """The lesson of a tab as HTML; `stage` is the example stage. The numbers are those of `layouts` and `scaling` in
    the tabs that show them, where they are known."""
    lesson, step = LESSONS[title](plan, plan.stages[stage]), _step(title)
    answer = ""
    if title == "Layouts" and layouts is not None:
        answer = layouts_numbers(plan, layouts)
    elif title == "Fit & scale" and scaling is not None:
        answer = scaling_numbers(plan, scaling)
    numbers = f"Priced here: {answer}" if answer else f"This plan: {lesson.numbers}"
    parts = (("Why", lesson.why), ("Try", lesson.experiment), ("Question", lesson.question))
    return (
        f'<section class="alpa-lesson" aria-label="Lesson"><p><b>Step {step} of {len(LESSONS)}: {escape(title)}.</b> '
        f'{escape(lesson.shows)}</p><p class="alpa-formula">{escape(lesson.formula)}</p>'
        f'<p class="alpa-formula">{escape(numbers)}</p>'
        + "".join(f"<p><b>{name}.</b> {escape(text)}</p>" for name, text in parts)
        + "</section>"
    )


def _step(title: str) -> int:
    return list(LESSONS).index(title) + 1


def _overview(plan: Plan, _stage: PlanStage) -> Lesson:
    slowest, most, b, each = pace_setter(plan), fullest(plan), plan.options.num_microbatches, _pieces(plan)
    also = "is the fullest too" if most is slowest else f"stage {most.index} is the fullest"
    return Lesson(
        shows="The plan in four figures: its layers, the devices of its stages, one iteration, where the time goes. "
        "Each heading leads to the tab that shows more.",
        formula="tokens/s (of images: samples/s) = B · tokens of a microbatch / T, for T seconds an iteration",
        numbers=f"{b:,} · {each:,} / {duration(plan.predicted.iteration_seconds)} = "
        f"{units.number(_rate(plan))} per second.",
        why="The planner decides in this order: operators become layers, layers become stages, each stage gets devices "
        "and a sharding, and a schedule orders the microbatches. So what looks odd in one figure is explained by those "
        f"before it: stage {slowest.index} sets the pace with {duration(slowest.latency_seconds)} per microbatch, and "
        f"{also}.",
        experiment="Move B: which of the four figures change, and which stay as they are?",
        question="What would make this plan faster: other layers, other devices for a stage, or another schedule?",
    )


def _fit(plan: Plan, _stage: PlanStage) -> Lesson:
    stage, b, each, count = fullest(plan), plan.options.num_microbatches, _pieces(plan), plan.cluster.devices
    held = f"{size(stage.peak_bytes)} of {size(plan.device_of(stage).memory_bytes)}"
    return Lesson(
        shows="For each device and number of nodes: how fast the fastest uniform layout is, or what a device lacks "
        "where none fits.",
        formula="fits: weights and state + activations + workspace ≤ memory of a device.   efficiency on n devices = "
        "(tokens/s / n) / (tokens/s / n on the fewest devices that suffice)",
        numbers=f"{b:,} · {each:,} / ({duration(plan.predicted.iteration_seconds)} · {count:,}) = "
        f"{units.number(_rate(plan) / count)} per second of a device; its fullest device holds {held}.",
        why="More devices divide weights and state further, so that a model fits, and compute more at once. But the "
        "batch stays the same: each device gets less of it, while collectives and the bubble take a larger share of "
        "the time, so efficiency falls.",
        experiment="Type the price of an hour of a device: the cheapest cluster is often not the fastest.",
        question="From how many devices on does it fit, and how much efficiency do twice as many cost?",
    )


def _layouts(plan: Plan, _stage: PlanStage) -> Lesson:
    b, samples = plan.options.num_microbatches, plan.model.samples
    return Lesson(
        shows="Every layout that divides all stages alike, by two of its degrees: in each cell the fastest, ✕ where "
        "none fits. A star is the plan, if it is such a layout.",
        formula="TP · PP · DP · CP = devices,   DP · microbatch · microbatches = global batch;   gain of the plan = T "
        "of the best uniform layout / T of the plan − 1",
        numbers=f"a global batch of B · samples of a microbatch: {b:,} · {samples:,} = {b * samples:,}.",
        why="Frameworks offer these layouts: the same degrees in each stage. The planner may also make unequal stages "
        "and choose a strategy for each operator, which gains time; but it keeps the microbatch that it is given, "
        "whereas the fastest layout is chosen among all of them.",
        experiment="Keep one microbatch by its chip: how much does its size matter, beside how the devices are used?",
        question="Which degrees does the fastest layout leave at 1, and what would they cost?",
    )


def layouts_numbers(plan: Plan, layouts: Layouts) -> str:
    """The gain of the plan over the best of these layouts; '' where the two cannot be compared."""
    from alpa_explore.uniform_layouts.beside_plan import plan_beside  # late: no other tab needs the layouts

    beside = plan_beside(layouts, plan)
    same = layouts.model.partition("@")[0] == plan.model.name
    if not same or beside.gain is None or beside.best is None:
        return ""
    gain = f"{'−' if beside.gain < 0 else ''}{units.percent(abs(beside.gain))}"
    return (
        f"{duration(beside.best.seconds)} / {duration(beside.seconds)} − 1 = {gain}; the best uniform layout is "
        f"{beside.best.words}."
    )


def scaling_numbers(plan: Plan, scaling: Scaling) -> str:
    """The efficiency on the most devices of one kind, that of the plan where it is there; '' before two are known."""
    own = plan.cluster.device.name
    device = own if own in scaling.devices else next(iter(scaling.devices), "")
    known = [
        (point.cluster, point.best.tokens_per_second)
        for point in scaling.of(device)
        if point.state == "priced" and point.best is not None
    ]
    if len(known) < 2:
        return ""
    (few, slow), (many, fast) = known[0], known[-1]
    share = fast / many.devices / (slow / few.devices)
    lacking = [point for point in scaling.of(device) if point.state == "does not fit"]
    lacks = "".join(f"; on {p.cluster} a device lacks {size(p.missing_bytes)}" for p in lacking[-1:])
    return (
        f"{few} and {many}: ({fast:,.0f} / {many.devices:,}) / ({slow:,.0f} / {few.devices:,}) = "
        f"{units.percent(share)}{lacks}."
    )


def _pieces(plan: Plan) -> int:
    """Tokens of a microbatch; of images, which are one token each, its samples."""
    return max(plan.model.tokens, plan.model.samples)


def _rate(plan: Plan) -> float:
    return plan.options.num_microbatches * _pieces(plan) / plan.predicted.iteration_seconds


def _layers(plan: Plan, _stage: PlanStage) -> Lesson:
    total, count, delta = sum(layer.flops for layer in plan.layers), len(plan.layers), plan.options.delta
    most, cut = max(layer.flops for layer in plan.layers), max(layer.cut_bytes for layer in plan.layers)
    limit = f"(1 + {delta:g}) · {units.flops(total)} / {count} = {units.flops((1 + delta) * total / count)} is allowed"
    if plan.options.boundaries:
        limit = "the boundaries were set by hand"
    return Lesson(
        shows="The forward operators in order, grouped into layers, and the bytes that cross the cut after each layer.",
        formula="Eq. 6: G(k, r) = min over i of max(G(i, r−1), C(i+1, k)), with FLOP(i+1 … k) ≤ (1 + δ) · FLOP / L",
        numbers=f"{limit}; the heaviest layer has {units.flops(most)}. G = max C = {size(cut)}.",
        why="Stages consist of whole layers. Layers of equal work can be distributed evenly, and a cut with few bytes "
        "is a cheap stage boundary. δ says how unequal layers may be for the sake of cheaper cuts.",
        experiment="Make δ smaller: layers become more equal, and max C stays or grows, until no clustering is "
        "feasible.",
        question="Which layer has the most FLOPs, and which of its operators do the others not have?",
    )


def _cluster(plan: Plan, _stage: PlanStage) -> Lesson:
    c = plan.cluster
    sizes = " + ".join(submesh_phrase(s.submesh, s.device) for s in plan.stages)
    return Lesson(
        shows="Every device in the colour of its stage, filled in proportion to its peak memory.",
        formula="Σ n_i × m_i = N × M: the submeshes n×m of the stages use every device once. A submesh is 1, 2, 4, … "
        "devices of one node, or whole nodes.",
        numbers=f"{sizes} = {sum(len(s.devices) for s in plan.stages)} = {units.shape((c.nodes, c.devices_per_node))}; "
        f"a stage can have one of {len(plan.costs.submeshes)} submeshes.",
        why="Links are fast inside a node and slow between nodes. These submeshes can always cover the whole cluster, "
        "and they keep the collectives of a small stage inside one node.",
        experiment="Set Network (under Device figures) to a tenth of its bandwidth: stages avoid the network.",
        question="Which stage spans several nodes, and along which axis of its logical mesh?",
    )


def _sharding(plan: Plan, stage: PlanStage) -> Lesson:
    axes = collective_seconds(plan, stage)
    if axes is None:
        time = duration(stage.microbatch_seconds)
        numbers = f"stage {stage.index}: {time} per microbatch; its strategies are not in the plan."
    else:
        moved = sum(seconds for _, seconds in axes)
        numbers = (
            f"stage {stage.index}: {duration(stage.microbatch_seconds - moved)} of computation + {duration(moved)} of "
            f"collectives = {duration(stage.microbatch_seconds)} per microbatch; "
            f"{duration(stage.iteration_seconds)} per iteration for gradient sums and the update."
        )
    return Lesson(
        shows="One row per operator: the specs of its inputs and output, and its time. "
        + (spec_legend(stage.logical_mesh) or "On one device nothing is divided."),
        formula="Eq. 1: min Σ_v s_v · (c_v + d_v) + Σ_(v,u) s_v · R_vu · s_u, one strategy s_v for each operator v",
        numbers=f"{numbers} {plan.statistics.variables:,} variables in {plan.statistics.distinct_solves:,} distinct "
        f"problems, of {plan.statistics.solves:,} in all.",
        why="The cheapest strategy of one operator may give an output that the next one cannot use; the matrix R holds "
        "the time to reshard it. So the strategies of all operators of a stage are chosen together, by an integer "
        "program. Equal layers are equal problems, which are solved once. Lesson 06 compares formulations of them.",
        experiment="Click an operator and press Other strategies to see how much longer the whole stage would take "
        "with each of them.",
        question="Which weight is sharded, which is replicated, and which collective does that require?",
    )


def _costs(plan: Plan, stage: PlanStage) -> Lesson:
    b = plan.options.num_microbatches
    received = f" + {duration(stage.receive_seconds)} to receive its inputs" if stage.receive_seconds else ""
    return Lesson(
        shows="The latency of each range of layers on each submesh, where it fits in memory. The stages of the plan "
        "are framed."
        + ("" if plan.costs.complete else " Only what the search needed is priced: press Plan to price all."),
        formula="t(i … j, submesh) = least of microbatch time + iteration time / B over all logical meshes on which "
        "memory suffices",
        numbers=f"{stage_phrase(stage)}: {duration(stage.microbatch_seconds)} + "
        f"{duration(stage.iteration_seconds)} / {b:,}{received} = {duration(stage.latency_seconds)}. "
        f"{len(plan.costs.candidates):,} pairs of layers and submesh, {plan.statistics.distinct_solves:,} distinct "
        "sharding problems.",
        why="The pipeline is computed from this table alone. "
        f"The sharding problem of step {_step('Sharding')} is solved once for every "
        "cell, and not again when B changes.",
        experiment="Change B: iteration time / B changes in every cell, and other stages may be chosen.",
        question="Is a range of layers twice as fast on twice the devices? Where is it not?",
    )


def _t_max(plan: Plan, _stage: PlanStage) -> Lesson:
    share = plan.terms.share  # of a schedule with a smaller bubble
    rounds = plan.terms.rounds_symbols.replace("−", " − ")
    return Lesson(
        shows="The objective for each candidate t_max, as the sum of its two parts; the star is the plan.",
        formula=f"Eq. 2: T = Σ t_i{share} + {rounds} · max t_i.   Eq. 3: F(s, k, d) = min over i, n, m of "
        "t(k … i, n × m) + F(s−1, i+1, d − n·m), with t ≤ t_max",
        numbers=f"{eq_2_sum(plan)} = {duration(objective_seconds(plan))}; {_beside_objective(plan)}"
        f"{len(plan.t_max_sweep):,} candidates.",
        why="The latency of the slowest stage counts for every microbatch, that of the others only once. For a fixed "
        "t_max it remains to minimise Σt, which a dynamic program does.",
        experiment="Increase B from 1: at B = 1 only Σt counts, at a large B almost only t_max.",
        question="From which B on does the plan no longer change?",
    )


def _beside_objective(plan: Plan) -> str:
    """What an iteration takes, where it is not Eq. 2."""
    if plan.options.pipeline.mode:
        return f"{plan.options.pipeline.mode}; "
    return f"simulated, an iteration takes {duration(plan.predicted.iteration_seconds)}; "


def _memory(plan: Plan, stage: PlanStage) -> Lesson:
    capacity = plan.device_of(stage).memory_bytes
    return Lesson(
        shows="The known solutions of a stage: faster with more memory, or slower with less. The line is the device "
        "memory.",
        formula="Eq. 5: weights and state + s · activations + workspace ≤ memory, for s microbatches held",
        numbers=f"stage {stage.index}: {size(stage.weight_bytes)} + {stage.microbatches_held:,} · "
        f"{size(stage.activation_bytes)} + {size(stage.workspace_bytes)} = {size(stage.peak_bytes)}, of "
        f"{size(capacity)}.",
        why="With 1F1B early stages hold more microbatches than late ones, so the same layers may fit at the end of "
        "the pipeline but not at its start.",
        experiment="Halve Memory (under Device figures): stages use less memory, or there are more of them.",
        question=f"Stage {fullest(plan).index} uses the most memory: is it for weights or for activations?",
    )


def _microbatches(plan: Plan, _stage: PlanStage) -> Lesson:
    b, p, count = plan.options.num_microbatches, plan.predicted, len(plan.stages)
    busy = b * p.sum_latency_seconds
    numbers = f"{units.percent(p.bubble_fraction)} of the simulated {duration(p.iteration_seconds)}."
    if plan.options.pipeline.mode:
        numbers = (
            f"1 − {b:,} · {duration(p.sum_latency_seconds)} / ({count} · {duration(p.iteration_seconds)}) = 1 − "
            f"{duration(busy)} / {duration(count * p.iteration_seconds)} = {units.percent(p.bubble_fraction)}."
        )
    return Lesson(
        shows="T, throughput and memory as functions of B.",
        formula="bubble = 1 − B · Σ t_i / (S · T), the share of T that the average stage waits",
        numbers=numbers,
        why="A pipeline fills and drains once per iteration; with more microbatches this is a smaller part. For a "
        "given number of samples per iteration, however, microbatches are then smaller, and small kernels are slow.",
        experiment="Halve B: with equal stages the bubble about doubles.",
        question="How large is the bubble at a very large B, and why is it not 0?",
    )


def _timeline(plan: Plan, stage: PlanStage) -> Lesson:
    position = len(plan.stages) - stage.index
    held = plan.terms.held(position, len(plan.stages))
    return Lesson(
        shows="One simulated iteration: the forward and backward pass of every microbatch on each submesh. The gaps "
        "are the bubble.",
        formula="1F1B: the stage at position s from the end holds min(s, B) microbatches; with GPipe every stage "
        "holds B, with ZB-H1 min(S, B) for S stages",
        numbers=f"stage {stage.index} is at position {position} of {len(plan.stages)} from the end and holds {held:,} "
        f"of {plan.options.num_microbatches:,} under {plan.options.pipeline.schedule}.",
        why="A schedule is an order of tasks. With 1F1B a stage runs a backward pass as soon as it can, which "
        "frees its activations; GPipe takes about as long, but holds all microbatches.",
        experiment="Choose gpipe under Beside it: both end at nearly the same time, but the memory below differs.",
        question="Which stage is idle longest, and which stage does it wait for?",
    )


def _why(plan: Plan, stage: PlanStage) -> Lesson:
    parts = time_parts(plan)[stage.index].parts
    return Lesson(
        shows="Where the time of an iteration goes, and what single changes of settings and of hardware bring.",
        formula="T = B · compute + B · collectives + B · sends + gradient sums and update + waiting, for each stage",
        numbers=f"stage {stage.index}: {' + '.join(f'{duration(s)} ({name})' for name, s in parts)} = "
        f"{duration(plan.predicted.iteration_seconds)}.",
        why="T decreases only if the slowest stage becomes faster, or all stages do. Removing any other limit gains "
        "nothing.",
        experiment="Press Try at one change, or Answer all: the planner runs for each; no effect is estimated.",
        question="What limits this plan: computation, a link, memory, or unequal stages?",
    )


def _search(plan: Plan, _stage: PlanStage) -> Lesson:
    model, p, b, devices = plan.model, plan.predicted, plan.options.num_microbatches, plan.cluster.devices
    peak = units.flops_per_second(plan.peak_flops_per_second)
    return Lesson(
        shows="The plans so far: throughput against memory. No plan is better in both than a plan on the Pareto "
        "frontier.",
        formula="MFU = B · FLOPs of a microbatch / (T · devices · peak)",
        numbers=f"{b:,} · {units.flops(model.model_flops)} / ({duration(p.iteration_seconds)} · {devices:,} · {peak}) "
        f"= {units.percent(plan.flops_utilization)}.",
        why="One figure alone can mislead: a plan that is 1 % faster may need all of the memory.",
        experiment="Press Try baselines: the usual hand-made plans for the same model and cluster.",
        question="Which of them comes closest to the plan, and with how much memory?",
    )


def _compare(plan: Plan, _stage: PlanStage) -> Lesson:
    b, samples = plan.options.num_microbatches, plan.model.samples
    return Lesson(
        shows="Two plans side by side: their figures, the latency of their stages, and what is cut differently.",
        formula="samples/s = B · samples per microbatch / T: if global batches differ, compare this and not T",
        numbers=f"{b:,} · {samples:,} / {duration(plan.predicted.iteration_seconds)} = "
        f"{units.number(plan.samples_per_second, 4)} per second.",
        why="A setting seldom changes only one thing. The other differences explain why the change helped.",
        experiment="Press Pin, then change δ or B: every figure above shows its change.",
        question="Which operators are cut differently, and did their collectives become cheaper?",
    )


def _accuracy(plan: Plan, _stage: PlanStage) -> Lesson:
    seconds, band = plan.predicted.iteration_seconds, band_of(plan, "seconds")
    kind = f"{plan.cluster.software.label} on {plan.cluster.device.name}"
    if band is None:
        numbers = f"T = {duration(seconds)}; no run of {kind} was measured, so its error is not known."
    else:
        low, high = duration(seconds / (1 + band.fraction)), duration(seconds / (1 - min(band.fraction, 0.9)))
        numbers = f"T = {duration(seconds)} {band.short}, so about {low} to {high}: {band.kind}."
    return Lesson(
        shows="Training runs that people measured and published, beside what this cost model predicts for them.",
        formula="error of a run = predicted / measured − 1; the band ± is the mean of its absolute value over runs of "
        "the same software and device that no figure was fitted to",
        numbers=numbers,
        why="The planner is exact for its costs. Whether its best plan is best on real machines depends on the costs "
        "being right, or at least wrong by the same factor for all layouts.",
        experiment="Show the choice of a layout: how much longer would the predicted best have taken than the best?",
        question="Is the error of the predictions smaller than the difference between the plans that you compare?",
    )


def _run(plan: Plan, _stage: PlanStage) -> Lesson:
    time = iteration_time(plan)
    step = duration(plan.predicted.iteration_seconds) if time is None else iteration_phrase(time)
    return Lesson(
        shows="A training run of the plan: losses and step times as they arrive, then measured and predicted times per "
        "stage.",
        formula="error = measured / predicted − 1",
        numbers=f"a step is predicted to take {step} on {plan.cluster.devices} × {plan.cluster.device.name}.",
        why="A plan is only as good as its cost model. On devices other than those it was planned for, only the loss "
        "can be compared: it must equal that of a single process.",
        experiment="Plan a small model for the device cpu, then press Start.",
        question="Which kind of task is predicted worst: computation, a collective, or a send?",
    )


LESSONS: Mapping[str, Callable[[Plan, PlanStage], Lesson]] = {
    "Overview": _overview,
    "Fit & scale": _fit,
    "Layouts": _layouts,
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
    "Accuracy": _accuracy,
    "Run": _run,
}
"""Title of a tab -> its lesson: what people ask first, then the steps of the algorithm, in its order."""


class LessonPanel:
    """The lesson above the figure; hidden while teaching mode is off, and in tabs without a lesson."""

    def __init__(self, go_to: Callable[[str], None]) -> None:
        self.on = False
        self._title = ""
        self.text = W.HTML()
        self.next = plain_button("", "The next lesson", lambda: go_to(next_tab(self._title)))
        self.widget = box("alpa-lesson-panel", self.text, self.next, kind=W.VBox)

    def show(self, state: State, title: str, tab_stage: int | None) -> None:
        """Update the lesson for the tab `title` and the plan on screen. Its example is the stage that the tab is about,
        else the selected stage, else the slowest one."""
        self._title = title
        plan = state.plan
        shown = self.on and plan is not None and title in LESSONS
        set_shown(self.widget, on=shown)
        if shown and plan is not None:
            self.next.description = f"Next: {next_tab(title)}"
            stage = tab_stage
            if stage is None:
                stage = int(read_key(state.selection).get("stage", pace_setter(plan).index))
            layouts = None if state.layouts is None else state.layouts.found
            scaling = None if state.scaling is None else state.scaling.found
            self.text.value = lesson_html(title, plan, stage, layouts=layouts, scaling=scaling)


def next_tab(title: str) -> str:
    """The tab after `title` in the order of the lessons; the first one after the last."""
    titles = list(LESSONS)
    return titles[(titles.index(title) + 1) % len(titles)]
