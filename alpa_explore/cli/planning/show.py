"""`alpa-explore show FILE`: print a plan file as text or JSON, or write a page with all figures."""

import argparse

from alpa_explore.cli.output import answer, write_page
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.tables import plan_summary, sharding_table
from alpa_explore.plans.report.text import render_table

COMMAND = """show  show a plan file
    Show the contents of a plan file.
file FILE  a file that `alpa-explore plan -o` wrote
--stage N (int)  the operators of stage N with their specs and seconds
--microbatches  iteration time and memory for other numbers of microbatches
--html FILE  write one self-contained page with all figures
--json  print JSON"""

_COLUMNS = "operator op phase layer strategy inputs outputs compute_seconds communication_seconds"


def run(options: argparse.Namespace) -> int:
    """Print the summary, or the operators of a stage."""
    from alpa_explore.plans.plan import load_plan

    plan = load_plan(options.file)
    write_page(plan, options.html)
    if options.stage is not None:
        rows = sharding_table(plan, options.stage)
        return answer(options, rows, lambda: render_table(rows, _COLUMNS))
    if options.microbatches:
        from alpa_explore.questions.microbatches import microbatches_report, microbatches_table

        return answer(options, microbatches_table(plan), lambda: microbatches_report(plan))
    return answer(options, plan_summary(plan), lambda: plan_report(plan))
