"""The table of a figure as HTML and CSV. A click on a row selects the stage, layer or operator of that row, or shows
its plan; one on a heading sorts by it."""

import csv
import io
from collections.abc import Sequence
from html import escape

from alpa_explore.figures.keys import change_key, key
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import cell, heading, number_of

MAX_ROWS = 400
"""Rows shown on the page, set by hand; the CSV file has all."""


def table_html(rows: Sequence[Row], plan: Plan | None, stage: int | None = None) -> str:
    """The rows as an HTML table; `stage` is the one that all rows are about, if there is one."""
    if not rows:
        return '<p class="alpa-question">Nothing to list.</p>'
    names = list(rows[0])
    is_number = [all(isinstance(row[n], int | float | None) for row in rows) for n in names]
    classes = [' class="alpa-number"' if number else "" for number in is_number]
    head = "".join(
        f'<th scope="col"{c}><button type="button" title="Press to sort">{escape(heading(n))}</button></th>'
        for n, c in zip(names, classes, strict=True)
    )
    body = "".join(
        f"<tr{_key_attributes(row, plan, stage)}>"
        + "".join(f"<td{c}{_value(row[n])}>{escape(cell(n, row[n]))}</td>" for n, c in zip(names, classes, strict=True))
        + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    more = f"<p>… and {len(rows) - MAX_ROWS:,} more rows: CSV saves all.</p>" if len(rows) > MAX_ROWS else ""
    return f'<div class="alpa-table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>'


def _value(value: object) -> str:
    """That by which a row is sorted, where it is not the text."""
    number = "" if value is None else number_of(value)
    return "" if number is None else f' data-value="{number}"'


def table_csv(rows: Sequence[Row]) -> str:
    """All rows as CSV, numbers in SI units; the items of a list are joined by spaces."""
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({n: " ".join(map(str, v)) if isinstance(v, tuple | list) else v for n, v in row.items()})
    return out.getvalue()


def row_key(row: Row, plan: Plan | None, stage: int | None = None) -> str:
    """The key of what a row is about; '' if it is about nothing that can be selected."""
    parts: dict[str, int | str] = {}
    row_stage = row.get("stage", row.get("submesh") if isinstance(row.get("submesh"), int) else stage)
    layer = row.get("layer")
    if "place" in row:
        return change_key("cluster", row["place"])
    if row.get("plan_number") is not None:
        return key(plan=row["plan_number"])
    if isinstance(layer, int) and plan is not None:
        layer_stage = next((s.index for s in plan.stages if s.layers[0] <= layer <= s.layers[1]), stage)
        parts = {"layer": layer} if layer_stage is None else {"stage": layer_stage, "layer": layer}
        if "operator" in row:
            parts["operator"] = row["operator"]
    elif isinstance(row_stage, int):
        parts = {"stage": row_stage}
    return key(**parts)


def _key_attributes(row: Row, plan: Plan | None, stage: int | None) -> str:
    """The HTML attributes that make a row selectable."""
    selected = row_key(row, plan, stage)
    return f' data-alpa-key="{escape(selected)}" tabindex="0" aria-selected="false"' if selected else ""
