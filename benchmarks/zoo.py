"""Kinds of modules that people train: captured, planned, trained under the interpreter, trained by ranks and resumed.

    python benchmarks/zoo.py [NAME …] [--store]

The modules are those of `tests/zoo/modules.py`, on four CPUs, in two stages where a module has two operators. A module
is verified where loss, gradients and weights of two steps are those of one process, and of the module itself in plain
PyTorch; launched where four ranks do the same, and go on from a checkpoint with the losses of an uninterrupted run.
`--store` writes the table to zoo.md beside this file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def row_of(name: str) -> dict[str, str]:
    """The row of one module; 'FAULT …' where something other than a refusal of this package ended it."""
    from alpa_explore.errors import AlpaExploreError
    from tests.zoo.modules import ZOO
    from tests.zoo.training import launched, planned, verified

    row, began = {"module": name}, time.perf_counter()
    try:
        row["stages"] = str(len(planned(ZOO[name]())[0].stages))
        row["planned, s"] = f"{time.perf_counter() - began:.1f}"
        found = verified(ZOO[name]())
        row["verified"] = "yes" if found.passed else f"NO: {found}"
        with tempfile.TemporaryDirectory() as folder:
            launched(ZOO[name](), Path(folder))
        row["launched"] = "yes"
    except AlpaExploreError as error:
        row["reason"] = " ".join(str(error).split())[:200]
    except Exception as error:  # a fault of this package: a row too, so that the others still run
        row["reason"] = f"FAULT {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    row["all, s"] = f"{time.perf_counter() - began:.1f}"
    return row


def table(rows: list[dict[str, str]]) -> str:
    """The rows as Markdown, with a summary."""
    keys = ("module", "stages", "planned, s", "verified", "launched", "all, s", "reason")
    planned, verified, launched = (sum(key in row and row[key] != "" for row in rows) for key in ("stages", *keys[3:5]))
    wrong = sum(row.get("verified", "yes") != "yes" or "FAULT" in row.get("reason", "") for row in rows)
    lines = [
        "# Modules of every kind",
        "",
        f"{len(rows)} modules: {planned} captured and planned, {verified} verified against the module in plain",
        f"PyTorch, {launched} trained by four ranks and resumed, {len(rows) - planned} refused by name, {wrong} wrong.",
        "Written by `benchmarks/zoo.py` (what it does is there); seconds on a shared machine.",
        "",
        f"| {' | '.join(keys)} |",
        f"|{'---|' * len(keys)}",
        *(f"| {' | '.join(row.get(key, '') for key in keys)} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """0 where no module trains to other values, or ends with another error than a refusal."""
    from tests.zoo.modules import ZOO

    parser = argparse.ArgumentParser(description="Train modules of every kind by their plans.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them; default: all")
    parser.add_argument("--store", action="store_true", help="write the table to zoo.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in options.names or ZOO:
        rows.append(row_of(name))
        print(" | ".join(rows[-1].values()), flush=True)
    if options.store:
        (HERE / "zoo.md").write_text(table(rows), encoding="utf-8")
    return int(", 0 wrong." not in table(rows))


if __name__ == "__main__":
    sys.exit(main())
