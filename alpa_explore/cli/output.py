"""Output of commands: JSON for programs, one-line messages for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from alpa_explore.units import printable

if TYPE_CHECKING:
    import argparse
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


def answer(options: argparse.Namespace, value: Any, text: Callable[[], str]) -> int:
    """Print the answer of a command, as JSON where that is asked for; 0."""
    print(json_text(value) if options.json else text())
    return 0


def check_file(path: str | None, what: str = "The page", *, is_json: bool = False) -> None:
    """PlanFileError where a file is asked for that could not be written; OptionError where its name is not that of
    JSON, which it `is_json`."""
    if path is not None:
        from alpa_explore.errors import OptionError
        from alpa_explore.store.write import check_target

        check_target(path, what)
        if is_json and not path.lower().endswith(".json"):
            raise OptionError(f"{what} is JSON", found=path, remedy=f"Name it {path}.json.")


def write_file(path: str | None, text: Callable[[], str], what: str = "The page") -> None:
    """Write a file where it is asked for, and print its name to stderr."""
    if path is not None:
        from alpa_explore.store.write import write_text

        write_text(path, text(), what)
        wrote(path)


def wrote(path: object) -> None:
    """Say on stderr that a file was written."""
    print(f"wrote {printable(str(path))}", file=sys.stderr)


def write_figure(figure: Callable[[], Any], path: str | None) -> None:
    """Write the page with one figure where it is asked for, and print its name to stderr."""

    def page() -> str:
        from alpa_explore.figures.html_page import figure_html

        return figure_html(figure())

    write_file(path, page)


def write_page(plan: Plan, path: str | None) -> None:
    """Write the page with all figures of a plan where it is asked for, and print its name to stderr."""

    def page() -> str:
        from alpa_explore.figures.page import page_html

        return page_html(plan)

    write_file(path, page)
