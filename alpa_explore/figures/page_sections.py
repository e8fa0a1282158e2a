"""The figures of a plan in the order of the HTML page, each with its question and its table."""

from collections.abc import Callable, Sequence
from functools import partial

import plotly.graph_objects as go

from alpa_explore.accuracy.record import stored_record
from alpa_explore.figures.accuracy.sources import sources_figure, sources_table
from alpa_explore.figures.comparisons.microbatches import microbatches_figure, microbatches_table
from alpa_explore.figures.comparisons.why import why_figure, why_table
from alpa_explore.figures.decisions.cluster import cluster_figure, cluster_table
from alpa_explore.figures.decisions.frontier import frontier_figure, frontier_table
from alpa_explore.figures.decisions.layers import layers_figure, layers_table
from alpa_explore.figures.decisions.sharding import sharding_figure, sharding_table
from alpa_explore.figures.decisions.stage_costs import stage_costs_figure, stage_costs_table
from alpa_explore.figures.decisions.t_max import t_max_figure, t_max_table
from alpa_explore.figures.html_page import Section
from alpa_explore.figures.timelines.stage_memory import stage_memory_figure, stage_memory_table
from alpa_explore.figures.timelines.timeline import timeline_figure, timeline_table
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.tables import Row

_SCHEDULES = ("1f1b", "eager-1f1b", "zb-h1")
"""Shown side by side: the default, one with more slack for sends, one with less idle time."""


def page_sections(plan: Plan) -> list[Section]:
    """The figures of the plan; sharding, memory and frontier of each stage; and how good the numbers are."""
    return [
        *_plan_sections(plan),
        *(_sharding_section(plan, stage) for stage in plan.stages),
        *(_memory_section(plan, stage) for stage in plan.stages),
        *(_frontier_section(plan, stage) for stage in plan.stages),
        *([_accuracy_section(plan)] if stored_record().runs else []),
    ]


def _plan_sections(plan: Plan) -> list[Section]:
    figures: list[tuple[str, str, str, Callable[..., go.Figure], Sequence[Row]]] = [
        (
            "layers",
            "Layers",
            "Which operators make up each layer, how much does each compute, and how many bytes cross a cut?",
            layers_figure,
            layers_table(plan),
        ),
        (
            "cluster",
            "Stages on the cluster",
            "Which devices run which stage, and what fills their memory?",
            cluster_figure,
            cluster_table(plan),
        ),
        (
            "t-max",
            "The t_max sweep",
            "How slow may the slowest stage be? Each t_max gives T = Σt + (B−1)·t_max; the plan has the least T.",
            t_max_figure,
            t_max_table(plan),
        ),
        (
            "microbatches",
            "Microbatches",
            "How do T, throughput and memory change with the number of microbatches?",
            microbatches_figure,
            microbatches_table(plan),
        ),
        (
            "timeline",
            "Timeline",
            "When does each submesh compute, how long is it idle, and what does it hold, under each schedule?",
            partial(timeline_figure, schedules=_SCHEDULES),
            timeline_table(plan, _SCHEDULES),
        ),
        (
            "why",
            "Why",
            "Where does the time go, what limits the plan, and what would a single change save?",
            why_figure,
            why_table(plan),
        ),
        (
            "stage-costs",
            "Stage costs",
            "How long would each range of layers take on each submesh, and which of them does the plan use?",
            stage_costs_figure,
            stage_costs_table(plan),
        ),
    ]
    return [
        Section(name=name, title=title, question=question, rows=rows, themes=_themes(partial(draw, plan)))
        for name, title, question, draw, rows in figures
    ]


def _sharding_section(plan: Plan, stage: PlanStage) -> Section:
    return Section(
        name=f"sharding-{stage.index}",
        title=f"Sharding in stage {stage.index}",
        question=f"How is each operator of {stage_phrase(stage)} ({logical_mesh_phrase(stage.logical_mesh)}) divided "
        f"over "
        "the devices, and what do its collectives cost?",
        themes=_themes(partial(sharding_figure, plan, stage.index)),
        rows=sharding_table(plan, stage.index),
    )


def _memory_section(plan: Plan, stage: PlanStage) -> Section:
    return Section(
        name=f"memory-{stage.index}",
        title=f"Memory of stage {stage.index} over time",
        question=f"What fills the memory of a device of {stage_phrase(stage)} during an iteration?",
        themes=_themes(partial(stage_memory_figure, plan, stage.index)),
        rows=stage_memory_table(plan, stage.index),
    )


def _frontier_section(plan: Plan, stage: PlanStage) -> Section:
    return Section(
        name=f"frontier-{stage.index}",
        title=f"Latency and memory of stage {stage.index}",
        question=f"Which choices are known for {layers_phrase(stage.layers)}: how much slower is one that needs "
        "less memory?",
        themes=_themes(partial(frontier_figure, plan, stage.index)),
        rows=frontier_table(plan, stage.index),
    )


def _accuracy_section(plan: Plan) -> Section:
    record = stored_record()
    return Section(
        name="accuracy",
        title="How good are these numbers?",
        question="How far off are predictions of training runs that people measured and published? "
        f"{plan_bands_sentence(plan)} All runs are on the page that alpa-explore validation --html FILE writes.",
        themes=_themes(partial(sources_figure, record)),
        rows=sources_table(record),
    )


def _themes(draw: Callable[..., go.Figure]) -> dict[str, go.Figure]:
    return {theme: draw(theme=theme) for theme in ("light", "dark")}
