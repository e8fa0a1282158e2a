"""`alpa-explore verify`: compare the training of a plan, or of many random plans, with one process."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alpa_explore.cli.output import complain, print_json
from alpa_explore.cli.progress_line import ProgressLine, duration
from alpa_explore.cli.running.launch import RUN, requested_schedule
from alpa_explore.errors import OptionError
from alpa_explore.plans.report.tables import row_of
from alpa_explore.plans.report.text import render_table
from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.random_plans.campaign import Campaign

COMMAND = f"""verify  compare a plan's training with one process
    Train a few steps with a plan, one process per device, and in a single process from the same

    weights; compare the
    loss, every gradient, every updated weight and the buffers that are written.
file PLAN (optional)  a file that `alpa-explore plan -o` wrote
--steps N (int, = 2)  iterations of training (default: 2)
{RUN}
--target WHERE (= local)  local (default): processes on this machine; dask: the workers of --scheduler start the ranks
--interpret  run all ranks in this process, by the reference interpreter, instead of a process per device
random plans:
--random N (int)  instead of a plan file, N random plans of tiny models, of --seed
--first K (int, = 0)  begin with plan number K of the seed (default: 0)
--families NAME,…  models, of those that a wrong name lists (default: all)
--launched K (int, = 0)  train K of them by torch.distributed too (default: 0)
--workers W (int)  processes (default: one for each core)
--folder DIR  folder for the plan files of failures (default: a new one in ./alpa-runs)
options:
--tolerance X (float, = 1e-5)  largest relative error that passes (default: 1e-5); of what is computed in 16 bits
    also what rounding explains, which is measured
--json  print JSON"""
EPILOG = """With --random no plan file is needed: tiny models of every family, random cuts into stages on random
submeshes and logical meshes of 1 to 8 devices, every schedule, and for each operator any strategy that its rule allows.
Every plan is interpreted in one process; --launched K of them are also trained by a process a rank. A plan that differs
is shrunk to a small one that still does, which is written as a plan file, and the command that repeats it is printed.

exit codes: 0 equal, 1 an error exceeds the tolerance, 2 bad input

examples:
  alpa-explore verify a.plan.json
  alpa-explore verify a.plan.json --target dask --scheduler tcp://10.0.0.1:8786
  alpa-explore verify --random 1000 --seed 1 --launched 10"""

_MOST_LINES = 12
"""Sharded choices of a failing plan that are printed; --json has all."""


def run(options: argparse.Namespace) -> int:
    """Print the largest errors; 1 when one exceeds the tolerance."""
    if (options.file is None) == (options.random is None):
        raise OptionError(
            "Either a plan file or --random N is verified",
            found="neither" if options.file is None else f"{options.file} and --random {options.random}",
            remedy="Give one of them.",
        )
    elsewhere = [] if options.target == "local" else [f"--target {options.target}"]
    elsewhere += [f"--{name} {given}" for name in ("scheduler", "ports") if (given := getattr(options, name))]
    if elsewhere and (options.interpret or options.random is not None):
        raise OptionError(
            "Random plans and --interpret run on this machine",
            found=" ".join(elsewhere),
            remedy="Verify a plan file without --interpret on other hosts.",
        )
    if options.random is not None:
        return _random(options)
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.plans.report.parallelism import parallelism_lines
    from alpa_explore.runtime.verify import verify, verify_interpreted

    plan = load_plan(options.file)
    common = {
        "steps": options.steps,
        "tolerance": options.tolerance,
        "schedule": requested_schedule(options),
        "learning_rate": 1e-3 if options.learning_rate is None else options.learning_rate,
        "seed": options.seed or 0,
        "allow_import": options.allow_import,
    }
    on = {name: getattr(options, name) for name in ("target", "scheduler", "ports", "device")}
    verification = verify_interpreted(plan, **common) if options.interpret else verify(plan, **on, **common)
    kinds = tuple(dict.fromkeys(difference.what for difference in verification.differences))
    if options.json:
        print_json(
            {
                "passed": verification.passed,
                "parallelism": parallelism_lines(plan),
                "schedule": plan.options.pipeline.schedule,
                **row_of(verification, "tolerance ranks steps"),
                "compared": len(verification.differences),
                "worst": asdict(verification.worst),
                "rounding": max(difference.rounding for difference in verification.differences),
                "relative_error": {kind: verification.worst_of(kind) for kind in kinds},
                "written_buffers": verification.written,
            }
        )
    else:
        rows = [asdict(max((d for d in verification.differences if d.what == kind), key=_size)) for kind in kinds]
        for line in parallelism_lines(plan):
            print(line)
        coarse = any(difference.rounding > verification.tolerance for difference in verification.differences)
        for row in rows:
            row |= {name: f"{row[name]:.1e}" for name in ("relative_error", "rounding")}
            if not coarse:
                del row["rounding"]
        print(render_table(rows))
        worst = verification.worst
        verdict = "within" if verification.passed else "OVER"
        limit = (
            f"the tolerance of {verification.tolerance:g}"
            if worst.rounding <= verification.tolerance
            else f"the {worst.rounding:.1e} that rounding explains there, as measured"
        )
        print(
            f"\n{len(verification.differences)} comparisons of {verification.ranks} ranks with one process, and of one"
            f" microbatch with the module in plain PyTorch: the largest relative error is"
            f" {worst.relative_error:.1e}, {verdict} {limit}."
        )
    if verification.written:
        complain(
            f"the forward pass writes {len(verification.written)} buffers, as {verification.written[0]}, which a run"
            " does not: they keep their first values"
        )
    return 0 if verification.passed else 1


def _random(options: argparse.Namespace) -> int:
    """Verify random plans; 1 when one differs."""
    from alpa_explore.random_plans.campaign import verify_random

    with ProgressLine(sys.stderr) as line:
        campaign = verify_random(
            options.random,
            seed=options.seed or 0,
            first=options.first,
            families=[name for name in (options.families or "").split(",") if name],
            launched=options.launched,
            workers=options.workers,
            tolerance=options.tolerance,
            folder=options.folder,
            progress=line,
        )
    if options.json:
        failures = [
            {
                **asdict(f),
                "file": None if f.file is None else str(f.file),
                "verdict": {**asdict(f.verdict), "relative_error": finite(f.verdict.relative_error)},
            }
            for f in campaign.failures
        ]
        worst = dict(zip(("relative_error", "number", "where"), campaign.worst, strict=True))
        print_json({"passed": campaign.passed, **asdict(campaign), "worst": worst, "failures": failures})
    else:
        print(campaign_text(campaign))
    return 0 if campaign.passed else 1


def finite(error: float) -> float | None:
    """JSON has no infinity: None for a plan that did not run."""
    return error if error < float("inf") else None


def campaign_text(campaign: Campaign) -> str:
    """What came of random plans, for people."""
    lines = [
        f"{what:<9} " + ", ".join(f"{name} {count:,}" for name, count in counts.items())
        for what, counts in campaign.counts.items()
    ]
    for failure in campaign.failures:
        lines += [
            "",
            f"FAILED: plan {failure.number} of seed {campaign.seed}, {failure.how}: {printable(failure.verdict.where)}"
            + (
                "" if failure.verdict.kind != "difference" else f", relative error {failure.verdict.relative_error:.1e}"
            ),
            f"  drawn     {failure.drawn}",
            f"  smallest  {failure.smallest}",
            *(f"            {line}" for line in failure.sharded[:_MOST_LINES]),
            *([f"            … {more} more"] if (more := len(failure.sharded) - _MOST_LINES) > 0 else []),
            f"  repeat    {failure.command}",
        ]
    error, number, where = campaign.worst
    launched = f", {campaign.launched:,} of them launched too" if campaign.launched else ""
    lines += [
        "",
        f"{campaign.plans - len([f for f in campaign.failures if f.how == 'interpreted']):,} of {campaign.plans:,}"
        f" random plans equal one process{launched} ({campaign.compared:,} comparisons within {campaign.tolerance:g}).",
        f"Largest relative error: {error:.1e} ({where}, plan {number})"
        + (f"; launched: {campaign.worst_launched:.1e}." if campaign.launched else "."),
        f"{duration(campaign.processor_seconds)} of processor time for the plans, {duration(campaign.seconds)} in all.",
    ]
    return "\n".join(lines)


def _size(difference: Any) -> float:
    error: float = difference.relative_error
    return error if error == error else float("inf")
