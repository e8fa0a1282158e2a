"""`alpa-explore calibrate -o FILE`: measure the attached devices, or refit to runs, and write a device file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.cli.output import check_file, complain, print_json
from alpa_explore.plans.report.text import render_table
from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.calibration.measurements import Measurements
    from alpa_explore.cluster import Cluster

COMMAND = """calibrate  measure the attached devices
    Measure matrix products by shape, attention, a memory-bound kernel, the host and collectives, and write a device
    file.
-o --output FILE  write the device file (JSON)
--from-run RUN (many)  measure nothing; refit launch time, efficiencies, memory and links to the tasks of runs,
    starting from the figures of their plans
--device (cpu|cuda)  what to measure (default: cuda if available)
--ranks N (int)  number of devices (default: all GPUs, or 2 on a CPU)
--like NAME  a preset for datasheet peaks and for links that are not measured
--name NAME (= measured)  name of the device (default: measured)
--run-seconds S (float, = 0.02)  least duration of a timed series of kernels (default: 0.02)
--quick  only square products, the memory-bound kernel and collectives of all devices
--allow-import  allow a recipe package.module:function of a run's plan (--from-run), which runs that code
--json  print the device file"""
EPILOG = """example:
  alpa-explore calibrate -o mine.json
  alpa-explore plan gpt-tiny --cluster 1x2:mine.json -o a.plan.json
  alpa-explore launch a.plan.json --folder a-run
  alpa-explore calibrate --from-run a-run -o mine.json
  alpa-explore compare-run a-run --cluster 1x2:mine.json

Runs show the times of kernels inside a program and of collectives under load; figures on which no task depends stay as
the plan had them. Without runs, links between nodes are not measured: they are those of --like, or equal to those
inside a node; correct them in the file."""


def run(options: argparse.Namespace) -> int:
    """Measure, write, and print the figures."""
    from alpa_explore.cluster.files import checked_name
    from alpa_explore.cluster.presets import load_preset
    from alpa_explore.errors import OptionError

    check_file(options.output, "The device file", is_json=True)
    checked_name(options.name, "--name cannot be the name of a device")
    given = [name for name in ("device", "ranks", "like") if getattr(options, name) is not None]
    if options.from_run and given:
        raise OptionError(
            "--from-run takes the device from the plans of the runs",
            found=f"--from-run with --{given[0]}",
            remedy=f"Leave out --{given[0]}, or --from-run to measure here.",
        )
    if options.from_run:
        return _from_runs(options)
    like = load_preset(options.like) if options.like is not None else None

    from alpa_explore.calibration.device_file import device_file
    from alpa_explore.calibration.microbenchmarks import measure

    print("measuring (one to three minutes)", file=sys.stderr, flush=True)
    measured = measure(
        kind=options.device, ranks=options.ranks, run_seconds=options.run_seconds, shapes=not options.quick
    )
    body = device_file(measured, name=options.name, like=like)
    _write(options, body, f"1x{measured.ranks}")
    if options.json:
        print_json(body)
    else:
        _print_measured(measured, body)
    return 0


def _print_measured(measured: Measurements, body: dict[str, Any]) -> None:
    """Print the figures of a device file, and the measured curves."""
    device, link = body["device"], body["inside_node"]
    print(f"{measured.device}, {measured.ranks} side by side, {units.bytes_(measured.memory_bytes)} each")
    peaks = [f"{dtype} {units.flops_per_second(rate)}" for dtype, rate in device["peak_flops"].items()]
    print(f"peak: {', '.join(peaks)}; launch {units.seconds(device['launch_seconds'])}")
    memory = device["memory_bandwidth"] * device["memory_efficiency"]
    print(
        f"memory {units.bytes_per_second(memory)}; link {units.bytes_per_second(link['bandwidth'])}, "
        f"{units.seconds(link['latency_seconds'])}\n"
    )
    for line in _fitted(measured, body["measured"]["fitted"]):
        print(line)
    print()
    curve = [{f"{measured.main_dtype} product, flops": f, "of peak_fraction": e} for f, e in device["matmul_curve"]]
    print(render_table(curve))
    rows = [
        {"collective": kind, "bytes_bytes": p.size, "time_seconds": p.seconds}
        for kind, points in measured.collectives.items()
        for p in points
    ]
    if rows:
        print(f"\n{render_table(rows)}")


def _fitted(measured: Measurements, fitted: list[dict[str, Any]]) -> list[str]:
    """One line for each kind of kernel that was fitted, and one for the host."""
    lines = []
    for fit in fitted:
        figures = ", ".join(f"{name} {value:.3g}" for name, value in fit["figures"].items())
        lines.append(f"{fit['kind']}: {figures} ({fit['points']} points, mean error {fit['mean_error']:.0%})")
    host = [f"{name.replace('_', ' ')} {units.seconds(value)}" for name, value in measured.host_seconds.items()]
    return [*lines, f"host, a call: {', '.join(host)}"] if host else lines


def _write(options: argparse.Namespace, body: dict[str, Any], shape: str) -> None:
    from alpa_explore.store.write import write_text

    if options.output is not None:
        write_text(options.output, json.dumps(body, indent=2, ensure_ascii=False) + "\n", "The device file")
        complain(f"wrote {printable(options.output)}; use it as --cluster {shape}:{printable(options.output)}")


def _from_runs(options: argparse.Namespace) -> int:
    """Refit, write the file, and print the old and new figures."""
    from alpa_explore.calibration.device_file import refitted_file
    from alpa_explore.calibration.from_run import recalibrate
    from alpa_explore.calibration.refit import mean_error

    learnt = recalibrate(options.from_run, allow_import=options.allow_import)
    before, after, tasks = learnt.before, learnt.after, learnt.tasks
    source = f"{before.device.source}; fitted again by alpa-explore calibrate to {len(options.from_run)} runs"
    body = refitted_file(after, name=options.name, source=source, runs=options.from_run)
    _write(options, body, f"{before.nodes}x{before.devices_per_node}")
    if options.json:
        print_json(body)
        return 0
    rows = [
        {"figure": name, "planned with": text(old), "in the runs": text(new)}
        for name, text, old, new in (
            ("launch of a kernel", units.seconds, before.device.launch_seconds, after.device.launch_seconds),
            ("large matrix products", units.flops_per_second, _products(before), _products(after)),
            ("memory", units.bytes_per_second, _memory(before), _memory(after)),
            ("link: latency", units.seconds, before.inside_node.latency_seconds, after.inside_node.latency_seconds),
            ("link: bandwidth", units.bytes_per_second, before.inside_node.bandwidth, after.inside_node.bandwidth),
        )
    ]
    print(render_table(rows))
    print(
        f"\n{len(tasks)} kinds of tasks in {len(options.from_run)} runs: predicted with a mean error of"
        f" {mean_error(before, tasks):.0%} before, {mean_error(after, tasks):.0%} now."
    )
    return 0


def _products(cluster: Cluster) -> float:
    device = cluster.device
    best = max((share for _, share in device.matmul_curve), default=device.matmul_efficiency)
    return device.peak("float32") * best


def _memory(cluster: Cluster) -> float:
    return cluster.device.memory_bandwidth * cluster.device.memory_efficiency
