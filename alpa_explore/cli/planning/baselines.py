"""`alpa-explore baselines MODEL --cluster NxM:DEVICE`: what people do by hand beside the automatic plan."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from alpa_explore.cli.output import print_json
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.tables import comparison_table
from alpa_explore.plans.report.text import render_table

_EPILOG = """baselines:
  data-parallel        every device a part of the batch, weights whole
  zero-3               the same, weights, gradients and optimizer state in pieces
  megatron             --tp × --dp × --pp; what is not given is tried
  gpipe-equal-layers   stages of equally many layers on equal submeshes; --pp, or all are tried
  intra-only           one stage, divided in the best way
  inter-only           a pipeline of single devices, cut in the best way
  equal-operators      the whole planner, on layers of equally many operators

example:
  alpa-explore baselines gpt-350m --cluster 1x4:v100 -B 64 --layers 4"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "baselines",
        help="compare the automatic plan with what people do by hand",
        description="Price data parallelism, ZeRO-3, Megatron and others by the planner's cost model, beside its plan.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    argument = parser.add_argument
    argument("model", metavar="MODEL", help="a name that `alpa-explore models` lists")
    argument("--cluster", required=True, metavar="NxM:DEVICE", help="as in 2x8:a100, or a JSON or TOML file")
    argument("-B", "--num-microbatches", type=int, metavar="N", help="microbatches (default: the paper's)")
    argument("--delta", type=float, default=0.5, metavar="X", help="tolerance of a layer's FLOPs (default: 0.5)")
    argument("--layers", type=int, metavar="L", help="layers to cluster the operators into (default: the paper's)")
    argument("--precision", metavar="DTYPE", help="dtype in which weights are read (default: the paper's)")
    argument("--kind", action="append", metavar="KIND", help="only this baseline; may be given again")
    for name, what in (("tp", "tensor"), ("dp", "data"), ("pp", "pipeline")):
        argument(f"--{name}", type=int, metavar="N", help=f"{what}-parallel devices of megatron")
    argument("--html", metavar="FILE", help="write the figure as one self-contained page")
    argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line for the automatic plan and one for each baseline."""
    from alpa_explore.baselines.kinds import KINDS, Degrees, check_kind
    from alpa_explore.cluster import Cluster
    from alpa_explore.models.catalog import entry, microbatch_size
    from alpa_explore.store.write import check_target, write_text

    if options.html is not None:
        check_target(options.html, "The page")
    known = entry(options.model)
    b = known.num_microbatches if options.num_microbatches is None else options.num_microbatches
    microbatch_size(known, b)
    cluster = Cluster.parse(options.cluster)
    kinds = tuple(dict.fromkeys(options.kind or KINDS))
    degrees = {"megatron": Degrees(tp=options.tp, dp=options.dp, pp=options.pp)}
    degrees["gpipe-equal-layers"] = Degrees(pp=options.pp)
    for kind in kinds:
        check_kind(kind, degrees.get(kind, Degrees()))

    from alpa_explore.baselines.baseline import baseline
    from alpa_explore.errors import AlpaExploreError
    from alpa_explore.planner import plan as planner

    graph = planner.resolve(known.name, b, precision=options.precision)
    with ProgressLine(sys.stderr) as line:
        line.say(f"planning {known.name} on {cluster}, B = {b:,} microbatches of {graph.samples:,} samples")
        automatic = planner.plan(
            graph, cluster, num_microbatches=b, delta=options.delta, num_layers=options.layers, progress=line
        )
        plans, refused = [automatic], []
        for kind in kinds:
            line.say(f"pricing {kind}")
            asked = degrees.get(kind, Degrees())
            try:
                found = baseline(
                    graph,
                    cluster,
                    kind,
                    num_microbatches=b,
                    num_layers=options.layers,
                    delta=options.delta,
                    tp=asked.tp,
                    dp=asked.dp,
                    pp=asked.pp,
                )
            except AlpaExploreError as error:  # the others can still be compared
                refused.append({"plan": kind, "reason": str(error)})
            else:
                plans.append(found)
    if options.html is not None:
        from alpa_explore.figures.comparisons.baselines import baselines_html

        write_text(options.html, baselines_html(plans), "The page")
        print(f"wrote {printable(options.html)}", file=sys.stderr)
    rows = comparison_table(plans)
    if options.json:
        print_json({"plans": rows, "refused": refused})
        return 0
    print(render_table(rows))
    for row in refused:
        print(f"\n{row['plan']}: {row['reason']}")
    return 0
