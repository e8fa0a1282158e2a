"""`alpa-explore baselines MODEL --cluster NxM:DEVICE`: compare manual parallelism with the automatic plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.cli.options import CLUSTER, FIGURE, LAYERING, MODEL, QUESTION, STATES, chosen_cluster, chosen_model
from alpa_explore.cli.output import check_file, print_json, write_figure
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.execution.progress import Progress
from alpa_explore.plans.report.error_bands import bands_summary, plan_bands_sentence
from alpa_explore.plans.report.tables import comparison_table
from alpa_explore.plans.report.text import render_table

if TYPE_CHECKING:
    from alpa_explore.baselines.kinds import Degrees
    from alpa_explore.cluster import Cluster
    from alpa_explore.graph import TrainingGraph
    from alpa_explore.plans.plan import Plan

COMMAND = f"""baselines  compare the automatic plan with manual parallelism
    Price data parallelism, ZeRO, Megatron and others by the planner's cost model, and compare.
{MODEL}
{CLUSTER}
{QUESTION}
{STATES}
-B --num-microbatches N (int)  microbatches (default: the paper's)
{LAYERING}
--remat NAME  what the backward pass computes again, as of `alpa-explore plan` (default: as the model says)
--kind KIND (several)  only this baseline; may be repeated
--tp N (int)  degree of tensor parallelism
--cp N (int)  degree of context parallelism
--dp N (int)  degree of data parallelism
--pp N (int)  degree of pipeline parallelism
--ep N (int)  degree of expert parallelism
--replicas N (int)  groups that hold all weights once, of hsdp and fsdp+tp+pp
--zero N (int)  ZeRO stage of megatron, 0 to 3 (default: that of the software)
--chunks N (int)  parts of the model on each stage of megatron, run interleaved
--no-cache  neither read nor write the cache
{FIGURE}"""
EPILOG = """baselines:
  data-parallel        the batch sharded over all devices, weights replicated (ddp)
  zero-1               the same with optimizer state sharded
  zero-2               the same with gradients sharded, too
  zero-3               the same with weights sharded, too (fsdp)
  hsdp                 zero-3 within each of --replicas groups
  megatron             --tp × --cp × --dp × --pp, experts over --ep of dp (5d; 3d: without --cp and --ep)
  fsdp+tp+pp           the same with weights sharded over dp × cp, in each of --replicas groups
  gpipe-equal-layers   stages of equally many layers on equal submeshes; --pp, or all values
  intra-only           one stage with optimal intra-operator parallelism
  inter-only           an optimal pipeline of single devices
  equal-operators      the whole planner, on layers of equally many operators
zero-3 and hsdp take --cp, too. All values of the degrees that are not given are tried.

example:
  alpa-explore baselines gpt-350m --cluster 1x4:v100 -B 64 --layers 4"""


def run(options: argparse.Namespace) -> int:
    """Print one row for the automatic plan and one for each baseline."""
    from alpa_explore.baselines.kinds import KINDS, Degrees, resolve
    from alpa_explore.models.catalog import microbatch_size

    check_file(options.html)
    model = chosen_model(options)
    b = model.num_microbatches if options.num_microbatches is None else options.num_microbatches
    batch = model.global_batch if options.global_batch is None else options.global_batch
    samples = microbatch_size(model, b, batch)
    cluster = chosen_cluster(options)
    given = Degrees(**{name: getattr(options, name) for name in Degrees.__dataclass_fields__})
    degrees = dict(resolve(kind, given.only(kind)) for kind in options.kind or KINDS)

    with ProgressLine(sys.stderr) as line:
        line.say(f"planning {model.name} on {cluster}, B = {b:,} microbatches of {units.samples(samples)}")
        from alpa_explore.planner import interface
        from alpa_explore.planner.microbatch_graph import microbatch_graph

        line(Progress(pass_name="capture", done=0, total=0, elapsed_seconds=0.0))
        graph = microbatch_graph(model.reference, b, precision=options.precision, global_batch=batch)
        settings = {
            "num_microbatches": b,
            "num_layers": options.layers,
            "delta": options.delta,
            "rematerialization": options.remat,
        }
        automatic = interface.plan(graph, cluster, **settings, cache=not options.no_cache, progress=line)
        priced, refused = _priced(graph, cluster, degrees, settings, line)
    plans = [automatic, *priced]
    if options.html is not None:
        from alpa_explore.figures.comparisons.baselines import baselines_figure

        write_figure(lambda: baselines_figure(plans), options.html)
    rows = comparison_table(plans)
    if options.json:
        print_json({"plans": rows, "refused": refused, "errors": bands_summary(automatic)})
        return 0
    print(f"{render_table(rows)}\n\n{plan_bands_sentence(automatic)}")
    for row in refused:
        print(f"\n{row['plan']}: {row['reason']}")
    return 0


def _priced(
    graph: TrainingGraph,
    cluster: Cluster,
    degrees: Mapping[str, Degrees],
    settings: Mapping[str, Any],
    line: ProgressLine,
) -> tuple[list[Plan], list[dict[str, str]]]:
    """(the plans of the baselines, the kinds that do not exist for this model and cluster with the reason)."""
    from alpa_explore.baselines.baseline import baseline
    from alpa_explore.errors import AlpaExploreError

    plans, refused = [], []
    for kind, degree in degrees.items():
        line.say(f"pricing {kind}")
        line(Progress(pass_name=kind, done=0, total=0, elapsed_seconds=0.0))
        try:
            plans.append(baseline(graph, cluster, kind, **settings, **asdict(degree)))
        except AlpaExploreError as error:  # the other baselines can still be compared
            refused.append({"plan": kind, "reason": str(error)})
    return plans, refused
