"""`alpa-explore verify PLAN`: compare the training of a plan on its devices with one process."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from alpa_explore.cli.output import complain, print_json
from alpa_explore.cli.running.launch import requested_schedule, run_arguments
from alpa_explore.plans.report.text import render_table


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "verify",
        help="compare a plan's training with one process",
        allow_abbrev=False,
        description="Train a few steps with a plan, one process per device, and in a single process from the same"
        " weights; compare the loss, every gradient and every updated weight. Exit code 1 when an error exceeds the"
        " tolerance.",
    )
    run_arguments(parser, steps=2)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-5,
        metavar="X",
        help="largest relative error that passes (default: 1e-5, for plans in float32)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the largest errors; 1 when one exceeds the tolerance."""
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.runtime.verify import verify

    plan = load_plan(options.file)
    verification = verify(
        plan,
        steps=options.steps,
        tolerance=options.tolerance,
        schedule=requested_schedule(options),
        device=options.device,
        learning_rate=options.learning_rate,
        seed=options.seed,
        allow_import=options.allow_import,
    )
    kinds = ("loss", "gradient", "weight")
    if options.json:
        print_json(
            {
                "passed": verification.passed,
                "tolerance": verification.tolerance,
                "ranks": verification.ranks,
                "steps": verification.steps,
                "compared": len(verification.differences),
                "worst": asdict(verification.worst),
                "relative_error": {kind: verification.worst_of(kind) for kind in kinds},
            }
        )
    else:
        rows = [asdict(max((d for d in verification.differences if d.what == kind), key=_size)) for kind in kinds]
        print(render_table([{**row, "relative_error": f"{row['relative_error']:.1e}"} for row in rows]))
        verdict = "within" if verification.passed else "OVER"
        print(
            f"\n{len(verification.differences)} comparisons of {verification.ranks} ranks with one process: the largest"
            f" relative error is {verification.worst.relative_error:.1e}, {verdict} the tolerance of"
            f" {verification.tolerance:g}."
        )
    if not verification.passed and plan.model.precision != "float32":
        complain(
            f"the plan computes in {plan.model.precision}, whose rounding alone is more than 1e-5: see --tolerance"
        )
    return 0 if verification.passed else 1


def _size(difference: Any) -> float:
    error: float = difference.relative_error
    return error if error == error else float("inf")
