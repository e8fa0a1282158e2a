"""`alpa-explore layouts MODEL --cluster NxM:DEVICE`: every uniform layout, priced; the fastest that fit first."""

import argparse
import sys

from alpa_explore.cli.options import (
    CLUSTER,
    FIGURE,
    MODEL,
    NO_MICROBATCHES,
    QUESTION,
    STATES,
    chosen_cluster,
    chosen_model,
)
from alpa_explore.cli.output import check_file, print_json, write_figure
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.plans.report.tables import row_of
from alpa_explore.plans.report.text import render_table

_COLUMNS = ("rank", "layout", "iteration_seconds", "times_best", "tokens_per_second", "mfu_fraction", "peak_bytes")
COMMAND = f"""layouts  every uniform layout of a model on a cluster: TP, PP, DP, CP, EP, microbatch, ZeRO, recomputation
    Price every uniform layout of a model on a cluster by the planner's cost model, and rank them.
{MODEL}
{CLUSTER}
{QUESTION}
{STATES}
{NO_MICROBATCHES}
--top N (int, = 12)  layouts that are printed (default: 12)
--plan FILE  a plan file that is named as a layout, and compared
--no-cache  neither read nor write the cache
{FIGURE}"""
EPILOG = """A layout has one degree of each kind of parallelism for the whole model: TP × PP × DP × CP × EP × ZeRO
× microbatch × interleaving × recomputation, as the software of the cluster has them (1x8:h100@torchtitan names one).

example:
  alpa-explore layouts llama-3-8b --cluster 1x8:h100 --global-batch 128"""


def run(options: argparse.Namespace) -> int:
    """Print the fastest layouts, measured runs of this kind, and how a plan compares. 1 where no layout fits."""
    from alpa_explore.errors import OptionError

    if options.top < 1:
        raise OptionError("--top must be a number of layouts", found=str(options.top), remedy="Give 1 or more.")
    check_file(options.html)
    model = chosen_model(options)
    cluster = chosen_cluster(options)
    with ProgressLine(sys.stderr) as line:
        line.say(f"pricing the uniform layouts of {model.name} on {cluster}")
        from alpa_explore.plans.plan import load_plan
        from alpa_explore.uniform_layouts.layouts import layouts

        plan = None if options.plan is None else load_plan(options.plan)
        found = layouts(
            model.reference,
            cluster,
            global_batch=options.global_batch,
            precision=options.precision,
            cache=not options.no_cache,
            progress=line,
        )
    from alpa_explore.uniform_layouts.beside_plan import plan_beside
    from alpa_explore.uniform_layouts.measured import measured_beside
    from alpa_explore.uniform_layouts.report import layouts_sentence, layouts_table, measured_sentence, measured_table

    beside = None if plan is None else plan_beside(found, plan)
    measured = measured_beside(found)
    if options.html is not None:
        from alpa_explore.figures.layouts import scatter_figure

        write_figure(lambda: scatter_figure(found, plan=beside, measured=measured), options.html)
    if options.json:
        print_json(
            {
                "model": found.model,
                "cluster": str(found.cluster),
                **row_of(found, "global_batch sequence precision"),
                "fits_on": None if found.fits_on is None else str(found.fits_on),
                "layouts": layouts_table(found),
                "refused": list(found.refused),
                "larger_layouts": None if found.larger is None else layouts_table(found.larger),
                "measured": measured_table(measured),
                "plan": None if beside is None else {"words": beside.words, "gain_fraction": beside.gain},
            }
        )
    else:
        shown = found.fitting or found.ranked
        columns = _COLUMNS if found.best is not None else ("rank", "layout", "peak_bytes", "reason")
        print(layouts_sentence(found, beside))
        print(f"\n{render_table(layouts_table(found, options.top, shown), columns)}")
        if measured:
            print(f"\n{measured_sentence(measured, found)}\n\n{render_table(measured_table(measured))}")
    return 0 if found.best is not None else 1
