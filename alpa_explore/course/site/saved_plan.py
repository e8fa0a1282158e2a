"""In the kernel of a lesson: the plan of an explorer as data. The widget itself needs a kernel, which a page has not.

An explorer is known by what it has, `wait` and `plan`, since the library does not import its front end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from alpa_explore.course.site import tuning
from alpa_explore.figures.html_page import table_html
from alpa_explore.figures.page import page_sections
from alpa_explore.plans.plan import Plan


def save_plan(shown: Any, path: str, seconds: float) -> None:
    """Write the plan of `shown`, where this is an explorer whose plan is ready within `seconds`."""
    if not hasattr(shown, "wait") or not hasattr(type(shown), "plan"):
        return
    plan = shown.wait(seconds)
    if isinstance(plan, Plan):
        bundle = shown._repr_mimebundle_()
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        Path(path).write_text(json.dumps(plan_data(plan, data["text/html"])), encoding="utf-8")


def plan_data(plan: Plan, table: str) -> dict[str, Any]:
    """The table of the stages, and every figure of the plan's page with its table."""
    return {
        "name": f"{plan.model.name} on {plan.cluster}",
        "table": table,
        "figures": [
            {
                "title": section.title,
                "question": section.question,
                "figure": json.loads(section.draw().to_json(validate=False)),
                "table": table_html(section.rows[: tuning.PLAN_ROWS]),
            }
            for section in page_sections(plan)
        ],
    }
