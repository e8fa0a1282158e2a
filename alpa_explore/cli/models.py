"""`alpa-explore models`: list the catalogue."""

import argparse
from typing import Any

from alpa_explore import units
from alpa_explore.cli.output import answer
from alpa_explore.plans.report.tables import row_of
from alpa_explore.plans.report.text import render_table

COMMAND = """models  list the models of the catalogue
    List the models of the catalogue: the rows of the paper's tables, today's, and tiny ones.
--json  print JSON"""

_NOTE = """
Sequence, B, layers and precision are the defaults of `alpa-explore plan`: of the paper's models, its own.
Where no layers are named, their number follows from the blocks and the cluster."""


def run(options: argparse.Namespace) -> int:
    """Print the catalogue."""
    from alpa_explore.models.catalog import entry, names

    entries = [entry(name) for name in names()]
    rows: list[dict[str, Any]] = [
        row_of(
            e,
            "name parameters=parameter_count precision sequence global_batch num_microbatches num_layers "
            "rematerialization devices_in_paper=gpus description source note",
        )
        for e in entries
    ]
    shown = [
        {
            "name": e.name,
            "parameters": units.count(e.parameter_count),
            **row_of(e, "precision sequence batch=global_batch B=num_microbatches layers=num_layers"),
            "devices in the paper": e.gpus,
            "description": e.description,
        }
        for e in entries
    ]
    return answer(options, rows, lambda: f"{render_table(shown)}\n{_NOTE}")
