"""A plan as one self-contained HTML page: every figure with its table; nothing is loaded from another machine.

A plan may come from a stranger, so every name in it is escaped. Should one slip through, the content security policy of
the page runs no script other than the two written here, and loads nothing.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files

from plotly.offline import get_plotlyjs

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.page_sections import Section, page_sections
from alpa_explore.figures.style import CONFIG
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.headline import headline
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import cell, heading, sentence
from alpa_explore.store.write import write_text

_WIDE = ("module", "communication", "reason", "inputs", "outputs")
"""Columns whose cells may take several lines."""


def write_html(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write `page_html(plan)` atomically. PlanFileError where the file cannot be written."""
    write_text(path, page_html(plan), "The page")


def page_html(plan: Plan) -> str:
    """The page: about 5 MB, nearly all of it plotly.js, which it contains once."""
    sections = page_sections(plan)
    library = get_plotlyjs().replace("\r\n", "\n")
    script, style = _asset("page.js"), _asset("page.css")
    # Hashes, not 'unsafe-inline': a script injected through a name does not run. plotly.js writes style elements.
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
<noscript><p class="note">The figures need JavaScript; the tables below them do not.</p></noscript>
{body}
</main>
<footer>{_statistics(plan)}</footer>
<script type="application/json" id="figures">{_data(sections)}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def _head_html(plan: Plan) -> str:
    options, model = plan.options, plan.model
    recompute = f"recompute {'on' if model.rematerialization else 'off'}"
    if plan.options.rematerialization:
        recompute = "recompute where needed"
    settings = (
        f"{units.count(model.parameters)} parameters, {model.precision}, {model.optimizer}, {recompute}; B = "
        f"{options.num_microbatches:,} microbatches of {model.samples:,} samples, δ {options.delta:g}, "
        f"{options.num_layers} layers, solver {options.solver}"
        + "".join(f"; {words}" for words in phrases(options.pipeline).values())
        + "".join(f"; spec constraint: {constraint}" for constraint in options.spec_constraints)
        + "."
    )
    tiles = "".join(
        f'<div><dt>{_text(f.name)}</dt><dd class="value">{_text(f"{f.with_band} {f.beside}")}</dd>'
        f'<dd class="why">{_text("; ".join(filter(None, (f.why, f.error))))}</dd></div>'
        for f in headline(plan)
    )
    warnings = "".join(f"<li>{_text(warning)}</li>" for warning in plan.warnings)
    lead = f"{sentence(plan)} {plan_bands_sentence(plan)}"
    return (
        f'<p class="settings">{_text(settings)}</p>\n<p class="lead">{_text(lead)}</p>\n'
        f'<dl class="tiles">{tiles}</dl>\n'
        + (f'<div class="warnings" role="note"><b>Warnings</b><ul>{warnings}</ul></div>' if warnings else "")
    )


def _contents_html(sections: Sequence[Section]) -> str:
    items = "".join(f'<li><a href="#section-{s.name}">{_text(s.title)}</a></li>' for s in sections)
    return f'<nav aria-label="Figures"><ul>{items}</ul></nav>'


def _section_html(section: Section) -> str:
    figure = section.themes["light"]
    # A figure's title is escaped already, for plotly, and broken into lines.
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
    classes = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(f'<th scope="col"{mark}>{_text(heading(k))}</th>' for k, mark in zip(keys, classes, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{m}>{_text(cell(k, row[k]))}</td>" for k, m in zip(keys, classes, strict=True))
        + "</tr>\n"
        for row in rows[: tuning.PAGE_TABLE_ROWS]
    )
    more = (
        f'<p class="note">… and {len(rows) - tuning.PAGE_TABLE_ROWS:,} more rows.</p>'
        if len(rows) > tuning.PAGE_TABLE_ROWS
        else ""
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{table}</div>{more}'


def _statistics(plan: Plan) -> str:
    s = plan.statistics
    passes = ", ".join(f"{name} {units.seconds(value)}" for name, value in s.seconds)
    return _text(
        f"Made by alpa_explore. {s.distinct_solves:,} distinct sharding problems ({s.variables:,} variables, "
        f"{s.constraints:,} constraints), {s.cached_solves:,} of them from the cache. "
        f"Time by pass: {passes or 'not recorded'}."
    )


def _data(sections: Sequence[Section]) -> str:
    figures = {
        s.name: {theme: json.loads(figure.to_json(validate=False)) for theme, figure in s.themes.items()}
        for s in sections
    }
    text = json.dumps({"config": CONFIG, "figures": figures}, ensure_ascii=False, separators=(",", ":"))
    # HTML entities are not decoded inside a script element: characters that could end it become JSON escapes.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    return escape(printable(text))
