"""Results of paper.py and baselines.py, stored in paper_rows.json: catalogue name -> figures of its row.

Not a benchmark of its own; `python benchmarks/paper.py --stored` prints what it stores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from alpa_explore.models.catalog import names

OWN = "of its own"
"""Part of the name of a baseline with other layers, or other microbatches, than the automatic plan."""
STORE = Path(__file__).parent / "paper_rows.json"


def rows() -> dict[str, dict[str, Any]]:
    """All stored rows."""
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}


def store(name: str, **figures: Any) -> None:
    """Update the row of a model with `figures` and write the file: an interrupted run loses one row at most."""
    stored = rows()
    stored[name] = stored.get(name, {}) | figures
    order = names()
    stored = {name: stored[name] for name in sorted(stored, key=order.index)}
    STORE.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
