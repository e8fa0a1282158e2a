"""Fit the figures of devices and software to measured runs, and say how well they tell those that were not fitted.

    python benchmarks/fit_costs.py ROWS.csv …              fit from round starts; errors by source, figures, bounds
    python benchmarks/fit_costs.py ROWS.csv … --store      and write the presets and profiles, and the record
    python benchmarks/fit_costs.py ROWS.csv … --leave-out S  fit without source S, and report its runs; S may be several
                                                           files, with commas; may be given several times
    python benchmarks/fit_costs.py ROWS.csv … --leave-out each   the same for every source of LEFT_OUT
    python benchmarks/fit_costs.py ROWS.csv … --iterations 0 --from stored   the errors of the figures as they are

Models with experts tell the figures of experts alone: these are fitted last, beside the figures that the other runs
tell. Runs of one configuration (releases, repetitions) count together as one.

Fitted are the runs on side 'fit' of `rows.side`; held out is the other half of the configurations. Files are
those that `alpa-explore predict` reads. Capturing all runs takes minutes the first time, and seconds afterwards, from
the user's cache. `--record FILE` writes errors and figures as JSON (with --store: benchmarks/fit_costs.json), or adds
the errors of left-out sources to them; `--unseen FILE` writes these as benchmarks/validate.py reads them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from alpa_explore.accuracy.scores import score
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.numerics.arrays import Flags, Floats
from alpa_explore.plans.report.text import render_table
from alpa_explore.validation.predict import Prediction, prediction
from alpa_explore.validation.run_price import RunPrice
from alpa_explore.validation.runs.rows import SIDES, configuration, read_rows, side
from benchmarks.figures_fit import tuning
from benchmarks.figures_fit.figures import Figure, Values, all_figures, at_start
from benchmarks.figures_fit.predicted import PredictedRuns
from benchmarks.figures_fit.run_fit import FiguresFit, fit_figures
from benchmarks.figures_fit.stored import stored_values, write_figures
from benchmarks.figures_fit.works import RunWork, has_preset_rates, works_of

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks/fit_costs.json"
LEFT_OUT = (
    "dgxc_nemo_h100_gb200",
    "nemo_2407_h100",
    "megatron_bridge_nemo",
    "bigscience_bloom_a100",
    "llm_foundry_mpt_a100_h100",
    "measured_single_node,measured_multi_node",
    "nanotron_playbook_h100",
)
"""Sources that share their software or their devices with another one. Figures of software that no other source has
keep their starts: then the error shows what a new software costs whose figures nobody fitted."""


@dataclass(frozen=True)
class Runs:
    """The runs that count, ready to be priced."""

    predicted: PredictedRuns
    measured: Floats
    spreads: Floats
    held_out: Flags
    sources: Sequence[str]
    experts: Flags
    """Of models with experts."""

    def without(self, left: Iterable[str]) -> Flags:
        """Runs on the fitted side, of all sources but some."""
        mine = np.isin(np.array(self.sources), list(left))
        return np.asarray(~self.held_out & ~mine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=Path, metavar="ROWS.csv")
    parser.add_argument("--store", action="store_true", help="write the figures into presets and profiles")
    parser.add_argument("--leave-out", action="append", default=[], metavar="SOURCE")
    parser.add_argument("--from", dest="start", choices=("start", "stored"), default="start")
    parser.add_argument("--iterations", type=int, default=tuning.ITERATIONS)
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--unseen", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.store and options.leave_out:
        parser.error("--store takes a fit to all sources: leave out --leave-out")
    runs = read(options.rows)
    start = at_start(all_figures()) if options.start == "start" else stored_values(all_figures())
    if options.leave_out:
        left = LEFT_OUT if options.leave_out == ["each"] else tuple(options.leave_out)
        rows, unseen = leave_out(runs, start, left, options.iterations)
        print(f"\nruns of sources that were left out of the fit ({date.today()})\n\n{render_table(rows)}")
        if options.unseen:
            options.unseen.write_text(json.dumps(unseen, indent=2) + "\n")
        if options.record:
            body = json.loads(options.record.read_text()) if options.record.exists() else {}
            write_record(options.record, {**body, "left_out": {"made": str(date.today()), "errors": rows}})
        return 0
    fit = fitted(runs, start, runs.without(()), options.iterations)
    errors = tables(runs, fit.values)
    for name, rows in errors.items():
        print(f"\n{name}\n\n{render_table(rows)}")
    figures = figure_rows(fit)
    print(f"\nfigures\n\n{render_table(figures)}")
    record = RECORD if options.store and options.record is None else options.record
    if record is not None:
        body = {"made": str(date.today()), "iterations": fit.iterations, "errors": errors, "figures": figures}
        write_record(record, body)
    if options.store:
        told = [f.figure for f in fit.fitted if f.told]
        cluster = Path(str(files("alpa_explore.cluster")))
        for path in write_figures(told, fit.values, cluster / "presets", cluster / "software_profiles"):
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


def write_record(path: Path, body: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def read(paths: Sequence[Path]) -> Runs:
    """The runs of files whose times count, with their work."""
    rows = read_rows(paths)
    began = time.monotonic()
    with ProgressLine(sys.stderr) as line:
        works, refused = works_of([row for row in rows.measured if row.scored], progress=line)
    for row in refused:
        print(f"{row.file} line {row.line} is left out: {row.reason}")
    works = tuple(run for run in works if has_preset_rates(run.machine) and enough(run))
    print(
        f"{len(works):,} runs, {len(rows.refused):,} refused by their files; work in {time.monotonic() - began:.0f} s"
    )
    repeated = Counter(configuration(run.row) for run in works)
    return Runs(
        PredictedRuns(all_figures(), works),
        np.array([run.row.measured_seconds for run in works], dtype=np.float64),
        np.array(
            [
                tuning.SPREADS.get(run.row.file, tuning.SPREAD) * math.sqrt(repeated[configuration(run.row)])
                for run in works
            ]
        ),
        np.array([side(run.row) == SIDES[1] for run in works]),
        [run.row.file for run in works],
        np.array([run.row.architecture.experts > 1 for run in works]),
    )


def enough(run: RunWork) -> bool:
    """Whether something told by the figures limits a run."""
    return (of_seconds(run, 1.0).run.mfu or 0.0) >= tuning.ENOUGH_MFU.get(run.row.file, 0.0)


def of_seconds(run: RunWork, seconds: float) -> Prediction:
    """A prediction of time alone: memory is not fitted here."""
    return prediction(run.row, run.machine, RunPrice(seconds=seconds, bytes=0.0, fits=True))


def fitted(runs: Runs, start: Values, counts: Flags, iterations: int) -> FiguresFit:
    """First the figures of all models, then those of experts beside them."""
    first = fitted_stage(runs, start, counts & ~runs.experts, iterations, lambda figure: not figure.of_experts)
    begun = {**first.values, **{f.name: f.start for f in all_figures() if f.of_experts and iterations}}
    second = fitted_stage(runs, begun, counts & runs.experts, iterations, lambda figure: figure.of_experts)
    figures = zip(first.fitted, second.fitted, strict=True)
    return replace(second, fitted=tuple(b if b.figure.of_experts else a for a, b in figures))


def fitted_stage(
    runs: Runs, start: Values, counts: Flags, iterations: int, moves: Callable[[Figure], bool]
) -> FiguresFit:
    began = time.monotonic()
    fit = fit_figures(
        PredictedRuns(runs.predicted.figures, itertools.compress(runs.predicted.runs, counts.tolist())),
        runs.measured[counts],
        runs.spreads[counts],
        start,
        moves=moves,
        iterations=iterations,
        say=lambda n, error: print(f"  {n:2d}  {error:8.1f}  {time.monotonic() - began:5.0f} s", flush=True),
    )
    print(f"{counts.sum():,} runs, {fit.iterations} iterations, {time.monotonic() - began:.0f} s: {fit.errors[-1]:.1f}")
    return fit


def tables(runs: Runs, values: Values) -> dict[str, list[dict[str, Any]]]:
    """Errors of both sides, by source, and of its devices and software."""
    predictions = predicted(runs, values)
    answer = {}
    for name, held in zip(SIDES, (False, True), strict=True):
        mine = [p for p, h in zip(predictions, runs.held_out, strict=True) if h == held]
        rows = []
        for source in dict.fromkeys(runs.sources):
            of_source = [p for p in mine if p.row.file == source]
            rows.append(error_row(source, "all", of_source))
            kinds = sorted({kind(p) for p in of_source})
            if len(kinds) > 1:
                rows += [error_row(source, k, [p for p in of_source if kind(p) == k]) for k in kinds]
        answer[name] = rows
    return answer


def predicted(runs: Runs, values: Values) -> list[Prediction]:
    seconds = runs.predicted.seconds(values)
    return [of_seconds(run, s) for run, s in zip(runs.predicted.runs, seconds.tolist(), strict=True)]


def kind(p: Prediction) -> str:
    of = " experts" if p.row.architecture.experts > 1 else " cp" if p.row.layout.context > 1 else ""
    return f"{p.run.device} {p.run.software} {p.row.precision}{of}"


def error_row(source: str, group: str, predictions: Sequence[Prediction]) -> dict[str, Any]:
    found = score([p.run for p in predictions])
    errors = found.seconds
    return {
        "source": source,
        "group": group,
        "runs": errors.runs if errors else 0,
        "mean_error_fraction": rounded(errors and errors.mean),
        "median_error_fraction": rounded(errors and errors.median),
        "bias_fraction": rounded(errors and errors.bias),
        "kendall_tau": rounded(found.tau),
        "regret_fraction": rounded(found.regret),
    }


def rounded(value: float | None) -> float | None:
    return value if value is None else round(value, 4)


def figure_rows(fit: FiguresFit) -> list[dict[str, Any]]:
    return [
        {
            "figure": f.figure.name,
            "value": f"{f.value:.4g}",
            "start": f"{f.figure.start:.4g}",
            "bounds": f"{f.figure.low:.4g} … {f.figure.high:.4g}",
            "remark": f.remark,
            "meaning": f.figure.meaning,
        }
        for f in fit.fitted
    ]


def leave_out(
    runs: Runs, start: Values, left: Sequence[str], iterations: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The errors of left-out sources, and source -> mean error of all of its runs."""
    rows: list[dict[str, Any]] = []
    unseen: dict[str, float] = {}
    for names in left:
        sources = [name for name in names.split(",") if name in runs.sources]
        if not sources:
            print(f"no runs of {names}")
            continue
        print(f"without {', '.join(sources)}")
        fit = fitted(runs, start, runs.without(sources), iterations)
        told = {f.figure.scope for f in fit.fitted if f.told}
        predictions = predicted(runs, fit.values)
        for source in sources:
            mine = [p for p in predictions if p.row.file == source]
            needed = {f.scope for p in mine for f in runs.predicted.figures if f.concerns(p.run.device, p.run.software)}
            lacks = sorted(needed - told)
            row = error_row(source, "all", mine)
            rows.append({**row, "figures_at_their_starts": ", ".join(lacks)})
            print(json.dumps(rows[-1]), flush=True)
            unseen[source] = row["mean_error_fraction"]
    return rows, unseen


if __name__ == "__main__":
    sys.exit(main())
