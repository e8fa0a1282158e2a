"""`alpa-explore predict ROWS.csv --device NAME`: predict the iteration times of Megatron layouts."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.cli.output import complain, print_json
from alpa_explore.plans.report.text import render_table

if TYPE_CHECKING:
    from alpa_explore.layouts.iteration import IterationTime
    from alpa_explore.layouts.score import GroupKey, Score
    from alpa_explore.layouts.table import Row

_EPILOG = """The first line of the table names its columns, in any order: "# GPUs", "global batch", "micro batch" (of
one data-parallel replica), "hidden size", "attention heads", "# layers", "sequence length", "tensor parallelism",
"data parallelism", "pipeline parallelism", and optionally "iteration time (ms)", the measured time. Other columns are
copied to the output.

example:
  alpa-explore predict tests/layouts/vtrain/measured_multi_node.csv --device a100-80gb --json"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "predict",
        help="predict the iteration times of Megatron layouts of GPT",
        description="Predict the iteration time of every layout in a CSV table, and compare it with the measured time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    argument = parser.add_argument
    argument("table", metavar="ROWS.csv", help="a table of layouts, one per line")
    argument(
        "--device", required=True, metavar="NAME", help="a device that `alpa-explore clusters` lists, or a device file"
    )
    argument("--devices-per-node", type=int, default=8, metavar="M", help="number of devices of a node (default: 8)")
    argument("--vocabulary", type=int, default=50257, metavar="V", help="size of the vocabulary (default: 50257)")
    argument("--no-remat", action="store_true", help="layers keep all activations instead of recomputing them")
    argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line per layout, the rank correlation per model and number of GPUs, and the errors."""
    from alpa_explore.layouts.iteration import iteration_time
    from alpa_explore.layouts.machine import machine
    from alpa_explore.layouts.memory import device_bytes
    from alpa_explore.layouts.score import score
    from alpa_explore.layouts.table import read_layouts

    described = machine(options.device, options.devices_per_node)
    rows = read_layouts(options.table, vocabulary=options.vocabulary, recompute=not options.no_remat)
    if not described.calibrated:
        complain(
            f"{described.device.name} has no measured iterations: its preset is used with the host figures of the A100"
        )
    times = [iteration_time(row.layout, described) for row in rows]
    needed = [device_bytes(row.layout) for row in rows]
    room = described.device.memory_bytes
    over = [(row.line, size) for row, size in zip(rows, needed, strict=True) if size > room]
    if over:
        line, most = max(over, key=lambda entry: entry[1])
        complain(
            f"{len(over)} of {len(rows)} layouts would not fit in the {units.bytes_(room)} of {described.device.name}; "
            f"line {line} needs most, {units.bytes_(most)} per device: use more parallelism or smaller microbatches"
        )
    pairs = [(r, t, r.measured_seconds) for r, t in zip(rows, times, strict=True) if r.measured_seconds is not None]
    scored = score(
        [r.layout for r, _, _ in pairs],
        [t.seconds for _, t, _ in pairs],
        [m for _, _, m in pairs],
        options.devices_per_node,
    )
    if options.json:
        print_json(
            {
                "device": described.device.name,
                "rows": [
                    {**_record(row, time), "memory_bytes": round(size), "fits_memory": size <= room}
                    for row, time, size in zip(rows, times, needed, strict=True)
                ],
                **({"errors": _errors(scored)} if pairs else {}),
            }
        )
        return 0
    print(
        render_table(
            [
                {**_line(row, time), "memory": units.bytes_(size), "fits": "yes" if size <= room else "no"}
                for row, time, size in zip(rows, times, needed, strict=True)
            ]
        )
    )
    if scored.groups:
        print(f"\n{render_table([_group(*group) for group in scored.groups])}")
    if pairs:
        print(f"\n{_sentence(scored)}")
    return 0


def _record(row: Row, time: IterationTime) -> dict[str, Any]:
    """The original row with the prediction and its parts; numeric cells as numbers."""
    return {
        **{name: _number(cell) for name, cell in row.cells.items()},
        "predicted_seconds": time.seconds,
        "measured_seconds": row.measured_seconds,
        "parts": asdict(time),
    }


def _line(row: Row, time: IterationTime) -> dict[str, Any]:
    layout, measured = row.layout, row.measured_seconds
    bound = "host" if time.layer_host_seconds > time.layer_device_seconds else "device"
    return {
        "line": row.line,
        "GPUs": layout.devices,
        "hidden": layout.hidden,
        "layers of model": layout.layers,
        "tensor×data×pipeline": f"{layout.tensor}×{layout.data}×{layout.pipeline}",
        "micro batch": layout.micro_batch,
        "microbatches": layout.microbatches,
        "predicted_seconds": time.seconds,
        "measured_seconds": measured,
        "error": "–" if measured is None else f"{time.seconds / measured - 1:+.1%}",
        "bound by": bound,
    }


def _group(key: GroupKey, rows: int, tau: float) -> dict[str, Any]:
    names = ("hidden", "heads", "layers of model", "sequence", "GPUs")
    return {**dict(zip(names, key, strict=True)), "rows": rows, "Kendall's tau": f"{tau:.2f}"}


def _errors(scored: Score) -> dict[str, Any]:
    fields = ("hidden", "heads", "layers", "sequence", "devices")
    return {
        "one_node_fraction": scored.one_node_error,
        "several_nodes_fraction": scored.several_nodes_error,
        "kendall_tau": scored.kendall_tau,
        "groups": [
            {**dict(zip(fields, key, strict=True)), "rows": rows, "kendall_tau": tau}
            for key, rows, tau in scored.groups
        ],
    }


def _sentence(scored: Score) -> str:
    parts = [
        f"{units.percent(error)} on {where}"
        for error, where in ((scored.one_node_error, "one node"), (scored.several_nodes_error, "several nodes"))
        if error is not None
    ]
    text = f"Mean absolute error of {scored.rows} measured rows: {', '.join(parts)}."
    if scored.kendall_tau is None:
        return text
    return f"{text} Order within each model and number of GPUs: Kendall's tau {scored.kendall_tau:.2f}."


def _number(cell: str) -> int | float | str:
    """A cell as a number where possible."""
    try:
        value = float(cell)
    except ValueError:
        return cell
    if value != value or value in (float("inf"), float("-inf")):
        return cell  # JSON has no such numbers
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
