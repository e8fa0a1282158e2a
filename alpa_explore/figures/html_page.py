"""Sections with a figure and a table each as one self-contained HTML page; nothing is loaded from another machine.

A plan may come from a stranger, so every name in it is escaped. Should one slip through, the content security policy of
the page runs no script other than the two written here, and loads nothing.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import NamedTuple

from plotly.offline import get_plotlyjs

from alpa_explore.figures import tuning
from alpa_explore.figures.style import CONFIG, Figure
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import cell, heading
from alpa_explore.units import printable

_WIDE = ("module", "communication", "reason", "inputs", "outputs", "why", "predicted_best", "best", "from")
"""Columns whose cells may take several lines."""


class Section(NamedTuple):
    """One figure of a page."""

    name: str
    """Of the anchor and of the figure's element."""
    title: str
    question: str
    draw: Callable[..., Figure]
    """Takes `theme`."""
    rows: Sequence[Row]


def html_page(title: str, head: str, sections: Sequence[Section], footer: str, *, after: str = "") -> str:
    """The page; `title` is plain text; `head`, `after` (the sections) and `footer` are HTML, with names `escaped`."""
    library = get_plotlyjs().replace("\r\n", "\n")
    script, style = _asset("sort_table.js") + _asset("page.js"), _asset("page.css")
    # Hashes, not 'unsafe-inline': a script injected through a name does not run. plotly.js writes style elements.
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    drawn = {s.name: {theme: s.draw(theme=theme) for theme in ("light", "dark")} for s in sections}
    body = "\n".join(_section_html(section, drawn[section.name]["light"]) for section in sections)
    contents = "".join(f'<li><a href="#section-{s.name}">{escaped(s.title)}</a></li>' for s in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(title)} · alpa_explore</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escaped(title)}</h1>
{head}
<nav aria-label="Figures"><ul>{contents}</ul></nav>
</header>
<main>
<noscript><p class="note">The figures need JavaScript; the tables below them do not.</p></noscript>
{body}
{after}
</main>
<footer>{footer}</footer>
<script type="application/json" id="figures">{_data(drawn)}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def escaped(text: str) -> str:
    """Plain text as HTML; characters that do not print are written out."""
    return escape(printable(text))


def figure_html(figure: Figure) -> str:
    """A figure alone as one self-contained page."""
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return page


def _section_html(section: Section, figure: Figure) -> str:
    # A figure's title is escaped already, for plotly, and broken into lines.
    label = figure.layout.title.text.replace("<br>", " ")
    height = int(figure.layout.height)
    return f"""<section id="section-{section.name}" aria-labelledby="title-{section.name}">
<h2 id="title-{section.name}">{escaped(section.title)}</h2>
<p class="question">{escaped(section.question)}</p>
<figure aria-label="{label.replace('"', "&quot;")}"><div id="{section.name}" style="height:{height}px"></div></figure>
<details><summary>The same as a table ({len(section.rows):,} rows)</summary>{table_html(section.rows)}</details>
</section>"""


def table_html(rows: Sequence[Row]) -> str:
    """Rows as a table that scrolls."""
    if not rows:
        return '<p class="note">Nothing to list.</p>'
    keys = list(rows[0])
    kinds = [
        "number" if all(isinstance(r[k], int | float | None) for r in rows) else "wide" if k in _WIDE else ""
        for k in keys
    ]
    classes = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(f'<th scope="col"{mark}>{escaped(heading(k))}</th>' for k, mark in zip(keys, classes, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{m}>{escaped(cell(k, row[k]))}</td>" for k, m in zip(keys, classes, strict=True))
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


_CLICK = re.compile(r'<br>click: [^"<]*')


def without_clicks(text: str) -> str:
    """JSON of figures without what hover texts say of a click, which does nothing on a page."""
    return _CLICK.sub("", text)


def _data(drawn: Mapping[str, Mapping[str, Figure]]) -> str:
    figures = {
        name: {theme: json.loads(figure.to_json(validate=False)) for theme, figure in themes.items()}
        for name, themes in drawn.items()
    }
    text = json.dumps({"config": CONFIG, "figures": figures}, ensure_ascii=False, separators=(",", ":"))
    text = without_clicks(text)
    # HTML entities are not decoded inside a script element: characters that could end it become JSON escapes.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"
