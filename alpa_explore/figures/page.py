"""A plan as one self-contained HTML page: every figure with its table."""

from __future__ import annotations

import os

from alpa_explore import units
from alpa_explore.figures.html_page import escaped, html_page
from alpa_explore.figures.page_sections import page_sections
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.phrases import precision_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import recompute_word
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.headline import HeadlineFigure, headline
from alpa_explore.plans.report.text import sentence
from alpa_explore.store.write import write_text
from alpa_explore.units import printable


def write_html(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write `page_html(plan)` atomically. PlanFileError where the file cannot be written."""
    write_text(path, page_html(plan), "The page")


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
