"""The measured tables, as the tests of this folder read them."""

from pathlib import Path

from alpa_explore.layouts.fit import Measured
from alpa_explore.layouts.iteration import iteration_time
from alpa_explore.layouts.layout import Layout
from alpa_explore.layouts.machine import Machine
from alpa_explore.layouts.score import Score, score
from alpa_explore.layouts.table import read_layouts

FOLDER = Path(__file__).parent / "vtrain"
TABLES = tuple(FOLDER / f"measured_{nodes}_node.csv" for nodes in ("single", "multi"))


def tables() -> list[list[Measured]]:
    """One node, several nodes."""
    found = []
    for path in TABLES:
        rows = [(r.layout, r.measured_seconds) for r in read_layouts(path)]
        found.append([Measured(layout=layout, seconds=s) for layout, s in rows if s is not None])
    return found


def judge(rows: list[Measured], machine: Machine) -> Score:
    predicted = [iteration_time(r.layout, machine).seconds for r in rows]
    return score([r.layout for r in rows], predicted, [r.seconds for r in rows])


def small(**changes: int | bool) -> Layout:
    """Eight devices as 2 × 2 × 2, with fields replaced."""
    fields: dict[str, int | bool] = {
        "devices": 8,
        "global_batch": 16,
        "micro_batch": 2,
        "hidden": 1024,
        "heads": 16,
        "layers": 8,
        "sequence": 1024,
        "tensor": 2,
        "data": 2,
        "pipeline": 2,
    }
    return Layout(**(fields | changes))  # type: ignore[arg-type]
