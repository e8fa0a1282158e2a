"""Kinds of modules that people train: captured, planned, trained under the interpreter, trained by ranks and resumed.

    python benchmarks/zoo.py [NAME …] [--store]

The modules are those of `tests/zoo/` on CPUs, in two stages where a module has two operators. A module is verified
where loss, gradients, weights and written buffers of two steps are those of one process, and of the module itself in
plain PyTorch; launched on 2 and on 4 processes where these train so for three steps, and go on from the checkpoint of
the second with the same loss. `--store` writes zoo.json beside this file after each module, and keeps the rows of those
that are not tried. Exits with 1 where one trains to other values, or ends with another error than a refusal of this
package.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STORE = HERE / "zoo.json"
sys.path.insert(0, str(HERE.parent))
CLUSTERS = {"on 2": "1x2:cpu", "on 4": "1x4:cpu"}


def row_of(name: str) -> dict[str, Any]:
    """The row of one module: how far it came, the largest relative error, and what ended it before."""
    from alpa_explore.errors import AlpaExploreError
    from tests.zoo.built import ZOO
    from tests.zoo.training import launched, planned, verified

    row: dict[str, Any] = {"module": name}
    began = time.perf_counter()
    try:
        plan, graph = planned(ZOO[name]())
        row["stages"] = len(plan.stages)
        found = verified(ZOO[name]())
        row["verified"] = found.passed
        worst = [found.worst.relative_error]
        for place, cluster in CLUSTERS.items():
            with tempfile.TemporaryDirectory() as folder:
                worst.append(launched(ZOO[name](), Path(folder), cluster, graph).worst.relative_error)
            row[place] = True
        row["worst"] = float(f"{max(worst):.1e}")
    except AlpaExploreError as error:
        row["refused"] = " ".join(str(error).split())[:300]
    except Exception as error:  # a fault of this package: a row too, so that the others still run
        row["fault"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    row["seconds"] = round(time.perf_counter() - began, 1)
    return row


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many came how far, and how many are wrong."""
    return {
        "modules": len(rows),
        "planned": sum("stages" in row for row in rows),
        "verified": sum(row.get("verified", False) for row in rows),
        **{f"launched {place}": sum(row.get(place, False) for row in rows) for place in CLUSTERS},
        "refused": sum("refused" in row for row in rows),
        "wrong": sum("fault" in row or not row.get("verified", True) for row in rows),
    }


def main() -> int:
    """0 where none is wrong."""
    from tests.zoo.built import ZOO

    parser = argparse.ArgumentParser(description="Train modules of every kind by their plans.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them; default: all")
    parser.add_argument("--store", action="store_true", help=f"write the rows to {STORE.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {}
    for name in options.names or ZOO:
        rows[name] = row_of(name)
        print(" | ".join(map(str, rows[name].values())), flush=True)
        if options.store:
            stored = json.loads(STORE.read_text(encoding="utf-8"))["rows"] if STORE.exists() else []
            known = {row["module"]: row for row in stored} | rows
            kept = [known[name] for name in ZOO if name in known]
            table = {"in the zoo": len(ZOO), "tried": summary(kept), "rows": kept}
            STORE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    counted = summary(list(rows.values()))
    print(", ".join(f"{count} {what}" for what, count in counted.items()))
    return int(counted["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
