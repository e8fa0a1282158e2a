"""Predicted against measured iterations of GPT with Megatron-DeepSpeed on A100 nodes (vTrain's published runs).

    python benchmarks/vtrain.py                 errors of the stored figures, by layout, with Kendall's tau
    python benchmarks/vtrain.py --folds 10      fits to a random half and scores on the other, ten times
    python benchmarks/vtrain.py --fit           fits to all rows and stores the figures in the preset a100-80gb

The figures are the efficiencies of the machine that `layouts.iteration` predicts with.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from alpa_explore import units
from alpa_explore.layouts.fit import Measured, fit
from alpa_explore.layouts.iteration import iteration_time
from alpa_explore.layouts.machine import FITTED, SECTION, Machine, machine
from alpa_explore.layouts.score import Score, score
from alpa_explore.layouts.table import read_layouts

ROOT = Path(__file__).parents[1]
TABLES = [ROOT / "tests/layouts/vtrain" / f"measured_{nodes}_node.csv" for nodes in ("single", "multi")]
PRESET = ROOT / "alpa_explore/cluster/presets/a100-80gb.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("tables", nargs="*", type=Path, default=TABLES)
    options = parser.parse_args()
    tables = [measured(path) for path in options.tables]
    rows = [row for table in tables for row in table]
    figures = store(tables) if options.fit else machine("a100-80gb")
    if options.folds:
        cross_validate(tables, figures, options.folds)
    else:
        by_layout(rows, figures)
        show("all rows", evaluate(rows, figures), groups=True)


def measured(path: Path) -> list[Measured]:
    return [
        Measured(layout=r.layout, seconds=r.measured_seconds)
        for r in read_layouts(path)
        if r.measured_seconds is not None
    ]


def evaluate(rows: Sequence[Measured], with_figures: Machine) -> Score:
    predicted = [iteration_time(r.layout, with_figures).seconds for r in rows]
    return score([r.layout for r in rows], predicted, [r.seconds for r in rows])


def halves(tables: Sequence[Sequence[Measured]], seed: int | None = None) -> tuple[list[Measured], list[Measured]]:
    """(fitted, held out): every second row of each table, as it stands or shuffled."""
    fitted, held_out = [], []
    for table in tables:
        order = list(table)
        if seed is not None:
            random.Random(seed).shuffle(order)
        fitted += order[::2]
        held_out += order[1::2]
    return fitted, held_out


def cross_validate(tables: Sequence[Sequence[Measured]], initial: Machine, folds: int) -> None:
    fitted, held_out = halves(tables)
    show("every second row held out", evaluate(held_out, fit(fitted, initial)))
    for seed in range(folds):
        fitted, held_out = halves(tables, seed)
        show(f"random half {seed} held out", evaluate(held_out, fit(fitted, initial)))


def store(tables: Sequence[Sequence[Measured]]) -> Machine:
    """Fit to all rows and store the figures; the errors stored with them are those of a fit to half of the rows."""
    body = json.loads(PRESET.read_text())
    body[SECTION] = {"software": dict.fromkeys(FITTED, 1.0)}  # a figure that is new in the code needs no value
    PRESET.write_text(json.dumps(body, indent=2) + "\n")
    initial = machine("a100-80gb")
    fitted, held_out = halves(tables)
    held_out_score = evaluate(held_out, fit(fitted, initial))
    fitted_machine = fit([row for table in tables for row in table], initial)
    body[SECTION] = {
        "source": (
            "Fitted by benchmarks/vtrain.py --fit to measured iterations of GPT with Megatron-DeepSpeed on nodes of "
            "8 A100 (github.com/VIA-Research/vTrain, a quarter of the published rows). Fitted to every second row, "
            f"mean absolute error on the others {units.percent(held_out_score.one_node_error or 0)} on one node and "
            f"{units.percent(held_out_score.several_nodes_error or 0)} on several"
        ),
        "software": {name: float(f"{getattr(fitted_machine.software, name):.4g}") for name in FITTED},
    }
    PRESET.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(body[SECTION], indent=2))
    return machine("a100-80gb")


def by_layout(rows: Sequence[Measured], with_figures: Machine) -> None:
    """A line for each (nodes, tensor, hidden, micro batch): the mean error, and its range over the runs."""
    groups: dict[tuple[str, int, int, int], list[float]] = {}
    for row in rows:
        layout = row.layout
        key = ("one" if layout.devices <= 8 else "several", layout.tensor, layout.hidden, layout.micro_batch)
        groups.setdefault(key, []).append(iteration_time(layout, with_figures).seconds / row.seconds - 1)
    print(f"{'nodes':8} {'tensor':>6} {'hidden':>6} {'micro':>5} {'rows':>4}  mean error  (least … most)")
    for (nodes, tensor, hidden, micro), errors in sorted(groups.items()):
        mean = sum(errors) / len(errors)
        print(
            f"{nodes:8} {tensor:6} {hidden:6} {micro:5} {len(errors):4}  {mean:+9.1%}  "
            f"({min(errors):+.1%} … {max(errors):+.1%})"
        )


def show(what: str, result: Score, *, groups: bool = False) -> None:
    def text(value: float | None) -> str:
        return "–" if value is None else units.percent(value)

    tau = "–" if result.kendall_tau is None else f"{result.kendall_tau:.3f}"
    print(
        f"{what}: {result.rows} rows, mean absolute error {text(result.one_node_error)} on one node, "
        f"{text(result.several_nodes_error)} on several; Kendall's tau {tau}"
    )
    if groups:
        for (hidden, heads, layers, sequence, devices), count, value in result.groups:
            model = f"hidden {hidden}, {heads} heads, {layers} layers, sequence {sequence}"
            print(f"  {model}, {devices} GPUs: {count} rows, tau {value:.3f}")


if __name__ == "__main__":
    main()
