"""Output of commands: JSON for programs, one-line messages for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan


def print_json(value: Any) -> None:
    """Print `value` as JSON on stdout; figures are in SI units, which their keys name."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """What `print_json` prints."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)


def complain(message: str) -> None:
    """Print a message as one line on stderr."""
    print(f"alpa-explore: {printable(message)}", file=sys.stderr, flush=True)


def write_plan(plan: Plan, *, output: str | None, html: str | None) -> None:
    """Write the requested files, and print their names to stderr."""
    if output is not None:
        from alpa_explore.plans.file.write import save_plan

        save_plan(plan, output)
        print(f"wrote {printable(output)}", file=sys.stderr)
    if html is not None:
        from alpa_explore.figures.page import write_html

        write_html(plan, html)
        print(f"wrote {printable(html)}", file=sys.stderr)
