"""The table behind a figure as HTML: rows that name a stage, a layer or an operator select it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from alpa_explore.figures.keys import key
from alpa_explore.plans.report.text import cell, heading

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row

MOST_ROWS = 400
"""Rows that are shown; the CSV file has all."""


def table_html(rows: Sequence[Row], plan: Plan, stage: int | None = None) -> str:
    """A table; `stage` is the one that all rows are about, where there is one."""
    if not rows:
        return '<p class="alpa-question">Nothing to list.</p>'
    names = list(rows[0])
    numbers = [all(isinstance(row[n], int | float | None) for row in rows) for n in names]
    marks = [' class="alpa-number"' if number else "" for number in numbers]
    head = "".join(f'<th scope="col"{mark}>{escape(heading(n))}</th>' for n, mark in zip(names, marks, strict=True))
    body = "".join(
        f"<tr{_selects(row, plan, stage)}>"
        + "".join(f"<td{m}>{escape(cell(n, row[n]))}</td>" for n, m in zip(names, marks, strict=True))
        + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = f"<p>… and {len(rows) - MOST_ROWS:,} more rows: CSV saves all.</p>" if len(rows) > MOST_ROWS else ""
    return f'<div class="alpa-table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>'


def table_csv(rows: Sequence[Row]) -> str:
    """All rows with their SI figures; what is a list is joined by spaces."""
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({n: " ".join(map(str, v)) if isinstance(v, tuple | list) else v for n, v in row.items()})
    return out.getvalue()


def row_key(row: Row, plan: Plan, stage: int | None = None) -> str:
    """What a row is about; '' for nothing that can be selected."""
    found: dict[str, int | str] = {}
    at = row.get("stage", row.get("submesh") if isinstance(row.get("submesh"), int) else stage)
    layer = row.get("layer")
    if "plan_number" in row:
        return key(plan=row["plan_number"])
    if isinstance(layer, int):
        own = next((s.index for s in plan.stages if s.layers[0] <= layer <= s.layers[1]), stage)
        found = {"layer": layer} if own is None else {"stage": own, "layer": layer}
        if "operator" in row:
            found["operator"] = row["operator"]
    elif isinstance(at, int):
        found = {"stage": at}
    return key(**found)


def _selects(row: Row, plan: Plan, stage: int | None) -> str:
    found = row_key(row, plan, stage)
    return f' data-alpa-key="{escape(found)}" tabindex="0" aria-selected="false"' if found else ""
