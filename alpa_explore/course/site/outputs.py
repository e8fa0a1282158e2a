"""The outputs of a cell as HTML. Figures are collected as data, for the script to draw."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from alpa_explore.figures.course.interactive import MIME_TYPE as INTERACTIVE

PLOTLY = "application/vnd.plotly.v1+json"
_CELL_FILE = re.compile(r"\S*ipykernel_\d+/\d+\.py")
"""The file of a cell in messages: its name has the number of the process."""
_BANNER = re.compile(r"^(?:Running HiGHS |Includes third-party software components).*\n?", re.MULTILINE)
"""What the solver says of itself, with its version, whether it is asked or not."""
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(slots=True)
class Figures:
    """The figures of a page, in the order of their numbers."""

    data: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, figure: Mapping[str, Any]) -> int:
        """Keep a figure without its template, which all share; returns its number."""
        layout = {key: value for key, value in figure.get("layout", {}).items() if key != "template"}
        self.data.append({"data": figure.get("data", []), "layout": layout})
        return len(self.data) - 1


def figure_html(figure: Mapping[str, Any], figures: Figures) -> str:
    """The place of a figure."""
    layout = figure.get("layout", {})
    title = layout.get("title", {})
    words = (title.get("text", "") if isinstance(title, Mapping) else str(title)).replace("<br>", " ")
    height = int(layout.get("height") or 450)
    label = f' aria-label="{words.replace(chr(34), "&quot;")}"' if words else ""
    place = f'<div class="figure" data-figure="{figures.add(figure)}" style="height:{height}px"></div>'
    return f"<figure{label}>{place}</figure>"


def interactive_html(document: Mapping[str, Any], figures: Figures) -> str:
    """A figure with its controls; the script draws the state that they choose.

    `document` is that of `InteractiveFigure`. Its states are kept as figures; those that cannot exist are the reason.
    """
    states = {key: state if isinstance(state, str) else figures.add(state) for key, state in document["states"].items()}
    starts = [control["start"] for control in document["controls"]]
    first = states[",".join(map(str, starts))]
    height = 450 if isinstance(first, str) else int(figures.data[first]["layout"].get("height") or 450)
    fields = "".join(_control_html(control) for control in document["controls"])
    given = escape(json.dumps(states), quote=True)
    place = f'<div class="figure" data-figure="{first}" style="height:{height}px"></div>'
    return (
        f'<figure class="interactive" aria-label="{escape(document["label"], quote=True)}" data-states="{given}">'
        f'<div class="controls">{fields}</div><p class="refused" role="status"></p>{place}</figure>'
    )


def _control_html(control: Mapping[str, Any]) -> str:
    """A slider over numbers, or a list of names."""
    values, start = control["values"], control["start"]
    label = escape(control["label"])
    if isinstance(values[start], str):
        options = "".join(
            f'<option value="{place}"{" selected" * (place == start)}>{escape(value)}</option>'
            for place, value in enumerate(values)
        )
        return f"<label>{label} <select>{options}</select></label>"
    texts = control["texts"]
    shown, text = escape(json.dumps(texts), quote=True), escape(texts[start], quote=True)
    play = ' <button type="button" class="play" aria-pressed="false">Play</button>' if control["plays"] else ""
    return (
        f'<label>{label} <input type="range" min="0" max="{len(values) - 1}" step="1" value="{start}" '
        f'data-values="{shown}" aria-valuetext="{text}"> <output>{text}</output></label>{play}'
    )


def outputs_html(outputs: Sequence[Mapping[str, Any]], figures: Figures) -> str:
    """All outputs of a cell, one below the other; what was printed in pieces is joined."""
    html, printed = [], ""
    for output in outputs:
        if output["output_type"] == "stream":
            if output["name"] == "stdout":
                printed += "".join(output["text"])
            continue
        if printed:
            html.append(_printed(printed))
            printed = ""
        if "data" in output:
            html.append(_data_html(output["data"], figures))
    if printed:
        html.append(_printed(printed))
    return "".join(html)


def _printed(text: str) -> str:
    shown = _CELL_FILE.sub("this cell", _BANNER.sub("", text).rstrip())
    return f'<pre class="output" tabindex="0">{escape(shown)}</pre>'


def _data_html(data: Mapping[str, Any], figures: Figures) -> str:
    if INTERACTIVE in data:
        return interactive_html(data[INTERACTIVE], figures)
    if PLOTLY in data:
        return figure_html(data[PLOTLY], figures)
    if "text/html" in data:
        return f'<div class="output scroll">{_text(data["text/html"])}</div>'
    if "image/svg+xml" in data:
        return f'<div class="output">{_text(data["image/svg+xml"])}</div>'
    if "image/png" in data:
        picture = base64.b64encode(base64.b64decode(_text(data["image/png"]))).decode()
        return f'<img class="output" alt="" src="data:image/png;base64,{picture}">'
    if WIDGET in data:
        return '<p class="note">This part needs Python: open the notebook to use it.</p>'
    return _printed(_text(data.get("text/plain", "")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "".join(value)
