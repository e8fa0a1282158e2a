"""A plan as one self-contained HTML page: every figure with its table."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from alpa_explore import units
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
from alpa_explore.figures.html_page import Section, escaped, html_page
from alpa_explore.figures.style import Figure
from alpa_explore.figures.timelines.stage_memory import stage_memory_figure, stage_memory_table
from alpa_explore.figures.timelines.timeline import timeline_figure, timeline_table
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase, precision_phrase, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import recompute_word
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.headline import HeadlineFigure, headline
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import sentence
from alpa_explore.units import printable

_SCHEDULES = ("1f1b", "eager-1f1b", "zb-h1")
"""Shown side by side: the default, one with more slack for sends, one with less idle time."""
_timelines, _timelines_table = (partial(of, schedules=_SCHEDULES) for of in (timeline_figure, timeline_table))
_Shown: TypeAlias = "tuple[str, Callable[..., Figure], Callable[..., Sequence[Row]]]"
"""Title, figure, table."""
_OF_PLAN: dict[str, _Shown] = {
    "layers": ("Layers", layers_figure, layers_table),
    "cluster": ("Stages on the cluster", cluster_figure, cluster_table),
    "t-max": ("The t_max sweep", t_max_figure, t_max_table),
    "microbatches": ("Microbatches", microbatches_figure, microbatches_table),
    "timeline": ("Timeline", _timelines, _timelines_table),
    "why": ("Why", why_figure, why_table),
    "stage-costs": ("Stage costs", stage_costs_figure, stage_costs_table),
}
_OF_STAGE: dict[str, _Shown] = {
    "sharding": ("Sharding in stage {n}", sharding_figure, sharding_table),
    "memory": ("Memory of stage {n} over time", stage_memory_figure, stage_memory_table),
    "frontier": ("Latency and memory of stage {n}", frontier_figure, frontier_table),
}
_QUESTIONS = {
    "layers": "Which operators make up each layer, how much does each compute, and how many bytes cross a cut?",
    "cluster": "Which devices run which stage, and what fills their memory?",
    "t-max": "How slow may the slowest stage be? Each t_max gives T = Σt + (B−1)·t_max; the plan has the least T.",
    "microbatches": "How do T, throughput and memory change with the number of microbatches?",
    "timeline": "When does each submesh compute, how long is it idle, and what does it hold, under each schedule?",
    "why": "Where does the time go, what limits the plan, and what would a single change save?",
    "stage-costs": "How long would each range of layers take on each submesh, and which of them does the plan use?",
    "sharding": "How is each operator of {stage} ({mesh}) divided over the devices, and what do its collectives cost?",
    "memory": "What fills the memory of a device of {stage} during an iteration?",
    "frontier": "Which choices are known for {layers}: how much slower is one that needs less memory?",
}


def page_sections(plan: Plan) -> list[Section]:
    """The figures of the plan; sharding, memory and frontier of each stage; and how good the numbers are."""
    sections = [
        Section(name, title, _QUESTIONS[name], partial(draw, plan), table(plan))
        for name, (title, draw, table) in _OF_PLAN.items()
    ]
    for name, (title, draw, table) in _OF_STAGE.items():
        for stage in plan.stages:
            n, layers, mesh = stage.index, layers_phrase(stage.layers), logical_mesh_phrase(stage.logical_mesh)
            question = _QUESTIONS[name].format(stage=stage_phrase(stage), layers=layers, mesh=mesh)
            sections.append(Section(f"{name}-{n}", title.format(n=n), question, partial(draw, plan, n), table(plan, n)))
    record = stored_record()
    if record.runs:
        question = (
            "How far off are predictions of training runs that people measured and published? "
            f"{plan_bands_sentence(plan)} All runs are on the page that alpa-explore validation --html FILE writes."
        )
        draw = partial(sources_figure, record)
        sections.append(Section("accuracy", "How good are these numbers?", question, draw, sources_table(record)))
    return sections


def page_html(plan: Plan) -> str:
    """The page: about 5 MB, nearly all of it plotly.js, which it contains once."""
    title = f"{printable(plan.model.name)} on {printable(str(plan.cluster))}"
    return html_page(title, _head_html(plan), page_sections(plan), _statistics(plan))


def _head_html(plan: Plan) -> str:
    options, model = plan.options, plan.model
    recompute = f"recompute {recompute_word(plan)}"
    settings = (
        f"{units.count(model.parameters)} parameters, {precision_phrase(model, plan.cluster)}, {model.optimizer}, "
        f"{recompute}; B = {options.num_microbatches:,} microbatches of {units.samples(model.samples)}, δ "
        f"{options.delta:g}, {options.num_layers} layers, solver {options.solver}"
        + "".join(f"; {words}" for words in phrases(options.pipeline).values())
        + "".join(f"; spec constraint: {constraint}" for constraint in options.spec_constraints)
        + "."
    )
    tiles = "".join(
        f'<div><dt>{escaped(f"{f.name} {f.band}".strip())}</dt><dd class="value">{escaped(f"{f.text} {f.beside}")}</dd>'
        f'<dd class="why">{escaped(_origin(f))}</dd></div>'
        for f in headline(plan)
    )
    warnings = "".join(f"<li>{escaped(warning)}</li>" for warning in plan.warnings)
    lead = f"{sentence(plan)} {plan_bands_sentence(plan)}"
    return (
        f'<p class="settings">{escaped(settings)}</p>\n<p class="lead">{escaped(lead)}</p>\n'
        f'<dl class="tiles">{tiles}</dl>\n'
        + (f'<div class="warnings" role="note"><b>Warnings</b><ul>{warnings}</ul></div>' if warnings else "")
    )


def _origin(figure: HeadlineFigure) -> str:
    """How a figure is computed, and where its error is known from; that of the rates is that of the iteration time."""
    parts = (figure.why, figure.error) if figure.name in ("iteration", "peak memory") else (figure.why,)
    return "; ".join(filter(None, parts))


def _statistics(plan: Plan) -> str:
    s = plan.statistics
    passes = ", ".join(f"{name} {units.seconds(value)}" for name, value in s.seconds)
    return escaped(
        f"Made by alpa_explore. {s.distinct_solves:,} distinct sharding problems ({s.variables:,} variables, "
        f"{s.constraints:,} constraints), {s.cached_solves:,} of them from the cache. "
        f"Time by pass: {passes or 'not recorded'}."
    )
