"""`alpa-explore models`: list the catalogue."""

import argparse
from typing import Any

from alpa_explore import units
from alpa_explore.cli.output import print_json
from alpa_explore.plans.report.text import render_table


def add(command: Any) -> None:
    """Add the command to the parser."""
    argument = command(
        "models",
        help="list the models of the catalogue",
        description="List the models of the catalogue: the rows of the paper's tables, today's, and tiny ones.",
    ).add_argument
    argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the catalogue."""
    from alpa_explore.models.catalog import entry, names

    entries = [entry(name) for name in names()]
    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "parameters": e.parameter_count,
            "precision": e.precision,
            "sequence": e.sequence,
            "global_batch": e.global_batch,
            "num_microbatches": e.num_microbatches,
            "num_layers": e.num_layers,
            "rematerialization": e.rematerialization,
            "devices_in_paper": e.gpus,
            "description": e.description,
            "source": e.source,
            "note": e.note,
        }
        for e in entries
    ]
    if options.json:
        print_json(rows)
        return 0
    shown = [
        {
            "name": row["name"],
            "parameters": units.count(row["parameters"]),
            "precision": row["precision"],
            "sequence": row["sequence"],
            "batch": row["global_batch"],
            "B": row["num_microbatches"],
            "layers": row["num_layers"],
            "devices in the paper": row["devices_in_paper"],
            "description": row["description"],
        }
        for row in rows
    ]
    print(render_table(shown))
    print(
        "\nSequence, B, layers and precision are the defaults of `alpa-explore plan`: of the paper's models, its own.\n"
        "Where no layers are named, their number follows from the blocks and the cluster."
    )
    return 0
