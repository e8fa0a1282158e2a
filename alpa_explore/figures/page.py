"""A plan as one self-contained web page: every figure, the table behind each, and nothing from another machine.

A plan may come from a stranger: its names are text everywhere. Should one get through, the page's content security
policy still runs no script but the two written here, and fetches nothing.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from alpa_explore import units
from alpa_explore.figures.comparisons.microbatches import microbatches_figure, microbatches_table
from alpa_explore.figures.comparisons.why import why_figure, why_table
from alpa_explore.figures.decisions.cluster import cluster_figure, cluster_table
from alpa_explore.figures.decisions.frontier import frontier_figure, frontier_table
from alpa_explore.figures.decisions.layers import layers_figure, layers_table
from alpa_explore.figures.decisions.sharding import sharding_figure, sharding_table
from alpa_explore.figures.decisions.stage_costs import stage_costs_figure, stage_costs_table
from alpa_explore.figures.decisions.t_max import t_max_figure, t_max_table
from alpa_explore.figures.decisions.timeline import timeline_figure, timeline_table
from alpa_explore.figures.style import CONFIG
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.headline import headline
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import cell, heading, layers_phrase, sentence
from alpa_explore.store.write import write_text

_ROWS = 2000
"""Rows of a table that are written; a page with more of them opens slowly."""
_SCHEDULES = ("1f1b", "eager-1f1b", "zb-h1")
"""Shown side by side: what a plan is run with, one with more slack for sends, one with less idle time."""
_WIDE = ("module", "communication", "reason", "inputs", "outputs")
"""Columns whose cells may take several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    """Of the anchor and of the figure's element."""
    title: str
    question: str
    themes: Mapping[str, go.Figure]
    """'light' and 'dark'."""
    rows: Sequence[Row]


def write_html(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write `page_html(plan)`, whole or not at all. PlanFileError when that is impossible."""
    write_text(path, page_html(plan), "The page")


def page_html(plan: Plan) -> str:
    """The page; about 5 MB, nearly all of it plotly.js, which is in it once."""
    sections = _sections(plan)
    library = get_plotlyjs().replace("\r\n", "\n")
    script, style = _asset("page.js"), _asset("page.css")
    # Hashes, not 'unsafe-inline': a script that a name smuggles in does not run. plotly.js writes style elements.
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = f"{printable(plan.model.name)} on {printable(str(plan.cluster))}"
    body = "\n".join(_section_html(section) for section in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(title)} · alpa_explore</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{_text(title)}</h1>
{_head_html(plan)}
{_contents_html(sections)}
</header>
<main>
<noscript><p class="note">The figures need JavaScript; the tables below them hold the same and do not.</p></noscript>
{body}
</main>
<footer>{_statistics(plan)}</footer>
<script type="application/json" id="figures">{_data(sections)}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def _sections(plan: Plan) -> list[_Section]:
    drawn: list[tuple[str, str, str, Callable[..., go.Figure], Sequence[Row]]] = [
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
            "How slow may the slowest stage be? Each t_max gives T = Σt + (B−1)·t_max; the least T is the plan.",
            t_max_figure,
            t_max_table(plan),
        ),
        (
            "microbatches",
            "Microbatches",
            "What would more or fewer microbatches do: to T, to the throughput, and to what a device holds?",
            microbatches_figure,
            microbatches_table(plan),
        ),
        (
            "timeline",
            "Timeline",
            "What does each submesh do when, how long does it wait, and what does it hold, under which schedule?",
            partial(timeline_figure, schedules=_SCHEDULES),
            timeline_table(plan, _SCHEDULES),
        ),
        (
            "why",
            "Why",
            "Where does the time go, what holds the plan back, and what would a single change do?",
            why_figure,
            why_table(plan),
        ),
        (
            "stage-costs",
            "Stage costs",
            "How long would any run of layers take on any submesh, and which of them does the plan use?",
            stage_costs_figure,
            stage_costs_table(plan),
        ),
    ]
    sections = [
        _Section(
            name=name,
            title=title,
            question=question,
            rows=rows,
            themes={theme: draw(plan, theme=theme) for theme in ("light", "dark")},
        )
        for name, title, question, draw, rows in drawn
    ]
    sections += [
        _Section(
            name=f"sharding-{stage.index}",
            title=f"Sharding in stage {stage.index}",
            question=f"How is each operator of {layers_phrase(stage.layers)} divided over the logical mesh "
            f"{' × '.join(map(str, stage.logical_mesh))}, and what does it cost to bring its inputs there?",
            themes={theme: sharding_figure(plan, stage.index, theme=theme) for theme in ("light", "dark")},
            rows=sharding_table(plan, stage.index),
        )
        for stage in plan.stages
    ]
    sections += [
        _Section(
            name=f"frontier-{stage.index}",
            title=f"Seconds and bytes of stage {stage.index}",
            question=f"Which choices are known for {layers_phrase(stage.layers)}: how much slower is one that needs "
            "less memory?",
            themes={theme: frontier_figure(plan, stage.index, theme=theme) for theme in ("light", "dark")},
            rows=frontier_table(plan, stage.index),
        )
        for stage in plan.stages
    ]
    return sections


def _head_html(plan: Plan) -> str:
    options, model = plan.options, plan.model
    remat = "rematerialisation at layer boundaries" if model.rematerialization else "no rematerialisation"
    if plan.options.rematerialization:
        remat = "rematerialisation where memory is short"
    settings = (
        f"{units.count(model.parameters)} parameters, {model.precision}, {model.optimizer}, {remat}; B = "
        f"{options.num_microbatches:,} microbatches of {model.samples:,} samples, delta {options.delta:g}, "
        f"{options.num_layers} layers, solver {options.solver}"
        + "".join(f"; {words}" for words in phrases(options.pipeline).values())
        + "".join(f"; spec constraint: {constraint}" for constraint in options.spec_constraints)
        + "."
    )
    tiles = "".join(
        f'<div><dt>{_text(f.name)}</dt><dd class="value">{_text(f"{f.text} {f.beside}")}</dd>'
        f'<dd class="why">{_text(f.why)}</dd></div>'
        for f in headline(plan)
    )
    warnings = "".join(f"<li>{_text(warning)}</li>" for warning in plan.warnings)
    return (
        f'<p class="settings">{_text(settings)}</p>\n<p class="lead">{_text(sentence(plan))}</p>\n'
        f'<dl class="tiles">{tiles}</dl>\n'
        + (f'<div class="warnings" role="note"><b>Warnings</b><ul>{warnings}</ul></div>' if warnings else "")
    )


def _contents_html(sections: Sequence[_Section]) -> str:
    items = "".join(f'<li><a href="#section-{s.name}">{_text(s.title)}</a></li>' for s in sections)
    return f'<nav aria-label="Figures"><ul>{items}</ul></nav>'


def _section_html(section: _Section) -> str:
    figure = section.themes["light"]
    # The title of a figure is escaped for plotly already, and its lines are broken.
    label = figure.layout.title.text.replace("<br>", " ")
    height = int(figure.layout.height)
    return f"""<section id="section-{section.name}" aria-labelledby="title-{section.name}">
<h2 id="title-{section.name}">{_text(section.title)}</h2>
<p class="question">{_text(section.question)}</p>
<figure aria-label="{label.replace('"', "&quot;")}"><div id="{section.name}" style="height:{height}px"></div></figure>
<details><summary>The same as a table ({len(section.rows):,} rows)</summary>{_table_html(section.rows)}</details>
</section>"""


def _table_html(rows: Sequence[Row]) -> str:
    if not rows:
        return '<p class="note">Nothing to list.</p>'
    keys = list(rows[0])
    kinds = [
        "number" if all(isinstance(r[k], int | float | None) for r in rows) else "wide" if k in _WIDE else ""
        for k in keys
    ]
    marked = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(f'<th scope="col"{mark}>{_text(heading(k))}</th>' for k, mark in zip(keys, marked, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{m}>{_text(cell(k, row[k]))}</td>" for k, m in zip(keys, marked, strict=True)) + "</tr>\n"
        for row in rows[:_ROWS]
    )
    more = f'<p class="note">… and {len(rows) - _ROWS:,} more rows.</p>' if len(rows) > _ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{table}</div>{more}'


def _statistics(plan: Plan) -> str:
    s = plan.statistics
    spent = ", ".join(f"{name} {units.seconds(value)}" for name, value in s.seconds)
    return _text(
        f"Made by alpa_explore. {s.distinct_solves:,} distinct sharding problems ({s.variables:,} variables, "
        f"{s.constraints:,} constraints), {s.cached_solves:,} of them known already. "
        f"Time by pass: {spent or 'not recorded'}."
    )


def _data(sections: Sequence[_Section]) -> str:
    figures = {
        s.name: {theme: json.loads(figure.to_json(validate=False)) for theme, figure in s.themes.items()}
        for s in sections
    }
    config: dict[str, Any] = CONFIG | {"modeBarButtonsToRemove": ["lasso2d", "select2d"]}
    text = json.dumps({"config": config, "figures": figures}, ensure_ascii=False, separators=(",", ":"))
    # Inside a script element nothing is an entity: what could end it is written as JSON escapes.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    return escape(printable(text))
