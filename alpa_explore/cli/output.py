"""Output of commands: JSON for programs, one-line messages for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from alpa_explore.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable

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


def check_page(path: str | None) -> None:
    """PlanFileError where a page is asked for that could not be written."""
    if path is not None:
        from alpa_explore.store.write import check_target

        check_target(path, "The page")


def write_figure(figure: Callable[[], Any], path: str | None) -> None:
    """Write the page with one figure where it is asked for, and print its name to stderr."""
    if path is not None:
        from alpa_explore.figures.html_page import figure_html
        from alpa_explore.store.write import write_text

        write_text(path, figure_html(figure()), "The page")
        print(f"wrote {printable(path)}", file=sys.stderr)


def write_page(plan: Plan, path: str | None) -> None:
    """Write the page with all figures of a plan where it is asked for, and print its name to stderr."""
    if path is not None:
        from alpa_explore.figures.page import write_html

        write_html(plan, path)
        print(f"wrote {printable(path)}", file=sys.stderr)
