"""`alpa-explore compare-solvers MODEL --mesh AxB`: solve one stage by each formulation of the sharding problem."""

from __future__ import annotations

import argparse
import math
import re
import sys
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.cli.options import FIGURE, MODEL, chosen_model
from alpa_explore.cli.output import check_file, print_json, write_figure
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.errors import ClusterError, OptionError
from alpa_explore.plans.phrases import layers_phrase
from alpa_explore.plans.report.tables import row_of
from alpa_explore.plans.report.text import render_table

if TYPE_CHECKING:
    from alpa_explore.cluster import Cluster, LogicalMesh
    from alpa_explore.formulations.comparison import Comparison, SolverRow
    from alpa_explore.graph import TrainingGraph
    from alpa_explore.intra_op.stage.stage_graph import StageGraph

MOST_DEVICES = 1024
MOST_AXES = 3
_MESH = re.compile(r"\s*\(?\s*(\d+(?:\s*[x×,]\s*\d+)*)\s*\)?\s*")
_COLUMNS = (
    "solver variables constraints build_seconds solve_seconds repair_seconds total_seconds objective_seconds "
    "gap_fraction own_gap_fraction differing_nodes batch_only_fraction own_batch_only_fraction"
)
COMMAND = f"""compare-solvers  solve one stage by each formulation of the sharding problem
    Solve one stage of a model by each formulation, and compare them under the same exact costs.
{MODEL}
--mesh AxB (required)  logical mesh, as in 16x8 or 8x4x4
--device NAME (= v100)  device of the cluster, with 8 per node (default: v100)
--layers A-B  layers of the stage, as in 3-5 (default: the middle one)
--num-layers L (int)  number of layers into which operators are clustered (default: one per repeated module of the
    model)
-B --num-microbatches N (int)  microbatches (default: the paper's)
--solvers NAMES  some of enumerated,auto,factor,independent (default: all; enumerated only if it is not too large)
--time-limit S (float, = 60)  seconds for each solve (default: 60)
{FIGURE}"""
EPILOG = """example:
  alpa-explore compare-solvers gpt-1.3b --mesh 16x8 -B 32

By default the stage is the middle block of the model (of h.0, h.1, …). The "own" columns are the solution of the
formulation itself, before descent and joint repair under the exact costs; "–" where it has none. "batch only" is the
share of operators that every mesh axis shards along the batch.

exit codes: 0 done, 2 bad input"""


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    # Check the input before torch is imported.
    from alpa_explore.formulations.compare import FORMULATIONS, check_formulations
    from alpa_explore.models.catalog import microbatch_size

    model = chosen_model(options)
    b = model.num_microbatches if options.num_microbatches is None else options.num_microbatches
    microbatch_size(model, b)
    cluster, mesh = parse_mesh(options.mesh, options.device)
    solvers = None if options.solvers is None else tuple(s.strip() for s in options.solvers.split(","))
    check_formulations(solvers or FORMULATIONS)
    layers = _run_of_layers(options.layers)
    if not options.time_limit > 0:
        raise OptionError(
            "The time limit must be positive",
            found=f"{options.time_limit:g} s",
            remedy="Give more than 0; the default is 60.",
        )
    check_file(options.html)

    from alpa_explore.formulations.compare import compare_solvers
    from alpa_explore.formulations.comparison import StageInstance
    from alpa_explore.planner.microbatch_graph import microbatch_graph

    with ProgressLine(sys.stderr) as line:
        line.say(f"capturing {model.name}, B = {b:,}")
        stage, count = _stage(microbatch_graph(model.reference, b), options.num_layers, layers)
        instance = StageInstance(stage=stage, device=cluster.device, mesh=mesh.squeezed(), inverse_b=1 / b)
        comparison = compare_solvers(
            instance, solvers, time_limit_seconds=options.time_limit, progress=lambda name: line.say(f"solving: {name}")
        )
    if options.html is not None:
        from alpa_explore.figures.comparisons.solvers import solvers_figure

        write_figure(lambda: solvers_figure(comparison), options.html)
    if options.json:
        print_json({"model": model.name, "device": cluster.device.name, "num_microbatches": b} | _json(comparison))
    else:
        print(_report(model.name, b, cluster, mesh, count, comparison))
    return 0


def parse_mesh(text: str, device: str) -> tuple[Cluster, LogicalMesh]:
    """'16x8' -> the cluster of nodes of 8 devices (or of one smaller node) with that many devices, and the mesh.

    ClusterError for another form, a mesh of one device, too many axes or devices, or a number of devices that does not
    fill whole nodes; UnknownNameError for an unknown device.
    """
    from alpa_explore.cluster import Cluster, Submesh, logical_mesh

    match = _MESH.fullmatch(text)
    shape = tuple(int(size) for size in re.findall(r"\d+", text)) if match else ()
    if not shape or 0 in shape or any(size > MOST_DEVICES for size in shape):
        raise ClusterError(
            "A logical mesh is written as the sizes of its axes",
            found=repr(text),
            remedy=f"For example 16x8 or 8x4x4, with {MOST_DEVICES:,} devices at most.",
        )
    devices, axes = math.prod(shape), sum(size > 1 for size in shape)
    description = f"{text.strip()} has {devices:,} devices on {axes} axes of more than one"
    if devices < 2 or devices > MOST_DEVICES or axes > MOST_AXES or len(shape) > MOST_AXES:
        raise ClusterError(
            "The logical mesh is too small" if devices < 2 else "The logical mesh is too large",
            found=description,
            remedy=f"Give 2 to {MOST_DEVICES:,} devices on at most {MOST_AXES} axes.",
        )
    inside = min(devices, 8)
    if devices % inside or inside & (inside - 1):
        raise ClusterError(
            "The logical mesh does not fill its nodes",
            found=description,
            remedy="Give 2, 4, or a multiple of 8 devices.",
        )
    cluster = Cluster.parse(f"{devices // inside}x{inside}:{device}")
    return cluster, logical_mesh(cluster, Submesh(cluster.nodes, inside), shape)


def _run_of_layers(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,6})\s*(?:[-–]\s*(\d{1,6})\s*)?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise OptionError(
            "A run of layers is written FIRST-LAST", found=repr(text), remedy="For example 3-5, or 3 for one layer."
        )
    return int(match[1]), int(match[2] or match[1])


def _stage(graph: TrainingGraph, num_layers: int | None, layers: tuple[int, int] | None) -> tuple[StageGraph, int]:
    """(the stage of the requested layers, by default the middle one; the number of layers of the model)."""
    from alpa_explore.intra_op.stage.layered_graph import assign_layers
    from alpa_explore.intra_op.stage.stage_graph import slice_stages
    from alpa_explore.layering import cluster_operators, manual_layers
    from alpa_explore.layering.blocks import repeated_modules
    from alpa_explore.planner.default_layering import default_layering

    blocks = repeated_modules(graph)
    if num_layers is None and blocks:
        layering = manual_layers(graph, blocks[1:])
    elif num_layers is None:
        layering = default_layering(graph, delta=0.5)
    else:
        layering = cluster_operators(graph, num_layers, delta=0.5)
    count = len(layering.layers)
    first, last = layers or (count // 2, count // 2)
    if last >= count:
        raise OptionError(
            "There is no such layer",
            found=f"layers {first}–{last} of {count}",
            remedy=f"Give layers from 0 to {count - 1}.",
        )
    return slice_stages(assign_layers(graph, layering.layer_of_forward))(first, last), count


def _json(comparison: Comparison) -> dict[str, Any]:
    from alpa_explore.formulations.comparison import solvers_table

    return {
        "mesh": list(comparison.mesh.shape),
        "layers": [comparison.first, comparison.last],
        **row_of(
            comparison,
            "nodes edges strategies most_strategies_of_a_node=most_strategies pair_variables=pairs "
            "optimum_seconds optimum_proven=proven",
        ),
        "solvers": solvers_table(comparison),
        "left_out": list(comparison.left_out),
    }


def _report(name: str, b: int, cluster: Cluster, mesh: LogicalMesh, count: int, comparison: Comparison) -> str:
    from alpa_explore.formulations.comparison import solvers_table

    rows = [
        {
            **row,
            "gap_fraction": row["gap"],
            "own_gap_fraction": row["gap_before_repair"],
            "batch_only_fraction": row["batch_share"],
            "own_batch_only_fraction": row["batch_share_before_repair"],
        }
        for row in solvers_table(comparison)
    ]
    best = "optimum" if comparison.proven else "proven lower bound"
    parts = [
        f"{name}, {layers_phrase((comparison.first, comparison.last))} of {count}, on logical mesh {mesh} of "
        f"{cluster}, "
        f"B = {b:,}: {comparison.nodes:,} nodes, {comparison.strategies:,} strategies (at most "
        f"{comparison.most_strategies} per node), {comparison.edges:,} edges, {comparison.pairs:,} variables in Eq. 1",
        f"{best} {units.seconds(comparison.optimum_seconds)}; gaps are relative to it, all under the exact costs",
        "",
        render_table(rows, _COLUMNS),
        *_notes(comparison),
    ]
    return "\n".join(parts)


def _notes(comparison: Comparison) -> list[str]:
    notes = [
        f"enumerated was left out: {comparison.pairs:,} variables; --solvers enumerated,… solves it all the same"
        for _ in comparison.left_out
    ]
    notes += [
        f"{row.solver} was stopped by the time limit" for row in comparison.rows if row.status.name == "TIME_LIMIT"
    ]
    notes += [_bias(row) for row in comparison.rows if row.solver == "independent"]
    return ["", *notes] if notes else []


def _bias(row: SolverRow) -> str:
    """One line on the bias of `independent` in this comparison."""
    shown = row.batch_share_before > row.batch_share
    return (
        "independent, the all-data-parallel bias: each axis alone finds it cheapest to shard the batch, and does not "
        f"see that another axis shards it already. {'Visible' if shown else 'Not visible'} here: of the operators that "
        f"can shard the batch, {units.percent(row.batch_share_before)} did so on every axis"
        + (f", which is no valid strategy at {row.impossible_nodes} nodes" if row.impossible_nodes else "")
        + f"; after the joint repair {units.percent(row.batch_share)} do."
    )
