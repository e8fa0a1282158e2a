"""`alpa-explore calibrate -o FILE`: measure the attached devices, write a device file that `--cluster` reads."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from alpa_explore import units
from alpa_explore.cli.output import complain, print_json
from alpa_explore.plans.text import printable, render_table

_EPILOG = """example:
  alpa-explore calibrate -o mine.json
  alpa-explore plan gpt-tiny --cluster 1x2:mine.json

Links between nodes are not measured: they are those of --like, or as inside a node; correct them in the file."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "calibrate", help="measure the attached devices",
        description="Measure matrix products, a memory-bound kernel and collectives by size, and write a device file.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    argument = parser.add_argument
    argument("-o", "--output", metavar="FILE", help="write the device file (JSON)")
    argument("--device", choices=("cpu", "cuda"), help="what to measure (default: CUDA where there is one)")
    argument("--ranks", type=int, metavar="N", help="devices side by side (default: all GPUs, or two shares of a CPU)")
    argument("--like", metavar="NAME", help="a preset whose datasheet peaks, and links not measured, are taken")
    argument("--name", default="measured", metavar="NAME", help="name of the device (default: measured)")
    argument("--run-seconds", type=float, default=0.02, metavar="S", help="least length of a run (default: 0.02)")
    argument("--json", action="store_true", help="print the device file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, write, and print the figures."""
    from alpa_explore.cluster.files import checked_name
    from alpa_explore.cluster.presets import load_preset
    from alpa_explore.errors import OptionError
    from alpa_explore.plans.write import check_target, write_text

    if options.output is not None:
        check_target(options.output, "The device file")
        if not options.output.lower().endswith(".json"):
            raise OptionError(
                "The device file is JSON",
                found=options.output,
                remedy=f"Call it {options.output}.json: the name tells.",
            )
    checked_name(options.name, "--name cannot be the name of a device")
    like = load_preset(options.like) if options.like is not None else None

    from alpa_explore.cost.calibration import device_file
    from alpa_explore.profiling.microbench import measure

    print("measuring (half a minute on a CPU)", file=sys.stderr, flush=True)
    measured = measure(kind=options.device, ranks=options.ranks, run_seconds=options.run_seconds)
    body = device_file(measured, name=options.name, like=like)
    if options.output is not None:
        write_text(options.output, json.dumps(body, indent=2, ensure_ascii=False) + "\n", "The device file")
        complain(
            f"wrote {printable(options.output)}; use it as --cluster 1x{measured.ranks}:{printable(options.output)}"
        )
    if options.json:
        print_json(body)
        return 0
    device, link = body["device"], body["inside_node"]
    print(f"{measured.device}, {measured.ranks} side by side, {units.bytes_(measured.memory_bytes)} each")
    peaks = [f"{dtype} {units.flops_per_second(rate)}" for dtype, rate in device["peak_flops"].items()]
    print(f"peak: {', '.join(peaks)}; launch {units.seconds(device['launch_seconds'])}")
    memory = device["memory_bandwidth"] * device["memory_efficiency"]
    print(f"memory {units.bytes_per_second(memory)}; link {units.bytes_per_second(link['bandwidth'])}, "
          f"{units.seconds(link['latency_seconds'])}\n")  # fmt: skip
    curve = [{f"{measured.main_dtype} product, flops": f, "of peak_fraction": e} for f, e in device["matmul_curve"]]
    print(render_table(curve))
    rows = [
        {"collective": kind, "bytes_bytes": p.size, "time_seconds": p.seconds}
        for kind, points in measured.collectives.items() for p in points
    ]  # fmt: skip
    if rows:
        print(f"\n{render_table(rows)}")
    return 0
