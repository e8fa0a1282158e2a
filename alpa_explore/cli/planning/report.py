"""`alpa-explore report PLAN…`: several plan files as one HTML page: a table to sort, figures, comparisons."""

import argparse

from alpa_explore.cli.output import check_file, complain
from alpa_explore.errors import OptionError

COMMAND = """report  several plans as one HTML page
    Write one self-contained HTML page about plans that were tried: a table to sort, in which what differs is marked,
    the figures of the chosen plan, and that plan beside the fastest others.
files PLAN (many)  files that `alpa-explore plan -o` wrote
-o --output FILE (required)  the page
--chosen N (int)  the plan whose figures are shown, from 1 (default: the last one)"""


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    check_file(options.output, "The report")
    count = len(options.files)
    chosen = count if options.chosen is None else options.chosen
    if not 1 <= chosen <= count:
        raise OptionError(
            "There is no such plan", found=f"--chosen {chosen}", remedy=f"Give a number from 1 to {count}."
        )
    from alpa_explore.figures.report_page import Tried, report_html
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.store.write import write_text

    tried = [Tried(plan=load_plan(file)) for file in options.files]
    write_text(options.output, report_html(tried, chosen=chosen - 1), "The report")
    complain(f"wrote {options.output}")
    return 0
