"""`alpa-explore coverage MODEL`: show which operators of a model can be sharded, and how that is known."""

import argparse
from dataclasses import asdict

from alpa_explore.cli.options import MODEL, chosen_model
from alpa_explore.cli.output import answer
from alpa_explore.plans.report.text import render_table

COMMAND = f"""coverage  show which operators of a model can be sharded
    Show for each kind of operator of a model whether and how it can be sharded over devices.
{MODEL}
--json  print JSON"""

_NOTE = """
rule: a sharding rule exists, which the tests verify. discovered: no rule exists, but running the operator on small
inputs, whole and in pieces, showed how it can be sharded. replicated: every device runs the whole operator."""


def run(options: argparse.Namespace) -> int:
    """Print one row for each kind of operator."""
    model = chosen_model(options)  # report an unknown name before torch is imported

    from alpa_explore.planner.microbatch_graph import microbatch_graph
    from alpa_explore.sharding.splits import coverage

    graph = microbatch_graph(model.reference, model.num_microbatches)
    records = coverage(graph)
    rows = [
        {
            "operator": r.kind,
            "covered by": r.how,
            "count": r.count,
            "of all FLOPs_fraction": r.flops_share,
            "divided by": r.reason or ", ".join(r.factors) or "–",
        }
        for r in records
    ]
    totals = {how: sum(r.count for r in records if r.how == how) for how in ("rule", "discovered", "replicated")}
    counted = ", ".join(f"{n:,} {how}" for how, n in totals.items())
    text = f"{model.name}: {len(graph.operators):,} operators, {counted}\n\n{render_table(rows)}\n{_NOTE}"
    return answer(options, [asdict(record) for record in records], lambda: text)
