"""A saved plan as HTML: the table of its stages, and its figures behind a fold, each with its table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from alpa_explore.course.site.outputs import Figures, figure_html


def plan_html(plan: Mapping[str, Any], figures: Figures) -> str:
    """The explorer of a cell, as it was when the lesson was run."""
    parts = "".join(
        f'<section><h4>{escape(part["title"])}</h4><p class="note">{escape(part["question"])}</p>'
        f"{figure_html(part['figure'], figures)}"
        f"<details><summary>The same as a table</summary>{part['table']}</details></section>"
        for part in plan["figures"]
    )
    return (
        f'<div class="plan"><div class="scroll">{plan["table"]}</div>'
        '<p class="note">In the notebook this is the explorer, whose plan follows every slider.</p>'
        f"<details><summary>The figures of this plan: {escape(plan['name'])}</summary>{parts}</details></div>"
    )
